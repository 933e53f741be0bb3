"""The command that trains: `train`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from medusa_conformance.cli_common import json_option, progress_bar, seed_option, show
from medusa_spec.findings import Verdict


@click.command(short_help="Train a small decoder and its heads, and decode with them.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--smoke", is_flag=True, help="A smaller run, of less than a minute.")
@seed_option
@json_option
def train(folder: Path, smoke: bool, seed: int, as_json: bool) -> int:
    """Train a byte-level decoder and Medusa-1 heads on it, calibrate, decode.

    The text is the source of Python's own standard library. FOLDER, which is empty or not there,
    gets the checkpoint, the table of accuracies and a report. Minutes on two cores.
    """
    # Before torch starts its threads: where something else runs, too, threads that wait by
    # spinning wait for a core, and the run takes many times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from medusa_conformance import render_train
    from medusa_reference_engine.training_run import FULL, SMOKE
    from medusa_reference_engine.training_run import train as run

    given = ["medusa-oracles", "train", str(folder), *["--smoke"] * smoke, "--seed", str(seed)]
    with progress_bar("reading the standard library") as progress:
        document = run(folder, SMOKE if smoke else FULL, seed, shlex.join(given), progress)
    show(document, as_json, lambda whole: render_train.trained(whole, folder))
    return Verdict(document["verdict"]).exit_code
