"""The command that searches a tree for a table of accuracies: `search`. It needs no engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from medusa_conformance.cli_common import json_option, show
from medusa_spec.coordinate import Calibration, canonical_order
from medusa_spec.documents import validate

MOST_NODES = 65_536
"""Paths of the largest tree; it takes seconds."""


@click.command(short_help="Search a tree for a table of head accuracies.")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--nodes",
    type=click.IntRange(0, MOST_NODES),
    required=True,
    help="The budget: paths of the tree, so without the root.",
)
@click.option(
    "--max-rank",
    type=click.IntRange(1, 64),
    help="Ranks of a head that may be used; by default all that the table has.",
)
@click.option("--run", help="Of a log of runs, the one to take.")
@click.option(
    "--choices",
    type=click.Path(path_type=Path),
    help="Write the paths as a JSON list, which derive reads.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw tree and mask as SVG.")
@json_option
def search(
    table: Path,
    nodes: int,
    max_rank: int | None,
    run: str | None,
    choices: Path | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Search the tree that accuracies are worth most with, and say why each path is in it.

    TABLE is a YAML mapping; a CSV file with the columns head, top1, top2 and so on (cumulative) or
    head, rank0, rank1 and so on (incremental); or a CSV log with a row a run, whose columns are
    train/medusa0_top1 and so on.
    """
    from medusa_conformance import render_search
    from medusa_conformance.tables import read_calibration
    from medusa_spec.files import write_beside

    calibration = read_calibration(table, nodes, max_rank, run)
    document = searched(table.stem, calibration)
    # One path stands for all: each is of the same making, and a tree has tens of thousands.
    few = {name: document[name][:1] for name in ("paths", "decisions")}
    validate(document | few, "search", "search --json")
    files: list[tuple[Path, str]] = []
    if picture is not None:
        from medusa_conformance.derivation import derivation_document
        from medusa_conformance.picture import require_drawable, svg_text

        require_drawable(len(document["paths"]) + 1, picture)
        paths = canonical_order(document["paths"])
        heads, ranks = document["heads"], document["max_rank"]
        derived = derivation_document(table.stem, paths, ranks, heads, "canonical", -1)
        files.append((picture, svg_text(derived, picture)))
    if choices is not None:
        files.append((choices, json.dumps(document["paths"]) + "\n"))
    write_beside(table, files)
    show(document, as_json, render_search.search)
    return 0


def searched(name: str, calibration: Calibration) -> dict[str, Any]:
    """The document of a calibration's tree."""
    from medusa_oracles.search_plan import derive_search

    found = derive_search(calibration)
    said = {word: getattr(calibration, word) for word in ("model", "data_set", "prompts", "policy")}
    return {
        "name": name,
        "form": calibration.form,
        "heads": len(calibration.accuracy),
        "ranks": len(calibration.accuracy[0]),
        "max_rank": calibration.max_rank,
        "increments": found.increments.tolist(),
        "paths": [list(decision.path) for decision in found.decisions],
        "decisions": [
            decision._asdict()
            | {
                "path": list(decision.path),
                "runner_up": None if decision.runner_up is None else list(decision.runner_up),
            }
            for decision in found.decisions
        ],
        "objective": found.objective,
        "identity": said | {"nodes": calibration.nodes},
        "claim": {
            "quantity": "accepted-edges-per-round",
            "assumption": "independent-heads",
            "evidence": calibration.evidence,
        },
    }
