"""Engines that follow a formula for one step, or read a distance roughly, on frozen facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import medusa_manifests
from medusa_conformance.runner import Setting, line_of
from medusa_oracles import judge
from medusa_reference_engine.claims import ClaimsStage
from medusa_spec import Coordinate
from medusa_spec.claims import Claims, Facts, Figure, Law

SETTING = Setting("cpu", "float64")


class SourcesOfOneStep(ClaimsStage):
    def sources(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return super().sources(figure, [entry for entry in inputs if "formula" not in entry])


class OneSourceOnly(ClaimsStage):
    def sources(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return {*sorted(super().sources(figure, inputs))[:1]}


class BasisOfTwoInputs(ClaimsStage):
    def rests_on(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return super().rests_on(figure, inputs[:2])


class TinyDistanceIsNone(ClaimsStage):
    def is_heuristic(self, law: Law) -> bool:
        return super().is_heuristic(law) and not 0 < (law.distance or 0) < 1e-9


class ExactWhereItWasSeenToBe(ClaimsStage):
    def is_heuristic(self, law: Law) -> bool:
        return bool(law.distance)


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        (SourcesOfOneStep, "CLAIMS.NO_BORROWED_SPEEDUP"),
        (OneSourceOnly, "CLAIMS.NO_BORROWED_SPEEDUP"),
        (BasisOfTwoInputs, "CLAIMS.BASIS"),
        (TinyDistanceIsNone, "CLAIMS.POLICY"),
        (ExactWhereItWasSeenToBe, "CLAIMS.POLICY"),
    ],
)
def test_a_habit_is_found_on_frozen_facts(stage: type[ClaimsStage], code: str) -> None:
    class Habitual:
        def __init__(self, given: Coordinate, capacity: int) -> None:
            pass

        def publish_claims(self, facts: Facts) -> Claims:
            return stage().publish(facts)

    coordinate = medusa_manifests.load("typed-mixed")
    traces = line_of(Habitual, coordinate, SETTING).run(("claims",))
    assert {finding.code for trace in traces for finding in judge(trace).findings} == {code}
