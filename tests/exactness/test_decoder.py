"""The same rounds on the real decoder, held to the law of its own plain causal passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from medusa_oracles.tails import derive_unlikely
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.draws import Draw, outcomes
from medusa_reference_engine.exactness import ExactnessStage
from medusa_reference_engine.sampled_decoding import sample_tokens
from medusa_reference_engine.training_run.decoding import GREEDY
from medusa_spec.coordinate import ModelShape, Sampling, SamplingMode
from medusa_spec.errors import Refused

VOCABULARY, TOPK, PREFIX = 3, 2, (1, 0)
TREE = ((0,), (1,), (0, 0), (0, 1))
CHAIN = ((0,), (0, 0))
LENGTH = 3

SHAPE = ModelShape(
    layers=1,
    hidden=8,
    attention_heads=2,
    kv_heads=1,
    intermediate=8,
    vocabulary=VOCABULARY,
    rope_theta=10000.0,
    rms_epsilon=1e-5,
    head_blocks=1,
    projection="independent",
    weight_seed=3,
)


@pytest.fixture(scope="module")
def engine() -> ReferenceEngine:
    return ReferenceEngine.seeded(SHAPE, 2, 16)


def sampling(mode: SamplingMode, temperature: float = 1.5, top_p: float = 0.7) -> Sampling:
    return Sampling(mode, 0.0 if mode == "greedy" else temperature, 0.05, 0.9, 1e-5, top_p)


def paths_of(how: Sampling) -> tuple[tuple[int, ...], ...]:
    """The tree, or no more than a candidate where a tree has thousands of outcomes."""
    if how.mode in ("greedy", "fast-typical", "row-draw"):
        return TREE
    return CHAIN if how.mode == "rejection" and how.top_p < 1 else CHAIN[:1]


def decoded_law(engine: ReferenceEngine, how: Sampling) -> dict[tuple[int, ...], float]:
    """Every generation of the decoder with its probability: whole generations are drawn."""

    def program(draw: Draw) -> tuple[int, ...]:
        class Given(ExactnessStage):
            def randomness(self, seed: int) -> Draw:
                return draw

        given = PREFIX, LENGTH, paths_of(how), TOPK, how, 0
        return sample_tokens(engine, Given(), *given)

    return outcomes(program)


@pytest.fixture(scope="module")
def plain_law(
    engine: ReferenceEngine, literal_law: ModuleType
) -> Callable[[Sampling], dict[tuple[int, ...], float]]:
    """Every sequence by plain causal passes, their rows tempered and cut by the literal formula."""

    @cache
    def logits(tokens: tuple[int, ...]) -> list[float]:
        row: list[float] = engine.forward([*PREFIX, *tokens]).logits[-1].tolist()
        return row

    def law(how: Sampling) -> dict[tuple[int, ...], float]:
        found = {}
        for tokens in product(range(VOCABULARY), repeat=LENGTH):
            chance = 1.0
            for place, token in enumerate(tokens):
                weights = [math.exp(value) for value in logits(tokens[:place])]
                chance *= float(literal_law.processed(weights, how)[token])
            found[tokens] = chance
        return found

    return law


def distance(law: dict[tuple[int, ...], float], plain: dict[tuple[int, ...], float]) -> float:
    return sum(abs(law.get(tokens, 0.0) - chance) for tokens, chance in plain.items()) / 2


@pytest.mark.parametrize("top_p", [0.7, 1.0])
@pytest.mark.parametrize("mode", ["greedy", "row-draw", "rejection"])
def test_an_exact_mode_decodes_by_the_law_of_plain_passes(
    mode: SamplingMode, top_p: float, engine: ReferenceEngine, plain_law: Any
) -> None:
    how = sampling(mode, top_p=top_p)
    law = decoded_law(engine, how)
    assert sum(law.values()) == pytest.approx(1.0)
    assert distance(law, plain_law(how)) == pytest.approx(0.0, abs=1e-9)
    # The cut is seen: without it more sequences are possible.
    if mode != "greedy":
        possible = sum(chance > 1e-12 for chance in law.values())
        assert (possible == VOCABULARY**LENGTH) == (top_p == 1.0)


@pytest.mark.parametrize(
    "mode", ["fast-typical", "typical-per-path", "nucleus-per-path", "rejection-uncorrected"]
)
def test_a_heuristic_mode_decodes_by_another_law(
    mode: SamplingMode, engine: ReferenceEngine, plain_law: Any
) -> None:
    how = sampling(mode, top_p=0.8)
    law = decoded_law(engine, how)
    assert sum(law.values()) == pytest.approx(1.0)
    assert distance(law, plain_law(how)) > 0.01


@pytest.mark.parametrize(("mode", "biased"), [("row-draw", False), ("nucleus-per-path", True)])
def test_seeded_generations_are_as_frequent_as_the_law_says_or_are_heard(
    mode: SamplingMode, biased: bool, engine: ReferenceEngine, plain_law: Any
) -> None:
    """An exact mode is heard at one in a million sets of seeds; these are always the same."""
    how = sampling(mode, temperature=3.0, top_p=1.0)
    plain = plain_law(how)
    sequences = sorted(plain)
    counts = np.zeros(len(sequences), int)
    for seed in range(400):
        drawn = engine.sample_tokens(PREFIX, LENGTH, TREE, TOPK, how, seed)
        counts[sequences.index(drawn)] += 1
    law = np.array([plain[tokens] for tokens in sequences])
    # Firsts are told apart best: all sequences share what is allowed.
    pairs = counts.reshape(-1, VOCABULARY).sum(axis=1), law.reshape(-1, VOCABULARY).sum(axis=1)
    assert (derive_unlikely(*pairs) is not None) == biased
    assert derive_unlikely(counts, law) is None or biased


def test_greedy_sampling_is_greedy_decoding(engine: ReferenceEngine) -> None:
    expected = engine.generate(PREFIX, 7, TREE, TOPK, GREEDY, None).tokens
    for seed in (0, 1):
        given = PREFIX, 7, TREE, TOPK, sampling("greedy"), seed
        assert engine.sample_tokens(*given) == expected


def test_a_seed_says_what_is_decoded(engine: ReferenceEngine) -> None:
    def drawn(seed: int) -> tuple[int, ...]:
        return engine.sample_tokens(PREFIX, 9, TREE, TOPK, sampling("row-draw", top_p=1.0), seed)

    first = [drawn(seed) for seed in range(6)]
    assert [drawn(seed) for seed in range(6)] == first
    assert len(set(first)) > 1
    assert {len(tokens) for tokens in first} == {9}


def test_what_does_not_fit_or_branches_is_refused_before_the_first_write(
    engine: ReferenceEngine,
) -> None:
    engine.prefill((0, 1, 2))
    before = engine.cache()
    with pytest.raises(Refused, match="may not fit"):
        engine.sample_tokens(PREFIX, 11, TREE, TOPK, sampling("row-draw"), 0)
    with pytest.raises(Refused, match="branch"):
        engine.sample_tokens(PREFIX, 2, TREE, TOPK, sampling("rejection"), 0)
    after = engine.cache()
    assert after.length == before.length
    np.testing.assert_array_equal(after.backing, before.backing)


def test_a_round_publishes_at_least_its_root_without_a_tree(engine: ReferenceEngine) -> None:
    for mode in ("row-draw", "rejection", "nucleus-per-path", "fast-typical"):
        tokens = engine.sample_tokens(PREFIX, 4, (), TOPK, sampling(mode), 1)
        assert len(tokens) == 4
