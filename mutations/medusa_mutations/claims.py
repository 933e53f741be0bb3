"""Claims, broken: every number is still there, and one thing that is said of it is not true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa_mutations.catalog import mutant
from medusa_reference_engine.claims import ClaimsStage
from medusa_spec.claims import Figure, Law


@mutant("formula-left-out")
class FormulaLeftOut(ClaimsStage):
    def carried(self, figure: Figure) -> Mapping[str, Any]:
        return {k: v for k, v in super().carried(figure).items() if k != "formula"}


@mutant("measured-without-sample")
class MeasuredWithoutSample(ClaimsStage):
    def carried(self, figure: Figure) -> Mapping[str, Any]:
        return {k: v for k, v in super().carried(figure).items() if k != "sample"}


@mutant("derived-labelled-measured")
class DerivedLabelledMeasured(ClaimsStage):
    def evidence(self, figure: Figure) -> str:
        # Of figures that nothing was made up for and no source reports.
        pure = figure.origin["kind"] == "computed" and not self.inputs(figure)
        return "measured" if pure else super().evidence(figure)


@mutant("figure-rounded-away")
class FigureRoundedAway(ClaimsStage):
    def value(self, figure: Figure) -> float:
        return float(round(figure.value))


@mutant("slowdown-left-out")
class SlowdownLeftOut(ClaimsStage):
    def keeps(self, entry: Mapping[str, Any]) -> bool:
        return not (entry["quantity"] == "speedup" and entry["value"] < 1)


@mutant("synthetic-labelled-measured")
class SyntheticLabelledMeasured(ClaimsStage):
    def evidence(self, figure: Figure) -> str:
        said = super().evidence(figure)
        return "measured" if said == "synthetic" else said


@mutant("made-up-figure-called-local")
class MadeUpFigureCalledLocal(ClaimsStage):
    def local(self, figure: Figure, rests_on: set[str]) -> bool:
        return super().local(figure, rests_on) or rests_on == {"synthetic"}


@mutant("source-figure-labelled-local")
class SourceFigureLabelledLocal(ClaimsStage):
    def local(self, figure: Figure, rests_on: set[str]) -> bool:
        return super().local(figure, rests_on) or rests_on == {"source-reported"}


@mutant("source-lost-in-a-formula")
class SourceLostInAFormula(ClaimsStage):
    def sources(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return super().sources(figure, ())


@mutant("basis-of-first-input")
class BasisOfFirstInput(ClaimsStage):
    def rests_on(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return super().rests_on(figure, inputs[:1])


@mutant("derived-is-its-own-basis")
class DerivedIsItsOwnBasis(ClaimsStage):
    def rests_on(self, figure: Figure, inputs: Sequence[Mapping[str, Any]]) -> set[str]:
        return {self.evidence(figure)}


@mutant("typical-labelled-exact")
class TypicalLabelledExact(ClaimsStage):
    def is_heuristic(self, law: Law) -> bool:
        return bool(law.distance)


@mutant("unproven-called-target-law")
class UnprovenCalledTargetLaw(ClaimsStage):
    def unproven(self, law: Law) -> str:
        return self.exact(law)


@mutant("small-distance-called-exact")
class SmallDistanceCalledExact(ClaimsStage):
    def is_heuristic(self, law: Law) -> bool:
        return super().is_heuristic(law) and (law.distance is None or law.distance > 0.01)


@mutant("batch-support-claimed")
class BatchSupportClaimed(ClaimsStage):
    def batch(self) -> int:
        return 8


@mutant("scope-owner-dropped")
class ScopeOwnerDropped(ClaimsStage):
    def scope(self) -> list[Mapping[str, Any]]:
        return [{k: v for k, v in entry.items() if k != "owner"} for entry in super().scope()]


@mutant("batching-claimed-as-covered")
class BatchingClaimedAsCovered(ClaimsStage):
    def scope(self) -> list[Mapping[str, Any]]:
        topic = "continuous-batching"
        return [{**e, "covered": e["topic"] == topic} for e in super().scope()]


@mutant("lineage-contract-swapped")
class LineageContractSwapped(ClaimsStage):
    def lineage(self) -> list[Mapping[str, Any]]:
        # SpecInfer's verification keeps a stochastic law, and Medusa's does not.
        first, specinfer, medusa, *rest = super().lineage()
        word = "verification"
        swapped = {**specinfer, word: medusa[word]}, {**medusa, word: specinfer[word]}
        return [first, *swapped, *rest]


@mutant("medusa-variants-merged")
class MedusaVariantsMerged(ClaimsStage):
    def lineage(self) -> list[Mapping[str, Any]]:
        *others, first, second = super().lineage()
        return [*others, first, {**first, "method": second["method"]}]
