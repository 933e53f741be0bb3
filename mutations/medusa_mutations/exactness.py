"""Exactness, broken: something is published either way, and mostly as probably as it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.draws import Draw, Seeded
from medusa_reference_engine.exactness import ExactnessStage, TableView
from medusa_reference_engine.sampling_round import Row, View, Weights
from medusa_spec.arrays import FloatArray, RankPath
from medusa_spec.coordinate import Exactness, Sampling


@mutant("temperature-for-roots-alone")
class TemperatureForRootsAlone(ExactnessStage):
    def tree_row(self, logits: Tensor, sampling: Sampling) -> Row:
        warm = 1.0 if sampling.temperature else 0.0
        return super().tree_row(logits, replace(sampling, temperature=warm))


@mutant("cut-for-roots-alone")
class CutForRootsAlone(ExactnessStage):
    def tree_row(self, logits: Tensor, sampling: Sampling) -> Row:
        row = super().tree_row(logits, sampling)
        return row._replace(drawn=row.tempered)


@mutant("cut-not-renormalised")
class CutNotRenormalised(ExactnessStage):
    def renormalised(self, cut: Tensor) -> Tensor:
        return cut


@mutant("nucleus-without-its-last")
class NucleusWithoutItsLast(ExactnessStage):
    def nucleus(self, tempered: Tensor, top_p: float) -> Tensor:
        # The token that reaches the mass is cut as well, but never the only one.
        order = torch.sort(tempered, descending=True, stable=True)
        kept = torch.zeros_like(tempered, dtype=torch.bool)
        kept[order.indices] = order.values.cumsum(-1) <= top_p
        kept[order.indices[0]] = True
        return kept


@mutant("target-of-raw-rows")
class TargetOfRawRows(ExactnessStage):
    def target(
        self, given: Exactness, roots: Sequence[Weights], rows: Sequence[Weights]
    ) -> FloatArray:
        raw = [self.normalised([*map(float, row)]) for row in given.model]
        return super().target(given, raw, raw[1:])


@mutant("rejected-candidate-carried")
class RejectedCandidateCarried(ExactnessStage):
    def by_row(
        self, rows: Mapping[RankPath, Row], tokens: Mapping[RankPath, int], draw: Draw
    ) -> tuple[RankPath, int | None]:
        # What the heads proposed there is published in place of what the target said.
        node, carried = super().by_row(rows, tokens, draw)
        return node, tokens.get((*node, 0), carried)


@mutant("rejected-row-drawn-afresh")
class RejectedRowDrawnAfresh(ExactnessStage):
    def carry(self, token: int) -> int | None:
        return None


@mutant("path-draws-for-row-draws")
class PathDrawsForRowDraws(ExactnessStage):
    def accept(
        self,
        view: View,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        draw: Draw,
        sampling: Sampling,
        paths: Sequence[RankPath],
    ) -> tuple[RankPath, int | None]:
        if sampling.mode == "row-draw":
            sampling = replace(sampling, mode="nucleus-per-path")
        return super().accept(view, rows, tokens, draw, sampling, paths)


@mutant("residual-missing")
class ResidualMissing(ExactnessStage):
    def residual(self, target: Weights, proposal: Weights) -> Weights:
        return target


@mutant("residual-not-renormalised")
class ResidualNotRenormalised(ExactnessStage):
    def after_rejection(self, target: Weights, proposal: Weights, sampling: Sampling) -> Weights:
        if sampling.mode == "rejection-uncorrected":
            return super().after_rejection(target, proposal, sampling)
        return self.residual(target, proposal)


@mutant("residual-of-absolute-differences")
class ResidualOfAbsoluteDifferences(ExactnessStage):
    def residual(self, target: Weights, proposal: Weights) -> Weights:
        return [abs(p - q) for p, q in zip(target, proposal, strict=True)]


@mutant("ratio-upside-down")
class RatioUpsideDown(ExactnessStage):
    def acceptance(self, target: float, proposal: float) -> float:
        return super().acceptance(proposal, target) if target else 0.0


@mutant("paths-share-a-draw")
class PathsShareADraw(ExactnessStage):
    def by_path(
        self,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        draw: Draw,
        paths: Sequence[RankPath],
    ) -> RankPath:
        # A draw that matches nothing is thrown away, as it would be with a draw for each path.
        node, _ = self.by_row(rows, tokens, draw)
        return node


@mutant("last-match-wins")
class LastMatchWins(ExactnessStage):
    def longer(self, best: RankPath, node: RankPath) -> RankPath:
        return node if len(node) >= len(best) else best


@mutant("fast-root-drawn")
class FastRootDrawn(ExactnessStage):
    def root(self, view: View, carried: int | None, draw: Draw, sampling: Sampling) -> int:
        return draw(view.root) if carried is None else carried


@mutant("heads-in-reverse")
class HeadsInReverse(ExactnessStage):
    def candidates(
        self, view: View, draw: Draw, sampling: Sampling, paths: Sequence[RankPath]
    ) -> dict[RankPath, int]:
        assert isinstance(view, TableView)
        return super().candidates(replace(view, heads=view.heads[::-1]), draw, sampling, paths)


@mutant("distance-without-the-half")
class DistanceWithoutTheHalf(ExactnessStage):
    def distance(self, law: FloatArray, target: FloatArray) -> float:
        return float(np.abs(law - target).sum())


@mutant("path-draws-called-target-law")
class PathDrawsCalledTargetLaw(ExactnessStage):
    def word(self, mode: str) -> str:
        return "target-law" if mode.endswith("-per-path") else super().word(mode)


@mutant("fast-typical-called-target-law")
class FastTypicalCalledTargetLaw(ExactnessStage):
    def word(self, mode: str) -> str:
        return "target-law" if mode == "fast-typical" else super().word(mode)


@mutant("uncorrected-called-target-law")
class UncorrectedCalledTargetLaw(ExactnessStage):
    def word(self, mode: str) -> str:
        return super().word(mode.removesuffix("-uncorrected"))


@mutant("proposal-forgotten")
class ProposalForgotten(ExactnessStage):
    def correction(self, mode: str) -> Mapping[str, Any]:
        return {**super().correction(mode), "stored_probabilities": None}


@mutant("proposal-stored-tempered")
class ProposalStoredTempered(ExactnessStage):
    def stored(self, given: Exactness) -> FloatArray:
        # What the sampler's temperature would have made of rows that were drawn from as they are.
        powers = super().stored(given) ** (1 / given.sampling.temperature)
        tempered: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
        return tempered


@mutant("product-for-path-probability")
class ProductForPathProbability(ExactnessStage):
    def path_probability(self, view: TableView, root: Weights, path: RankPath) -> float:
        product = 1.0
        for edge, rank in enumerate(path):
            product *= sorted(view.heads[edge], reverse=True)[rank]
        return product


@mutant("product-called-probability")
class ProductCalledProbability(ExactnessStage):
    def scores(self) -> str:
        return "path-probability"


class _OneUniform(Seeded):
    """Every row of a sequence is drawn with one number."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.next_sequence()

    def next_sequence(self) -> None:
        self._number = super().uniform()

    def uniform(self) -> float:
        return self._number


@mutant("rows-share-a-number")
class RowsShareANumber(ExactnessStage):
    def randomness(self, seed: int) -> Draw:
        return _OneUniform(seed)

    def sequence(self, given: Exactness, views: Sequence[TableView], draw: Draw) -> list[int]:
        if isinstance(draw, _OneUniform):
            draw.next_sequence()
        return super().sequence(given, views, draw)


@mutant("sequence-begins-where-one-ended")
class SequenceBeginsWhereOneEnded(ExactnessStage):
    def __init__(self) -> None:
        self._before = 0

    def randomness(self, seed: int) -> Draw:
        self._before = 0
        return super().randomness(seed)

    def context(self, tokens: Sequence[int]) -> int:
        return super().context(tokens) if tokens else self._before

    def sequence(self, given: Exactness, views: Sequence[TableView], draw: Draw) -> list[int]:
        found = super().sequence(given, views, draw)
        self._before = super().context(found)
        return found


@mutant("seed-ignored")
class SeedIgnored(ExactnessStage):
    def __init__(self) -> None:
        self._kept = Seeded(0)

    def randomness(self, seed: int) -> Draw:
        return self._kept


@mutant("one-seed-for-all")
class OneSeedForAll(ExactnessStage):
    def randomness(self, seed: int) -> Draw:
        return super().randomness(0)
