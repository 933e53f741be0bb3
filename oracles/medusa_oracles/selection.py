"""How the oracle of `spec/posterior.md` compares a selection: edge by edge, or by its winner alone.

Some engines show no more of it than the winner and how many edges of it were accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from medusa_oracles.judge import close, equal
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.findings import Finding
from medusa_spec.trace import Trace

EDGE = ("path", "edge")
"""The axes of what a selection says of every edge."""


def same_passes(code: str, message: str, expected: BoolArray, trace: Trace) -> Iterator[Finding]:
    """Compare the passes of real edges; padding is the business of P11."""
    real = trace["selection.candidates"][:, 1:] >= 0
    observed = trace["selection.passes"]
    if observed.shape == real.shape:
        expected, observed = expected & real, observed & real
    yield from equal(code, message, expected, observed, EDGE)


def close_edges(
    code: str, message: str, expected: FloatArray, name: str, trace: Trace
) -> Iterator[Finding]:
    """Compare one value per real edge; nothing is demanded where a path is padded."""
    observed = trace[f"selection.{name}"]
    if observed.shape == expected.shape:
        real = trace["selection.candidates"][:, 1:] >= 0
        expected, observed = np.where(real, expected, 0.0), np.where(real, observed, 0.0)
    yield from close(code, message, expected, observed, EDGE, trace.policy_tolerance)


class Overrun(NamedTuple):
    """A path of `edges` edges of which `accepted` were accepted, the last of them padding."""

    path: int
    edges: int
    accepted: int


def overrun(trace: Trace) -> Overrun | None:
    """The first path whose length counts padding, `None` where none does.

    Of every path where lengths were observed, else of the winner.
    """
    if not trace.has("selection.candidates"):
        return None
    candidates = trace["selection.candidates"]
    edges = _edges(candidates)
    if trace.has("selection.lengths"):
        lengths = trace["selection.lengths"]
        if lengths.shape != edges.shape:
            return None
    else:
        path, accepted = int(trace["selection.path"]), int(trace["selection.accepted"])
        lengths = np.where(np.arange(len(edges)) == path, accepted, 0)
    # Behind a path of the full width there is no padding: more than all of it is another fault.
    beyond = np.flatnonzero((lengths > edges) & (edges < candidates.shape[1] - 1))
    if not len(beyond):
        return None
    first = int(beyond[0])
    return Overrun(first, int(edges[first]), int(lengths[first]))


def accepted_edges(code: str, lengths: IntArray, trace: Trace) -> Iterator[Finding]:
    """Compare the accepted edges with the `[R]` that pass; padding is the business of P11."""
    path, observed = int(trace["selection.path"]), int(trace["selection.accepted"])
    expected = int(lengths.max())
    if expected == observed:
        return
    where, which = {}, ""
    if 0 <= path < len(lengths) and observed >= 0:
        over = overrun(trace)
        edge = min(int(lengths[path]), observed)
        if over is not None and over.path == path and over.edges == edge:
            return
        verdict = "is accepted, and does not pass"
        if observed <= lengths[path]:
            path, verdict = int((lengths > observed).argmax()), "passes, and is not accepted"
        where = {"path": path}
        if edge < trace["selection.candidates"].shape[1] - 1:
            where["edge"] = edge
            which = f": edge {edge} of path {path} {verdict}"
    hint = "answer passes and lengths too, and every edge is judged"
    message = f"the accepted edges are not as many as the policy passes{which}; {hint}"
    yield Finding(code, message, where, expected, observed)


def _edges(candidates: IntArray) -> IntArray:
    """Edges in front of the first padding of each path, `[R]`."""
    real = np.logical_and.accumulate(candidates[:, 1:] >= 0, axis=1)
    edges: IntArray = real.sum(axis=1, dtype=np.int64)
    return edges
