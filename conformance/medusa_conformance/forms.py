"""Forms that engines give lawfully, and the canonical form of each: masks, slots, row orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusa_spec.arrays import Array, BoolArray, FloatArray, IntArray, RankPath
from medusa_spec.coordinate import Policy
from medusa_spec.dialect import Dialect
from medusa_spec.errors import Unsupported

FAR_BELOW = -1000.0
"""An additive mask hides what is at most this: no logits are so far apart."""


@dataclass(frozen=True, slots=True)
class Order:
    """Where canonical rows stand in an engine's own buffers.

    `rows` `[N]` and `paths` `[R]` give the engine's index of each canonical row and retrieval path.
    """

    rows: IntArray
    paths: IntArray

    @property
    def back(self) -> IntArray:
        """The canonical row of each of the engine's own, `[N]`."""
        found: IntArray = np.argsort(self.rows)
        return found

    def physical(self, rows: Array, committed: int) -> Array:
        """Physical cache rows, those of the staged tree as if it were staged canonically."""
        if rows.dtype.kind not in "iu":
            return rows
        rows = rows.astype(np.int64)
        staged = rows - committed
        within = (staged >= 0) & (staged < len(self.rows))
        moved: Array = np.where(within, committed + self.back[np.where(within, staged, 0)], rows)
        return moved


def branching_of(paths: Sequence[RankPath]) -> tuple[int, ...]:
    """The branching factor of each depth; `Unsupported` where the tree is not regular."""
    given = set(paths)
    factors: list[int] = []
    level: list[RankPath] = [()]
    while True:
        width = sum(1 for path in given if path[:-1] == level[0] and len(path) == len(factors) + 1)
        if width == 0:
            break
        level = [(*path, rank) for path in level for rank in range(width)]
        if not given.issuperset(level):
            raise Unsupported("the tree has no branching factors: its nodes differ in children")
        factors.append(width)
    if len(given) != sum(int(np.prod(factors[: d + 1])) for d in range(len(factors))):
        raise Unsupported("the tree has no branching factors: its nodes differ in children")
    return tuple(factors)


def leaves_of(paths: Sequence[RankPath]) -> tuple[RankPath, ...]:
    """The maximal paths of a tree, in the order in which they were given."""
    inner = {path[:-1] for path in paths}
    return tuple(path for path in paths if path not in inner)


def visibility(mask: Array, dialect: Dialect, columns: int) -> Array:
    """A mask of any form as booleans, true where the row sees the column, `[..., columns]`.

    With NaN where an entry neither shows nor hides, which no engine can mean, it is of floats.
    """
    seen: BoolArray
    if dialect.mask == "boolean":
        return mask
    if dialect.mask == "additive":
        # As attention takes it: batch and attention heads, of one entry each, may stand before.
        while mask.ndim > 2 and len(mask) == 1:
            mask = mask[0]
        # What is added to a logit and does not hide it distorts it.
        seen, hidden = mask == 0, mask <= FAR_BELOW
        if not (seen | hidden).all():
            return np.where(seen | hidden, seen, np.nan)
    elif mask.ndim not in (1, 2) or mask.dtype.kind not in "biu":
        seen = mask != 0
    else:
        # One word a row may come without an axis of its own.
        words = mask.reshape(len(mask), 1 if mask.ndim == 1 else mask.shape[1])
        bits = int(dialect.mask.removeprefix("packed"))
        spread = words.astype(np.int64)[..., None] >> np.arange(bits) & 1
        # Words may be wider than the rows are many; what is behind them is nobody's column.
        seen = spread.reshape(len(words), words.shape[1] * bits)[:, :columns] != 0
    return seen


def tree_mask(mask: Array, dialect: Dialect, nodes: int) -> Array:
    """The mask of a tree as `[N, N]` booleans (`visibility`), the root's row and column with it."""
    if dialect.mask_root == "present":
        return visibility(mask, dialect, nodes)
    if nodes == 1 and mask.size == 0:
        return np.ones((1, 1), np.bool_)
    seen = visibility(mask, dialect, nodes - 1)
    if seen.ndim != 2:
        return seen
    # Also where a root is there already: the mask has then a row too many, as it should be found.
    whole = np.zeros((1 + seen.shape[0], 1 + seen.shape[1]), seen.dtype)
    whole[:, 0] = True
    whole[1:, 1:] = seen
    return whole


def canonical_slots(slots: IntArray, stride: int, topk: int) -> IntArray:
    """Slots of depths `stride` apart as slots of depths TOPK apart (clause T2).

    What has no slot there, such as rank TOPK and those behind it, comes negated: any other number
    would be the slot of some other node.
    """
    if slots.dtype.kind not in "iu":
        return slots
    slots = slots.astype(np.int64)
    behind = slots - 1
    depth, rank = behind // stride, behind % stride
    moved = np.where(rank < topk, 1 + depth * topk + rank, -slots)
    canonical: IntArray = np.where(slots > 0, moved, slots)
    return canonical


def canonical_table(table: IntArray, stride: int, topk: int) -> IntArray:
    """A candidate table of slots `stride` apart with TOPK slots a head.

    Of another length, it comes out with another number of slots than there should be.
    """
    if table.ndim != 1:
        return table
    begins = range(1, len(table), stride)
    levels = [table[begin : begin + min(stride, topk)] for begin in begins]
    return np.concatenate([table[:1], *levels])


def row_order(paths: Sequence[RankPath] | None, canonical: Sequence[RankPath]) -> IntArray:
    """Index of each canonical row in an engine's own order; the identity where it has another tree.

    A tree of other paths is then judged as it stands.
    """
    identity = np.arange(len(canonical))
    if paths is None or sorted(paths) != sorted(canonical):
        return identity
    places = {path: row for row, path in enumerate(paths)}
    return np.array([places[path] for path in canonical], np.int64)


def retrieval_order(retrieval: Array, canonical: IntArray) -> IntArray:
    """Index of each canonical retrieval row in an engine's own, whatever their widths.

    The identity where the engine has other paths: they are then judged as they stand.
    """
    if retrieval.ndim != 2:
        return np.arange(len(canonical))
    real = [tuple(row[row >= 0].tolist()) for row in retrieval]
    wanted = [tuple(row[row >= 0].tolist()) for row in canonical]
    if sorted(real) != sorted(wanted):
        return np.arange(len(retrieval))
    return np.array([real.index(row) for row in wanted], np.int64)


def narrowed(rows: Array, width: int, pad_token: int | None = None) -> Array:
    """`[R, width]` of wider rows, where nothing but padding goes; else as they are."""
    if rows.ndim != 2 or rows.shape[1] <= width:
        return rows
    behind = rows[:, width:]
    padding = (behind < 0) | (False if pad_token is None else behind == pad_token)
    return rows[:, :width] if padding.all() else rows


def probabilities(path_logits: FloatArray, policy: Policy) -> FloatArray:
    """What an engine that wants probabilities is given; a greedy policy has no temperature."""
    scaled = path_logits / (policy.temperature or 1.0)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        found: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return found
