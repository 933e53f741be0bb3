"""Search for a tree: a frontier of rank paths in a heap, and the heaviest admitted (0x04C)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Calibration
from medusa_spec.stages import SearchPlan

Increments = list[list[float]]


class Entry(NamedTuple):
    """A path in the frontier; entries are compared by `key` alone, which no two have in common."""

    key: tuple[Any, ...]
    path: RankPath
    weight: float


class SearchStage:
    """Clauses S1 to S10."""

    def search(self, calibration: Calibration) -> SearchPlan:
        """A tree for a calibration, path by path until the budget or the frontier is empty."""
        increments = self.increments(calibration)
        frontier = [*self.enter((), 1.0, increments)]
        heapify(frontier)
        chosen: list[Entry] = []
        decisions: list[Mapping[str, Any]] = []
        while frontier and self.has_room(len(chosen), calibration):
            size = len(frontier)
            entry = self.admit(frontier)
            entering = [*self.enter(entry.path, entry.weight, increments)]
            decisions.append(self.decision(entry, size, frontier, entering))
            chosen.append(entry)
            for child in entering:
                heappush(frontier, child)
        paths, weights = [entry.path for entry in chosen], [entry.weight for entry in chosen]
        return SearchPlan(
            increments=np.array(increments),
            paths=tuple(paths),
            weights=np.array(weights),
            decisions=tuple(decisions),
            objective=np.array(self.objective(paths, weights)),
            identity=self.identity(calibration),
            claim=self.claim(calibration),
        )

    def increments(self, calibration: Calibration) -> Increments:
        """Clause S1; only as many ranks of each row as may be used."""
        rows = [row[: calibration.max_rank] for row in calibration.accuracy]
        if calibration.form == "incremental":
            return [list(row) for row in rows]
        return [self.differences(row) for row in rows]

    def differences(self, row: Sequence[float]) -> list[float]:
        """What each rank adds to a cumulative row."""
        return [float(top - before) for before, top in zip((0.0, *row), row, strict=False)]

    def enter(self, path: RankPath, weight: float, increments: Increments) -> Iterator[Entry]:
        """The paths that may be admitted once a path of this weight is, the root's at first."""
        for child in self.below(path, len(increments), len(increments[0])):
            weighed = self.weigh(child, weight, increments)
            yield Entry(self.key(child, weighed), child, weighed)

    def below(self, path: RankPath, heads: int, ranks: int) -> Iterable[RankPath]:
        """Clause S4: the children of a path."""
        return [(*path, rank) for rank in range(ranks)] if len(path) < heads else []

    def weigh(self, path: RankPath, above: float, increments: Increments) -> float:
        """Clause S2, from the weight of the path above."""
        return above * self.mass(path, increments)

    def mass(self, path: RankPath, increments: Increments) -> float:
        """The increment of a path's last rank."""
        return increments[len(path) - 1][path[-1]]

    def key(self, path: RankPath, weight: float) -> tuple[Any, ...]:
        """Clause S5: the heaviest is the least, and of equal ones the first in canonical order."""
        return -weight, len(path), path

    def admit(self, frontier: list[Entry]) -> Entry:
        """Take the best out of the frontier."""
        return heappop(frontier)

    def decision(
        self, entry: Entry, size: int, left: Sequence[Entry], entering: Sequence[Entry]
    ) -> Mapping[str, Any]:
        """Clause S6; what enters behind the admission is at hand and must not be seen."""
        best = left[0] if left else None
        return {
            "path": entry.path,
            "weight": entry.weight,
            "frontier": size,
            "runner_up": None if best is None else best.path,
            "runner_up_weight": None if best is None else best.weight,
        }

    def has_room(self, chosen: int, calibration: Calibration) -> bool:
        """Clause S7."""
        return chosen < calibration.nodes

    def objective(self, paths: Sequence[RankPath], weights: Sequence[float]) -> float:
        """Clause S3."""
        return sum(weights, 0.0)

    def identity(self, calibration: Calibration) -> Mapping[str, Any]:
        """Clause S9."""
        return {
            "model": calibration.model,
            "data_set": calibration.data_set,
            "prompts": calibration.prompts,
            "policy": calibration.policy,
            "nodes": calibration.nodes,
        }

    def claim(self, calibration: Calibration) -> Mapping[str, Any]:
        """Clause S10."""
        return {
            "quantity": "accepted-edges-per-round",
            "assumption": "independent-heads",
            "evidence": calibration.evidence,
        }
