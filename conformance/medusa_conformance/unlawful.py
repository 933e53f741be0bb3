"""What must be refused: logits that are no number, commits of nothing, and trees without room.

Functions of a `line.Line`, of which they are sections. Behind what was refused, rounds go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.refusal import left_alone, refusal, said_no
from medusa_conformance.renewal import renewed
from medusa_conformance.rounds import Round
from medusa_conformance.translation import Engine
from medusa_oracles.tree import tree_of
from medusa_spec.arrays import IntArray
from medusa_spec.stages import Frontier, TreeBuffers
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


def unlawful_logits(line: Line) -> Iterator[Trace]:
    """A selection over logits one of which is no number.

    It stands in the root's row of every path, at the end of the first path or of the last alone,
    or wherever a row between root and leaf is read. At an end nothing is judged in this round, and
    the next root is chosen from it.
    """
    engine, policy = line.informed(), line.coordinate.policy
    candidates, vocabulary = line.lawful_proposal().candidates, line.coordinate.model.vocabulary
    retrieval = tree_of(line.coordinate).retrieval
    ends = edges_of(retrieval)
    every, last = slice(None), slice(-1, None)
    # As a probability, minus infinity is a lawful zero.
    lowest = np.nan if line.dialect.posterior_input == "probabilities" else -np.inf
    places: list[tuple[Any, float]] = [
        ((every, 0, every), np.nan),
        ((every, 0, last), np.inf),
        ((-1, ends[-1], 0), lowest),
        ((0, ends[0], 0), np.nan),
    ]
    deep = np.flatnonzero(ends > 1)
    if len(deep):
        places.append(((retrieval == retrieval[deep[-1], 1], 0), np.nan))
    for place, value in places:
        logits = np.zeros((*candidates.shape, vocabulary))
        logits[place] = value
        arrays = {"selection.candidates": candidates, "selection.path_logits": logits}
        ask = partial(engine.select, candidates, logits, policy)
        documents: dict[str, Any] = {"selection.refused": said_no(line, ask)}
        yield line.trace(arrays, documents)


def unlawful_commit(line: Line) -> Iterator[Trace]:
    """Commits that name no path, or more edges than their path has, or come without a tree."""
    # With room for another round behind this one, however much it publishes.
    engine = line.engine(line.coordinate.capacity + line.coordinate.nodes)
    tree = line.compile(engine, line.coordinate)
    played, conclude = staged(line, engine, tree)
    last: Trace | None = None
    for path, accepted in unlawful_choices(tree_of(line.coordinate).retrieval):
        asked = f"a commit of path {path} with {accepted} accepted edges"
        last = refusal(line, engine, asked, partial(engine.commit, path, accepted, None), last)
        yield last
        if not left_alone(last):
            # What was there to commit is there no longer.
            played, conclude = staged(line, engine, tree)
            last = None
    # Nothing has changed, so the tree is still there for a commit that is lawful.
    tokens = list(line.coordinate.prefix)
    frontier: Frontier | None
    frontier = yield from played.seen(partial(conclude, tokens), tokens, 1, 0)
    if played.documents["round.refused"] is not None:
        return
    again = partial(engine.commit, 0, 0, None)
    seen = refusal(line, engine, "a second commit of one tree", again)
    yield seen
    if left_alone(seen):
        yield from renewed(line, engine, frontier, tokens, 1)
    staged(line, engine, line.compile(engine, line.coordinate))
    engine.prefill(line.coordinate.prefix)
    yield refusal(line, engine, "a commit of the tree of an earlier generation", again)


def unlawful_choices(retrieval: IntArray) -> tuple[tuple[int, int], ...]:
    """Paths and accepted edges that a tree has not.

    Of the first path, and of the last that is shorter than the longest: there, edges that other
    paths have are padding.
    """
    paths, longest = retrieval.shape
    edges = edges_of(retrieval).tolist()
    found = [(paths, 0), (-1, 0), (0, edges[0] + 1), (0, longest), (0, -1)]
    short = [path for path in range(paths) if edges[path] + 1 < longest][-1:]
    found += [(path, beyond) for path in short for beyond in (edges[path] + 1, longest - 1)]
    return tuple(dict.fromkeys(found))


def edges_of(retrieval: IntArray) -> IntArray:
    """The edges of each path, `[R]`."""
    edges: IntArray = (retrieval >= 0).sum(axis=1) - 1
    return edges


def staged(
    line: Line, engine: Engine, tree: TreeBuffers
) -> tuple[Round, Callable[[list[int]], Frontier | None]]:
    """A round of a generation of its own, as far as its tree is staged, and the rest of it."""
    frontier: Frontier = engine.prefill(line.coordinate.prefix)
    played = Round(line, engine, replace(line.coordinate, end_of_sequence=None), tree, None)
    return played, partial(played.conclude, *played.stage(frontier))


def unlawful_staging(line: Line) -> Iterator[Trace]:
    """A tree, and a prefix, that are one row too large for the cache."""
    coordinate = line.coordinate
    capacity = len(coordinate.prefix) + coordinate.nodes - 1
    engine = line.engine(capacity)
    tree = line.compile(engine, coordinate)
    frontier: Frontier = engine.prefill(coordinate.prefix)
    _, proposal = line.propose(engine, coordinate, tree, frontier)
    asked = f"a tree of {coordinate.nodes} rows with room for one less"
    larger = refusal(line, engine, asked, partial(engine.verify, tree, proposal.packed))
    yield larger
    asked = f"a prefix of {capacity + 1} tokens in a cache of {capacity}"
    too_long = partial(engine.prefill, [0] * (capacity + 1))
    once_more = partial(refusal, line, engine, asked, too_long)
    longer = once_more()
    yield longer
    if left_alone(larger) and left_alone(longer):
        yield from renewed(line, engine, frontier, list(coordinate.prefix), 0, once_more)
