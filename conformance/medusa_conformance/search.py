"""The section that searches: a tree for the coordinate's calibration, and for another one before.

A section of a `line.Line`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medusa_conformance.rounds import present
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line

ARRAYS = ("increments", "weights", "objective")
DOCUMENTS = ("paths", "decisions", "identity", "claim")
"""Fields of a plan that are no arrays."""


def search(line: Line) -> Iterator[Trace]:
    """Two searches by one engine: the heads' rows in reverse, with a path less, and as they are.

    A tree is that of its calibration, so one that is the same for any is found by either.
    """
    planned = line.coordinate.search
    if planned is None:
        return
    engine = line.engine()
    fewer = max(planned.nodes - 1, 0)
    other = replace(planned, accuracy=planned.accuracy[::-1], nodes=fewer)
    for calibration in (other, planned):
        seen = engine.search_tree(calibration)
        arrays = present("search", **{name: getattr(seen, name) for name in ARRAYS})
        shown = {f"search.{name}": getattr(seen, name) for name in DOCUMENTS}
        documents: dict[str, Any] = {name: v for name, v in shown.items() if v is not None}
        coordinate = replace(line.coordinate, search=calibration, expected={})
        yield line.trace(arrays, documents, coordinate=coordinate)
