"""Crafted inputs: logits that an engine's own would not reach, and heads of random parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from medusa_oracles.tree import tree_of
from medusa_spec.arrays import FloatArray, IntArray, RankPath
from medusa_spec.coordinate import Acceptance, Coordinate, Policy, Ranking, RowPosterior
from medusa_spec.stages import Frontier, HeadState, TreeBuffers

STEP = 0.25
"""Crafted logits are multiples of this, so that equal ones are exactly equal."""

GREAT = 800.0
"""A logit whose bare exponential is beyond a double, and whose softmax makes others impossible."""


RENEWED = 2
"""The number of the generation whose rounds are over a `lesser` tree."""


def ranked_frontier(ranking: Ranking, vocabulary: int, topk: int) -> Frontier:
    """A frontier whose greatest target logit is the root and whose ranks are the given ones."""
    target = np.zeros(vocabulary)
    target[ranking.root] = 1.0
    heads = np.zeros((len(ranking.heads), vocabulary))
    for head, ranked in enumerate(ranking.heads):
        heads[head, list(ranked)] = STEP * np.arange(topk, 0, -1)
    return Frontier(target, heads)


def coarse_frontier(coordinate: Coordinate) -> Frontier:
    """A frontier of three different logits, so that the order of equal ones decides."""
    heads, vocabulary = coordinate.heads, coordinate.model.vocabulary
    generator = np.random.default_rng([coordinate.policy.seed, heads, vocabulary])
    logits = STEP * generator.integers(0, 3, (heads + 1, vocabulary)).astype(np.float64)
    return Frontier(logits[0], logits[1:])


def great_logits(coordinate: Coordinate) -> FloatArray:
    """`[N, V]` logits, each zero or as great as `GREAT` on either side."""
    shape = coordinate.nodes, coordinate.model.vocabulary
    generator = np.random.default_rng([coordinate.policy.seed, *shape])
    return GREAT * generator.integers(-1, 2, shape).astype(np.float64)


def coarse_logits(coordinate: Coordinate, seed: int) -> FloatArray:
    """`[N, V]` logits of few different values, so that ties are common."""
    shape = coordinate.nodes, coordinate.model.vocabulary
    generator = np.random.default_rng([coordinate.policy.seed, seed, *shape])
    return STEP * generator.integers(-4, 4, shape).astype(np.float64)


def posterior_logits(
    posterior: tuple[RowPosterior, ...], tree: TreeBuffers, vocabulary: int
) -> FloatArray:
    """`[N, V]` log probabilities of the prescribed rows; every other row is uniform."""
    logits = np.full((len(tree.paths), vocabulary), -np.log(vocabulary))
    for row in posterior:
        others = vocabulary - len(row.probabilities)
        probabilities = np.full(vocabulary, row.rest / others)
        for token, probability in row.probabilities.items():
            probabilities[token] = probability
        logits[tree.paths.index(row.path)] = np.log(probabilities)
    return logits


def steered_logits(
    planned: Acceptance, tree: TreeBuffers, packed: IntArray, coordinate: Coordinate, seed: int
) -> FloatArray:
    """`[N, V]` logits under which exactly `planned.edges` edges of `planned.path` are plausible.

    Off the path they are coarse noise, so that ties are common. Behind the last edge the greatest
    logit is token 0's: an engine that takes padding for token 0 then accepts padding.
    """
    vocabulary = coordinate.model.vocabulary
    generator = np.random.default_rng([seed, *planned.path, planned.edges])
    logits = STEP * generator.integers(-4, 4, (len(packed), vocabulary)).astype(np.float64)
    rows = [tree.paths.index(planned.path[:depth]) for depth in range(len(planned.path) + 1)]
    for row, successor in pairwise(rows[: planned.edges + 1]):
        logits[row, packed[successor]] = 6.0
    last = rows[planned.edges]
    if planned.edges < len(planned.path):
        logits[last, packed[rows[planned.edges + 1]]] = -6.0
    else:
        logits[last, 0] = 6.0
    return logits


def prescribed_logits(
    coordinate: Coordinate, planned: Acceptance | None, packed: IntArray, seed: int
) -> FloatArray | None:
    """`[N, V]` logits that the coordinate names, or that steer to what it planned; `None`, neither.

    Over the judge's own tree: a steered row must be the row that the path names.
    """
    truth = tree_of(coordinate)
    if coordinate.posterior:
        return posterior_logits(coordinate.posterior, truth, coordinate.model.vocabulary)
    if planned is None:
        return None
    return steered_logits(planned, truth, packed, coordinate, coordinate.policy.seed + seed)


def along_paths(logits: FloatArray, tree: TreeBuffers) -> FloatArray:
    """`[R, W, V]`; where retrieval is padded stands the last row, as a careless gather has it."""
    # Whatever the sentinel is: -1 is the one that numpy takes for the last row.
    return logits[np.maximum(tree.retrieval, -1)]


def random_heads(generator: np.random.Generator, coordinate: Coordinate) -> HeadState:
    """Heads with different parameters everywhere, of the scale of real ones."""
    scale = coordinate.model.hidden**-0.5

    def matrices(*size: int) -> FloatArray:
        drawn: FloatArray = scale * generator.normal(size=size)
        return drawn

    return heads_of(coordinate, matrices, lambda *size: generator.normal(size=size))


def heads_of(
    coordinate: Coordinate,
    matrices: Callable[..., FloatArray],
    vectors: Callable[..., FloatArray],
) -> HeadState:
    """Heads of a coordinate's sizes, from what gives matrices and biases of a size."""
    shape, heads = coordinate.model, coordinate.heads
    width, blocks, vocabulary = shape.hidden, shape.head_blocks, shape.vocabulary
    own = matrices(heads, vocabulary, width) if shape.projection == "independent" else None
    return HeadState(
        matrices(heads, blocks, width, width),
        vectors(heads, blocks, width),
        matrices(vocabulary, width),
        own,
    )


def alter_head(given: HeadState, head: int) -> HeadState | None:
    """The same heads, one of which chooses otherwise; `None` where a head owns no parameter."""
    bias = given.bias.copy()
    if bias.shape[1]:
        bias[head, 0] += 3.0
        return replace(given, bias=bias)
    if given.projection is None:
        return None
    projection = given.projection.copy()
    projection[head] = np.roll(projection[head], 1, axis=0)
    return replace(given, projection=projection)


def unsorted(paths: tuple[RankPath, ...]) -> tuple[RankPath, ...]:
    """The same tree in another order of its list, which decides nothing (clause T1).

    Neither ascending nor descending, where it has paths enough: either would let a list pass that
    is turned round instead of sorted.
    """
    generator = np.random.default_rng([len(paths), *(rank for path in paths for rank in path)])
    return tuple(paths[place] for place in generator.permutation(len(paths)))


def mirrored(coordinate: Coordinate) -> tuple[RankPath, ...]:
    """Another tree of the same sizes: rank `r` is `TOPK - 1 - r`."""
    last = coordinate.topk - 1
    return tuple(tuple(last - rank for rank in path) for path in coordinate.paths)


def lesser(coordinate: Coordinate) -> Coordinate | None:
    """The coordinate over the first two of its paths, or fewer, and always over fewer rows.

    `None` where its tree is a root alone. Nothing is steered in it, and nothing ends it.
    """
    if coordinate.nodes == 1:
        return None
    smaller = coordinate.with_tree(coordinate.paths[: min(coordinate.nodes - 2, 2)])
    return replace(smaller, ranking=None, end_of_sequence=None)


def shifted(tokens: Sequence[int], vocabulary: int) -> tuple[int, ...]:
    """As many tokens, each of them another."""
    return tuple((token + 1) % vocabulary for token in tokens)


def kindred(tokens: Sequence[int], vocabulary: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Two prompts of `most` tokens or fewer that begin as `tokens` do.

    The first goes on behind them, the second is another from the middle on.
    """
    longer = (*tokens[: most - 1], *shifted(tokens[:1], vocabulary))
    half = len(longer) // 2
    return longer, longer[:half] + shifted(longer[half:], vocabulary)


def greedy(policy: Policy) -> Policy:
    """The same policy, greedy."""
    return replace(policy, mode="greedy", temperature=0.0, tie_rule="first-maximal-path")


def other_mode(policy: Policy) -> Policy:
    """The same policy, greedy where it is typical, and typical where it is greedy."""
    if policy.mode != "greedy":
        return greedy(policy)
    return replace(policy, mode="fast-typical", temperature=0.7, tie_rule="greatest-likelihood")
