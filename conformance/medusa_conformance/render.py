"""What a person sees on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from medusa_spec.registry import SIGHTS, invariants

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}


def verification(document: Mapping[str, Any]) -> RenderableType:
    """The whole result of the main job, the verdict last."""
    parts: list[RenderableType] = [contracts_table(document)]
    if document["mutants"]:
        parts.append(kill_matrix(document["mutants"]))
    parts += [finding(entry) for entry in document["findings"]]
    parts += [
        Text(f"crash in {c['section']} on {c['coordinate']}: {c['error']}", style="red")
        for c in document["crashes"]
    ]
    if document["checkout"] is not None:
        parts.append(checkout(document["checkout"]))
    return Group(*parts, verdict(document))


def contracts_table(document: Mapping[str, Any]) -> Table:
    """Invariants and mutants, counted by contract."""
    table = Table(title="Reference engine", title_justify="left", box=None, pad_edge=False)
    for name, justify in (
        ("contract", "left"),
        ("invariants", "right"),
        ("executed", "right"),
        ("failed", "right"),
        ("mutants", "right"),
        ("killed", "right"),
    ):
        table.add_column(name, justify=justify, header_style="dim")  # type: ignore[arg-type]
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


def kill_matrix(mutants: Sequence[Mapping[str, Any]]) -> Table:
    """One row a mutant: who killed it, how soon, who else noticed, and from how far away."""
    table = Table(title="\nKill matrix", title_justify="left", box=None, pad_edge=False)
    table.add_column("mutant", header_style="dim", no_wrap=True)
    table.add_column("killed by", header_style="dim", no_wrap=True)
    table.add_column("after", header_style="dim", justify="right")
    table.add_column("seen from", header_style="dim", no_wrap=True)
    table.add_column("others that fired", header_style="dim", overflow="fold")
    previous = ""
    for mutant in mutants:
        if mutant["contract"] != previous:
            previous = mutant["contract"]
            table.add_row(Text(previous, style="bold"))
        table.add_row(
            f"  {mutant['id']}",
            _killer(mutant),
            str(mutant["examples"]),
            _sight(mutant["depth"]),
            Text(_others(mutant), style="dim"),
        )
    return table


def _others(mutant: Mapping[str, Any]) -> str:
    """The code that fired from the farthest away, and how many more did."""
    others = [code for code in mutant["fired"] if code != mutant["killer"]]
    if not others:
        return ""
    farthest = min(others, key=lambda code: SIGHTS.index(invariants()[code].sight))
    return farthest if len(others) == 1 else f"{farthest} and {len(others) - 1} more"


def _killer(mutant: Mapping[str, Any]) -> Text:
    if mutant["killed"]:
        return Text(mutant["killer"], style="green")
    if mutant["status"] == "incompetent":
        return Text(f"incompetent: {mutant['crash']}", style="red")
    return Text(f"survived {mutant['killer']}", style="red")


def _sight(depth: str | None) -> Text:
    styles = dict(zip(SIGHTS, ("cyan", "blue", "magenta"), strict=True))
    return Text("nowhere", style="red") if depth is None else Text(depth, style=styles[depth])


def _count(number: int, good: bool, otherwise: str) -> Text:
    return Text(str(number), style="green" if good else otherwise)


def finding(entry: Mapping[str, Any]) -> RenderableType:
    """One finding, its two sides under one another."""
    where = ", ".join(f"{axis} {index}" for axis, index in entry["where"].items())
    lines = [
        f"{entry['message']}",
        f"clause    {entry['clause']}   (medusa-oracles explain {entry['code']})",
        f"where     {entry['coordinate']['name']}, round {entry['round']}"
        + (f", {where}" if where else ""),
        f"expected  {entry['expected']}",
        f"observed  {entry['observed']}",
    ]
    body = Text("\n".join(lines))
    return Panel(body, title=entry["code"], title_align="left", border_style="red")


def checkout(found: Mapping[str, str]) -> Table:
    """Which files of a checkout are the pinned ones."""
    table = Table(title="\nCheckout", title_justify="left", box=None, pad_edge=False)
    table.add_column("file", header_style="dim")
    table.add_column("against the pin", header_style="dim")
    for name, state in found.items():
        table.add_row(name, Text(state, style="green" if state == "matches" else "red"))
    return table


def verdict(document: Mapping[str, Any]) -> RenderableType:
    """The last line: the verdict and what it rests on."""
    word = document["verdict"]
    executed = sum(entry["executed"] > 0 for entry in document["invariants"])
    killed = sum(mutant["killed"] for mutant in document["mutants"])
    line = Text("\n")
    line.append(word.upper(), style=f"bold {COLOURS[word]}")
    line.append(
        f"  {executed} of {len(document['invariants'])} invariants exercised"
        f" on {document['coordinates']} coordinates,"
        f" {killed} of {len(document['mutants'])} mutants killed"
        f" by the rule they break   {document['device']} {document['dtype']},"
        f" seed {document['seed']}, {document['seconds']:.1f} s"
    )
    return line


def derivation(document: Mapping[str, Any]) -> RenderableType:
    """Every buffer of one tree, a row per packed row."""
    head = Text(document["name"], style="bold")
    head.append(
        f"  {document['nodes']} rows, TOPK {document['topk']}, {document['heads']} heads,"
        f" retrieval {document['retrieval_order']}, sentinel {document['sentinel']}",
        style="not bold dim",
    )
    table = Table(box=None, pad_edge=False)
    columns = ["row", "path", "parent", "slot", "depth"]
    staged = "positions" in document
    columns += ["position", "cache row"] if staged else []
    for name in columns:
        table.add_column(name, header_style="dim", justify="left" if name == "path" else "right")
    table.add_column("sees", header_style="dim", no_wrap=True)
    paths = [[], *document["paths"]]
    for row, path in enumerate(paths):
        cells = [
            str(row),
            "root" if not path else " ".join(map(str, path)),
            str(document["parents"][row]) if path else "",
            str(document["tree_indices"][row]),
            str(document["position_ids"][row]),
        ]
        if staged:
            cells += [str(document["positions"][row]), str(document["staged_rows"][row])]
        cells.append("".join("█" if seen else "·" for seen in document["attention_mask"][row]))
        table.add_row(*cells)
    retrieval = Table(title="retrieval", title_justify="left", box=None, pad_edge=False)
    retrieval.add_column("path", header_style="dim", justify="right")
    retrieval.add_column("rows", header_style="dim")
    for index, rows in enumerate(document["retrieve_indices"]):
        text = Text()
        for entry in rows:
            text.append(f"{entry:>4}", style="dim" if entry < 0 else "")
        retrieval.add_row(str(index), text)
    parts: list[RenderableType] = [head, Text(), table, Text(), retrieval]
    if "frozen" in document:
        good = document["frozen"] == "matches"
        words = (
            "The frozen values of the manifest match."
            if good
            else ("The frozen values of the manifest DIFFER from what the oracle derives.")
        )
        parts += [Text(), Text(words, style="green" if good else "red")]
    if "checkout" in document:
        parts.append(checkout(document["checkout"]))
    return Group(*parts)


def mutant_list(mutants: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The catalog, contract by contract."""
    table = Table(box=None, pad_edge=False)
    table.add_column("mutant", header_style="dim", no_wrap=True)
    table.add_column("killer", header_style="dim", no_wrap=True)
    table.add_column("section", header_style="dim")
    table.add_column("what it does", header_style="dim")
    for contract, entries in groupby(mutants, key=lambda entry: entry["contract"]):
        table.add_row(Text(contract, style="bold"))
        for entry in entries:
            wild = " (met in the wild)" if entry["origin"] == "wild" else ""
            sentence = entry["sentence"] + wild
            table.add_row(f"  {entry['id']}", entry["killer"], entry["section"], sentence)
    return Group(table, Text(f"\n{len(mutants)} mutants"))


def explanation(document: Mapping[str, Any]) -> RenderableType:
    """One invariant: the rule first, then where it lives, then who breaks it."""
    head = Text(document["code"], style="bold")
    head.append(f"   {document['sight']}", style="not bold dim")
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("clause", f"{document['clause']} of {document['chapter']}")
    facts.add_row("source", f"section {document['section']} of the article")
    facts.add_row("oracle", document["oracle"])
    facts.add_row("reads", ", ".join(document["needs"]))
    parts: list[RenderableType] = [head, Text(document["statement"]), Text(), facts, Text()]
    for entry in document["mutants"]:
        line = Text(entry["id"], style="bold")
        line.append(f"  {entry['sentence']}", style="not bold")
        parts.append(line)
    example = document["example"]
    if example is not None:
        words = (
            f"The smallest frozen coordinate on which {example['mutant']} is found is"
            f" {example['coordinate']} ({example['nodes']} rows):"
        )
        shown = Padding(Text(example["finding"], style="red"), (0, 0, 0, 2))
        parts += [Text(), Text(words), shown]
    return Group(*parts)


def stdout() -> Console:
    """The console that results go to; a pipe gets plain text that does not wrap."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    return console
