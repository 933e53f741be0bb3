"""Engines that a refusal, or a tree that nobody committed, leaves in another state than before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medusa_conformance.crafted import RENEWED
from medusa_conformance.place import planned
from medusa_conformance.runner import Setting, Tally, judge_coordinates
from medusa_conformance.unlawful import unlawful_choices
from medusa_manifests import load
from medusa_oracles.tree import tree_of
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.verification import VerificationStage
from medusa_spec import Refused, Unsupported

SETTING = Setting("cpu", "float64")


class Beside(VerificationStage):
    """Positions that are some way off."""

    off = 0

    def positions(self, depths: Any, committed: int) -> Any:
        return committed + depths + self.off


class MovesWhenItRefusesATree(ReferenceEngine):
    def prefill(self, tokens: Any) -> Any:
        frontier = super().prefill(tokens)
        self._verification = Beside()
        return frontier

    def verify(self, tree: Any, packed: Any) -> Any:
        try:
            return super().verify(tree, packed)
        except Refused:
            self._verification.off += len(packed)
            raise


class DropsItsTreeWhenItRefusesAPrefix(ReferenceEngine):
    def prefill(self, tokens: Any) -> Any:
        try:
            return super().prefill(tokens)
        except Refused:
            self._session.staged = None
            raise


class MovesWhenItRefusesACommit(MovesWhenItRefusesATree):
    def commit(self, *given: Any) -> Any:
        try:
            return super().commit(*given)
        except Refused:
            self._verification.off += 1
            raise


class StagesBehindWhatIsStaged(ReferenceEngine):
    def verify(self, tree: Any, packed: Any) -> Any:
        cache, staged = self._session.cache, self._session.staged
        behind = 0 if staged is None else len(staged[1])
        if cache.length + behind + len(packed) > cache.capacity:
            behind = 0
        cache.length += behind
        try:
            return super().verify(tree, packed)
        finally:
            cache.length -= behind


class RefusesASecondTree(ReferenceEngine):
    def verify(self, tree: Any, packed: Any) -> Any:
        if self._session.staged is not None:
            raise Refused("a tree is staged already")
        return super().verify(tree, packed)


class HoldsOneTreeAGeneration(ReferenceEngine):
    held: Any = None

    def prefill(self, tokens: Any) -> Any:
        frontier, self.held = super().prefill(tokens), None
        return frontier

    def verify(self, tree: Any, packed: Any) -> Any:
        if self.held not in (None, tree.paths):
            raise Unsupported("one tree a generation")
        self.held = tree.paths
        return super().verify(tree, packed)


class DropsTheFirstTokens(RoundStage):
    def generate(self, engine: Any, prefix: Any, many: int, paths: Any, *rest: Any) -> Any:
        room = engine.capacity - len(paths) - many
        if 0 < room < len(prefix):
            prefix = list(prefix)[-room:]
        return super().generate(engine, prefix, many, paths, *rest)


class GoesOnWhileThereIsRoom(RoundStage):
    """Lawful, too: more tokens are asked for than may fit, and as many come as do."""

    def generate(self, engine: Any, prefix: Any, many: int, paths: Any, *rest: Any) -> Any:
        room = max(engine.capacity - len(prefix) - len(paths), 1)
        return super().generate(engine, prefix, min(many, room), paths, *rest)


class AllowsEveryPathTheLongest(CommitStage):
    def check(self, path: int, accepted: int, tree: Any, cache: Any) -> None:
        paths, longest = tree.retrieval.shape
        if path == 0:
            super().check(path, accepted, tree, cache)
        if not 0 <= path < paths or not 0 <= accepted < longest:
            raise Refused("no such path")


class ChecksBothEndsAlone(PosteriorStage):
    def check_finite(self, path_logits: Any, real: Any) -> None:
        both = real.clone()
        both[:, 1:-1] &= ~real[:, 2:]
        super().check_finite(path_logits, both)


ENGINES = {
    MovesWhenItRefusesATree: "VERIFICATION.POSITION",
    DropsItsTreeWhenItRefusesAPrefix: "ROUND.LAWFUL_NEVER_REFUSED",
    MovesWhenItRefusesACommit: "VERIFICATION.POSITION",
    StagesBehindWhatIsStaged: "VERIFICATION.STAGED_ROW",
}

STAGES = {
    DropsTheFirstTokens: ("round", "cache-full", "ROUND.FRONTIER_FEEDS_NEXT"),
    AllowsEveryPathTheLongest: ("commit", "rank-gaps", "COMMIT.VALIDATED_FIRST"),
    ChecksBothEndsAlone: ("posterior", "six-node", "POSTERIOR.FINITE"),
}


def judged(name: str, engine: type[ReferenceEngine] = ReferenceEngine, **stages: Any) -> Tally:
    def make(given: Any, capacity: int) -> Any:
        return engine.seeded(given.model, given.heads, capacity, stages=Stages(**stages))

    tally = judge_coordinates(make, [load(name)], SETTING)
    assert tally.crashes == []
    return tally


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_refusal_or_a_tree_leaves_behind_is_found(engine: type[ReferenceEngine]) -> None:
    assert judged("six-node", engine).failed[ENGINES[engine]]


@pytest.mark.parametrize("stage", STAGES)
def test_what_should_have_been_refused_is_found(stage: type) -> None:
    contract, name, code = STAGES[stage]
    assert judged(name, **{contract: stage}).failed[code]


@pytest.mark.parametrize("engine", [RefusesASecondTree, HoldsOneTreeAGeneration])
def test_an_engine_of_one_tree_is_right(engine: type[ReferenceEngine]) -> None:
    assert set(judged("six-node", engine).failed) == set()


def test_an_engine_may_end_where_its_cache_does() -> None:
    assert set(judged("cache-full", round=GoesOnWhileThereIsRoom).failed) == set()


def test_a_finding_behind_a_refusal_speaks_of_the_lesser_tree() -> None:
    tally = judged("six-node", MovesWhenItRefusesATree)
    found = {located.finding.code: located for located in tally.findings}
    where = found["VERIFICATION.POSITION"]
    lesser = planned(where.coordinate, where.generation, "verification")
    assert where.generation == RENEWED
    assert lesser is not None
    assert lesser.paths == load("six-node").paths[:2]


def test_no_choice_that_must_be_refused_is_lawful() -> None:
    retrieval = tree_of(load("rank-gaps")).retrieval
    edges = ((retrieval >= 0).sum(axis=1) - 1).tolist()
    choices = unlawful_choices(retrieval)
    assert all(not 0 <= path < len(edges) or not 0 <= n <= edges[path] for path, n in choices)
    padded = np.flatnonzero(retrieval[:, -1] < 0)[-1]
    assert {n for path, n in choices if path == padded} == {
        edges[padded] + 1,
        retrieval.shape[1] - 1,
    }
