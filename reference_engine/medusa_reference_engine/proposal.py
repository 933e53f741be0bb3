"""Proposal: the root from the target, ranks from the heads, gathered into the tree (0x00E)."""

from __future__ import annotations

import numpy as np
import torch

from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.stages import Frontier, Proposal, TreeBuffers


class ProposalStage:
    """Clauses Q1 to Q4."""

    def propose(self, tree: TreeBuffers, frontier: Frontier, topk: int, sentinel: int) -> Proposal:
        """Packed tokens `[N]` and candidate paths `[R, W]` from one frontier."""
        root, ranks = self.root(frontier), self.ranks(frontier.heads, topk)
        table = np.concatenate([[root], ranks.reshape(-1)]).astype(np.int64)
        packed = self.pack(table, tree)
        return Proposal(table, packed, self.candidates(packed, tree, sentinel))

    def root(self, frontier: Frontier) -> int:
        """Clause Q1; the lower token id wins a tie."""
        return int(torch.as_tensor(frontier.target).argmax())

    def ranks(self, heads: FloatArray, topk: int) -> IntArray:
        """Clause Q2: `[K, TOPK]`; the sort is stable because `topk` promises no order of ties."""
        ranked = torch.as_tensor(heads).sort(dim=-1, descending=True, stable=True).indices
        tokens: IntArray = ranked[:, :topk].numpy()
        return tokens

    def pack(self, table: IntArray, tree: TreeBuffers) -> IntArray:
        """Clause Q3: a token per packed row."""
        return table[tree.slots]

    def candidates(self, packed: IntArray, tree: TreeBuffers, sentinel: int) -> IntArray:
        """Clauses Q3 and Q4: a token per path entry, the sentinel where there is none."""
        gathered = packed[np.maximum(tree.retrieval, 0)]
        return np.where(tree.retrieval < 0, sentinel, gathered)
