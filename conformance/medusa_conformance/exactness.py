"""The sections of output laws: what a mode publishes over tables, by law and by sample.

Sections of a `line.Line`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from medusa_conformance.rounds import present
from medusa_spec.coordinate import Exactness
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line

SEEDS = 2**32
"""As many as generators of random numbers take."""

ARRAYS = ("roots", "rows", "law", "target", "distance", "path_probability", "proposal")


def laws(line: Line) -> Iterator[Trace]:
    """Two laws by one engine: of the tables with their tokens in reverse, and as they are.

    A law is that of its tables, so one that is the same for any is found by either.
    """
    given = line.coordinate.exactness
    if given is None:
        return
    engine = line.engine()
    for asked in (mirrored(given), given):
        seen = engine.law(asked)
        arrays = present("exactness", **{name: getattr(seen, name) for name in ARRAYS})
        documents = {} if seen.claim is None else {"exactness.claim": seen.claim}
        coordinate = replace(line.coordinate, exactness=asked, expected={})
        yield line.trace(arrays, documents, coordinate=coordinate)


def samples(line: Line) -> Iterator[Trace]:
    """A seed says all of a sample, so it is asked for twice, and another one in between."""
    given = line.coordinate.exactness
    if given is None:
        return
    engine = line.engine()
    seeds = {"tokens": given.seed, "other": (given.seed + 1) % SEEDS, "again": given.seed}
    drawn = {name: engine.sample(given, seed, given.samples) for name, seed in seeds.items()}
    arrays = present("exactness", **{name: seen.tokens for name, seen in drawn.items()})
    yield line.trace(arrays, {})


def mirrored(given: Exactness) -> Exactness:
    """The same tables with their tokens in reverse, and so other rows behind the start."""
    model = _mirrored(given.model)
    return replace(given, model=model, drafts=tuple(_mirrored(rows) for rows in given.drafts))


def _mirrored(rows: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    start, *behind = rows
    return (start[::-1], *(row[::-1] for row in reversed(behind)))
