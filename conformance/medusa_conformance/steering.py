"""Crafted logits: what a coordinate prescribes where the engine's own would not get there."""

from __future__ import annotations

import numpy as np

from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.coordinate import Acceptance, Coordinate, Ranking, RowPosterior
from medusa_spec.stages import Frontier, TreeBuffers

STEP = 0.25
"""Crafted logits are multiples of this, so that equal ones are exactly equal."""


def ranked_frontier(ranking: Ranking, vocabulary: int, topk: int) -> Frontier:
    """A frontier whose greatest target logit is the root and whose ranks are the given ones."""
    target = np.zeros(vocabulary)
    target[ranking.root] = 1.0
    heads = np.zeros((len(ranking.heads), vocabulary))
    for head, ranked in enumerate(ranking.heads):
        heads[head, list(ranked)] = STEP * np.arange(topk, 0, -1)
    return Frontier(target, heads)


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
    for row, successor in zip(rows[: planned.edges], rows[1:], strict=False):
        logits[row, packed[successor]] = 6.0
    last = rows[planned.edges]
    if planned.edges < len(planned.path):
        logits[last, packed[rows[planned.edges + 1]]] = -6.0
    else:
        logits[last, 0] = 6.0
    return logits


def along_paths(logits: FloatArray, tree: TreeBuffers) -> FloatArray:
    """`[R, W, V]`; where retrieval is padded stands the last row, as a careless gather has it."""
    return logits[tree.retrieval]
