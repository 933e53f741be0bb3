"""An engine that speaks a dialect, asked and answering in the canonical forms.

It gets its own buffers back as it gave them, rows and paths by its own numbers, and trees, paths
and logits in the form that it declared. What comes back is put in canonical form and compared by
the same rules as everybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from medusa_conformance.forms import (
    Order,
    branching_of,
    canonical_slots,
    canonical_table,
    leaves_of,
    narrowed,
    probabilities,
    retrieval_order,
    row_order,
    tree_mask,
    visibility,
)
from medusa_conformance.isolation import Isolated, Missing
from medusa_oracles.heads import IGNORED
from medusa_oracles.tree import derive_tree
from medusa_spec.arrays import Array, BoolArray, FloatArray, IntArray, RankPath
from medusa_spec.coordinate import Coordinate, Policy
from medusa_spec.dialect import Dialect
from medusa_spec.errors import Unsupported
from medusa_spec.stages import (
    CacheView,
    CommitPlan,
    Decoded,
    Frontier,
    HeadAlignment,
    Proposal,
    Selection,
    TreeBuffers,
    Verification,
)


def fixed_policy(coordinate: Coordinate, dialect: Dialect) -> Coordinate:
    """The coordinate with the policy fields that an engine holds fixed."""
    if not dialect.policy:
        return coordinate
    return replace(coordinate, policy=replace(coordinate.policy, **dialect.policy), expected={})


@dataclass(frozen=True, slots=True)
class Compiled:
    """A tree as it was handed out, as the engine gave it, and how the two correspond.

    `retrieval` `[R, W]` is what it should be, whatever the engine shows of its own.
    """

    canonical: TreeBuffers
    own: TreeBuffers
    order: Order
    retrieval: IntArray


class Translated:
    """An isolated engine behind its dialect; stages, `Missing` and `Incident` are those of it."""

    def __init__(self, engine: Isolated, dialect: Dialect) -> None:
        self._engine = engine
        self._dialect = dialect
        self._trees: list[Compiled] = []
        self._staged: Compiled | None = None
        self._committed = 0
        self._moved = True

    def has(self, *stages: str) -> bool:
        """Whether the engine has every one of `stages`."""
        return self._engine.has(*stages)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        stage: Callable[..., Any] = getattr(self._engine, name)
        return stage

    def align_heads(self, tokens: IntArray, owned: BoolArray, heads: int) -> HeadAlignment:
        """Labels of `[B, S]`; of an engine that shifts by one less, tokens moved by one."""
        if self._dialect.labels == "pre-shifted":
            tokens, owned = np.roll(tokens, -1, axis=1), np.roll(owned, -1, axis=1)
            tokens[:, -1], owned[:, -1] = IGNORED, False
        found: HeadAlignment = self._engine.align_heads(tokens, owned, heads)
        return found

    def compile_tree(
        self, paths: Sequence[RankPath], topk: int, retrieval: str, sentinel: int
    ) -> TreeBuffers:
        """The engine's buffers in canonical form."""
        given = self._choices("compile_tree", paths)
        own: TreeBuffers = self._engine.compile_tree(given, topk, retrieval, sentinel)
        truth = derive_tree(paths, topk, retrieval, sentinel)
        made = self._canonical(own, truth, topk)
        self._trees.append(made)
        return made.canonical

    def prefill(self, tokens: Sequence[int]) -> Frontier:
        """Begin a generation."""
        frontier: Frontier = self._engine.prefill(tokens)
        self._committed, self._staged, self._moved = len(tokens), None, True
        return frontier

    def propose(self, tree: TreeBuffers, frontier: Frontier, topk: int, sentinel: int) -> Proposal:
        """The proposal, by canonical rows and paths."""
        made = self._compiled(tree)
        found: Proposal = self._engine.propose(made.own, frontier, topk, sentinel)
        packed, candidates = found.packed, found.candidates
        if candidates is not None:
            candidates = self._unpadded(candidates, made, sentinel)
        return Proposal(self._table(found.table, topk), _by(packed, made.order.rows, 0), candidates)

    def verify(self, tree: TreeBuffers, packed: IntArray) -> Verification:
        """The verification, by canonical rows and paths."""
        made = self._compiled(tree)
        rows, back = made.order.rows, made.order.back
        found: Verification = self._engine.verify(made.own, _by(packed, back, 0))
        self._staged, self._moved = made, True
        mask = None if found.mask is None else self._staged_mask(found.mask, len(rows), rows)
        positions = _by(found.positions, rows, 0)
        if positions is not None and self._dialect.positions == "relative":
            positions = positions + self._committed
        physical = _by(found.rows, rows, 0)
        if physical is not None:
            physical = made.order.physical(physical, self._committed)
        path_logits = _by(found.path_logits, made.order.paths, 0)
        wide = path_logits is not None and path_logits.ndim == 3
        if wide and self._dialect.retrieval == "own":
            # Entries at padding mean nothing, so those of a column of it may go unread.
            path_logits = path_logits[:, : made.retrieval.shape[1]]
        return Verification(
            logits=_by(found.logits, rows, 0),
            head_logits=_by(found.head_logits, rows, 1),
            path_logits=path_logits,
            mask=mask,
            positions=positions,
            rows=physical,
            kv=_by(found.kv, rows, 3),
        )

    def select(self, candidates: IntArray, path_logits: FloatArray, policy: Policy) -> Selection:
        """The winner among canonical paths; accepted lengths count suffix edges."""
        given = candidates
        if self._dialect.pad_token is not None:
            given = np.where(candidates < 0, self._dialect.pad_token, candidates)
        judged = path_logits
        if self._dialect.posterior_input == "probabilities":
            judged = probabilities(path_logits, policy)
        found: Selection = self._engine.select(given, judged, policy)
        counted: dict[str, Any] = {"accepted": found.accepted, "lengths": found.lengths}
        extra = self._dialect.extra
        return replace(found, **{n: c - extra for n, c in counted.items() if c is not None})

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> CommitPlan:
        """The commit of a canonical path, its rows by canonical numbers."""
        made = self._staged
        if made is not None and 0 <= path < len(made.order.paths):
            path = int(made.order.paths[path])
        end = end_of_sequence if self._dialect.end_of_sequence == "commit" else None
        plan: CommitPlan = self._engine.commit(path, accepted + self._dialect.extra, end)
        committed = self._committed
        self._moved = self._dialect.kv_move == "eager"
        self._staged = None
        if plan.tokens is not None:
            self._committed += plan.tokens.size
        if made is None or plan.source is None:
            return plan
        return replace(plan, source=made.order.physical(plan.source, committed))

    def cache(self) -> CacheView:
        """The cache, its staged rows in canonical order; nothing of rows that are yet to move."""
        view: CacheView = self._engine.cache()
        if not self._moved:
            unmoved: Any = None
            return replace(view, backing=unmoved)
        if self._staged is None or view.backing is None or view.backing.ndim != 5:
            return view
        rows = self._staged.order.rows
        backing = view.backing.copy()
        staged = slice(self._committed, self._committed + len(rows))
        backing[:, :, :, staged] = _by(backing[:, :, :, staged], rows, 3)
        return replace(view, backing=backing)

    def generate(
        self,
        prefix: Sequence[int],
        how_many: int,
        paths: Sequence[RankPath],
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> Decoded:
        """A whole generation, with a tree of the form that the engine takes."""
        given = self._choices("generate", paths)
        found: Decoded = self._engine.generate(
            prefix, how_many, given, topk, policy, end_of_sequence
        )
        return found

    def _choices(self, stage: str, paths: Sequence[RankPath]) -> Sequence[Any]:
        if not self.has(stage):
            raise Missing(stage)
        if self._dialect.choices == "branching":
            try:
                return branching_of(paths)
            except Unsupported as reason:
                self._engine.record.decline(stage, reason)
                raise
        return leaves_of(paths) if self._dialect.choices == "leaves" else paths

    def _canonical(self, own: TreeBuffers, truth: TreeBuffers, topk: int) -> Compiled:
        dialect, nodes = self._dialect, len(truth.paths)
        rows = np.arange(nodes)
        if dialect.node_order == "own":
            rows = row_order(own.paths, truth.paths)
        order = Order(rows, np.arange(len(truth.retrieval)))
        slots: Any = own.slots
        retrieval: Any = own.retrieval
        if dialect.slots == "own":
            slots = None
        elif slots is not None and isinstance(dialect.slots, int):
            slots = canonical_slots(slots, dialect.slots, topk)
        mask = None if own.mask is None else tree_mask(own.mask, dialect, nodes)
        if mask is not None and mask.shape == (nodes, nodes):
            mask = mask[rows][:, rows]
        if retrieval is not None and retrieval.dtype.kind in "iu":
            retrieval = retrieval.astype(np.int64)
            within = (retrieval >= 0) & (retrieval < nodes)
            retrieval = np.where(within, order.back[np.where(within, retrieval, 0)], retrieval)
            if dialect.retrieval == "own":
                order = replace(order, paths=retrieval_order(retrieval, truth.retrieval))
                retrieval = _by(retrieval, order.paths, 0)
                retrieval = narrowed(retrieval, truth.retrieval.shape[1])
        paths = own.paths
        if paths is not None and len(paths) == nodes:
            paths = tuple(paths[row] for row in rows)
        buffers = TreeBuffers(
            paths=paths,
            slots=_by(slots, rows, 0),
            mask=mask,
            depths=_by(own.depths, rows, 0),
            retrieval=retrieval,
        )
        return Compiled(buffers, own, order, truth.retrieval)

    def _compiled(self, tree: TreeBuffers) -> Compiled:
        """The engine's own buffers behind a tree that it compiled; the judge's as they are."""
        for made in self._trees:
            if made.canonical is tree:
                return made
        order = Order(np.arange(len(tree.paths)), np.arange(len(tree.retrieval)))
        return Compiled(tree, tree, order, tree.retrieval)

    def _table(self, table: IntArray | None, topk: int) -> Any:
        stride = self._dialect.slots
        if table is None or stride == "own":
            return None
        return table if stride == "canonical" else canonical_table(table, stride, topk)

    def _unpadded(self, candidates: IntArray, made: Compiled, sentinel: int) -> IntArray:
        """Candidates by canonical path, with a sentinel where padding is the declared token."""
        found = _by(candidates, made.order.paths, 0)
        padding, pad = made.retrieval < 0, self._dialect.pad_token
        if self._dialect.retrieval == "own":
            found = narrowed(found, padding.shape[1], pad)
        if pad is not None and found.shape == padding.shape:
            found = np.where(padding & (found == pad), sentinel, found)
        whole: IntArray = found
        return whole

    def _staged_mask(self, mask: Array, nodes: int, rows: IntArray) -> BoolArray:
        """`[N, P+N]` booleans: what a row sees of the prefix and of the tree."""
        seen = visibility(mask, self._dialect, self._committed + nodes)
        if seen.shape != (nodes, self._committed + nodes):
            return seen
        committed, staged = seen[:, : self._committed], seen[:, self._committed :]
        whole: BoolArray = np.concatenate([committed[rows], staged[rows][:, rows]], axis=1)
        return whole


Engine: TypeAlias = Isolated | Translated
"""What a line asks: an isolated engine, behind its dialect where it declares one."""


def _by(array: Any, order: IntArray, axis: int) -> Any:
    """An array in another order along an axis; as it is where it has not as many entries."""
    if array is None or array.ndim <= axis or array.shape[axis] != len(order):
        return array
    return np.take(array, order, axis=axis)
