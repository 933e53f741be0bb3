"""A bug of any contract shrinks to a coordinate that a person can follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import hypothesis
import numpy as np
import pytest

from medusa_conformance.checkpoint import checkpoint
from medusa_conformance.claims import claims
from medusa_conformance.cost import cost
from medusa_conformance.exactness import laws
from medusa_conformance.generation import generation
from medusa_conformance.line import Line
from medusa_conformance.rounds import decoding
from medusa_conformance.search import search
from medusa_conformance.strategies import coordinates
from medusa_conformance.training import training
from medusa_manifests import tolerance
from medusa_oracles import judge
from medusa_reference_engine.checkpoint import CheckpointStage
from medusa_reference_engine.claims import ClaimsStage
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_reference_engine.cost import CostStage
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.exactness import ExactnessStage
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.search import SearchStage
from medusa_reference_engine.training import TrainingStage
from medusa_reference_engine.tree import TreeStage
from medusa_reference_engine.verification import VerificationStage
from medusa_spec import CONTRACTS, Coordinate
from medusa_spec.coordinate import Release, Training
from medusa_spec.trace import Trace

MOST_NODES = 4


class CallsTheRowASlot(AdmissionStage):
    def slot(self, row: int, head: int | None, path: Any, topk: int) -> int:
        return row


class LooksOneTokenTooNear(HeadStage):
    def shift(self, head: int) -> int:
        return head + 1


class SeesItsSiblings(TreeStage):
    def visible(self, row: int, parents: Any) -> list[int]:
        siblings = [other for other in range(row) if parents[other] == parents[row]]
        return super().visible(row, parents) + siblings


class RanksTheHeadsBackwards(ProposalStage):
    def ranks(self, heads: Any, topk: int) -> Any:
        return super().ranks(heads, topk)[::-1].copy()


class TurnsByCacheRow(VerificationStage):
    def phases(self, positions: Any, rows: Any) -> Any:
        return rows


class CountsBehindAMismatch(PosteriorStage):
    def lengths(self, passes: Any) -> Any:
        return passes.sum(dim=1)


class TakesTheRowsBehindTheRoot(CommitStage):
    def sources(self, rows: Any, committed: int) -> Any:
        return committed + np.arange(len(rows))


class KeepsTheFirstFrontier(RoundStage):
    def next_frontier(self, frontier: Any, plan: Any) -> Any:
        return frontier


class GrowsByLevels(SearchStage):
    def key(self, path: Any, weight: float) -> Any:
        return len(path), -weight, path


class AddsUpWholeDifferences(ExactnessStage):
    def distance(self, law: Any, target: Any) -> float:
        return 2 * super().distance(law, target)


class DividesByEveryRow(TrainingStage):
    def mean(self, losses: Any, owned: Any) -> Any:
        return losses[owned].sum() / owned.numel()


class CountsEveryPathOnce(CostStage):
    def gathered(self, run: Any) -> Any:
        return run.logits


class TakesAnyRevision(CheckpointStage):
    def compare(self, file: Any, config: Any, identity: Any) -> None:
        super().compare(file, config, {**identity, "base_revision": config.get("base_revision")})


class ForgetsWhatAFormulaReads(ClaimsStage):
    def rests_on(self, figure: Any, inputs: Any) -> Any:
        return {self.evidence(figure)}


Section = Callable[[Line], Iterator[Trace]]


def of_the_lawful(line: Line) -> Iterator[Trace]:
    """The first document is the lawful one; the broken ones cost a search most of its time."""
    return islice(line.admission(), 1)


def of_the_first_words(line: Line) -> Iterator[Trace]:
    """A lawful checkpoint, and two words of its identity, each left out and another."""
    return islice(checkpoint(line), 5)


PLANTED: dict[str, tuple[Stages, Section, str]] = {
    "coordinate": (Stages(coordinate=CallsTheRowASlot), of_the_lawful, "COORDINATE.DOMAINS"),
    "heads": (Stages(heads=LooksOneTokenTooNear), Line.alignment, "HEADS.OFFSET"),
    "tree": (Stages(tree=SeesItsSiblings), Line.tree, "TREE.MASK_IS_ANCESTRY"),
    "proposal": (Stages(proposal=RanksTheHeadsBackwards), decoding, "PROPOSAL.TOPK"),
    "verification": (
        Stages(verification=TurnsByCacheRow),
        decoding,
        "VERIFICATION.PATH_KV",
    ),
    "posterior": (
        Stages(posterior=CountsBehindAMismatch),
        decoding,
        "POSTERIOR.CONTIGUOUS_PREFIX",
    ),
    "commit": (
        Stages(commit=TakesTheRowsBehindTheRoot),
        decoding,
        "COMMIT.SOURCE_ROWS",
    ),
    "round": (
        Stages(round=KeepsTheFirstFrontier),
        generation,
        "ROUND.FRONTIER_FEEDS_NEXT",
    ),
    "search": (Stages(search=GrowsByLevels), search, "SEARCH.FRONTIER_BEST"),
    "exactness": (Stages(exactness=AddsUpWholeDifferences), laws, "EXACTNESS.DISTANCE"),
    "training": (Stages(training=DividesByEveryRow), training, "TRAINING.OWNED_MEAN"),
    "checkpoint": (
        Stages(checkpoint=TakesAnyRevision),
        of_the_first_words,
        "CHECKPOINT.IDENTITY",
    ),
    "cost": (Stages(cost=CountsEveryPathOnce), cost, "COST.PATH_LOGITS"),
    "claims": (Stages(claims=ForgetsWhatAFormulaReads), claims, "CLAIMS.BASIS"),
}

BATCH = Training(
    variant="medusa-1",
    tokens=((1, 2, 3, 0),),
    owned=((True, True, True, False),),
    head_weights=(),
    medusa_weight=1.0,
    head_rate=1e-3,
    backbone_rate=0.0,
    schedule="two-stage",
    warm_up=0,
    steps=1,
    adapter_rank=0,
)


RELEASE = Release("example/base", "5a0f", "example/base@5a0f", "medusa-1")


def released(coordinate: Coordinate) -> Coordinate:
    """A drawn coordinate whose heads are saved beside an unchanged base, which few are."""
    return replace(coordinate, training=None, release=RELEASE if coordinate.heads else None)


def trained(coordinate: Coordinate) -> Coordinate:
    """A drawn coordinate with a batch, which none is drawn with."""
    batch = replace(BATCH, head_weights=(1.0,) * coordinate.heads)
    return replace(coordinate, training=batch) if coordinate.heads else coordinate


def test_a_bug_of_each_contract_is_planted() -> None:
    assert tuple(PLANTED) == CONTRACTS


@pytest.mark.parametrize("contract", PLANTED)
def test_a_bug_shrinks_to_a_small_tree(contract: str) -> None:
    stages, section, code = PLANTED[contract]

    def make(coordinate: Coordinate, capacity: int) -> ReferenceEngine:
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity, stages=stages)

    def found(coordinate: Coordinate) -> bool:
        line = Line(coordinate, make, tolerance("float64"), tolerance("policy"))
        judgements = (judge(trace, frozenset({contract})) for trace in section(line))
        return any(finding.code == code for j in judgements for finding in j.findings)

    prepared = {"training": trained, "checkpoint": released}.get(contract)
    smallest = hypothesis.find(
        coordinates() if prepared is None else coordinates().map(prepared),
        found,
        settings=hypothesis.settings(
            max_examples=500,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
    assert smallest.nodes <= MOST_NODES
