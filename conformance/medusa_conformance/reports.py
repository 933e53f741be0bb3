"""Results as plain documents, each held to its schema, and written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import medusa_spec
from medusa_conformance import runner
from medusa_conformance.checkout import is_pinned
from medusa_conformance.finding_file import file_name, finding_documents
from medusa_conformance.folding import fold
from medusa_conformance.html import html
from medusa_conformance.junit import junit
from medusa_conformance.runner import MutantResult, Verification
from medusa_conformance.versions import suite_commit, versions
from medusa_oracles import oracles
from medusa_spec.documents import validate
from medusa_spec.errors import InputError
from medusa_spec.files import write_text
from medusa_spec.findings import Verdict
from medusa_spec.registry import invariants

if TYPE_CHECKING:
    from medusa_mutations import Mutation


def verification_document(
    result: Verification, max_examples: int, checkout: Mapping[str, str] | None
) -> dict[str, Any]:
    """What `verify --json` prints. Counts of an invariant are counts of coordinates.

    A checkout that is not the pinned release fails the run.
    """
    tally = result.tally
    pinned = checkout is None or is_pinned(checkout)
    document = {
        "verdict": (result.verdict if pinned else Verdict.FAIL).value,
        "engine": "reference",
        "spec_version": medusa_spec.__version__,
        "suite_version": versions()["medusa-oracles"],
        "commit": suite_commit(),
        "device": result.setting.device,
        "dtype": result.setting.dtype,
        "seed": result.seed,
        "max_examples": max_examples,
        "contracts": list(result.setting.contracts),
        "coordinates": tally.coordinates,
        "invariants": [
            {
                "code": code,
                "contract": invariants()[code].contract,
                "sight": invariants()[code].sight,
                "planned": tally.coordinates,
                "executed": tally.executed[code],
                "failed": tally.failed[code],
            }
            for code in result.planned
        ],
        "mutants": [mutant_result(entry) for entry in result.mutants],
        "findings": finding_documents(
            fold(tally.findings), {"kind": "reference"}, result.setting, result.seed
        ),
        "crashes": [
            {"coordinate": name, "section": crash.section, "error": crash.error}
            for name, crash in tally.crashes
        ],
        "checkout": None if checkout is None else dict(checkout),
        "seconds": round(result.seconds, 3),
        "versions": versions(),
    }
    validate(document, "verify", "verify --json")
    return document


def mutant_result(result: MutantResult) -> dict[str, Any]:
    """One row of the kill matrix."""
    mutation = runner.mutations()[result.mutation_id]
    return {
        "id": mutation.id,
        "contract": mutation.contract,
        "killer": mutation.killer,
        "killed": result.status == "killed",
        "status": result.status,
        "fired": list(result.fired),
        "depth": result.depth,
        "examples": result.examples,
        "crash": result.crash,
    }


def mutation_document(mutation: Mutation) -> dict[str, Any]:
    """One mutation of the catalog, and the class that carries it out."""
    return {
        "id": mutation.id,
        "contract": mutation.contract,
        "section": mutation.section,
        "killer": mutation.killer,
        "origin": mutation.origin,
        "exposed_by": mutation.exposed_by,
        "preserves": mutation.preserves,
        "sentence": mutation.sentence,
        "stage": f"{mutation.stage.__module__}.{mutation.stage.__qualname__}",
    }


def explanation_document(code: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """What `explain --json` prints."""
    invariant, entry = invariants()[code], oracles()[code]
    document = {
        "code": code,
        "contract": invariant.contract,
        "clause": invariant.clause,
        "chapter": invariant.chapter,
        "section": invariant.section,
        "sight": invariant.sight,
        "statement": invariant.statement,
        "oracle": entry.check.__module__,
        "needs": list(entry.needs),
        "mutants": [mutation_document(m) for m in runner.mutations().values() if m.killer == code],
        "example": example,
    }
    validate(document, "explain", "explain --json")
    return document


FINDINGS = "findings"
"""The folder of a report that has each finding by itself."""

FILES = ("junit.xml", "report.html", "report.json")
"""The files of a report, each the whole result."""


def require_room(folder: Path) -> None:
    """Find out, before the run whose result would have no place, whether a report can be written.

    Nothing of it is left: a run that comes to nothing has no report. `InputError` says what is in
    the way.
    """
    made: list[Path] = []
    try:
        _make(folder, made)
        _require_files(folder / name for name in FILES)
    finally:
        for place in reversed(made):
            # Somebody else may have put something into it.
            with suppress(OSError):
                place.rmdir()


def _make(folder: Path, made: list[Path]) -> None:
    """Make the folders of a report, and note those that were not there."""
    place = folder / FINDINGS
    for each in (*reversed(place.parents), place):
        try:
            if not each.is_dir():
                each.mkdir()
                made.append(each)
        except OSError as error:
            raise InputError(str(each), "", f"cannot be made: {error.strerror}") from None
    for each in (folder, place):
        if not os.access(each, os.W_OK):
            raise InputError(str(each), "", "cannot be written to")


def _require_files(targets: Iterable[Path]) -> None:
    for target in targets:
        if target.is_dir():
            raise InputError(str(target), "", "cannot be written: it is a folder")


def write_report(folder: Path, document: Mapping[str, Any]) -> None:
    """What `check` or `verify` found, for programs, build servers and people.

    `report.json` is the whole result, `junit.xml` and `report.html` are the same in other forms,
    and `findings/` has each finding by itself. Each file is there whole or not at all; findings of
    an earlier run go.
    """
    # Made before the first is written: a page that cannot be made leaves the older report alone.
    whole = junit(document), html(document), json.dumps(document, indent=2) + "\n"
    texts = dict(zip(FILES, whole, strict=True))
    _require_files(folder / name for name in texts)
    write_findings(folder, document["findings"])
    for name, text in texts.items():
        write_text(folder / name, text)


def write_findings(folder: Path, findings: Sequence[Mapping[str, Any]]) -> None:
    """Each finding by itself in `findings/`; those of an earlier run go."""
    _make(folder, [])
    place = folder / FINDINGS
    texts = {
        place / file_name(number, finding["code"]): json.dumps(finding, indent=2) + "\n"
        for number, finding in enumerate(findings, 1)
    }
    _require_files(texts)
    for target, text in texts.items():
        write_text(target, text)
    for stale in set(place.glob("[0-9][0-9]-*.json")) - texts.keys():
        if stale.is_file():
            stale.unlink(missing_ok=True)
