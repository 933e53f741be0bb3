"""A whole engine in numpy, which starts in no time: the judge's own derivations over a toy model.

Its logits, keys and values are a random function of all tokens up to a row. It proves nothing of
the oracles, from which it has its answers; it is what the miniatures are wrong beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from medusa_oracles.commit import derive_published_rows
from medusa_oracles.posterior import derive_selection
from medusa_oracles.proposal import derive_proposal, derive_table
from medusa_oracles.tree import derive_node_count, derive_tree
from medusa_oracles.verification import (
    derive_path_logits,
    derive_positions,
    derive_rectangular_mask,
    derive_staged_rows,
)
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Refused
from medusa_spec.stages import (
    CacheView,
    CommitPlan,
    Decoded,
    Forward,
    Frontier,
    Verification,
)


class Toy:
    """Every stage from the tree on, in float64."""

    name = "toy"

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        model = coordinate.model
        self._heads, self._vocabulary = coordinate.heads, model.vocabulary
        width = model.hidden // model.attention_heads
        self._backing = np.zeros((model.layers, 2, model.kv_heads, capacity, width))
        self._tokens: list[int] = []
        self._staged: Any = None

    def read(self, tokens: Sequence[int]) -> tuple[Any, Any, Any]:
        """Logits `[V]`, head logits `[K, V]` and K/V `[L, 2, H, d]` of the last token."""
        generator = np.random.default_rng([len(tokens), *tokens])
        layers, two, heads, _, width = self._backing.shape
        return (
            generator.normal(size=self._vocabulary),
            generator.normal(size=(self._heads, self._vocabulary)),
            generator.normal(size=(layers, two, heads, width)),
        )

    def passed(self, paths: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
        """The same of the last token of each path, stacked along the axis of rows."""
        rows = [self.read(path) for path in paths]
        return tuple(
            np.stack(part, axis)
            for part, axis in zip(zip(*rows, strict=True), (0, 1, 3), strict=True)
        )

    def compile_tree(self, paths: Any, topk: int, retrieval_order: Any, sentinel: int) -> Any:
        return derive_tree(paths, topk, retrieval_order, sentinel)

    def node_count(self, branching: Any) -> int:
        return derive_node_count(branching)

    def prefill(self, tokens: Any) -> Any:
        if not 0 < len(tokens) <= self._backing.shape[3]:
            raise Refused("the prefix does not fit")
        self._tokens, self._staged = list(tokens), None
        passed = self.forward(tokens)
        self._backing[:, :, :, : len(tokens)] = passed.kv
        return Frontier(passed.logits[-1], passed.head_logits[:, -1])

    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        table = derive_table(frontier.target, frontier.heads, topk)
        return derive_proposal(table, tree, sentinel)

    def verify(self, tree: Any, packed: Any) -> Any:
        count, rows = len(self._tokens), len(packed)
        if count + rows > self._backing.shape[3]:
            raise Refused("the tree does not fit")
        # Canonical order is by depth, so the rows that one sees are its path.
        paths = [[*self._tokens, *packed[seen].tolist()] for seen in tree.mask]
        logits, heads, kv = self.passed(paths)
        self._backing[:, :, :, count : count + rows] = kv
        self._staged = tree, packed, logits, heads
        return Verification(
            logits=logits,
            head_logits=heads,
            path_logits=derive_path_logits(logits, tree.retrieval),
            mask=derive_rectangular_mask(tree.mask, count),
            positions=derive_positions(tree.depths, count),
            rows=derive_staged_rows(rows, count),
            kv=kv,
        )

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        if not np.isfinite(path_logits[candidates >= 0]).all():
            raise Refused("a logit is no number")
        return derive_selection(candidates, path_logits, policy)

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        if self._staged is None:
            raise Refused("no tree is staged")
        tree, packed, logits, heads = self._staged
        if not 0 <= path < len(tree.retrieval):
            raise Refused("there is no such path")
        if not 0 <= accepted < (tree.retrieval[path] >= 0).sum():
            raise Refused("the path is not so long")
        rows = derive_published_rows(tree.retrieval, packed, path, accepted, end_of_sequence)
        count = len(self._tokens)
        source, destination = count + rows, count + np.arange(len(rows))
        self._backing[:, :, :, destination] = self._backing[:, :, :, source]
        self._tokens += packed[rows].tolist()
        self._staged = None
        frontier = Frontier(logits[rows[-1]], heads[:, rows[-1]])
        return CommitPlan(packed[rows], source, destination, len(self._tokens), frontier)

    def cache(self) -> Any:
        return CacheView(self._backing.copy(), len(self._tokens))

    def forward(self, tokens: Any) -> Any:
        return Forward(*self.passed([tokens[: end + 1] for end in range(len(tokens))]))

    def generate(
        self, prefix: Any, how_many: int, paths: Any, topk: int, policy: Any, end: int | None
    ) -> Any:
        tree = self.compile_tree(paths, topk, policy.retrieval_order, policy.sentinel)
        frontier = self.prefill(prefix)
        output: list[int] = []
        published: list[int] = []
        frontiers = []
        while len(output) < how_many and (not output or output[-1] != end):
            frontiers.append(frontier.target)
            proposal = self.propose(tree, frontier, topk, policy.sentinel)
            verified = self.verify(tree, proposal.packed)
            selection = self.select(proposal.candidates, verified.path_logits, policy)
            plan = self.commit(selection.path, selection.accepted, end)
            output += plan.tokens.tolist()
            published.append(len(plan.tokens))
            frontier = plan.frontier
        return Decoded(tuple(output[:how_many]), tuple(published), np.array(frontiers))
