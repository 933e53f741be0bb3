"""Engines with one bug that only some round, length, token or call order can show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from medusa_conformance.runner import Setting, judge_coordinates
from medusa_conformance.strategies import coordinates, sample
from medusa_manifests import load
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.tree import TreeStage
from medusa_reference_engine.verification import VerificationStage
from medusa_spec import Coordinate, Refused
from medusa_spec.coordinate import Generation
from medusa_spec.stages import Frontier

SETTING = Setting("cpu", "float64")


class TakesThePathsAsListed(TreeStage):
    def row_order(self, paths: Any) -> Any:
        return [(), *paths]


class CompilesForItsFirstPolicy(TreeStage):
    first: int | None = None

    def compile(self, paths: Any, topk: int, retrieval_order: str, sentinel: int) -> Any:
        self.first = sentinel if self.first is None else self.first
        return super().compile(paths, topk, retrieval_order, self.first)


class LastOfEqualRoots(ProposalStage):
    def root(self, frontier: Any) -> int:
        return len(frontier.target) - 1 - int(np.argmax(frontier.target[::-1]))


class PositionTableOf64(VerificationStage):
    def phases(self, positions: Any, rows: Any) -> Any:
        return np.minimum(positions, 63)


class WindowOf32(VerificationStage):
    def attention_mask(self, mask: Any, cache: Any) -> Any:
        windowed = mask.clone()
        windowed[:, : max(cache.length - 32, 0)] = False
        return windowed


class BareSoftmax(PosteriorStage):
    def probabilities(self, judging: Any, policy: Any) -> Any:
        weights = self.tempered(judging, policy).exp()
        return weights / weights.sum(-1, keepdim=True)


class ChecksJudgedRowsAlone(PosteriorStage):
    def check_finite(self, path_logits: Any, real: Any) -> None:
        super().check_finite(path_logits[:, :-1], real[:, :-1])


class ChecksPaddingToo(PosteriorStage):
    def check_finite(self, path_logits: Any, real: Any) -> None:
        super().check_finite(path_logits, torch.ones_like(real))


class TokenZeroNeverEnds(CommitStage):
    def until_end(self, tokens: Any, end_of_sequence: int | None) -> int:
        return super().until_end(tokens, end_of_sequence or None)


class KeepsTheStagedTree(RoundStage):
    def reset(self, session: Any) -> None:
        session.cache.length = 0


class OneRoundTooMany(RoundStage):
    def generate(self, engine: Any, prefix: Any, how_many: int, *rest: Any) -> Any:
        decoded = super().generate(engine, prefix, how_many + 1, *rest)
        return replace(decoded, tokens=decoded.tokens[:how_many])


class DraftsFromThePrefill(RoundStage):
    """In whole generations alone, whose rounds follow each other here."""

    def next_frontier(self, frontier: Any, plan: Any) -> Any:
        return Frontier(plan.frontier.target, frontier.heads)


class TypicalKeepsItsFirstFrontier(RoundStage):
    mode = ""

    def generate(
        self, engine: Any, prefix: Any, many: int, paths: Any, topk: int, *rest: Any
    ) -> Any:
        self.mode = rest[0].mode
        return super().generate(engine, prefix, many, paths, topk, *rest)

    def next_frontier(self, frontier: Any, plan: Any) -> Any:
        return plan.frontier if self.mode == "greedy" else frontier


STAGES = {
    TakesThePathsAsListed: ("tree", "six-node", "TREE.ROW_ORDER"),
    CompilesForItsFirstPolicy: ("tree", "rank-gaps", "TREE.SENTINEL"),
    LastOfEqualRoots: ("proposal", "six-node", "PROPOSAL.ROOT_FROM_TARGET"),
    PositionTableOf64: ("verification", "long-prefix", "VERIFICATION.PATH_LOGITS"),
    WindowOf32: ("verification", "long-prefix", "VERIFICATION.PATH_LOGITS"),
    BareSoftmax: ("posterior", "posterior-fast-typical", "POSTERIOR.TEMPERATURE"),
    ChecksJudgedRowsAlone: ("posterior", "six-node", "POSTERIOR.FINITE"),
    ChecksPaddingToo: ("posterior", "rank-gaps", "ROUND.LAWFUL_NEVER_REFUSED"),
    TokenZeroNeverEnds: ("commit", "end-of-sequence-zero", "COMMIT.END_OF_SEQUENCE"),
    KeepsTheStagedTree: ("round", "six-node", "COMMIT.VALIDATED_FIRST"),
    OneRoundTooMany: ("round", "six-node", "ROUND.PROGRESS"),
    DraftsFromThePrefill: ("round", "own-acceptance", "ROUND.CHAIN_IS_CHAIN"),
    TypicalKeepsItsFirstFrontier: ("round", "posterior-fast-typical", "ROUND.FRONTIER_FEEDS_NEXT"),
}


class CommitsTwice(ReferenceEngine):
    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        staged = self._session.staged
        plan = super().commit(path, accepted, end_of_sequence)
        self._session.staged = staged
        return plan


class ForgetsTheTreeItRefuses(ReferenceEngine):
    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        try:
            return super().commit(path, accepted, end_of_sequence)
        except Refused:
            self._session.staged = None
            raise


class StaleHeadsOfAnotherLength(RoundStage):
    before: tuple[int, Any] | None = None

    def prefill(self, tokens: Any, model: Any, session: Any) -> Any:
        frontier, before = super().prefill(tokens, model, session), self.before
        self.before = len(tokens), frontier.heads
        stale = before is not None and before[0] != len(tokens)
        return replace(frontier, heads=before[1]) if before and stale else frontier


def found(
    frozen: Coordinate, engine: type[ReferenceEngine] = ReferenceEngine, **stages: Any
) -> set[str]:
    def make(given: Coordinate, capacity: int) -> Any:
        return engine.seeded(given.model, given.heads, capacity, stages=Stages(**stages))

    return set(judge_coordinates(make, [frozen], SETTING).failed)


@pytest.mark.parametrize("name", sorted({name for _, name, _ in STAGES.values()}))
def test_the_reference_engine_has_none_of_them(name: str) -> None:
    assert found(load(name)) == set()


@pytest.mark.parametrize("stage", STAGES)
def test_a_broken_stage_is_found(stage: type) -> None:
    contract, name, code = STAGES[stage]
    coordinate = load(name)
    assert code in found(coordinate, **{contract: stage})


def test_one_tree_is_committed_once_and_outlives_a_refusal() -> None:
    assert "COMMIT.VALIDATED_FIRST" in found(load("six-node"), CommitsTwice)
    assert "ROUND.LAWFUL_NEVER_REFUSED" in found(load("six-node"), ForgetsTheTreeItRefuses)


def test_a_prefill_owes_nothing_to_a_longer_generation() -> None:
    earlier = Generation((1, 2, 3, 4, 5, 6), ((0,),))
    coordinate = replace(load("six-node"), earlier=earlier)
    assert found(coordinate) == set()
    assert "ROUND.PREFILL_FRONTIER" in found(coordinate, round=StaleHeadsOfAnotherLength)


def test_an_engine_that_ends_the_process_has_crashed() -> None:
    class Exits(ReferenceEngine):
        def select(self, *_: Any) -> Any:
            raise SystemExit(3)

    def make(given: Coordinate, capacity: int) -> Any:
        return Exits.seeded(given.model, given.heads, capacity)

    tally = judge_coordinates(make, [load("root-only")], SETTING)
    assert {crash.error for _, crash in tally.crashes} == {"SystemExit: 3"}


def test_drawn_coordinates_reach_a_tree_that_no_longer_fits() -> None:
    tight = [c for c in sample(coordinates(), 40, 0) if len(c.rounds) > 1]
    assert any(len(c.prefix) + 2 * c.nodes > c.capacity for c in tight)
