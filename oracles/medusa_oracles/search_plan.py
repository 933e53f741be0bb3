"""What a search must come to (chapter `spec/search.md`), without a frontier that is walked.

A child weighs no more than its parent, so the heaviest paths there are form a tree by themselves:
they are sorted, level by level, and the frontier of each admission is read off afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from medusa_spec.arrays import FloatArray, IntArray, RankPath
from medusa_spec.coordinate import Calibration

LARGEST, MOST_SETS = 12, 20_000
"""Paths of the largest set, and sets of that size, that are compared one by one: beyond either, S8
is not exercised."""


class Decision(NamedTuple):
    """One admission (clause S6): the frontier before it, and the best path that was left there."""

    path: RankPath
    weight: float
    frontier: int
    runner_up: RankPath | None
    runner_up_weight: float | None


class Search(NamedTuple):
    """A tree in the order of its admission, and the expected accepted edges of a round."""

    increments: FloatArray
    decisions: tuple[Decision, ...]
    objective: float


def derive_increments(calibration: Calibration) -> FloatArray:
    """Clause S1: the mass of each rank alone, `[K, I]`."""
    table = np.array(calibration.accuracy, np.float64)[:, : calibration.max_rank]
    return np.diff(table, axis=1, prepend=0.0) if calibration.form == "cumulative" else table


def derive_weight(path: RankPath, increments: FloatArray) -> float:
    """Clause S2: the product along the path, head `k` at depth `k + 1`."""
    weight = 1.0
    for head, rank in enumerate(path):
        weight *= float(increments[head, rank])
    return weight


def derive_size(calibration: Calibration) -> int:
    """Clause S7: the budget, or all paths there are where those are fewer."""
    heads, ranks = len(calibration.accuracy), calibration.max_rank
    paths = sum(int(ranks**depth) for depth in range(1, heads + 1))
    return min(calibration.nodes, paths)


def derive_search(calibration: Calibration) -> Search:
    """The tree that clauses S1 to S7 leave no choice in; equal weights are those of float64."""
    increments = derive_increments(calibration)
    chosen = _heaviest(increments, calibration.nodes)
    paths: list[RankPath] = []
    for parent, rank in zip(chosen.parent.tolist(), chosen.rank.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), rank))
    decisions = tuple(_decisions(paths, chosen, increments))
    return Search(increments, decisions, float(chosen.weight.sum()))


class _Nodes(NamedTuple):
    """Nodes `[n]` by their parents' places, -1 for the root; an order goes with them."""

    parent: IntArray
    rank: IntArray
    depth: IntArray
    weight: FloatArray

    def taken(self, places: IntArray) -> _Nodes:
        """Some of the nodes, in another order."""
        return _Nodes(
            self.parent[places], self.rank[places], self.depth[places], self.weight[places]
        )

    @staticmethod
    def joined(parts: Sequence[_Nodes]) -> _Nodes:
        """Nodes one part behind the other."""
        parent, rank, depth = (
            np.concatenate([part[column] for part in parts]) for column in range(3)
        )
        return _Nodes(parent, rank, depth, np.concatenate([part.weight for part in parts]))


def _children(of: _Nodes, places: IntArray, increments: FloatArray) -> _Nodes:
    """All children of the nodes at some places, which are their parents' numbers."""
    heads, ranks = increments.shape
    places = places[of.depth[places] < heads]
    depth = np.repeat(of.depth[places], ranks)
    rank = np.tile(np.arange(ranks), len(places))
    weight = np.repeat(of.weight[places], ranks) * increments[depth, rank]
    return _Nodes(np.repeat(places, ranks), rank, depth + 1, weight)


_ROOT = _Nodes(np.array([-1]), np.array([-1]), np.array([0]), np.array([1.0]))


def _heaviest(increments: FloatArray, count: int) -> _Nodes:
    """The `count` heaviest paths, the heaviest first, equal ones in canonical order.

    Of a level no more than so many can be among them, and neither can the children of the others.
    """
    levels, above, begin = [_ROOT], _ROOT, 0
    for _ in increments:
        grown = _children(above, np.arange(len(above.parent)), increments)
        # Parents stand in canonical order, and so do children of one depth; sorting is stable.
        kept = np.sort(np.argsort(-grown.weight, kind="stable")[:count])
        above = grown.taken(kept)
        levels.append(above._replace(parent=above.parent + begin))
        begin += len(levels[-2].parent)
    every = _Nodes.joined(levels)
    order = 1 + np.argsort(-every.weight[1:], kind="stable")[:count]
    place = np.full(len(every.parent), -1)
    place[order] = np.arange(len(order))
    chosen = every.taken(order)
    return chosen._replace(parent=place[chosen.parent])


def _decisions(paths: list[RankPath], chosen: _Nodes, increments: FloatArray) -> Iterator[Decision]:
    """Clause S6, of the paths that were chosen.

    All that ever stands in the frontier is sorted; the first of it are the paths themselves. What
    stands there before admission `n` has an earlier parent, so the best that is left is found from
    the last admission backwards, each of which takes the children of one more parent away.
    """
    ever = _frontier(paths, chosen, increments)
    waiting = len(ever.parent)
    # `following[p]` leads to the next place from `p` on that is still in the frontier.
    following = [*range(waiting + 1)]
    below: list[list[int]] = [[] for _ in paths]
    for place, parent in enumerate(ever.parent.tolist()):
        if parent >= 0:
            below[parent].append(place)
    runners_up = []
    for node in reversed(range(len(paths))):
        for place in below[node]:
            following[place] = place + 1
        runners_up.append(_next(following, node + 1))
    size = increments.shape[1]
    weights, ranks, parents = (c.tolist() for c in (ever.weight, ever.rank, ever.parent))
    for node, place in enumerate(reversed(runners_up)):
        left, weight = None, None
        if place < waiting:
            above = paths[parents[place]] if parents[place] >= 0 else ()
            left, weight = (*above, ranks[place]), weights[place]
        yield Decision(paths[node], weights[node], size, left, weight)
        size += len(below[node]) - 1


def _frontier(paths: list[RankPath], chosen: _Nodes, increments: FloatArray) -> _Nodes:
    """Everything that ever stands in the frontier, in the order in which it would be admitted."""
    roots = _children(_ROOT, np.array([0]), increments)
    roots = roots._replace(parent=np.full_like(roots.parent, -1))
    grown = _children(chosen, np.arange(len(paths)), increments)
    ever = _Nodes.joined((roots, grown))
    # Of one depth, canonical order is that of the parents, and then of the ranks.
    canonical = sorted(range(len(paths)), key=lambda n: (len(paths[n]), paths[n]))
    number = np.zeros(len(paths) + 1, np.int64)
    number[canonical] = np.arange(len(paths))
    order = np.lexsort((ever.rank, number[ever.parent], ever.depth, -ever.weight))
    return ever.taken(order)


def _next(following: list[int], place: int) -> int:
    while following[place] != place:
        following[place] = following[following[place]]
        place = following[place]
    return place


def derive_sets(heads: int, ranks: int, size: int) -> int:
    """How many prefix-closed sets of `size` paths there are.

    Below a node either nothing hangs from a rank, or a path and a set below it: as polynomials in
    the number of paths, `F_d = (1 + x F_{d+1})^ranks`, and `F` below the last head is 1.
    """
    below = [1] + [0] * size
    for _ in range(heads):
        one = [1, *below[:size]]
        below = [1] + [0] * size
        for _ in range(ranks):
            below = [sum(below[i] * one[n - i] for i in range(n + 1)) for n in range(size + 1)]
    return below[size]


def prefix_closed_sets(heads: int, ranks: int, size: int) -> Iterator[tuple[RankPath, ...]]:
    """Every one of them, once: what was passed over when a path was chosen never comes back."""

    def grow(
        chosen: tuple[RankPath, ...], frontier: tuple[RankPath, ...]
    ) -> Iterator[tuple[RankPath, ...]]:
        if len(chosen) == size:
            yield chosen
            return
        for place, path in enumerate(frontier):
            below = (*((*path, rank) for rank in range(ranks)),) if len(path) < heads else ()
            yield from grow((*chosen, path), (*frontier[place + 1 :], *below))

    return grow((), tuple((rank,) for rank in range(ranks)))


def is_exhaustible(calibration: Calibration) -> bool:
    """Whether the sets are small and few enough for S8 to compare them all."""
    size, heads = derive_size(calibration), len(calibration.accuracy)
    return size <= LARGEST and derive_sets(heads, calibration.max_rank, size) <= MOST_SETS


@lru_cache(maxsize=64)
def derive_best(calibration: Calibration) -> float:
    """Clause S8: the greatest objective of all prefix-closed sets of as many paths."""
    increments = derive_increments(calibration)
    size, (heads, ranks) = derive_size(calibration), increments.shape
    return max(
        sum(derive_weight(path, increments) for path in chosen)
        for chosen in prefix_closed_sets(heads, ranks, size)
    )
