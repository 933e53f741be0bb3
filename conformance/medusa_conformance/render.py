"""What a person sees on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from medusa_conformance.finding_text import finding_lines
from medusa_conformance.picture import headline, shown_name
from medusa_spec.registry import SIGHTS, Sight, invariants

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}

UNBOUNDED = 10_000
"""Columns of what has no width of its own: nothing wraps in a pipe."""

MASK_ROWS = 256
"""Rows of the largest mask that is printed cell by cell."""


class Fitting:
    """The first of some renderables that the width has room for, or else the last."""

    def __init__(self, *variants: RenderableType) -> None:
        self.variants = variants

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        free = options.update_width(UNBOUNDED)
        for variant in self.variants[:-1]:
            if Measurement.get(console, free, variant).maximum <= options.max_width:
                yield variant
                return
        yield self.variants[-1]


def columns(
    *headers: str, right: Sequence[str] = (), wrap: Sequence[str] = (), gap: int = 2
) -> Table:
    """A plain table; only the columns in `wrap` give way where there is too little room."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for header in headers:
        table.add_column(
            header,
            header_style="dim",
            justify="right" if header in right else "left",
            no_wrap=header not in wrap,
            overflow="fold" if header in wrap else "ellipsis",
        )
    return table


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and what they stand for, under one another."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def indented(part: RenderableType) -> Padding:
    """A part that belongs to the line above it."""
    return Padding(part, (0, 0, 0, 2), expand=False)


def verification(document: Mapping[str, Any]) -> RenderableType:
    """The whole result of the main job: what went wrong behind what was counted, verdict last."""
    mutants = document["mutants"]
    parts: list[RenderableType] = [Text("Reference engine", style="bold")]
    parts += [contracts_table(document), Text()]
    if mutants:
        parts += [Text("Kill matrix", style="bold"), kill_matrix(mutants), Text()]
    troubles = [at_large(mutant) for mutant in mutants if not mutant["killed"]]
    troubles += [
        Text(f"crash in {c['section']} on {c['coordinate']}: {c['error']}", style="red")
        for c in document["crashes"]
    ]
    idle = [entry["code"] for entry in document["invariants"] if not entry["executed"]]
    if idle:
        troubles.append(Text(f"not executed: {', '.join(idle)}", style="yellow"))
    parts += [*troubles, Text()] if troubles else []
    for entry in document["findings"]:
        parts += [finding(entry), Text()]
    if document["checkout"] is not None:
        parts += [checkout(document["checkout"]), Text()]
    return Group(*parts, verdict(document))


def contracts_table(document: Mapping[str, Any]) -> Table:
    """Invariants and mutants, counted by contract."""
    numbers = ("invariants", "executed", "failed", "mutants", "killed")
    table = columns("contract", *numbers, right=numbers)
    mutants = document["mutants"]
    for contract, entries in groupby(document["invariants"], key=lambda e: e["contract"]):
        rows = list(entries)
        own = [mutant for mutant in mutants if mutant["contract"] == contract]
        executed = sum(entry["executed"] > 0 for entry in rows)
        failed = sum(entry["failed"] > 0 for entry in rows)
        killed = sum(mutant["killed"] for mutant in own)
        table.add_row(
            contract,
            str(len(rows)),
            _count(executed, executed == len(rows), "yellow"),
            _count(failed, failed == 0, "red"),
            str(len(own)),
            _count(killed, killed == len(own), "red"),
        )
    return table


def kill_matrix(mutants: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One row a mutant: who killed it, how soon, from how far away, and who else noticed.

    Less width gives fewer columns, so that no row takes two lines.
    """
    hint = Text(
        "A wider terminal, a pipe and --json also tell how soon, from where, and who else fired."
    )
    hint.stylize("dim")
    return Fitting(
        _kill_table(mutants, ("killed by", "after", "seen from", "others that fired"), 2),
        _kill_table(mutants, ("killed by", "after", "seen from", "others"), 2),
        Group(_kill_table(mutants, ("killed by",), 1), hint),
    )


def _kill_table(
    mutants: Sequence[Mapping[str, Any]], headers: Sequence[str], gap: int
) -> RenderableType:
    table = columns("mutant", *headers, right=("after", "others"), gap=gap)
    for contract, entries in groupby(mutants, key=lambda mutant: mutant["contract"]):
        table.add_row(Text(contract, style="bold"))
        for mutant in entries:
            others = [code for code in mutant["fired"] if code != mutant["killer"]]
            cells: dict[str, RenderableType] = {
                "killed by": _killer(mutant),
                "after": str(mutant["examples"]),
                "seen from": _sight(mutant["depth"]),
                "others that fired": Text(_farthest(others), style="dim"),
                "others": Text(str(len(others) or ""), style="dim"),
            }
            table.add_row(f"  {mutant['id']}", *(cells[header] for header in headers))
    return table


def _farthest(codes: Sequence[str]) -> str:
    """The code that fired from the farthest away, and how many more did."""
    if not codes:
        return ""
    farthest = min(codes, key=lambda code: SIGHTS.index(invariants()[code].sight))
    return farthest if len(codes) == 1 else f"{farthest} and {len(codes) - 1} more"


def _killer(mutant: Mapping[str, Any]) -> Text:
    if mutant["killed"]:
        return Text(mutant["killer"], style="green")
    return Text(mutant["status"].upper(), style="bold red")


def _sight(depth: Sight | None) -> Text:
    styles = dict(zip(SIGHTS, ("cyan", "magenta", ""), strict=True))
    return Text("nowhere", style="red") if depth is None else Text(depth, style=styles[depth])


def _count(number: int, good: bool, otherwise: str) -> Text:
    return Text(str(number), style="green" if good else otherwise)


def at_large(mutant: Mapping[str, Any]) -> Text:
    """One mutant that its rule did not kill."""
    if mutant["status"] == "incompetent":
        return Text(f"incompetent: {mutant['id']}: {mutant['crash']}", style="red")
    fired = ", ".join(mutant["fired"]) or "nothing"
    words = f"survived {mutant['killer']}: {mutant['id']}; what fired: {fired}"
    return Text(words, style="red")


def finding(document: Mapping[str, Any], expected: bool = False) -> RenderableType:
    """One finding, its fields under one another."""
    head, *others = finding_lines(document, expected)
    code = document["code"]
    first = Text(head[: len(code)], style="bold red").append(head[len(code) :], style="not bold")
    return Group(first, Text("\n".join(others)))


def checkout(found: Mapping[str, str]) -> RenderableType:
    """Which files of a checkout are the pinned ones."""
    table = columns("file", "against the pin")
    for name, state in found.items():
        table.add_row(name, Text(state, style="green" if state == "matches" else "red"))
    return Group(Text("Checkout", style="bold"), table)


def verdict(document: Mapping[str, Any]) -> RenderableType:
    """The last lines: the verdict and what it rests on."""
    word = document["verdict"]
    executed = sum(entry["executed"] > 0 for entry in document["invariants"])
    failed = sum(entry["failed"] > 0 for entry in document["invariants"])
    killed = sum(mutant["killed"] for mutant in document["mutants"])
    crashes, checkout = len(document["crashes"]), document["checkout"] or {}
    lines = (
        f"{executed} of {len(document['invariants'])} invariants executed"
        f" on {document['coordinates']} coordinates" + (f", {failed} failed" if failed else ""),
        *([f"{crashes} crash(es) of the engine"] if crashes else []),
        *(["the checkout is not the pinned release"] if {*checkout.values()} - {"matches"} else []),
        f"{killed} of {len(document['mutants'])} mutants killed by the rule that they break",
        f"{document['device']} {document['dtype']}, seed {document['seed']},"
        f" {document['seconds']:.1f} s",
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(word.upper(), style=f"bold {COLOURS[word]}"), Text("\n".join(lines)))
    return table


def derivation(document: Mapping[str, Any]) -> RenderableType:
    """Every buffer of one tree, a row per packed row."""
    head = Text(shown_name(document), style="bold")
    head.append(f"  {', '.join(headline(document))}", style="not bold dim")
    whole, narrow = _buffers(document, mask=True), _buffers(document, mask=False)
    hint = f"No room here for the mask of {document['nodes']} rows; --json has it."
    unmasked = Group(narrow, Text(), Text(hint, style="dim"))
    if document["nodes"] <= MASK_ROWS:
        buffers: RenderableType = Fitting(whole, Group(narrow, Text(), _mask(document)), unmasked)
    else:
        buffers = unmasked
    parts: list[RenderableType] = [head, Text(), buffers]
    parts += [Text(), Text("retrieval", style="bold"), _retrieval(document)]
    if "frozen" in document:
        good = document["frozen"] == "matches"
        words = "match" if good else "DIFFER from"
        line = f"The frozen values of the manifest {words} what the oracle derives."
        parts += [Text(), Text(line, style="green" if good else "red")]
    if "checkout" in document:
        parts += [Text(), checkout(document["checkout"])]
    return Group(*parts)


def _buffers(document: Mapping[str, Any], mask: bool) -> Table:
    numbers = ["row", "parent", "slot", "depth"]
    staged = "positions" in document
    numbers += ["position", "cache row"] if staged else []
    headers = ["row", "path", *numbers[1:], *(["sees"] if mask else [])]
    table = columns(*headers, right=numbers, wrap=("path",))
    for row, path in enumerate([[], *document["paths"]]):
        cells = [
            str(row),
            " ".join(map(str, path)) or "root",
            str(document["parents"][row]) if path else "",
            str(document["tree_indices"][row]),
            str(document["position_ids"][row]),
        ]
        if staged:
            cells += [str(document["positions"][row]), str(document["staged_rows"][row])]
        if mask:
            cells.append(_cells(document["attention_mask"][row]))
        table.add_row(*cells)
    return table


def _mask(document: Mapping[str, Any]) -> Table:
    table = columns("row", "sees", right=("row",))
    for row, cells in enumerate(document["attention_mask"]):
        table.add_row(str(row), _cells(cells))
    return table


def _cells(row: Sequence[int]) -> str:
    return "".join("█" if seen else "·" for seen in row)


def _retrieval(document: Mapping[str, Any]) -> Table:
    table = columns("path", "rows", right=("path",), wrap=("rows",))
    width = max(2, len(str(document["nodes"] - 1)))
    for index, rows in enumerate(document["retrieve_indices"]):
        entries = (Text(f"{entry:>{width}}", style="dim" if entry < 0 else "") for entry in rows)
        table.add_row(str(index), Text("  ").join(entries))
    return table


def mutant_list(mutants: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The catalog, contract by contract; a sentence has its own line where there is no room."""
    table = columns("mutant", "killer", "section", "what it does")
    lines: list[RenderableType] = []
    name = max((len(entry["id"]) for entry in mutants), default=0)
    killer = max((len(entry["killer"]) for entry in mutants), default=0)
    for contract, entries in groupby(mutants, key=lambda entry: entry["contract"]):
        table.add_row(Text(contract, style="bold"))
        lines.append(Text(contract, style="bold"))
        for entry in entries:
            wild = " (met in the wild)" if entry["origin"] == "wild" else ""
            sentence = entry["sentence"] + wild
            table.add_row(f"  {entry['id']}", entry["killer"], entry["section"], sentence)
            facts_of = f"{entry['id']:{name}}  {entry['killer']:{killer}}  {entry['section']}"
            lines += [indented(Text(facts_of)), Padding(Text(sentence, style="dim"), (0, 0, 0, 4))]
    return Group(Fitting(table, Group(*lines)), Text(f"\n{len(mutants)} mutants"))


def explanation(document: Mapping[str, Any]) -> RenderableType:
    """One invariant: the rule first, then where it lives, then who breaks it."""
    head = Text(document["code"], style="bold")
    head.append(f"  {document['sight']}", style="not bold dim")
    lives = [
        ("clause", f"{document['clause']} of {document['chapter']}"),
        ("source", f"section {document['section']} of the article"),
        ("oracle", document["oracle"]),
        ("reads", ", ".join(document["needs"])),
    ]
    parts: list[RenderableType] = [head, Text(document["statement"]), Text(), facts(lives), Text()]
    parts += [Text("broken by", style="dim")]
    parts += [indented(facts([(m["id"], m["sentence"]) for m in document["mutants"]]))]
    example = document["example"]
    rows = "1 row" if example["nodes"] == 1 else f"{example['nodes']} rows"
    words = f"{example['coordinate']}, of {rows}, exposes {example['mutant']}:"
    parts += [Text(), Text(words), indented(Text(example["finding"], style="red"))]
    return Group(*parts)


def show(result: RenderableType) -> None:
    """Print for a terminal as wide as it is; for a pipe as plain lines, none of them wrapped."""
    if sys.stdout is None:
        # Closed by the caller, who asks for the exit code alone.
        return
    console = Console(highlight=False)
    if console.is_terminal:
        # COLUMNS may say 0, and nothing would be shown.
        console.width = console.width or 80
        with console.capture() as captured:
            console.print(result)
        text = captured.get()
    else:
        buffer = StringIO()
        plain = Console(file=buffer, width=UNBOUNDED, color_system=None, highlight=False)
        plain.print(result)
        # Tables pad their cells.
        text = "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate({ord("█"): "#", ord("·"): "."})
        text = text.encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text)
