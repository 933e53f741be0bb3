"""The trace: what an engine was given and what it did in one round, as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medusa_spec.arrays import Array
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import CANONICAL, Dialect


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two floating-point values of one dtype may lie apart: `|a-b| <= atol + rtol*|b|`."""

    atol: float
    rtol: float
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    """One round, or the part of it that was observed.

    `arrays` are named `stage.field` as in `medusa_spec.stages`; `documents` hold what is not an
    array. An oracle runs only where every name that it needs is present. `tolerance` is that of
    a forward pass in the engine's dtype; `policy_tolerance` that of arithmetic on given logits.
    `arrays` are in canonical form already; of `dialect` only what cannot be normalised is read.
    """

    coordinate: Coordinate
    tolerance: Tolerance
    policy_tolerance: Tolerance
    arrays: Mapping[str, Array] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    round: int = 0
    dialect: Dialect = CANONICAL

    @property
    def names(self) -> frozenset[str]:
        """The name of everything that was observed."""
        return frozenset((*self.arrays, *self.documents))

    def has(self, *names: str) -> bool:
        """Whether every one of `names` was observed."""
        return all(name in self.arrays or name in self.documents for name in names)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name] if name in self.arrays else self.documents[name]
