"""Expected failures: the file in which an engine's author says what fails today, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeAlias

from medusa_spec.documents import load_document, validate
from medusa_spec.errors import InputError
from medusa_spec.registry import invariants

Outcome: TypeAlias = Literal[
    "as-expected", "unexpected-pass", "other-code", "unknown-code", "expired", "not-exercised"
]

LAWFUL: tuple[Outcome, ...] = ("as-expected", "not-exercised")
"""Outcomes that do not fail a run."""

# Python reads other forms of ISO 8601 too, such as weeks, and from release to release more.
DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
NO_DAY = "is no date of the form 2027-01-31"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One invariant that is expected to fail; `expires` is the last day on which it may."""

    invariant: str
    reason: str
    link: str
    expires: date | None

    def outcome(
        self, executed: Mapping[str, int], failed: Mapping[str, int], today: date
    ) -> Outcome:
        """What became of it in a run that executed and failed these invariants."""
        code = self.invariant
        if code not in invariants():
            return "unknown-code"
        if self.expires is not None and self.expires < today:
            return "expired"
        if failed.get(code):
            return "as-expected"
        if not executed.get(code):
            return "not-exercised"
        return "unexpected-pass"


def load_expectations(path: Path) -> tuple[Expectation, ...]:
    """The entries of a YAML file; `InputError` where it is none, or names an invariant twice."""
    document = load_document(path)
    validate(document, "expected_failures", str(path))
    found: dict[str, Expectation] = {}
    for place, entry in enumerate(document):
        code = entry["invariant"]
        if code in found:
            raise InputError(str(path), f"[{place}].invariant", f"{code} is there twice")
        expires = _day(entry.get("expires"), f"[{place}].expires", str(path))
        found[code] = Expectation(code, entry["reason"], entry["link"], expires)
    return tuple(found.values())


def outcomes(
    expectations: tuple[Expectation, ...],
    executed: Mapping[str, int],
    failed: Mapping[str, int],
    today: date,
) -> list[dict[str, Any]]:
    """Each entry with its outcome, for the report.

    An entry whose invariant passed while one that is not in the file failed has failed by another
    code: the fault has moved, and its reason explains nothing any more.
    """
    named = {entry.invariant for entry in expectations}
    strangers = any(count and code not in named for code, count in failed.items())
    found = []
    for entry in expectations:
        outcome = entry.outcome(executed, failed, today)
        if outcome == "unexpected-pass" and strangers:
            outcome = "other-code"
        found.append(
            {
                "code": entry.invariant,
                "reason": entry.reason,
                "link": entry.link,
                "expires": None if entry.expires is None else entry.expires.isoformat(),
                "outcome": outcome,
            }
        )
    return found


def _day(text: Any, field: str, source: str) -> date | None:
    if text is None:
        return None
    if not DAY.fullmatch(str(text)):
        raise InputError(source, field, NO_DAY)
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise InputError(source, field, NO_DAY) from None
