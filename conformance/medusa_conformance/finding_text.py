"""A finding document as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from medusa_spec.errors import one_line

WIDTH = 100
"""Columns that no line exceeds, unless one word alone does."""

LABEL = 11
"""Columns of the labels, which stand behind an indent of two."""

GLUE = "\u00a0"
"""A space at which no line is broken."""

SHOWN = 400
"""Characters that are shown of a value; the document has all of it."""


def finding_lines(document: Mapping[str, Any], expected: bool = False) -> list[str]:
    """The lines of one finding: its rule, then one labelled field after the other.

    The document may come from a file of anybody's: nothing in it reaches a terminal as a code.
    `expected` says in the first line that the rule may be broken today.
    """
    message = _wrapped(one_line(document["message"]), "  ")
    return [_head(document, expected), *message, *_field_lines(document)]


def told_lines(document: Mapping[str, Any]) -> list[str]:
    """The same, the message first: of a text of many lines, pytest's summary shows that one."""
    return [one_line(document["message"]), _head(document, False), *_field_lines(document)]


def _head(document: Mapping[str, Any], expected: bool) -> str:
    clause, chapter, section = (document[name] for name in ("clause", "chapter", "section"))
    mark = " (expected)" if expected else ""
    return one_line(f"{document['code']}{mark}  {clause} of {chapter}, section {section}")


def _field_lines(document: Mapping[str, Any]) -> list[str]:
    lines = []
    for label, text in _fields(document):
        if label == "tree":
            lines += _tree(document["tree"])
        else:
            lines += _wrapped(text, f"  {label:{LABEL}}")
    return lines


def _fields(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Labels with their texts, each of which is safe to print."""
    yield "at", one_line(_place(document))
    yield "expected", one_line(_shown(document["expected"]))
    yield "observed", one_line(_shown(document["observed"]))
    if document["difference"] is not None:
        yield "difference", one_line(difference_text(document))
    if document["tree"] is not None:
        yield "tree", ""
    yield "usually", one_line(document["usual_cause"])
    many = document["found_on"]
    yield "found on", f"{many} coordinate{'' if many == 1 else 's'}"
    if document.get("reproduced") is False:
        yield "seen again", "no: a second run of the same coordinate did not show it"
    # A count stays on the line of its code.
    follows = [f"{e['findings']}{GLUE}of{GLUE}{one_line(e['code'])}" for e in document["follows"]]
    if follows:
        yield "follows", ", ".join(follows)
    # A command is copied as one line, however long.
    yield "replay", one_line(document["replay"]).replace(" ", GLUE)


def _place(document: Mapping[str, Any]) -> str:
    """Where it is, from the inside out; a finding over a generation names a round of its own."""
    where = dict(document["where"])
    number = where.pop("round", document["round"])
    outside = (
        f"coordinate {document['coordinate']['name']}, generation {document['generation']},"
        f" round {number}"
    )
    inside = " of ".join(filter(None, (_axes(where), trace_file(document["target"]))))
    return f"{inside} ({outside})" if inside else outside


def trace_file(target: Mapping[str, Any]) -> str:
    """The trace file that a finding was found in, as short as it can be named from here."""
    if target["kind"] != "trace":
        return ""
    path, here = Path(target["path"]), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _axes(where: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {index}" for axis, index in where.items())


def difference_text(document: Mapping[str, Any]) -> str:
    """How many entries of two arrays differ, and by how much where they hold amounts."""
    difference = document["difference"]
    entries, greatest, allowed = (difference[name] for name in ("entries", "greatest", "allowed"))
    of = f"{difference['of']} entr{'y' if difference['of'] == 1 else 'ies'}"
    text = f"{entries} of {of} {'differs' if entries == 1 else 'differ'}"
    if greatest is None or _names(document["expected"], document["observed"]):
        return text
    where = f" at {_axes(difference['where'])}" if difference["where"] else ""
    text += f", by up to {_number(greatest)}{where}"
    return text if allowed is None else f"{text} ({_number(allowed)} allowed)"


def _names(*values: Any) -> bool:
    """Whether these are integers: tokens, slots and rows, of which none is near another."""
    leaves = list(_leaves(values))
    return bool(leaves) and all(isinstance(leaf, int) for leaf in leaves)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _shown(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _tree(tree: str) -> list[str]:
    first, *others = map(one_line, tree.split("\n"))
    return [f"  {'tree':{LABEL}}{first}", *(f"{'':{LABEL + 2}}{line}" for line in others)]


def _wrapped(text: str, label: str) -> list[str]:
    """The text behind its label, and its further lines under the first."""
    lines = wrap(
        text,
        WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(GLUE, " ") for line in lines] or [label.rstrip()]
