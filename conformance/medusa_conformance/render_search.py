"""What a person sees of a search: what it was for, every decision, and what is predicted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from medusa_conformance.picture import shown_name
from medusa_conformance.render import columns, facts

DECISIONS = 1024
"""Decisions that are printed; behind so many nobody reads on, and --json has them."""

ASSUMPTIONS = (
    "A rank of a head matches as often as the table says, whatever the ranks before it did;",
    "heads read one hidden state, so this is a model of them and no theorem. A policy that accepts",
    "something else than the target's own token has other accuracies. The root is not counted, and",
    "nothing here says how long a node takes: accepted edges are not tokens per second.",
)


def search(document: Mapping[str, Any]) -> RenderableType:
    """One search: the calibration, the decisions, the paths as a list, the prediction."""
    identity, claim = document["identity"], document["claim"]
    heads = f"{document['heads']} head{'s' if document['heads'] > 1 else ''}"
    head = Text(shown_name(document), style="bold")
    used = f"{document['max_rank']} of {document['ranks']} ranks"
    head.append(f"  {heads}, {used}, {document['form']}", style="not bold dim")
    rows = [
        ("model", identity["model"]),
        ("data set", identity["data_set"]),
        ("prompts", identity["prompts"]),
        ("policy", identity["policy"]),
        ("accuracies", claim["evidence"]),
    ]
    parts: list[RenderableType] = [head, facts([(name, _clean(said)) for name, said in rows])]
    parts += [Text(), _decisions(document["decisions"]), *_ending(document), Text()]
    if len(document["paths"]) <= DECISIONS:
        parts += [Text("paths", style="bold"), Text(json.dumps(document["paths"])), Text()]
    prediction = Text(f"{document['objective']:.6g}", style="bold")
    words = f" expected accepted edges a round, derived from {claim['evidence']} accuracies"
    prediction.append(f"{words} of independent heads", style="not bold")
    return Group(*parts, prediction, Text("\n".join(ASSUMPTIONS), style="dim"))


def _clean(said: str) -> str:
    return shown_name({"name": said})


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> Table:
    numbers = ("node", "weight", "sum", "frontier", "its weight")
    headers = ("node", "admitted", "weight", "sum", "frontier", "runner-up", "its weight")
    table = columns(*headers, right=numbers)
    sums = accumulate(decision["weight"] for decision in decisions)
    for node, (decision, total) in enumerate(zip(decisions[:DECISIONS], sums, strict=False), 1):
        left, weight = decision["runner_up"], decision["runner_up_weight"]
        table.add_row(
            str(node),
            _path(decision["path"]),
            f"{decision['weight']:.6f}",
            f"{total:.6f}",
            str(decision["frontier"]),
            "" if left is None else _path(left),
            "" if weight is None else f"{weight:.6f}",
        )
    return table


def _path(path: Sequence[int]) -> str:
    return " ".join(map(str, path))


def _ending(document: Mapping[str, Any]) -> list[RenderableType]:
    """Why no more decisions are shown, where it is not the budget."""
    shown, asked = len(document["decisions"]), document["identity"]["nodes"]
    lines = []
    if shown > DECISIONS:
        more = f"… and {shown - DECISIONS:,} more"
        lines.append(f"{more}, which --json has; --choices writes the list of all paths.")
    if shown < asked:
        lines.append(f"The frontier is empty: of {asked:,} paths asked for there are {shown:,}.")
    return [Text(line, style="yellow") for line in lines]
