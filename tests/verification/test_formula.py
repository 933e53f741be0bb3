"""The rectangular pass a second time: one row, one key, one position at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles.tree import derive_tree
from medusa_oracles.verification import (
    derive_path_logits,
    derive_positions,
    derive_rectangular_mask,
    derive_staged_rows,
)

TOPK = 3


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A prefix-closed set of at most twelve paths."""
    paths: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from([(), *(path for path in paths if len(path) < 4)]))
        path = (*parent, draw(st.integers(0, TOPK - 1)))
        if path not in paths:
            paths.append(path)
    return paths


def sees(row: tuple[int, ...], key: int, prefix: int, rows: list[tuple[int, ...]]) -> bool:
    """Whether a row sees a key: the whole prefix, and behind it its own ancestry."""
    if key < prefix:
        return True
    ancestor = rows[key - prefix]
    return row[: len(ancestor)] == ancestor


@settings(max_examples=80, deadline=None)
@given(trees(), st.integers(1, 6))
def test_mask_positions_and_rows(literal: Any, paths: list[tuple[int, ...]], prefix: int) -> None:
    tree, rows = derive_tree(paths, TOPK, "canonical"), literal.rows(paths)
    mask = [[sees(row, key, prefix, rows) for key in range(prefix + len(rows))] for row in rows]
    assert derive_rectangular_mask(tree.mask, prefix).tolist() == mask
    assert derive_positions(tree.depths, prefix).tolist() == [prefix + len(row) for row in rows]
    staged = [prefix + rows.index(row) for row in rows]
    assert derive_staged_rows(len(rows), prefix).tolist() == staged
    assert len(set(staged)) == len(rows)


@settings(max_examples=80, deadline=None)
@given(trees(), st.sampled_from(["canonical", "pinned"]), st.sampled_from([-1, -7, -1000]))
def test_path_logits(literal: Any, paths: list[tuple[int, ...]], order: str, sentinel: int) -> None:
    rows, vocabulary = literal.rows(paths), 3
    # The logits of a row say which row it is.
    logits = [[float(100 * row + token) for token in range(vocabulary)] for row in range(len(rows))]
    width = 1 + max(map(len, paths), default=0)
    expected = []
    for leaf in literal.leaves(paths, order):
        along = [logits[rows.index(leaf[:depth])] for depth in range(len(leaf) + 1)]
        expected.append(along + [[0.0] * vocabulary] * (width - len(along)))
    tree = derive_tree(paths, TOPK, order, sentinel)
    assert derive_path_logits(np.array(logits), tree.retrieval).tolist() == expected
