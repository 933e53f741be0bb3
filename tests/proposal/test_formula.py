"""Candidates a second time: each slot by repeated search, each path by walking it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles.proposal import derive_proposal, derive_table
from medusa_oracles.tree import derive_tree

HEADS, TOPK, VOCABULARY = 3, 3, 6
# Few different values, so that ties are common.
LOGITS = st.lists(st.integers(-2, 2).map(float), min_size=VOCABULARY, max_size=VOCABULARY)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A prefix-closed set of at most ten paths."""
    paths: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(0, 10))):
        parent = draw(st.sampled_from([(), *(path for path in paths if len(path) < HEADS)]))
        path = (*parent, draw(st.integers(0, TOPK - 1)))
        if path not in paths:
            paths.append(path)
    return paths


def greatest(logits: list[float], taken: list[int]) -> int:
    """The token of the greatest logit among those not taken, the lowest id of equals."""
    best = None
    for token, logit in enumerate(logits):
        if token not in taken and (best is None or logit > logits[best]):
            best = token
    assert best is not None
    return best


def ranked(logits: list[float]) -> list[int]:
    taken: list[int] = []
    for _ in range(TOPK):
        taken.append(greatest(logits, taken))
    return taken


@settings(max_examples=100, deadline=None)
@given(LOGITS, st.lists(LOGITS, min_size=HEADS, max_size=HEADS))
def test_table(target: list[float], heads: list[list[float]]) -> None:
    expected = [greatest(target, []), *(token for logits in heads for token in ranked(logits))]
    assert derive_table(np.array(target), np.array(heads), TOPK).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(
    trees(),
    LOGITS,
    st.lists(LOGITS, min_size=HEADS, max_size=HEADS),
    st.sampled_from(["canonical", "pinned"]),
    st.sampled_from([-1, -2, -1000]),
)
def test_packed_tokens_and_candidates(
    literal: Any,
    paths: list[tuple[int, ...]],
    target: list[float],
    heads: list[list[float]],
    order: str,
    sentinel: int,
) -> None:
    tree = derive_tree(paths, TOPK, order, sentinel)
    table = derive_table(np.array(target), np.array(heads), TOPK)
    proposal = derive_proposal(table, tree, sentinel)
    ranks = [ranked(logits) for logits in heads]
    packed = literal.packed_tokens(paths, greatest(target, []), ranks)
    assert proposal.packed.tolist() == packed
    # By path, and not by row: the walk never sees retrieve_indices.
    width = 1 + max(map(len, paths), default=0)
    walked = []
    for leaf in literal.leaves(paths, order):
        tokens = [greatest(target, []), *(ranks[head][rank] for head, rank in enumerate(leaf))]
        walked.append(tokens + [sentinel] * (width - len(tokens)))
    assert proposal.candidates.tolist() == walked


def test_no_head_leaves_the_root_alone() -> None:
    table = derive_table(np.array([0.0, 2.0, 1.0]), np.zeros((0, 3)), 2)
    proposal = derive_proposal(table, derive_tree([], 2, "canonical"))
    assert (table.tolist(), proposal.packed.tolist()) == ([1], [1])
    assert proposal.candidates.tolist() == [[1]]
