"""Rounds over another tree: in the place of one that was left, and behind what changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from medusa_conformance.crafted import RENEWED, lesser
from medusa_conformance.isolation import Missing
from medusa_conformance.refusal import answered
from medusa_conformance.rounds import Round
from medusa_conformance.translation import Engine
from medusa_spec.errors import Unsupported
from medusa_spec.stages import Frontier
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


def restaging(line: Line) -> Iterator[Trace]:
    """A tree that is verified in the place of another, which nobody committed (clause V3).

    An engine may refuse it: in a round, one tree is verified and committed.
    """
    coordinate, smaller = line.coordinate, lesser(line.coordinate)
    if smaller is None:
        return
    # With room for both behind each other, which is where they must not stand.
    engine = line.engine(len(coordinate.prefix) + 2 * smaller.nodes)
    # Of an engine that was made for the coordinate's own tree.
    line.compile(engine, coordinate)
    tree = line.compile(engine, smaller)
    frontier: Frontier = engine.prefill(coordinate.prefix)
    _, left = line.propose(engine, smaller, tree, frontier)
    engine.verify(tree, (left.packed + 1) % coordinate.model.vocabulary)
    played = Round(line, engine, smaller, tree, None)
    staged, _ = answered(line, partial(played.stage, frontier))
    if staged is None:
        return
    tokens = list(coordinate.prefix)
    yield from played.seen(partial(played.finish, *staged, tokens), tokens, RENEWED, 0)


def renewed(
    line: Line,
    engine: Engine,
    frontier: Frontier | None,
    tokens: list[int],
    number: int,
    meanwhile: Callable[[], Trace] | None = None,
) -> Iterator[Trace]:
    """A whole round on an engine that has refused something, and what `meanwhile` sees inside it.

    Nothing where the engine shows too little of a round, or was made for one tree a generation.
    """
    smaller = lesser(line.coordinate)
    if smaller is None or frontier is None:
        return
    inside: list[Trace] = []
    try:
        played = Round(line, engine, smaller, line.compile(engine, smaller), None)

        def play() -> Frontier | None:
            staged = played.stage(frontier)
            if meanwhile is not None:
                inside.append(meanwhile())
            return played.finish(*staged, tokens)

        yield from played.seen(play, tokens, RENEWED, number)
    except (Missing, Unsupported):
        # The record says so; the section goes on with what is left to refuse.
        pass
    yield from inside
