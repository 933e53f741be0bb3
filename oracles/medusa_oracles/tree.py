"""Oracle of `spec/tree.md`: the four coupled buffers of a tree, as functions of its row order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from medusa_oracles.judge import equal, oracle
from medusa_spec.arrays import Array, BoolArray, IntArray, RankPath
from medusa_spec.coordinate import Coordinate
from medusa_spec.findings import Finding
from medusa_spec.stages import TreeBuffers
from medusa_spec.trace import Trace


def derive_tree(
    paths: Sequence[Sequence[int]], topk: int, retrieval_order: str, sentinel: int = -1
) -> TreeBuffers:
    """Clauses T1 to T7 for a prefix-closed set of rank paths, in any order.

    Everything follows from one table: `ancestry[u, d]` is the row of the first `d` ranks of
    path `u`, the sentinel where the path is shorter. Its scatter is the mask, its rows at the
    leaves are the retrieval. The caller vouches for prefix closure (see `oracles.coordinate`).
    """
    order = sorted(map(tuple, paths))
    order.sort(key=len)
    nodes = len(order) + 1
    row_of: dict[RankPath, int] = {(): 0}
    above = []
    for row, path in enumerate(order, 1):
        above.append(row_of[path[:-1]])
        row_of[path] = row
    parents = np.array(above, np.int64)
    depths = np.array([0, *map(len, order)], np.int64)
    width = int(depths[-1]) + 1

    slots = np.array([0, *(1 + path[-1] for path in order)], np.int64)
    slots[1:] += (depths[1:] - 1) * topk

    rows = np.arange(nodes)
    ancestry = np.full((nodes, width), sentinel, np.int64)
    ancestry[rows, depths] = rows
    ancestry[:, 0] = 0
    starts = np.searchsorted(depths, np.arange(2, width + 1)).tolist()
    for depth, (start, stop) in enumerate(pairwise(starts), 2):
        ancestry[start:stop, 1:depth] = ancestry[parents[start - 1 : stop - 1], 1:depth]

    mask = np.zeros((nodes, nodes), np.bool_)
    mask[np.repeat(rows, depths + 1), ancestry[ancestry != sentinel]] = True

    is_leaf = np.ones(nodes, np.bool_)
    is_leaf[parents] = False
    retrieval = ancestry[is_leaf]
    if retrieval_order == "pinned":
        retrieval = retrieval[::-1].copy()
    return TreeBuffers(((), *order), slots, mask, depths, retrieval)


def derive_parents(paths: Sequence[RankPath]) -> IntArray:
    """Row of each row's parent, `[N]`, -1 for the root; `paths` in row order, root included."""
    row = {path: index for index, path in enumerate(paths)}
    return np.array([-1, *(row[path[:-1]] for path in paths[1:])], np.int64)


def derive_node_count(branching: Sequence[int]) -> int:
    """Clause T10: candidate nodes of regular branching, without the root."""
    return int(np.cumprod(np.asarray(branching, np.int64)).sum())


def gather_rows(values: Array, retrieval: IntArray, padding: float) -> Array:
    """`values` `[N, ...]` at the retrieval rows, `[R, W, ...]`, and `padding` behind each path.

    The sentinel is masked before it indexes anything: -1 would read the last row (0x04A).
    """
    gathered = values[np.maximum(retrieval, 0)]
    gathered[retrieval < 0] = padding
    return gathered


def tree_of(coordinate: Coordinate) -> TreeBuffers:
    """The buffers that a coordinate demands."""
    policy = coordinate.policy
    return _derived(coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel)


def expected_tree(trace: Trace) -> TreeBuffers:
    """The buffers that the trace's coordinate demands."""
    return tree_of(trace.coordinate)


# Every oracle of a round asks for the same few trees.
_derived = lru_cache(maxsize=64)(derive_tree)


@oracle("TREE.ROW_ORDER", "tree.paths")
def row_order(trace: Trace) -> Iterator[Finding]:
    """Clause T1."""
    expected = [list(path) for path in expected_tree(trace).paths]
    observed = [list(path) for path in trace["tree.paths"]]
    for row, (ours, theirs) in enumerate(zip(expected, observed, strict=False)):
        if ours != theirs:
            message = "the rows do not follow (length, path)"
            yield Finding("TREE.ROW_ORDER", message, {"row": row}, ours, theirs)
            return
    if len(expected) != len(observed):
        message = "the number of rows differs"
        yield Finding("TREE.ROW_ORDER", message, {}, len(expected), len(observed))


@oracle("TREE.SLOT", "tree.slots")
def slot(trace: Trace) -> Iterator[Finding]:
    """Clause T2."""
    message = "the candidate slot is not 1 + (depth-1)*TOPK + rank"
    expected = expected_tree(trace).slots
    yield from equal("TREE.SLOT", message, expected, trace["tree.slots"], ("row",))


def equal_mask(code: str, message: str, expected: BoolArray, observed: Array) -> Iterator[Finding]:
    """Whether a mask shows and hides what it must, `[rows, keys]`; not zero is visible.

    NaN is neither: it is what `0 * -inf` makes of a mask, and hides a row from itself.
    """
    odd = ~np.isfinite(observed)
    if expected.shape != observed.shape or not odd.any():
        yield from equal(code, message, expected, observed.astype(np.bool_), ("row", "key"))
        return
    row, key = (int(i) for i in np.argwhere(odd)[0])
    found = f"{message}; an entry neither shows its key nor hides it"
    sides = bool(expected[row, key]), float(observed[row, key])
    yield Finding(code, found, {"row": row, "key": key}, *sides)


@oracle("TREE.MASK_IS_ANCESTRY", "tree.mask")
def mask_is_ancestry(trace: Trace) -> Iterator[Finding]:
    """Clause T3."""
    message = "visibility is not ancestry"
    expected = expected_tree(trace).mask
    yield from equal_mask("TREE.MASK_IS_ANCESTRY", message, expected, trace["tree.mask"])


@oracle("TREE.POSITION_IS_DEPTH", "tree.depths")
def position_is_depth(trace: Trace) -> Iterator[Finding]:
    """Clause T4."""
    message = "the position is not the length of the row's path"
    expected = expected_tree(trace).depths
    yield from equal("TREE.POSITION_IS_DEPTH", message, expected, trace["tree.depths"], ("row",))


@oracle("TREE.RETRIEVAL_MAXIMAL", "tree.retrieval")
def retrieval_maximal(trace: Trace) -> Iterator[Finding]:
    """Clause T5: compares where each retrieval row ends, and in what order the ends come."""
    code, expected = "TREE.RETRIEVAL_MAXIMAL", _ends(expected_tree(trace).retrieval)
    observed = _ends(trace["tree.retrieval"])
    if len(expected) != len(observed):
        message = f"{len(observed)} retrieval rows, and {len(expected)} maximal paths"
        yield Finding(code, message, {}, len(expected), len(observed))
        return
    for finding in equal(code, "", expected, observed, ("path",)):
        last = finding.observed
        end = f"ends at packed row {last}" if last >= 0 else "holds no packed row"
        message = f"retrieval row {finding.where['path']} {end}"
        yield replace(finding, message=f"{message}, and must end at row {finding.expected}")


@oracle("TREE.RETRIEVAL_CHAIN", "tree.retrieval", "tree.mask")
def retrieval_chain(trace: Trace) -> Iterator[Finding]:
    """Clause T6, over the observed retrieval and the observed mask."""
    code = "TREE.RETRIEVAL_CHAIN"
    parents = derive_parents(expected_tree(trace).paths)
    mask, retrieval = trace["tree.mask"], trace["tree.retrieval"]
    detached = np.flatnonzero((retrieval[:, :1] != 0).any(axis=1))
    if len(detached):
        path = int(detached[0])
        message = "a retrieval row does not begin at the root"
        where = {"path": path, "entry": 0}
        yield Finding(code, message, where, 0, int(retrieval[path, 0]))
        return
    if mask.shape != (len(parents), len(parents)):
        return
    for path, entries in enumerate(retrieval):
        for entry, (parent, child) in enumerate(pairwise(entries), 1):
            where = {"path": path, "entry": entry}
            if child < 0:
                continue
            if parent < 0 or child >= len(parents) or parents[child] != parent:
                message = "adjacent entries are not parent and child"
                known = 0 <= child < len(parents)
                expected = int(parents[child]) if known else None
                yield Finding(code, message, where, expected, int(parent))
                return
            if not mask[child, parent]:
                message = "the child does not see its parent"
                yield Finding(code, message, where, True, False)
                return


@oracle("TREE.SENTINEL", "tree.retrieval")
def sentinel(trace: Trace) -> Iterator[Finding]:
    """Clause T7: nothing negative but the sentinel, and nothing real behind it."""
    code, declared = "TREE.SENTINEL", trace.coordinate.policy.sentinel
    observed, expected = trace["tree.retrieval"], expected_tree(trace).retrieval
    padding = observed < 0
    odd = np.argwhere(padding & (observed != declared))
    if len(odd):
        path, entry = map(int, odd[0])
        where = {"path": path, "entry": entry}
        message = "padding is not the declared sentinel"
        yield Finding(code, message, where, declared, int(observed[path, entry]))
    behind = np.argwhere(padding[:, :-1] & ~padding[:, 1:])
    if len(behind):
        path, entry = map(int, behind[0])
        where = {"path": path, "entry": entry}
        yield Finding(code, "a real entry stands behind padding", where)
    elif (ours := int((expected < 0).sum())) != (theirs := int(padding.sum())):
        yield Finding(code, "the number of padded entries differs", {}, ours, theirs)


@oracle("TREE.INVERSE", "tree.slots", "tree.retrieval", "tree.paths")
def inverse(trace: Trace) -> Iterator[Finding]:
    """Clause T8: with a different token in every slot, tokens by slot and by path agree."""
    topk, slots = trace.coordinate.topk, trace["tree.slots"]
    expected = expected_tree(trace)
    by_path = {
        path: 0 if not path else 1 + (len(path) - 1) * topk + path[-1] for path in expected.paths
    }
    named = np.array([by_path.get(tuple(path), -1) for path in trace["tree.paths"]])
    message = "the token gathered by slot is not the one that the row's path names"
    yield from equal("TREE.INVERSE", message, named, slots, ("row",))
    retrieval = trace["tree.retrieval"]
    if retrieval.shape == expected.retrieval.shape and (retrieval < len(slots)).all():
        ours = gather_rows(expected.slots, expected.retrieval, -1)
        theirs = gather_rows(slots, retrieval, -1)
        message = "the token gathered by retrieval is not the one on that path"
        yield from equal("TREE.INVERSE", message, ours, theirs, ("path", "entry"))


@oracle("TREE.DUPLICATE_TOKENS", "tree.retrieval", "tree.slots")
def duplicate_tokens(trace: Trace) -> Iterator[Finding]:
    """Clause T9: no row is missing, and retrieval reaches each, so no two nodes were merged."""
    rows, nodes = np.arange(len(trace["tree.slots"])), trace.coordinate.nodes
    if len(rows) < nodes:
        message = "fewer rows than paths: one row answers for two nodes"
        yield Finding("TREE.DUPLICATE_TOKENS", message, {}, nodes, len(rows))
        return
    missing = np.setdiff1d(rows, trace["tree.retrieval"])
    if len(missing):
        message = "a packed row is on no retrieval path: another row answers for it"
        yield Finding("TREE.DUPLICATE_TOKENS", message, {"row": int(missing[0])})


@oracle(
    "TREE.NODE_COUNT",
    "tree.node_count",
    applies=lambda trace: trace.coordinate.branching is not None,
)
def node_count(trace: Trace) -> Iterator[Finding]:
    """Clause T10."""
    expected = derive_node_count(trace.coordinate.branching or ())
    observed = int(trace["tree.node_count"])
    if expected != observed:
        message = f"branching {list(trace.coordinate.branching or ())} has another node count"
        yield Finding("TREE.NODE_COUNT", message, {}, expected, observed)


def _ends(retrieval: IntArray) -> IntArray:
    """The last real entry of each retrieval row, -1 where a row holds none."""
    paths, width = retrieval.shape
    if width == 0:
        return np.full(paths, -1)
    last = width - 1 - np.argmax(retrieval[:, ::-1] >= 0, axis=1)
    return np.where((retrieval >= 0).any(axis=1), retrieval[np.arange(len(retrieval)), last], -1)
