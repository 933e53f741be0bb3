"""What a person sees of a ledger: the sizes, every count with its formula, and what it pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
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
    parts += [_entries(document), Text(), *_rates(document), Text()]
    return Group(*parts, Text("\n".join(document["assumptions"]), style="dim"))


def _sizes(workload: Mapping[str, Any], sizes: Mapping[str, Any]) -> list[tuple[str, str]]:
    kv = f"{workload['kv_heads']} key/value heads of {sizes['head_dim']}"
    node, rows = sizes["node_bytes"], sizes["rows"]
    candidates = f"{scaled((rows - 1) * node, BINARY)} without the root"
    return [
        ("prefix", f"P {workload['prefix']:,}"),
        (
            "tree",
            f"N {rows:,} rows, M {sizes['visible']:,} pairs of them;"
            f" R {sizes['paths']:,} paths of D {sizes['width']:,} entries",
        ),
        (
            "heads",
            f"K {workload['heads']}, R_h {workload['head_blocks']} a head,"
            f" {workload['projection']} projections; T_h {sizes['head_rows']:,} rows",
        ),
        ("model", f"d {workload['hidden']:,}, V {workload['vocabulary']:,}"),
        (
            "keys, values",
            f"L {workload['layers']} layers, {kv}, b {workload['scalar_bytes']} bytes",
        ),
        ("", f"B {node:,} bytes a row, {scaled(node, BINARY)}; {candidates}"),
        ("published", f"G {workload['published']}"),
    ]


def _entries(document: Mapping[str, Any]) -> Table:
    table = columns("quantity", "formula", "count", "", "unit", "clause", right=("count",))
    for entry in document["entries"]:
        value, unit = entry["value"], entry["unit"]
        names = BINARY if unit == "bytes" else DECIMAL
        short = scaled(value, names) if value >= SHORT[unit == "bytes"] else ""
        table.add_row(
            entry["quantity"], entry["formula"], f"{value:,}", short, unit, entry["clause"]
        )
    return table


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
    published = f"{profile['published']:,} tokens / {profile['rounds']:,} rounds"
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
