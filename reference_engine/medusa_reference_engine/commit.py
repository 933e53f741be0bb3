"""Commit: gather the winner's rows, compact them behind the prefix, publish (0x06)."""

from __future__ import annotations

import numpy as np
import torch

from medusa_reference_engine.decoder import Cache
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.errors import Refused
from medusa_spec.stages import CommitPlan, Frontier, TreeBuffers, Verification


class CommitStage:
    """Clauses M1 to M12."""

    def reserve(self, cache: Cache, nodes: int) -> None:
        """Clause M10, before a tree is staged: every packed row has room."""
        if cache.length + nodes > cache.capacity:
            raise Refused(f"{nodes} rows behind {cache.length} exceed {cache.capacity}")

    def commit(
        self,
        path: int,
        accepted: int,
        tree: TreeBuffers,
        packed: IntArray,
        verified: Verification,
        cache: Cache,
        end_of_sequence: int | None,
    ) -> CommitPlan:
        """Plan, then move, then let the cache grow; `Refused` before the first write."""
        committed = cache.length
        self.check(path, accepted, tree, cache)
        rows = self.published_rows(path, accepted, tree, packed, end_of_sequence)
        plan = CommitPlan(
            self.tokens(rows, path, tree, packed),
            self.sources(rows, committed),
            self.destinations(len(rows), committed),
            self.length(committed, len(rows)),
            self.frontier(rows, path, tree, verified),
        )
        self.move(cache, plan.source, plan.destination)
        self.grow(cache, plan, len(packed))
        return plan

    def check(self, path: int, accepted: int, tree: TreeBuffers, cache: Cache) -> None:
        """Clause M10: the selection names a path of the tree, and edges that the path has."""
        if not 0 <= path < len(tree.retrieval):
            raise Refused(f"path {path} is not one of {len(tree.retrieval)}")
        edges = int((tree.retrieval[path] >= 0).sum()) - 1
        if not 0 <= accepted <= edges:
            raise Refused(f"{accepted} accepted edges on a path of {edges}")

    def published_rows(
        self,
        path: int,
        accepted: int,
        tree: TreeBuffers,
        packed: IntArray,
        end_of_sequence: int | None,
    ) -> IntArray:
        """Clauses M1 and M12: packed rows `[G]` of the root and the accepted edges."""
        rows = tree.retrieval[path, : self.published(accepted)]
        return rows[: self.until_end(packed[rows], end_of_sequence)]

    def published(self, accepted: int) -> int:
        """`G`, before an end of sequence cuts it."""
        return accepted + 1

    def until_end(self, tokens: IntArray, end_of_sequence: int | None) -> int:
        """How many tokens there are up to and with the first end of sequence."""
        for place, token in enumerate(tokens.tolist()):
            if token == end_of_sequence:
                return place + 1
        return len(tokens)

    def tokens(self, rows: IntArray, path: int, tree: TreeBuffers, packed: IntArray) -> IntArray:
        """The published tokens."""
        return packed[rows]

    def sources(self, rows: IntArray, committed: int) -> IntArray:
        """Clause M2."""
        return committed + rows

    def destinations(self, count: int, committed: int) -> IntArray:
        """Clause M3."""
        return np.arange(committed, committed + count)

    def length(self, committed: int, count: int) -> int:
        """Clause M8."""
        return committed + count

    def frontier(
        self,
        rows: IntArray,
        path: int,
        tree: TreeBuffers,
        verified: Verification,
    ) -> Frontier:
        """Clause M7: the terminal published row's logits."""
        return Frontier(self.target_frontier(rows, verified), self.head_frontier(rows, verified))

    def target_frontier(self, rows: IntArray, verified: Verification) -> FloatArray:
        """Target logits of the terminal row, `[V]`."""
        terminal: FloatArray = verified.logits[rows[-1]]
        return terminal

    def head_frontier(self, rows: IntArray, verified: Verification) -> FloatArray:
        """Head logits of the terminal row, `[K, V]`."""
        return verified.head_logits[:, rows[-1]]

    def move(self, cache: Cache, source: IntArray, destination: IntArray) -> None:
        """Clauses M4, M5 and M9: indexing copies all sources before the first is overwritten."""
        device = cache.kv.device
        here, there = (torch.as_tensor(rows, device=device) for rows in (source, destination))
        cache.kv[:, :, :, there] = cache.kv[:, :, :, here]

    def grow(self, cache: Cache, plan: CommitPlan, staged: int) -> None:
        """Clauses M8 and M11."""
        cache.length = plan.length
