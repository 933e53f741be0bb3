"""Proposal, broken: the right shapes, filled with tokens of another row, rank, head or round."""

from __future__ import annotations

import numpy as np

from medusa_mutations.catalog import mutant
from medusa_reference_engine.proposal import ProposalStage
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.stages import Frontier, Proposal, TreeBuffers


@mutant("root-from-head-zero")
class RootFromHeadZero(ProposalStage):
    def root(self, frontier: Frontier) -> int:
        return int(frontier.heads[0].argmax()) if len(frontier.heads) else super().root(frontier)


@mutant("topk-ascending")
class TopkAscending(ProposalStage):
    def ranks(self, heads: FloatArray, topk: int) -> IntArray:
        return super().ranks(heads, topk)[:, ::-1].copy()


@mutant("heads-reversed")
class HeadsReversed(ProposalStage):
    def ranks(self, heads: FloatArray, topk: int) -> IntArray:
        return super().ranks(heads, topk)[::-1].copy()


@mutant("gather-off-by-one")
class GatherOffByOne(ProposalStage):
    def pack(self, table: IntArray, tree: TreeBuffers) -> IntArray:
        return table[np.maximum(tree.slots - 1, 0)]


@mutant("padding-reads-last-row")
class PaddingReadsLastRow(ProposalStage):
    def candidates(self, packed: IntArray, tree: TreeBuffers, sentinel: int) -> IntArray:
        return packed[np.maximum(tree.retrieval, -1)]


@mutant("proposal-from-stale-frontier")
class ProposalFromStaleFrontier(ProposalStage):
    previous: Frontier | None = None

    def propose(self, tree: TreeBuffers, frontier: Frontier, topk: int, sentinel: int) -> Proposal:
        stale, self.previous = self.previous or frontier, frontier
        return super().propose(tree, stale, topk, sentinel)
