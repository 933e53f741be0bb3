"""Greedy Medusa rounds over prompts, and plain greedy decoding beside them, both in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from medusa_reference_engine.engine import ReferenceEngine
from medusa_reference_engine.training_run.backbone import loaded
from medusa_reference_engine.training_run.calibration import RANKS
from medusa_reference_engine.training_run.recipe import Recipe
from medusa_reference_engine.weights import head_state
from medusa_spec.arrays import IntArray, RankPath
from medusa_spec.coordinate import Policy
from medusa_spec.stages import Decoded

GREEDY = Policy(
    mode="greedy",
    temperature=0.0,
    epsilon=0.09,
    alpha=0.3,
    top_p=0.8,
    entropy_guard=1e-5,
    comparison=">",
    tie_rule="first-maximal-path",
    retrieval_order="canonical",
    sentinel=-1,
    seed=0,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte at which a continuation is not the one that was expected."""

    prompt: int
    place: int
    expected: int
    observed: int

    def __str__(self) -> str:
        return (
            f"prompt {self.prompt}, byte {self.place}: "
            f"expected {self.expected}, published {self.observed}"
        )


def engine_of(
    recipe: Recipe, weights: Mapping[str, Tensor], dtype: torch.dtype = torch.float64
) -> ReferenceEngine:
    """An engine with the decoder and the heads among `weights`.

    In float64 a tree pass and a plain one, which sum in another order, choose alike; in float32,
    in which training was, they may differ where two logits nearly tie.
    """
    decoder = loaded(recipe.shape, weights, dtype)
    return ReferenceEngine(decoder, head_state(recipe.shape, weights), recipe.capacity)


def decode(
    engine: ReferenceEngine,
    prompts: IntArray,
    recipe: Recipe,
    paths: Sequence[RankPath],
    done: Callable[[int], None],
) -> list[Decoded]:
    """Each prompt `[P, S]` continued by greedy rounds over the tree of `paths`."""
    found = []
    for number, prompt in enumerate(prompts.tolist()):
        found.append(engine.generate(prompt, recipe.new_tokens, paths, RANKS, GREEDY, None))
        done(number + 1)
    return found


def plain(
    engine: ReferenceEngine, prompts: IntArray, how_many: int, done: Callable[[int], None]
) -> list[tuple[int, ...]]:
    """Each prompt continued without heads: a whole pass for every byte, and its likeliest next."""
    found = []
    for number, prompt in enumerate(prompts.tolist()):
        tokens = list(prompt)
        for _ in range(how_many):
            tokens.append(int(engine.forward(tokens).logits[-1].argmax()))
        found.append(tuple(tokens[len(prompt) :]))
        done(number + 1)
    return found


def difference(
    expected: Sequence[Sequence[int]], observed: Sequence[Sequence[int]]
) -> Difference | None:
    """Where continuations part, prompt by prompt; `None` where they never do."""
    for prompt, (wanted, found) in enumerate(zip(expected, observed, strict=True)):
        for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
            if one != other:
                return Difference(prompt, place, one, other)
    return None
