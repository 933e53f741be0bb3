"""Sampling rounds of the real decoder: packed rows verified in one pass, and then committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from medusa_reference_engine.exactness import ExactnessStage
from medusa_reference_engine.sampling_round import Row, Weights
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Sampling
from medusa_spec.errors import Refused
from medusa_spec.stages import Frontier, TreeBuffers

if TYPE_CHECKING:
    from medusa_reference_engine.engine import ReferenceEngine

ORDER, SENTINEL = "canonical", -1
"""Of the tree's buffers; no sampling mode depends on either."""


class DecoderView:
    """The frontier of a generation, of which a round verifies one tree."""

    def __init__(
        self,
        engine: ReferenceEngine,
        stage: ExactnessStage,
        tree: TreeBuffers,
        frontier: Frontier,
        sampling: Sampling,
    ) -> None:
        self._engine, self._stage, self._tree = engine, stage, tree
        self._sampling = sampling
        self.root: Weights = stage.root_row(torch.from_numpy(frontier.target), sampling).drawn
        heads = torch.softmax(torch.from_numpy(frontier.heads), dim=-1)
        self.heads: Sequence[Weights] = heads.tolist()

    def rows(self, root: int, tokens: Mapping[RankPath, int]) -> Mapping[RankPath, Row]:
        """The processed row of each packed row, from one pass over the tree."""
        paths = self._tree.paths
        packed = np.array([root if not path else tokens[path] for path in paths])
        logits = torch.from_numpy(self._engine.verify(self._tree, packed).logits)
        rows = (self._stage.tree_row(row, self._sampling) for row in logits)
        return dict(zip(paths, rows, strict=True))


def sample_tokens(
    engine: ReferenceEngine,
    stage: ExactnessStage,
    prefix: Sequence[int],
    how_many: int,
    paths: Sequence[RankPath],
    topk: int,
    sampling: Sampling,
    seed: int,
) -> tuple[int, ...]:
    """`how_many` tokens behind a prefix, the same ones for a seed; the surplus of a round is cut.

    A rejection needs a chain of paths. `Refused`, before the first write, where prefix, output and
    one more tree might not fit the cache, or the paths of a rejection branch.
    """
    if sampling.rejects and any(any(path) for path in paths):
        raise Refused(f"{sampling.mode} draws one chain, and the paths branch")
    if len(prefix) + how_many - 1 + len(paths) + 1 > engine.capacity:
        raise Refused(f"{how_many} tokens and a tree may not fit the cache")
    tree = engine.compile_tree(paths, topk, ORDER, SENTINEL)
    draw = stage.randomness(seed)
    ordered = tree.paths[1:]
    frontier = engine.prefill(prefix)
    tokens: list[int] = []
    carried: int | None = None
    while len(tokens) < how_many:
        view = DecoderView(engine, stage, tree, frontier, sampling)
        step = stage.round(view, carried, draw, sampling, ordered)
        row = tree.paths.index(step.path)
        winner = int(np.argmax((tree.retrieval == row).any(axis=1)))
        frontier = engine.commit(winner, len(step.path), None).frontier
        tokens += step.tokens
        carried = step.carried
    return tuple(tokens[:how_many])
