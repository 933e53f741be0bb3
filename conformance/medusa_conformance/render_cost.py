"""What a person sees of a ledger: the sizes, every count with its formula, and what it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from medusa_conformance.picture import shown_name
from medusa_conformance.render import columns, facts

BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DECIMAL = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion")


def cost(document: Mapping[str, Any]) -> RenderableType:
    """One ledger: the workload, the counts, the profile where there is one, what is left out."""
    workload, sizes = document["workload"], document["sizes"]
    head = Text(shown_name(document), style="bold")
    rows = "every packed row" if workload["head_rows"] == "all" else "the terminal row"
    head.append(f"  one round, heads on {rows}", style="not bold dim")
    parts: list[RenderableType] = [head, facts(_sizes(workload, sizes)), Text()]
    parts += [Entries(document["entries"]), Text(), *_rates(document), Text()]
    return Group(*parts, Text("\n".join(document["assumptions"]), style="dim"))


def _sizes(workload: Mapping[str, Any], sizes: Mapping[str, Any]) -> list[tuple[str, str]]:
    kv = f"{many(workload['kv_heads'], 'key/value head')} of {sizes['head_dim']}"
    node, rows = sizes["node_bytes"], sizes["rows"]
    candidates = f"{scaled((rows - 1) * node, BINARY)} without the root"
    return [
        ("prefix", f"P {workload['prefix']:,}"),
        (
            "tree",
            f"N {many(rows, 'row')}, M {many(sizes['visible'], 'pair')} of them;"
            f" R {many(sizes['paths'], 'path')} of D {many(sizes['width'], 'entry')}",
        ),
        (
            "heads",
            f"K {workload['heads']}, R_h {workload['head_blocks']} a head,"
            f" {workload['projection']} projections; T_h {many(sizes['head_rows'], 'row')}",
        ),
        ("model", f"d {workload['hidden']:,}, V {workload['vocabulary']:,}"),
        (
            "keys, values",
            f"L {many(workload['layers'], 'layer')}, {kv}, b {workload['scalar_bytes']} bytes",
        ),
        ("", f"B {node:,} bytes a row, {scaled(node, BINARY)}; {candidates}"),
        ("published", f"G {workload['published']}"),
    ]


def many(number: int, word: str) -> str:
    """A number of things, in the singular where there is one."""
    if number == 1:
        return f"1 {word}"
    return f"{number:,} {word[:-1]}ies" if word.endswith("y") else f"{number:,} {word}s"


class Entries:
    """Every count, in as much of a table as there is room for: no digit of one is left out."""

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self.entries = entries

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide, narrow = self.table(shortened=True), self.table(shortened=False)
        room = options.max_width
        if Measurement.get(console, options.update(max_width=1000), wide).maximum <= room:
            yield wide
        elif Measurement.get(console, options.update(max_width=1000), narrow).minimum <= room:
            yield narrow
        else:
            for entry in self.entries:
                told = f"{entry['formula']} = {entry['value']:,} {entry['unit']}"
                yield Text(f"{entry['clause']} {entry['quantity']}: {told}", overflow="fold")

    def table(self, *, shortened: bool) -> Table:
        """A row for each; large counts are told in short as well where it is `shortened`."""
        short = ("",) if shortened else ()
        headers = ("quantity", "formula", "count", *short, "unit", "clause")
        table = columns(*headers, right=("count",), wrap=("quantity", "formula"))
        for entry in self.entries:
            told = (_short(entry["value"], entry["unit"]),) if shortened else ()
            row = (entry["quantity"], entry["formula"], f"{entry['value']:,}", *told)
            table.add_row(*row, entry["unit"], entry["clause"])
        return table


def _short(value: int, unit: str) -> str:
    """A large count in short; nothing of one that is short already."""
    names = BINARY if unit == "bytes" else DECIMAL
    return scaled(value, names) if value >= SHORT[unit == "bytes"] else ""


SHORT = (1_000_000, 1024)
"""The least number, and the least bytes, that are told in short as well."""


def scaled(value: int, names: tuple[str, ...]) -> str:
    """A number in the greatest of these units that it fills, with up to three decimals."""
    step = 1024 if names is BINARY else 1000
    power = 0
    while value >= step ** (power + 1) and power + 1 < len(names):
        power += 1
    short = f"{value / step**power:,.3f}".rstrip("0").rstrip(".")
    return f"{short} {names[power]}"


def _rates(document: Mapping[str, Any]) -> list[RenderableType]:
    rates, profile = document["rates"], document["workload"]["profile"]
    if rates is None:
        return [Text("No profile: what a round pays is not told.", style="yellow")]
    expected, overhead = rates["expected_published"], rates["overhead"]
    evidence = profile["evidence"]
    published = f"{many(profile['published'], 'token')} / {many(profile['rounds'], 'round')}"
    pays = "pays" if rates["breaks_even"] else "does not pay"
    against = ">" if rates["breaks_even"] else "=" if expected == overhead else "<"
    verdict = Text(f"{rates['speedup']:.6g}", style="bold")
    words = f" speedup, E[G] / overhead, of a profile that is {evidence}"
    verdict.append(words, style="not bold")
    unit = shown_name({"name": profile["unit"]})
    return [
        facts(
            [
                ("E[G]", f"{published} = {expected:.6g}"),
                (
                    "overhead",
                    f"{profile['round']:.6g} / {profile['baseline_step']:.6g}"
                    f" = {overhead:.6g} baseline steps a round ({unit})",
                ),
                ("break-even", f"E[G] {against} overhead: the round {pays}"),
            ]
        ),
        verdict,
    ]
