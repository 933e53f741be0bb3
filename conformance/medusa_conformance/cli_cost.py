"""The command that tells what a round takes: `cost`. It needs no engine."""

from __future__ import annotations

from pathlib import Path

import click

from medusa_conformance.cli_common import json_option, show
from medusa_spec.coordinate import Coordinate
from medusa_spec.documents import validate
from medusa_spec.errors import InputError
from medusa_spec.loading import load_coordinate


@click.command(short_help="Print what a round takes, and when it pays.")
@click.argument("manifest")
@json_option
def cost(manifest: str, as_json: bool) -> int:
    """Print the ledger of a round: parameters, FLOPs, pairs, logits, bytes, break-even.

    MANIFEST is a file, or the name of a frozen manifest, with a `cost`: the sizes of a round, none
    of which is allocated.
    """
    from medusa_conformance import render_cost
    from medusa_conformance.ledger import ledger_document

    source, coordinate = load(manifest)
    workload = coordinate.cost
    if workload is None:
        raise InputError(source, "cost", "is not there; a ledger is of the sizes that it declares")
    document = ledger_document(coordinate, workload)
    validate(document, "cost", "cost --json")
    show(document, as_json, render_cost.cost)
    return 0


def load(manifest: str) -> tuple[str, Coordinate]:
    """Where it was found, and the coordinate: a file goes before a frozen manifest of its name."""
    import medusa_manifests

    path = Path(manifest)
    named = not path.exists() and manifest == path.stem
    return manifest, medusa_manifests.load(manifest) if named else load_coordinate(path)
