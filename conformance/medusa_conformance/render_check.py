"""What a person sees of `check`, `replay` and `init` on a terminal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa_conformance.expected import LAWFUL
from medusa_conformance.finding_text import finding_lines
from medusa_conformance.outcome import incident_text, listed, outcome, summary
from medusa_conformance.render import COLOURS, columns, finding
from medusa_conformance.verdicts import ABSENT
from medusa_spec.errors import one_line

OUTCOMES = {"fixed": "green", "still-failing": "red", "error": "yellow"}

FATES = {
    "as-expected": "fails as expected",
    "not-exercised": "was not exercised",
    "unexpected-pass": "passes, though it is expected to fail",
    "other-code": "passes, and another rule fails in its stead",
    "unknown-code": "is the code of no rule",
    "expired": "is not expected to fail any more",
}
"""What became of an expected failure."""

LISTED = 8
"""Incidents that are listed; the report has all of them."""

UNTRACED = "no trace holds "
"""How the reason of an invariant begins that reads what no trace file has."""


def checked(document: Mapping[str, Any]) -> RenderableType:
    """The result of a check: what was judged, what was found, and the verdict last."""
    parts: list[RenderableType] = [_target(document["target"]), contracts_table(document), Text()]
    idle = not_exercised(document)
    if idle:
        parts += [Text("Not exercised", style="bold"), idle, Text()]
    lawful = {e["code"] for e in document["expected_failures"] if e["outcome"] in LAWFUL}
    for entry in document["findings"]:
        parts += [finding(entry, expected=entry["code"] in lawful), Text()]
    for title, lines in (
        ("Incidents", incident_lines(document)),
        ("Expected failures", expectation_lines(document)),
    ):
        if lines:
            parts += [Text(title, style="bold"), *lines, Text()]
    return Group(*parts, verdict(document))


def _target(target: Mapping[str, Any]) -> Text:
    """The first line: what was judged, as far as it says what it is."""
    version = f" {target['version']}" if target["version"] else ""
    head = Text(one_line(f"{target['name']}{version}"), style="bold")
    more = [target["text"]] if target["text"] != target["name"] else []
    more += [target["language"]] if target["language"] != "unknown" else []
    return head.append(one_line(f"  {', '.join(more)}") if more else "", style="not bold dim")


def contracts_table(document: Mapping[str, Any]) -> Table:
    """What the invariants of each contract came to."""
    numbers = ("planned", "executed", "failed", "not exercised", "incompetent", "expected to fail")
    shown = [
        name
        for name in numbers
        if name in numbers[:3] or any(row[name.replace(" ", "_")] for row in document["contracts"])
    ]
    table = columns("contract", *shown, right=shown)
    for row in document["contracts"]:
        cells = [str(row[name.replace(" ", "_")]) for name in shown]
        style = "red" if row["failed"] else ""
        table.add_row(Text(row["contract"], style=style), *cells)
    return table


def not_exercised(document: Mapping[str, Any]) -> Table | None:
    """How many invariants of each contract were left out, and for want of what."""
    rows = [row for row in document["invariants"] if row["status"] == "not-exercised"]
    if not rows:
        return None
    table = columns("contract", "invariants", "because", right=["invariants"], wrap=["because"])
    for contract, group in groupby(rows, key=lambda row: row["contract"]):
        reasons = [row["reason"] for row in group]
        for begun in (ABSENT, UNTRACED):
            lacking = [text.removeprefix(begun) for text in reasons if text.startswith(begun)]
            if lacking:
                names = dict.fromkeys(name for text in lacking for name in text.split(", "))
                table.add_row(contract, str(len(lacking)), f"{begun}{listed(list(names), 'or')}")
        others = Counter(text for text in reasons if not text.startswith((ABSENT, UNTRACED)))
        for reason, count in others.items():
            table.add_row(contract, str(count), Text(one_line(reason)))
    return table


def incident_lines(document: Mapping[str, Any]) -> list[Text]:
    """What went wrong instead of being judged."""
    listed = document["incidents"][:LISTED]
    found = [Text(one_line(incident_text(entry)), style="yellow") for entry in listed]
    more = len(document["incidents"]) - LISTED
    return [*found, Text(f"and {more} more incidents", style="yellow")] if more > 0 else found


def expectation_lines(document: Mapping[str, Any]) -> list[Text]:
    """Expected failures, those that do not hold in red."""
    found = []
    for entry in document["expected_failures"]:
        calm = entry["outcome"] in LAWFUL
        text = f"{entry['code']} {FATES[entry['outcome']]}: {entry['reason']}"
        found.append(Text(one_line(text), style="dim" if calm else "red"))
    return found


def verdict(document: Mapping[str, Any]) -> Table:
    """The last lines: the verdict and what it rests on."""
    word = document["verdict"]
    lines = (
        summary(outcome(document), "for the reasons above"),
        f"{document['dtype']}, seed {document['seed']}, {document['seconds']:.1f} s",
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(word.upper(), style=f"bold {COLOURS[word]}"), Text("\n".join(lines)))
    return table


def replayed(document: Mapping[str, Any]) -> RenderableType:
    """What became of a finding, and what was seen of it this time."""
    word = document["outcome"]
    last = Text.assemble(
        (word.replace("-", " ").upper(), f"bold {OUTCOMES[word]}"),
        f"  {one_line(document['text'])}",
    )
    if document["finding"] is None:
        return last
    lines = [line for line in finding_lines(document["finding"]) if not _again(line)]
    return Group(Text("\n".join(lines)), Text(), last)


def _again(line: str) -> bool:
    # Who replays a finding knows how, and one coordinate was judged.
    return line.startswith(("  replay ", "  found on "))


def initialised(document: Mapping[str, Any]) -> RenderableType:
    """What was written, and what comes next; each name is one word of a shell."""
    adapter, test = document["written"]
    folder = document["folder"]
    # A name that begins so would be taken for an option, by `cd` and by others.
    place = f"./{folder}" if folder.startswith("-") else folder
    go = "" if Path(folder) == Path() else f"cd {shlex.quote(place)} && "
    steps = [
        *(f"wrote {shlex.quote(name)}" for name in document["written"]),
        "",
        f"1. Connect your engine in {shlex.quote(adapter)}.",
        f"2. {go}medusa-oracles check {Path(adapter).stem}:Engine",
        f"3. pytest {Path(test).name}",
    ]
    return Text("\n".join(map(one_line, steps)))
