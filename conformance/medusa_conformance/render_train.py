"""What a person sees of `train` on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa_conformance.render import COLOURS, columns

RANKS = (1, 2, 3, 5, 10)
"""Ranks whose accuracy is shown; the file has them all."""


def trained(document: Mapping[str, Any], folder: Path) -> RenderableType:
    """What was learnt, what it is worth in rounds, and the verdict last."""
    broken = [
        Text(f"broken: {entry['rule']}: {entry['observed']}", style="red")
        for entry in document["rules"]
        if not entry["holds"]
    ]
    return Group(
        Text("Heads, on held-out text", style="bold"),
        heads_table(document),
        Text(),
        Text("Greedy rounds, on held-out prompts", style="bold"),
        rounds_table(document),
        promised(document),
        Text(),
        *([*broken, Text()] if broken else []),
        verdict(document, folder),
    )


def heads_table(document: Mapping[str, Any]) -> Table:
    """Losses in nats before and after, and how often the label is among the first ranks."""
    tops = [f"top{rank}" for rank in RANKS]
    table = columns("head", "loss before", "after", *tops, right=("loss before", "after", *tops))
    for row in document["heads"]:
        loss = row["loss"]["held_out"]
        shares = (f"{row['top'][rank - 1]:.3f}" for rank in RANKS)
        table.add_row(row["head"], f"{loss['start']:.3f}", f"{loss['end']:.3f}", *shares)
    return table


def rounds_table(document: Mapping[str, Any]) -> Table:
    """What each kind of heads published."""
    numbers = ("prompts", "rounds", "tokens", "tokens a round")
    table = columns("heads", *numbers, right=numbers)
    for row in document["decoding"]:
        table.add_row(
            row["heads"],
            str(row["prompts"]),
            str(row["rounds"]),
            str(row["published"]),
            f"{row['published_per_round']:.2f}",
        )
    return table


def promised(document: Mapping[str, Any]) -> Text:
    """What the accuracies say of the tree, beside what became of it."""
    accepted = document["decoding"][0]["published_per_round"] - 1
    return Text(
        f"derived from the accuracies: {document['promised_accepted']:.2f} accepted edges a round; "
        f"measured of trained heads: {accepted:.2f}",
        style="dim",
    )


def verdict(document: Mapping[str, Any], folder: Path) -> RenderableType:
    """The last lines: the verdict, and what was measured on."""
    word, machine, rules = document["verdict"], document["machine"], document["rules"]
    holding = sum(entry["holds"] for entry in rules)
    lines = (
        f"{holding} of {len(rules)} rules hold",
        f"wrote {folder}: checkpoint, heads, accuracy.csv, accuracy.yaml, report.json, report.md",
        f"measured here: {machine['cores']} cores, Python {machine['python']},"
        f" torch {machine['torch']}, seed {document['seed']},"
        f" {sum(document['seconds'].values()):.1f} s",
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(Text(word.upper(), style=f"bold {COLOURS[word]}"), Text("\n".join(lines)))
    return table
