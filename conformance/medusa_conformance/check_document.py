"""What `check --json` prints, and `--report` writes: a result as one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import medusa_spec
from medusa_conformance.check import Judged
from medusa_conformance.expected import Expectation, outcomes
from medusa_conformance.finding_file import finding_documents
from medusa_conformance.folding import Cause
from medusa_conformance.verdicts import (
    capabilities,
    contract_rows,
    incidents,
    invariant_rows,
    verdict,
)
from medusa_conformance.versions import suite_commit, versions
from medusa_spec.documents import validate


@dataclass(frozen=True, slots=True)
class Run:
    """How a check was run; small and plain."""

    contracts: tuple[str, ...]
    seed: int
    max_examples: int


def check_document(
    judged: Judged,
    run: Run,
    expectations: tuple[Expectation, ...],
    causes: Sequence[Cause],
    seconds: float,
    today: date,
) -> dict[str, Any]:
    """A result, held to its schema. `causes` are those of `judged`, shrunken or not."""
    tally, description = judged.tally, judged.description
    expected = outcomes(expectations, tally.executed, tally.failed, today)
    traces = judged.target["kind"] == "trace"
    rows = invariant_rows(tally, run.contracts, expected, traces)
    document = {
        "command": "check",
        "verdict": verdict(tally, rows, expected).value,
        "target": {
            "kind": judged.target["kind"],
            "text": judged.text,
            "name": description.name,
            "version": description.version,
            "language": description.language,
        },
        "dialect": judged.dialect.document(),
        "spec_version": medusa_spec.__version__,
        "suite_version": versions()["medusa-oracles"],
        "commit": suite_commit(),
        "seed": run.seed,
        "max_examples": run.max_examples,
        "dtype": judged.dialect.dtype,
        "device": "cpu",
        "coordinates": tally.coordinates,
        "capabilities": capabilities(tally),
        "contracts": contract_rows(rows),
        "invariants": rows,
        "findings": finding_documents(causes, judged.target, judged.setting, run.seed),
        "incidents": incidents(tally),
        "expected_failures": expected,
        "seconds": round(seconds, 3),
        "versions": versions(),
    }
    validate(document, "check", "check --json")
    return document
