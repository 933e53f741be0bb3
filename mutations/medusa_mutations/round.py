"""Rounds, broken: every stage is right, and what passes between them is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.decoder import Cache
from medusa_reference_engine.round import RoundStage, Session
from medusa_reference_engine.verification import Model, floats
from medusa_spec.coordinate import Policy
from medusa_spec.stages import CommitPlan, Frontier, Selection, TreeBuffers

if TYPE_CHECKING:
    from medusa_reference_engine.engine import ReferenceEngine


@mutant("frontier-kept-from-prefill")
class FrontierKeptFromPrefill(RoundStage):
    def next_frontier(self, frontier: Frontier, plan: CommitPlan) -> Frontier:
        return frontier


@mutant("prefill-positions-from-one")
class PrefillPositionsFromOne(RoundStage):
    def positions(self, rows: Tensor) -> Tensor:
        return rows + 1


@mutant("prefill-heads-from-first-row")
class PrefillHeadsFromFirstRow(RoundStage):
    def first_frontier(self, logits: Tensor, head_logits: Tensor) -> Frontier:
        last = super().first_frontier(logits, head_logits)
        return replace(last, heads=floats(head_logits[:, 0]))


@mutant("typical-generation-greedy")
class TypicalGenerationGreedy(RoundStage):
    def round(
        self,
        engine: ReferenceEngine,
        tree: TreeBuffers,
        frontier: Frontier,
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> CommitPlan:
        strict = replace(policy, mode="greedy")
        return super().round(engine, tree, frontier, topk, strict, end_of_sequence)


@mutant("idle-round")
class IdleRound(RoundStage):
    def round(
        self,
        engine: ReferenceEngine,
        tree: TreeBuffers,
        frontier: Frontier,
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> CommitPlan:
        plan = super().round(engine, tree, frontier, topk, policy, end_of_sequence)
        # The root alone counts as no progress, and is dropped.
        return plan if len(plan.tokens) > 1 else replace(plan, tokens=plan.tokens[:0])


@mutant("generation-cut-from-the-front")
class GenerationCutFromTheFront(RoundStage):
    def cut(self, output: list[int], how_many: int) -> list[int]:
        return output[-how_many:]


def _edges(selection: Selection, tree: TreeBuffers) -> int:
    return int((tree.retrieval[selection.path] >= 0).sum()) - 1


@mutant("leaf-accepted-unverified")
class LeafAcceptedUnverified(RoundStage):
    def accepted(self, selection: Selection, tree: TreeBuffers) -> int:
        return min(selection.accepted + 1, _edges(selection, tree))


@mutant("chain-accepts-unverified")
class ChainAcceptsUnverified(RoundStage):
    def accepted(self, selection: Selection, tree: TreeBuffers) -> int:
        alone = len(tree.retrieval) == 1
        return _edges(selection, tree) if alone else selection.accepted


@mutant("wide-tree-capped")
class WideTreeCapped(RoundStage):
    def accepted(self, selection: Selection, tree: TreeBuffers) -> int:
        alone = len(tree.retrieval) == 1
        return selection.accepted if alone else 0


@mutant("restart-reuses-same-length-prompt")
class RestartReusesSameLengthPrompt(RoundStage):
    cached: tuple[int, Frontier] | None = None

    def prefill(self, tokens: Sequence[int], model: Model, session: Session) -> Frontier:
        if self.cached is None or self.cached[0] != len(tokens):
            self.cached = len(tokens), super().prefill(tokens, model, session)
        session.cache.length = len(tokens)
        return self.cached[1]


@mutant("full-cache-refused")
class FullCacheRefused(CommitStage):
    def reserve(self, cache: Cache, nodes: int) -> None:
        super().reserve(cache, nodes + 1)
