"""A whole check, from a target to its document: what the command and the pytest plugin share."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medusa_conformance import reports
from medusa_conformance.check import check, check_traces, shrunken
from medusa_conformance.check_document import Run, check_document
from medusa_conformance.expected import Expectation
from medusa_conformance.folding import fold
from medusa_conformance.targets import Target

KEPT = Path(".medusa")
"""Where findings go that no report was asked for, as files to replay."""


def judge_target(
    target: Target | Path,
    run: Run,
    expectations: tuple[Expectation, ...],
    workers: int,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """The document of one check: of an engine, or of a path's trace files.

    `InputError` where there is nothing to judge.
    """
    started = time.perf_counter()
    if isinstance(target, Path):
        judged = check_traces(target, run.contracts)
        causes = fold(judged.tally.findings)
    else:
        judged = check(target, run.contracts, run.seed, run.max_examples, workers, progress)
        causes = fold(judged.tally.findings)
        if causes:
            progress("shrinking findings", 0, len(causes))
            causes = shrunken(target, causes)
    seconds = time.perf_counter() - started
    today = datetime.now(UTC).date()
    return check_document(judged, run, expectations, causes, seconds, today)


def keep(document: dict[str, Any], report: Path | None, kept: Path = KEPT) -> None:
    """Write the report; without one, findings alone, into `kept`. Replay lines name the files."""
    if report is None and not document["findings"]:
        return
    folder = kept if report is None else report
    for entry in document["findings"]:
        name = entry["replay"].rpartition(" ")[2]
        entry["replay"] = f"medusa-oracles replay {shlex.quote(str(folder / name))}"
    if report is None:
        reports.write_findings(folder, document["findings"])
    else:
        reports.write_report(folder, document)
