"""No engine can reach what it is judged by: neither what it was given, nor what it answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_conformance.isolation import Isolated, Missing
from medusa_conformance.runner import Setting, judge_coordinates
from medusa_manifests import load
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.posterior import PosteriorStage
from medusa_spec import Coordinate, Refused
from medusa_spec.stages import CacheView

SETTING = Setting("cpu", "float64")


class Careless:
    """Keeps its argument, edits it, and answers with the buffer that it goes on writing to."""

    def __init__(self) -> None:
        self.buffer = np.zeros(3)

    def label(self, given: Any) -> Any:
        given["rows"].append(1)
        self.buffer += 1
        return self.buffer


def test_neither_side_sees_the_other_write() -> None:
    engine, given = Isolated(Careless()), {"rows": [0]}
    first = engine.label(given)
    second = engine.label(given)
    assert given == {"rows": [0]}
    assert (first.tolist(), second.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_a_stage_that_is_missing_stays_missing() -> None:
    with pytest.raises(Missing, match="the engine has no generate"):
        Isolated(Careless()).generate()


def found(
    frozen: Coordinate, engine: type[ReferenceEngine] = ReferenceEngine, **stages: Any
) -> set[str]:
    def make(given: Coordinate, capacity: int) -> Any:
        made = Stages(**stages)
        return engine.seeded(given.model, given.heads, capacity, stages=made)

    return set(judge_coordinates(make, [frozen], SETTING).failed)


class RepairsTheDocument(AdmissionStage):
    def prefix_length(self, document: Any) -> int:
        document["prefix_length"] = len(document["prefix"])
        return len(document["prefix"])


class TiesTheGivenBlocks(HeadStage):
    def load(self, given: Any) -> Any:
        given.weight[:, 1:] = given.weight[:, :1]
        return given


class DividesInPlaceAndAgain(PosteriorStage):
    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        if policy.mode != "greedy":
            path_logits /= policy.temperature
        return super().select(candidates, path_logits, policy)


def test_an_engine_that_edits_what_it_was_given_is_judged_by_what_was_given() -> None:
    assert "COORDINATE.PREFIX_LENGTH" in found(load("six-node"), coordinate=RepairsTheDocument)
    assert "HEADS.BLOCKS_DISTINCT" in found(load("two-blocks"), heads=TiesTheGivenBlocks)
    typical = load("posterior-fast-typical")
    cool = replace(typical, policy=replace(typical.policy, temperature=0.5))
    broken = found(cool, posterior=DividesInPlaceAndAgain)
    assert "POSTERIOR.TEMPERATURE" in broken


class ShowsItsLiveCache(ReferenceEngine):
    def cache(self) -> CacheView:
        cache = self._session.cache
        return CacheView(cache.kv.numpy(), cache.length)


class WritesAndThenRefuses(ShowsItsLiveCache):
    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        try:
            return super().commit(path, accepted, end_of_sequence)
        except Refused:
            self._session.cache.kv += 1
            raise


def test_a_live_cache_is_no_fault_and_hides_none() -> None:
    assert found(load("six-node"), ShowsItsLiveCache) == set()
    assert "COMMIT.VALIDATED_FIRST" in found(load("six-node"), WritesAndThenRefuses)
