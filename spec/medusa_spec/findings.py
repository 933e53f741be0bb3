"""Findings and verdicts: what an oracle says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """`pass` only where everything planned was executed and nothing was found."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 inconclusive."""
        return {"pass": 0, "fail": 1, "inconclusive": 2}[self.value]


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated invariant: where, what was expected, what was observed.

    `where` names coordinates of the trace, such as `round`, `path`, `row`, `key`, `layer`.
    """

    code: str
    message: str
    where: Mapping[str, int] = field(default_factory=dict)
    expected: Any = None
    observed: Any = None

    def __str__(self) -> str:
        place = " ".join(f"{axis}={index}" for axis, index in self.where.items())
        sides = ""
        if self.expected is not None or self.observed is not None:
            sides = f": expected {self.expected}, observed {self.observed}"
        return f"{self.code}{' at ' + place if place else ''}: {self.message}{sides}"
