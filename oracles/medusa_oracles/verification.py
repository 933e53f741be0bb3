"""Oracle of `spec/verification.md`: one rectangular pass, and what its rows mean."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from medusa_oracles.heads import heads_apart
from medusa_oracles.judge import close, equal, oracle, same, telling
from medusa_oracles.tree import equal_mask, expected_tree, gather_rows
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.findings import Finding
from medusa_spec.trace import Trace


def derive_rectangular_mask(mask: BoolArray, prefix_length: int) -> BoolArray:
    """Clause V1: `[N, P + N]`, the whole prefix and then the ancestry `mask` `[N, N]`."""
    prefix = np.ones((len(mask), prefix_length), np.bool_)
    return np.concatenate([prefix, mask], axis=1)


def derive_positions(depths: IntArray, prefix_length: int) -> IntArray:
    """Clause V2: logical positions `[N]`."""
    return prefix_length + depths


def derive_staged_rows(nodes: int, prefix_length: int) -> IntArray:
    """Clause V3: physical cache rows `[N]`."""
    return prefix_length + np.arange(nodes)


def derive_path_logits(logits: FloatArray, retrieval: IntArray) -> FloatArray:
    """Clause V8: `[R, W, V]` from `[N, V]`; zeros where retrieval is padded."""
    gathered: FloatArray = gather_rows(logits, retrieval, 0.0)
    return gathered


def prefix_length(trace: Trace) -> int:
    """Committed rows before this round, `P`."""
    return len(trace["round.tokens"])


def _nodes(trace: Trace) -> int:
    return trace.coordinate.nodes


@oracle("VERIFICATION.RECTANGULAR_MASK", "verification.mask", "round.tokens")
def rectangular_mask(trace: Trace) -> Iterator[Finding]:
    """Clause V1."""
    expected = derive_rectangular_mask(expected_tree(trace).mask, prefix_length(trace))
    observed = trace["verification.mask"]
    message = "a row does not see exactly the prefix and its ancestry"
    yield from equal_mask("VERIFICATION.RECTANGULAR_MASK", message, expected, observed)


@oracle("VERIFICATION.POSITION", "verification.positions", "round.tokens")
def position(trace: Trace) -> Iterator[Finding]:
    """Clause V2."""
    expected = derive_positions(expected_tree(trace).depths, prefix_length(trace))
    message = "the logical position is not P + depth"
    observed = trace["verification.positions"]
    yield from equal("VERIFICATION.POSITION", message, expected, observed, ("row",))


@oracle("VERIFICATION.STAGED_ROW", "verification.rows", "round.tokens")
def staged_row(trace: Trace) -> Iterator[Finding]:
    """Clause V3."""
    expected = derive_staged_rows(_nodes(trace), prefix_length(trace))
    observed = trace["verification.rows"]
    message = "the staged cache row is not P + row"
    yield from equal("VERIFICATION.STAGED_ROW", message, expected, observed, ("row",))


@oracle(
    "VERIFICATION.PATH_LOGITS",
    "verification.logits",
    "plain.logits",
    proves=lambda trace: telling(trace["plain.logits"], trace.tolerance),
)
def path_logits(trace: Trace) -> Iterator[Finding]:
    """Clause V4."""
    yield from close(
        "VERIFICATION.PATH_LOGITS",
        "logits differ from a plain causal pass over the row's path",
        trace["plain.logits"],
        trace["verification.logits"],
        ("row", "token"),
        trace.tolerance,
    )


@oracle(
    "VERIFICATION.PATH_KV",
    "verification.kv",
    "plain.kv",
    proves=lambda trace: telling(trace["plain.kv"], trace.tolerance),
)
def path_kv(trace: Trace) -> Iterator[Finding]:
    """Clause V5."""
    yield from close(
        "VERIFICATION.PATH_KV",
        "staged keys or values differ from a plain causal pass over the row's path",
        trace["plain.kv"],
        trace["verification.kv"],
        ("layer", "key_or_value", "kv_head", "row", "channel"),
        trace.tolerance,
    )


@oracle(
    "VERIFICATION.HEAD_LOGITS",
    "verification.head_logits",
    "plain.head_logits",
    proves=lambda trace: heads_apart(trace["plain.head_logits"], trace.tolerance),
)
def head_logits(trace: Trace) -> Iterator[Finding]:
    """Clause V6."""
    yield from close(
        "VERIFICATION.HEAD_LOGITS",
        "head logits differ from a plain causal pass over the row's path",
        trace["plain.head_logits"],
        trace["verification.head_logits"],
        ("head", "row", "token"),
        trace.tolerance,
    )


@oracle("VERIFICATION.SHIFT", "verification.path_logits", "verification.logits")
def shift(trace: Trace) -> Iterator[Finding]:
    """Clause V7: an entry that is its successor's row where it should be its own."""
    logits, retrieval = trace["verification.logits"], expected_tree(trace).retrieval
    observed = trace["verification.path_logits"]
    if observed.shape != (*retrieval.shape, logits.shape[-1]) or len(logits) != _nodes(trace):
        return
    for path, entries in enumerate(retrieval):
        for place, (row, successor) in enumerate(pairwise(entries)):
            if successor < 0:
                break
            judging = observed[path, place]
            if same(logits[row], judging):
                continue
            if same(logits[successor], judging):
                message = "a token is judged by the logits of its own row"
                where = {"path": path, "entry": place + 1}
                yield Finding("VERIFICATION.SHIFT", message, where, int(row), int(successor))
                return


@oracle("VERIFICATION.GATHER", "verification.path_logits", "verification.logits")
def gather(trace: Trace) -> Iterator[Finding]:
    """Clause V8."""
    retrieval, logits = expected_tree(trace).retrieval, trace["verification.logits"]
    if len(logits) != _nodes(trace):
        message = "the number of rows with logits differs"
        yield Finding("VERIFICATION.GATHER", message, {}, _nodes(trace), len(logits))
        return
    expected = derive_path_logits(logits, retrieval)
    observed = trace["verification.path_logits"]
    if observed.shape == expected.shape:
        observed = np.where(retrieval[..., None] < 0, 0.0, observed)
    message = "path logits are not the packed logits at the retrieval rows"
    yield from equal("VERIFICATION.GATHER", message, expected, observed, ("path", "entry", "token"))
