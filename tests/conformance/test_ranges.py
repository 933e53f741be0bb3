"""Engines that are right for what is small, and wrong from some size on: each size is reached.

Each is wrong on the coordinate that has the size, by the rule that it breaks, and right on one that
is just below it: so it is the size that shows, and not something else of the coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from medusa_conformance.runner import Setting, Tally, judge_coordinates
from medusa_manifests import load
from medusa_reference_engine import ReferenceEngine, Stages
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.tree import TreeStage, climb
from medusa_reference_engine.verification import VerificationStage
from medusa_spec import Coordinate

SETTING = Setting("cpu", "float64")


def judged(stages: Stages, name: str) -> Tally:
    """What an engine of these stages shows on one frozen coordinate."""

    def factory(coordinate: Coordinate, capacity: int) -> Any:
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity, stages=stages)

    return judge_coordinates(factory, [load(name)], SETTING)


class RanksAsText(TreeStage):
    """Rank 10 before rank 2."""

    def row_order(self, paths: Sequence[Any]) -> list[Any]:
        return [(), *sorted(paths, key=lambda p: (len(p), "-".join(map(str, p))))]


class AncestryInAWord(TreeStage):
    """Rows from 64 on are seen by nobody."""

    def mask(self, parents: Sequence[int]) -> Any:
        mask = super().mask(parents)
        mask[:, 64:] = False
        return mask


class FourNearestRows(TreeStage):
    """A row sees itself, its three nearest ancestors, and the root."""

    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        return [*climb(row, parents)[:4], 0]


class FourHeads(HeadStage):
    """Heads behind the fourth are the fourth."""

    def stack(self, logits: list[Any]) -> Any:
        return torch.stack([logits[min(head, 3)] for head in range(len(logits))])


class TwoBlocks(HeadStage):
    """Blocks behind the second are left out."""

    def residual(self, held: Any, head: int, hidden: Any) -> Any:
        state = hidden
        blocks = list(zip(held.weight[head], held.bias[head], strict=True))
        for weight, bias in blocks[:2]:
            state = self.block(state, weight, bias)
        return state


class MovesThreeLayers(CommitStage):
    def move(self, cache: Any, source: Any, destination: Any) -> None:
        before = cache.kv.clone()
        super().move(cache, source, destination)
        cache.kv[3:] = before[3:]


class MovesTwoKeyHeads(CommitStage):
    def move(self, cache: Any, source: Any, destination: Any) -> None:
        before = cache.kv.clone()
        super().move(cache, source, destination)
        cache.kv[:, :, 2:] = before[:, :, 2:]


def pages(size: int) -> type[CommitStage]:
    class Pages(CommitStage):
        """A row that moves to another page loses its values in all layers but the first."""

        def move(self, cache: Any, source: Any, destination: Any) -> None:
            before = cache.kv.clone()
            super().move(cache, source, destination)
            other = torch.as_tensor(destination[source // size != destination // size])
            cache.kv[1:, 1, :, other] = before[1:, 1, :, other]

    return Pages


def rotary_table(size: int) -> type[VerificationStage]:
    class RotaryTable(VerificationStage):
        """Positions behind the table turn like its last."""

        def phases(self, positions: Any, rows: Any) -> Any:
            return np.minimum(positions, size - 1)

    return RotaryTable


def window(size: int) -> type[VerificationStage]:
    class Window(VerificationStage):
        """Attention sees so many rows of the prefix and no more, whatever mask is reported."""

        def attention_mask(self, mask: Any, cache: Any) -> Any:
            near = mask.clone()
            near[:, : max(cache.length - size, 0)] = False
            return near

    return Window


def prefill_chunks(size: int) -> type[RoundStage]:
    class PrefillChunks(RoundStage):
        """What stands before the last whole chunk is not seen behind it."""

        def prefill(self, tokens: Any, model: Any, session: Any) -> Any:
            if len(tokens) <= size:
                return super().prefill(tokens, model, session)
            super().prefill(tokens[:size], model, session)
            count = len(tokens)
            rows = torch.arange(size, count)
            own = torch.ones(len(rows), count, dtype=torch.bool).tril(size)
            own[:, :size] = False
            masks = [own] * len(session.cache.kv)
            inputs = torch.as_tensor(tokens[size:])
            logits, heads = model.read(inputs, rows, rows, masks, session.cache)
            session.cache.length = count
            return self.first_frontier(logits, heads)

    return PrefillChunks


class TwelveRounds(RoundStage):
    """From the thirteenth round on, the loop goes on from the frontier before."""

    rounds = 0

    def prefill(self, tokens: Any, model: Any, session: Any) -> Any:
        self.rounds = 0
        return super().prefill(tokens, model, session)

    def next_frontier(self, frontier: Any, plan: Any) -> Any:
        self.rounds += 1
        return frontier if self.rounds >= 12 else plan.frontier


def narrow_tokens(dtype: Any) -> type[ProposalStage]:
    class NarrowTokens(ProposalStage):
        def pack(self, table: Any, tree: Any) -> Any:
            table[:] = table.astype(dtype)
            return super().pack(table, tree)

    return NarrowTokens


class EntropyOf128(PosteriorStage):
    """The entropy of the likeliest tokens alone."""

    def entropy(self, probabilities: Any, policy: Any) -> Any:
        most = min(128, probabilities.shape[-1])
        return super().entropy(probabilities.topk(most, dim=-1).values, policy)


def clamped(least: float, most: float) -> type[PosteriorStage]:
    class Clamped(PosteriorStage):
        def tempered(self, judging: Any, policy: Any) -> Any:
            return judging / min(max(policy.temperature, least), most)

    return Clamped


def guarded(by: float) -> type[PosteriorStage]:
    class Guarded(PosteriorStage):
        """The likelihood is a sum of log(p + guard)."""

        def score(self, probability: Any, longest: int) -> Any:
            return (probability[:, :longest] + by).log().sum(dim=1)

    return Guarded


class MaskBySize(VerificationStage):
    """A mask is used again for every tree of as many rows, paths and entries, and equal slots."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def verify(self, tree: Any, packed: Any, model: Any, cache: Any) -> Any:
        key = (len(packed), tree.retrieval.shape, *sorted(tree.slots.tolist()))
        self.mask = torch.as_tensor(self.kept.setdefault(key, tree.mask))
        return super().verify(tree, packed, model, cache)

    def attention_mask(self, mask: Any, cache: Any) -> Any:
        used = mask.clone()
        used[:, -len(self.mask) :] = self.mask
        return used


class KeepsARowTooMany(RoundStage):
    """Of a prefix that begins like the one before, the first other row is kept as well."""

    before: tuple[int, ...] = ()

    def prefill(self, tokens: Any, model: Any, session: Any) -> Any:
        old = session.cache.kv.clone()
        frontier = super().prefill(tokens, model, session)
        pairs = enumerate(zip(self.before, tokens, strict=False))
        shared = next((place for place, (a, b) in pairs if a != b), 0)
        if shared >= 2:
            session.cache.kv[:, :, :, shared] = old[:, :, :, shared]
        self.before = tuple(tokens)
        return frontier


class Range(NamedTuple):
    """An engine's stages, where it is wrong and by which rule, and where it is not yet."""

    stages: Stages
    reached: str
    code: str
    below: str


RANGES = {
    "rank 10": Range(Stages(tree=RanksAsText), "twelve-ranks", "TREE.ROW_ORDER", "rank-gaps"),
    "65 rows": Range(
        Stages(tree=AncestryInAWord),
        "regular-8-8",
        "TREE.MASK_IS_ANCESTRY",
        "public-mc-sim-7b-63",
    ),
    "depth 5": Range(
        Stages(tree=FourNearestRows), "six-deep", "TREE.MASK_IS_ANCESTRY", "regular-3-2-2"
    ),
    "5 heads": Range(Stages(heads=FourHeads), "six-deep", "HEADS.PROJECTION", "own-acceptance"),
    "3 blocks": Range(Stages(heads=TwoBlocks), "six-deep", "HEADS.RESIDUAL_FORM", "two-blocks"),
    "4 layers": Range(
        Stages(commit=MovesThreeLayers), "six-deep", "COMMIT.ALL_LAYERS", "regular-3-2-2"
    ),
    "3 key heads": Range(
        Stages(commit=MovesTwoKeyHeads), "six-deep", "COMMIT.ALL_LAYERS", "regular-3-2-2"
    ),
    "page of 128": Range(
        Stages(commit=pages(128)), "crosses-128", "COMMIT.ALL_LAYERS", "long-prefix"
    ),
    "page of 256": Range(
        Stages(commit=pages(256)), "crosses-256", "COMMIT.ALL_LAYERS", "crosses-128"
    ),
    "rotary table of 128": Range(
        Stages(verification=rotary_table(128)),
        "crosses-128",
        "VERIFICATION.PATH_LOGITS",
        "long-prefix",
    ),
    "rotary table of 256": Range(
        Stages(verification=rotary_table(256)),
        "crosses-256",
        "VERIFICATION.PATH_LOGITS",
        "crosses-128",
    ),
    "window of 128": Range(
        Stages(verification=window(128)), "crosses-128", "VERIFICATION.PATH_LOGITS", "long-prefix"
    ),
    "window of 256": Range(
        Stages(verification=window(256)), "crosses-256", "VERIFICATION.PATH_LOGITS", "crosses-128"
    ),
    "prefill of 128": Range(
        Stages(round=prefill_chunks(128)), "crosses-128", "ROUND.PREFILL_FRONTIER", "long-prefix"
    ),
    "prefill of 256": Range(
        Stages(round=prefill_chunks(256)), "crosses-256", "ROUND.PREFILL_FRONTIER", "crosses-128"
    ),
    "13 rounds": Range(
        Stages(round=TwelveRounds), "twenty-deep", "ROUND.GENERATION_IS_ROUNDS", "crosses-128"
    ),
    "token 32768": Range(
        Stages(proposal=narrow_tokens(np.int16)), "wide-vocabulary", "PROPOSAL.TOPK", "six-node"
    ),
    "token 65536": Range(
        Stages(proposal=narrow_tokens(np.uint16)), "wide-vocabulary", "PROPOSAL.TOPK", "six-node"
    ),
    "129 tokens": Range(
        Stages(posterior=EntropyOf128),
        "wide-vocabulary",
        "POSTERIOR.ENTROPY",
        "posterior-fast-typical",
    ),
    "temperature 0.1": Range(
        Stages(posterior=clamped(0.2, 9.0)), "crosses-128", "POSTERIOR.TEMPERATURE", "six-deep"
    ),
    "temperature 2": Range(
        Stages(posterior=clamped(0.0, 1.5)), "six-deep", "POSTERIOR.TEMPERATURE", "crosses-128"
    ),
    "guard of 0.01": Range(
        Stages(posterior=guarded(1e-2)),
        "likelihood-product",
        "POSTERIOR.LIKELIHOOD_TIE",
        "likelihood-tie",
    ),
    "guard of 1e-5": Range(
        Stages(posterior=guarded(1e-5)),
        "likelihood-product",
        "POSTERIOR.LIKELIHOOD_TIE",
        "likelihood-tie",
    ),
    "another parent": Range(
        Stages(verification=MaskBySize),
        "earlier-alike",
        "VERIFICATION.PATH_LOGITS",
        "crosses-128",
    ),
    "a prefix that begins alike": Range(
        Stages(round=KeepsARowTooMany), "earlier-alike", "VERIFICATION.PATH_LOGITS", "crosses-128"
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_an_engine_is_wrong_from_this_size_on(name: str) -> None:
    stages, reached, code, below = RANGES[name]
    assert code in judged(stages, reached).failed
    assert judged(stages, below).failed == {}


@pytest.mark.parametrize("name", sorted({reached.reached for reached in RANGES.values()}))
def test_the_reference_engine_is_right_at_every_size(name: str) -> None:
    tally = judged(Stages(), name)
    assert (tally.failed, tally.crashes) == ({}, [])
    assert len(tally.executed) > 40
