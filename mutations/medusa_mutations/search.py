"""Search, broken: there is still a tree, and still a number for it, and one of them is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from medusa_mutations.catalog import mutant
from medusa_reference_engine.search import Entry, Increments, SearchStage
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Calibration


@mutant("cumulative-for-increment")
class CumulativeForIncrement(SearchStage):
    def differences(self, row: Sequence[float]) -> list[float]:
        return [float(top) for top in row]


@mutant("sum-for-product")
class SumForProduct(SearchStage):
    def weigh(self, path: RankPath, above: float, increments: Increments) -> float:
        # The root's weight is no summand.
        return (above if len(path) > 1 else 0.0) + self.mass(path, increments)


@mutant("depth-reads-next-head")
class DepthReadsNextHead(SearchStage):
    def mass(self, path: RankPath, increments: Increments) -> float:
        return increments[min(len(path), len(increments) - 1)][path[-1]]


@mutant("leaves-only")
class LeavesOnly(SearchStage):
    def objective(self, paths: Sequence[RankPath], weights: Sequence[float]) -> float:
        inner = {path[:-1] for path in paths}
        leaves = [w for path, w in zip(paths, weights, strict=True) if path not in inner]
        return super().objective(paths, leaves)


@mutant("objective-counts-the-root")
class ObjectiveCountsTheRoot(SearchStage):
    def objective(self, paths: Sequence[RankPath], weights: Sequence[float]) -> float:
        return 1.0 + super().objective(paths, weights)


@mutant("orphan-admitted")
class OrphanAdmitted(SearchStage):
    def below(self, path: RankPath, heads: int, ranks: int) -> Iterable[RankPath]:
        return super().below((*path, 0), heads, ranks)


@mutant("admitted-path-stays")
class AdmittedPathStays(SearchStage):
    def admit(self, frontier: list[Entry]) -> Entry:
        return frontier[0]


@mutant("frontier-not-extended")
class FrontierNotExtended(SearchStage):
    def below(self, path: RankPath, heads: int, ranks: int) -> Iterable[RankPath]:
        return [] if path else super().below(path, heads, ranks)


@mutant("last-of-equal-paths")
class LastOfEqualPaths(SearchStage):
    def key(self, path: RankPath, weight: float) -> tuple[Any, ...]:
        return -weight, -len(path), tuple(-rank for rank in path)


@mutant("ties-by-rank-before-length")
class TiesByRankBeforeLength(SearchStage):
    def key(self, path: RankPath, weight: float) -> tuple[Any, ...]:
        return -weight, path


@mutant("decision-sees-the-children")
class DecisionSeesTheChildren(SearchStage):
    def decision(
        self, entry: Entry, size: int, left: Sequence[Entry], entering: Sequence[Entry]
    ) -> Mapping[str, Any]:
        both = sorted((*left, *entering), key=lambda other: other.key)
        return super().decision(entry, len(both) + 1, both, ())


@mutant("budget-off-by-one")
class BudgetOffByOne(SearchStage):
    def has_room(self, chosen: int, calibration: Calibration) -> bool:
        # The root as one of the nodes.
        return super().has_room(chosen + 1, calibration)


@mutant("level-by-level")
class LevelByLevel(SearchStage):
    def key(self, path: RankPath, weight: float) -> tuple[Any, ...]:
        return len(path), -weight, path


@mutant("prompts-not-versioned")
class PromptsNotVersioned(SearchStage):
    def identity(self, calibration: Calibration) -> Mapping[str, Any]:
        return {k: v for k, v in super().identity(calibration).items() if k != "prompts"}


@mutant("edges-sold-as-speed")
class EdgesSoldAsSpeed(SearchStage):
    def claim(self, calibration: Calibration) -> Mapping[str, Any]:
        return {**super().claim(calibration), "quantity": "tokens-per-second"}


@mutant("synthetic-called-measured")
class SyntheticCalledMeasured(SearchStage):
    def claim(self, calibration: Calibration) -> Mapping[str, Any]:
        return {**super().claim(calibration), "evidence": "measured"}
