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


AXES: Mapping[str, str] = {
    "row": "packed rows of the tree",
    "key": "columns of a mask: packed rows, behind the committed ones in a verification",
    "path": "retrieval rows, in the declared order",
    "entry": "places in a retrieval row, the root's first",
    "edge": "edges of a path; edge `i` leads to entry `i + 1`",
    "place": "tokens that a round or a generation published, and their rows",
    "position": "logical positions of a sequence",
    "cache_row": "rows of the cache",
    "layer": "layers of the model",
    "key_or_value": "keys, 0, and values, 1",
    "kv_head": "key/value heads",
    "channel": "channels of a state; of a weight, those that it gives",
    "input": "channels that a weight reads",
    "head": "Medusa heads",
    "block": "residual blocks of a head",
    "batch": "sequences of a batch",
    "rank": "ranks of a head",
    "token": "tokens of the vocabulary",
    "round": "rounds of a generation",
    "context": "what a row of a table stands behind: the start, then each token",
    "sequence": "sequences of tokens, in lexicographic order, or as they were drawn",
    "node": "paths of a search, in the order of their admission",
    "step": "steps of a training",
    "figure": "figures of the facts, in their order",
}
"""What each axis of a finding's `where` counts, from zero."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays of one shape lie apart: `entries` of `of` differ.

    `greatest` is the greatest absolute difference, at `where`; infinite where one side is no finite
    number, `None` where the arrays hold truth values. `allowed` is what the tolerance allows at
    `where`, `None` where the comparison is exact.
    """

    greatest: float | None
    where: Mapping[str, int]
    allowed: float | None
    entries: int
    of: int

    def __str__(self) -> str:
        verb = "differs" if self.entries == 1 else "differ"
        counted = f"{self.entries} of {self.of} entries {verb}"
        if self.greatest is None:
            return counted
        allowed = "" if self.allowed is None else f", {self.allowed:.3g} allowed"
        return f"{counted}, by up to {self.greatest:.3g}{allowed}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violated invariant: where, what was expected, what was observed.

    `where` places it on some of the `AXES`. `difference` says more where two arrays were compared.
    """

    code: str
    message: str
    where: Mapping[str, int] = field(default_factory=dict)
    expected: Any = None
    observed: Any = None
    difference: Difference | None = None

    def __str__(self) -> str:
        place = " ".join(f"{axis}={index}" for axis, index in self.where.items())
        sides = "" if self.difference is None else f" ({self.difference})"
        if self.expected is not None or self.observed is not None:
            sides += f": expected {self.expected}, observed {self.observed}"
        return f"{self.code}{' at ' + place if place else ''}: {self.message}{sides}"
