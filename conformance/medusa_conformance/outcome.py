"""What `check` and `verify` found, in one form, so that each report is written once for both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medusa_conformance.checkout import is_pinned
from medusa_conformance.verdicts import contract_rows
from medusa_spec.registry import invariants

NAMED = 6
"""Things that a sentence names before it counts the rest."""

# Neither XML nor a page can hold control characters and halves of characters, and marks that turn
# the direction of writing would make a page say what its source does not.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def outcome(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of `check` or of `verify` in the form of the former, its texts made printable.

    `mutants` and `checkout` stand beside it: empty and `None` for `check`, which has neither.
    """
    found = printable(document)
    if "mutants" not in found:
        return {**found, "mutants": [], "checkout": None}
    rows = [_row(entry) for entry in found["invariants"]]
    return {
        "command": "verify",
        "target": {
            "kind": "module",
            "text": "the reference engine",
            "name": found["engine"],
            "version": None,
            "language": "Python",
        },
        "dialect": {},
        "capabilities": [],
        "expected_failures": [],
        **found,
        "invariants": rows,
        "contracts": contract_rows(rows),
        "incidents": [_incident(crash) for crash in found["crashes"]],
    }


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    status = "fail" if entry["failed"] else "pass" if entry["executed"] else "not-exercised"
    reason = None if entry["executed"] else "no coordinate of this run has what it judges"
    clause = invariants()[entry["code"]].clause
    return {**entry, "clause": clause, "status": status, "reason": reason}


def _incident(crash: Mapping[str, Any]) -> dict[str, Any]:
    # `verify` knows its sections, and an engine of ours does nothing but crash.
    place = {"stage": crash["section"], "coordinate": crash["coordinate"]}
    return {"kind": "crash", **place, "text": crash["error"], "times": 1}


def printable(value: Any) -> Any:
    """The same document with U+FFFD for each character that no page and no XML should hold."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value


def summary(found: Mapping[str, Any], why: str) -> str:
    """What the verdict of an outcome rests on, in a few sentences.

    `why` says where a reader finds the reasons of what was not exercised.
    """
    return " ".join(_sentences(found, why))


def _sentences(found: Mapping[str, Any], why: str) -> Iterator[str]:
    rows = found["invariants"]
    executed = sum(row["executed"] > 0 for row in rows)
    by_status = {
        status: [row for row in rows if row["status"] == status]
        for status in ("fail", "expected-failure", "unexpected-pass", "not-exercised")
    }
    if executed:
        many = f"{executed} of {counted(len(rows), 'invariant')}"
        coordinates = counted(found["coordinates"], "coordinate")
        failed = len(by_status["fail"]) or "none"
        unforeseen = " unexpectedly" if by_status["expected-failure"] else ""
        yield f"{many} executed on {coordinates}; {failed} of them failed{unforeseen}."
    else:
        yield f"None of {counted(len(rows), 'invariant')} was executed."
    foreseen = {e["code"] for e in found["expected_failures"] if e["outcome"] == "as-expected"}
    beside = {f["code"] for f in found["findings"]} - {row["code"] for row in rows} - foreseen
    if beside:
        yield f"{listed(sorted(beside))}, which was not asked for, failed."
    if by_status["expected-failure"]:
        yield f"{len(by_status['expected-failure'])} failed as expected."
    if by_status["unexpected-pass"]:
        yield f"{len(by_status['unexpected-pass'])} passed though expected to fail."
    stale = ("unknown-code", "expired", "other-code")
    spent = sum(entry["outcome"] in stale for entry in found["expected_failures"])
    if spent:
        verb = "does" if spent == 1 else "do"
        yield f"{counted(spent, 'entry', 'entries')} of the expected failures {verb} not hold."
    incompetent = sum(row["status"] == "incompetent" for row in rows)
    if incompetent:
        yield f"{incompetent} got no verdict, because the engine gave no usable answer."
    elif found["incidents"]:
        times = sum(incident["times"] for incident in found["incidents"])
        yield f"The engine gave no usable answer {counted(times, 'time')}."
    declined = max(found["capabilities"], key=lambda stage: stage["unsupported"], default=None)
    if declined and declined["unsupported"]:
        times = f"{declined['unsupported']} of {counted(declined['calls'], 'call')}"
        yield f"{declined['stage']} declined {times} as unsupported."
    if by_status["not-exercised"]:
        yield f"{len(by_status['not-exercised'])} not exercised, {why}."
    if found["mutants"]:
        killed = sum(mutant["killed"] for mutant in found["mutants"])
        many = f"{killed} of {counted(len(found['mutants']), 'mutant')}"
        yield f"{many} killed by the rule that they break."
    if found["checkout"] is not None and not is_pinned(found["checkout"]):
        yield "The checkout is not the pinned release."


def incident_text(incident: Mapping[str, Any]) -> str:
    """One incident in a line."""
    where = f"{incident['kind']} in {incident['stage']} on {incident['coordinate']}"
    times = f" ({counted(incident['times'], 'time')})" if incident["times"] > 1 else ""
    return f"{where}{times}: {incident['text']}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`, cut short behind `NAMED` names."""
    shown = list(names[:NAMED])
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f" {last} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def place_of(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Where a finding lies, from the outermost axis inwards; it may name a round of its own."""
    return {
        "generation": finding["generation"],
        "round": finding["round"],
        **finding["where"],
    }
