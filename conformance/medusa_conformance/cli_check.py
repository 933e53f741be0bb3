"""The commands that judge somebody else's engine: `check`, `replay` and `init`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any

import click

from medusa_conformance import TIMEOUT
from medusa_conformance.cli_common import (
    chosen_contracts,
    contract_option,
    examples_option,
    json_option,
    progress_bar,
    seed_option,
    show,
    workers,
)
from medusa_conformance.targets import Target
from medusa_spec.documents import validate
from medusa_spec.errors import InputError
from medusa_spec.findings import Verdict
from medusa_spec.tracefile import SUFFIXES

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=TIMEOUT,
    show_default=True,
    help="Seconds that the engine has for each reply.",
)


@click.command(short_help="Judge an engine, or the trace files that it wrote.")
@click.argument("target", nargs=-1, required=True)
@contract_option
@seed_option
@examples_option
@timeout_option
@click.option(
    "--expected-failures",
    "expected",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML list of invariants that fail today: invariant, reason, link, perhaps expires.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.json, junit.xml, report.html and each finding into this folder.",
)
@json_option
def check(
    target: tuple[str, ...],
    contracts: Sequence[str],
    seed: int,
    max_examples: int,
    timeout: float,
    expected: Path | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Judge an engine.

    TARGET is module:attribute, a trace file or a folder of them, or, behind --, a command that
    speaks the line protocol.
    """
    from medusa_conformance import render_check, reports
    from medusa_conformance.check_document import Run
    from medusa_conformance.expected import load_expectations
    from medusa_conformance.judging import judge_target, keep

    expectations = () if expected is None else load_expectations(expected)
    if report is not None:
        reports.require_room(report)
    run = Run(chosen_contracts(contracts), seed, max_examples)
    engine = traces_of(target) or target_of(target, timeout)
    with progress_bar("asking the engine what it is") as progress:
        document = judge_target(engine, run, expectations, workers(), progress)
    keep(document, report)
    show(document, as_json, render_check.checked)
    return Verdict(document["verdict"]).exit_code


def traces_of(target: tuple[str, ...]) -> Path | None:
    """The trace file or folder that a target names, `None` where it names an engine."""
    if not target[0]:
        raise InputError("TARGET", "", "is an empty word")
    path = Path(target[0])
    if len(target) == 1 and (path.is_dir() or path.suffix.lower() in SUFFIXES):
        return path
    return None


def target_of(target: tuple[str, ...], timeout: float) -> Target:
    """The engine that a target names; one word is a module's attribute, more are a command."""
    if len(target) == 1 and ":" in target[0]:
        return Target.module(target[0], Path.cwd(), timeout)
    if which(target[0]) is None:
        rule = "is neither module:attribute, a trace file or folder, nor a program"
        raise InputError(target[0], "", rule)
    return Target("command", target, Path.cwd(), timeout)


@click.command(short_help="Say whether one finding is fixed, or still fails.")
@click.argument("file", type=click.Path(path_type=Path))
@timeout_option
@json_option
def replay(file: Path, timeout: float, as_json: bool) -> int:
    """Replay one finding: 0 where it is fixed, 1 where it still fails, 2 where nobody can say."""
    from medusa_conformance import render_check
    from medusa_conformance.replay import replay as run

    found = run(file, timeout)
    document = {
        "file": str(file),
        "code": found.code,
        "outcome": found.outcome.name.lower().replace("_", "-"),
        "text": found.text,
        "finding": found.finding,
    }
    validate(document, "replay", "replay --json")
    show(document, as_json, render_check.replayed)
    return int(found.outcome)


@click.command(short_help="Write an adapter stub, and a test that runs it.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@json_option
def init(folder: Path, as_json: bool) -> int:
    """Write an adapter stub, and a test that runs it, into a folder."""
    from medusa_conformance import render_check
    from medusa_conformance.scaffold import write_stub

    written = write_stub(folder)
    document: Mapping[str, Any] = {"folder": str(folder), "written": written}
    validate(document, "init", "init --json")
    show(document, as_json, render_check.initialised)
    return 0
