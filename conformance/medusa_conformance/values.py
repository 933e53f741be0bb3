"""Values of a document as text: short, and with what differs between two of them marked."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

TEXT_LIMIT = 4000
"""Characters of one text that a page shows; `report.json` has the rest."""


class Part(NamedTuple):
    """A piece of a line of text, and whether it differs from its counterpart."""

    text: str
    differs: bool


def cut(text: str) -> str:
    """A text of a length that a page can hold, which says how much is missing."""
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:TEXT_LIMIT]} … and {len(text) - TEXT_LIMIT:,} characters more in report.json"


def shown(value: Any) -> str:
    """A value as JSON has it, a line for each entry of the outermost mapping or list of lists."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value:
        inside = ",\n".join(f"  {json.dumps(key)}: {_flat(item)}" for key, item in value.items())
        return f"{{\n{inside}\n}}"
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        return "\n".join(map(_flat, value))
    return _flat(value)


def _flat(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def sides(expected: Any, observed: Any) -> tuple[list[list[Part]], list[list[Part]]]:
    """Both values as lines of parts; in lists of one form, the entries that differ are marked."""
    if not (_listed(expected) and _listed(observed)):
        return _unmarked(expected), _unmarked(observed)
    nested = all(isinstance(row, list) for row in (*expected, *observed))
    ours, theirs = (expected, observed) if nested else ([expected], [observed])
    size = sum(len(row) for row in (*ours, *theirs))
    if size * 4 > TEXT_LIMIT:
        return _unmarked(expected), _unmarked(observed)
    return _lines(ours, theirs), _lines(theirs, ours)


def _listed(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _unmarked(value: Any) -> list[list[Part]]:
    return [[Part(line, False)] for line in cut(shown(value)).splitlines() or [""]]


def _lines(rows: list[list[Any]], others: list[list[Any]]) -> list[list[Part]]:
    lines = []
    for index, row in enumerate(rows):
        other = others[index] if index < len(others) else []
        line = [Part("[", False)]
        for place, entry in enumerate(row):
            line.append(Part(", ", False)) if place else None
            differs = place >= len(other) or entry != other[place]
            line.append(Part(_flat(entry), differs))
        lines.append([*line, Part("]", False)])
    return lines
