"""Forms that engines give lawfully, and the canonical form of each: masks, slots, row orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusa_spec.arrays import Array, BoolArray, FloatArray, IntArray, RankPath
from medusa_spec.coordinate import Policy
from medusa_spec.dialect import Dialect
from medusa_spec.errors import Unsupported


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


def visibility(mask: Array, dialect: Dialect) -> BoolArray:
    """A mask of any form as booleans, true where the row sees the column."""
    plain = mask.reshape(mask.shape[-2:]) if mask.ndim > 2 else mask
    seen: BoolArray = plain != 0
    if dialect.mask == "additive":
        seen = plain == 0
    elif dialect.mask != "boolean":
        bits = int(dialect.mask.removeprefix("packed"))
        spread = plain.astype(np.int64)[..., None] >> np.arange(bits) & 1
        # Words may be wider than the rows are many; what is behind them is nobody's column.
        seen = spread.reshape(len(plain), -1).astype(np.bool_)
    return seen


def tree_mask(mask: Array, dialect: Dialect, nodes: int) -> BoolArray:
    """The mask of a tree as `[N, N]` booleans, the root's row and column with it."""
    seen = visibility(mask, dialect)
    if dialect.mask_root == "present":
        return seen[:, :nodes] if dialect.mask.startswith("packed") else seen
    if seen.shape[0] != nodes - 1:
        return seen
    whole = np.zeros((nodes, nodes), np.bool_)
    whole[:, 0] = True
    whole[1:, 1:] = seen[:, : nodes - 1]
    return whole


def canonical_slots(slots: IntArray, stride: int, topk: int) -> IntArray:
    """Slots of depths `stride` apart as slots of depths TOPK apart (clause T2)."""
    behind = slots - 1
    moved: IntArray = np.where(slots > 0, 1 + behind // stride * topk + behind % stride, slots)
    return moved


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
    real = [tuple(row[row >= 0].tolist()) for row in retrieval]
    wanted = [tuple(row[row >= 0].tolist()) for row in canonical]
    if sorted(real) != sorted(wanted):
        return np.arange(len(retrieval))
    return np.array([real.index(row) for row in wanted], np.int64)


def fitted(rows: Array, width: int, padding: int) -> Array:
    """`[R, width]` of `[R, W]`: columns of nothing but padding go or come."""
    if rows.shape[1] > width and (rows[:, width:] < 0).all():
        return rows[:, :width]
    missing = width - rows.shape[1]
    if missing <= 0:
        return rows
    filling = np.full((len(rows), missing), padding, rows.dtype)
    return np.concatenate([rows, filling], axis=1)


def probabilities(path_logits: FloatArray, policy: Policy) -> FloatArray:
    """What an engine that wants probabilities is given; a greedy policy has no temperature."""
    scaled = path_logits / (policy.temperature or 1.0)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        found: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return found
