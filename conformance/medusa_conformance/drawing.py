"""The tree of a finding, drawn for a page, with what the finding points at marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from medusa_conformance.derivation import derivation_of
from medusa_conformance.outcome import listed
from medusa_conformance.picture import Marks, picture
from medusa_conformance.place import PACKED, packed_key, planned
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from

MAX_ROWS = 128
"""Rows of the largest tree that a page draws; a larger one would be most of the page."""

SHRINKS = 420
"""Pixels of the widest picture that a narrow page makes smaller; a wider one is scrolled."""

BUDGET = 320 * 1024
"""Characters of drawings that a page holds; findings behind them have their tree as text."""


class Drawings:
    """Draws trees until a page has enough of them."""

    def __init__(self) -> None:
        self.spent = 0

    def of(self, finding: Mapping[str, Any]) -> tuple[Markup | None, str]:
        """The `svg` element of a finding's tree where there is room for it, and what to say of it.

        A finding that brings no tree has nothing to do with one.
        """
        if finding["tree"] is None:
            return None, ""
        try:
            whole = coordinate_from(finding["coordinate"], "finding")
        except InputError:
            return None, "The coordinate has no lawful tree to draw."
        coordinate = planned(whole, finding["generation"], finding["contract"])
        if coordinate is None:
            return None, ""
        if coordinate.nodes > MAX_ROWS:
            reason = f"{coordinate.nodes} rows are too many to draw; {MAX_ROWS} are the most"
            return None, f"{reason}. medusa-oracles derive --picture draws up to 256."
        document = derivation_of(coordinate)
        marks = _marks(finding, coordinate, len(document["retrieve_indices"]))
        svg = picture(document, marks)
        if int(svg.attrib["width"]) <= SHRINKS:
            svg.set("class", "small")
        markup = ElementTree.tostring(svg, encoding="unicode")
        if self.spent + len(markup) > BUDGET:
            return None, "Not drawn: the drawings above have taken the room that a page has."
        self.spent += len(markup)
        return Markup(markup), _caption(marks)


def _marks(finding: Mapping[str, Any], coordinate: Coordinate, paths: int) -> Marks:
    """What the picture of a coordinate's tree can point at for a finding."""
    where, contract = finding["where"], finding["contract"]
    row = where.get("row") if contract in PACKED else None
    key = where.get("key")
    if key is not None:
        key = packed_key(coordinate, contract, key, finding["round"])
    rows = coordinate.nodes
    return Marks(_within(row, rows), _within(key, rows), _within(where.get("path"), paths))


def _within(index: int | None, many: int) -> int | None:
    return index if index is not None and 0 <= index < many else None


def _caption(marks: Marks) -> str:
    named = (("row", marks.row), ("key", marks.key), ("path", marks.path))
    marked = [f"{name} {index}" for name, index in named if index is not None]
    words = "What the coordinate derives to"
    if not marked:
        return f"{words}."
    verb = "are" if len(marked) > 1 else "is"
    return f"{words}; {listed(marked)}, where the engine differs, {verb} framed."
