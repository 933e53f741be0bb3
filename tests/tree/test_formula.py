"""The tree's buffers a second time: every pair of rows, every prefix, one at a time."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles.tree import derive_node_count, derive_parents, derive_tree
from medusa_spec import canonical_order

TOPK = 4


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A prefix-closed set of at most 24 paths, in any order."""
    paths: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(0, 24))):
        parent = draw(st.sampled_from([(), *(path for path in paths if len(path) < 5)]))
        path = (*parent, draw(st.integers(0, TOPK - 1)))
        if path not in paths:
            paths.append(path)
    return draw(st.permutations(paths))


ORDERS = st.sampled_from(["canonical", "pinned"])
SENTINELS = st.sampled_from([-1, -2, -1000])


@settings(max_examples=100, deadline=None)
@given(trees(), ORDERS, SENTINELS)
def test_buffers(literal: Any, paths: list[tuple[int, ...]], order: str, sentinel: int) -> None:
    derived, expected = (
        derive_tree(paths, TOPK, order, sentinel),
        literal.tree(paths, TOPK, order, sentinel),
    )
    assert list(derived.paths) == literal.rows(paths)
    assert derived.slots.tolist() == expected["tree_indices"]
    assert derived.mask.astype(int).tolist() == expected["attention_mask"]
    assert derived.depths.tolist() == expected["position_ids"]
    assert derived.retrieval.tolist() == expected["retrieve_indices"]
    assert derive_parents(derived.paths).tolist() == expected["parents"]


@settings(max_examples=50, deadline=None)
@given(trees())
def test_mask_has_the_three_properties_of_ancestry(paths: list[tuple[int, ...]]) -> None:
    """Reflexive, transitive, and closed to whatever is neither ancestor nor the row itself."""
    tree = derive_tree(paths, TOPK, "canonical")
    rows = range(len(tree.paths))
    for u in rows:
        assert tree.mask[u, u]
        for v in rows:
            if tree.mask[u, v] and u != v:
                assert not tree.mask[v, u]
                assert len(tree.paths[v]) < len(tree.paths[u])
                assert all(tree.mask[u, w] for w in rows if tree.mask[v, w])
            if len(tree.paths[u]) == len(tree.paths[v]):
                assert bool(tree.mask[u, v]) == (u == v)


@settings(max_examples=50, deadline=None)
@given(trees())
def test_order_of_the_list_does_not_matter(paths: list[tuple[int, ...]]) -> None:
    backwards = paths[::-1]
    assert canonical_order(paths) == canonical_order(backwards)
    one, other = (derive_tree(p, TOPK, "canonical") for p in (paths, backwards))
    assert one.paths == other.paths
    assert (one.mask == other.mask).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4))
def test_node_count_of_a_regular_tree(branching: list[int]) -> None:
    """By listing every node, level by level."""
    level, nodes = [()], []
    for width in branching:
        level = [(*path, rank) for path in level for rank in range(width)]
        nodes += level
    assert derive_node_count(branching) == len(nodes)
