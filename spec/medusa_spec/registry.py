"""The invariant registry: every code, its clause, and the depth of sight that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from medusa_spec.documents import parse_yaml, validate

Sight: TypeAlias = Literal["black-box", "differential", "white-box"]

SIGHTS: tuple[Sight, ...] = ("black-box", "differential", "white-box")
"""From the shallowest to the deepest."""

CONTRACTS = (
    "coordinate",
    "heads",
    "tree",
    "proposal",
    "verification",
    "posterior",
    "commit",
    "round",
)
"""In the order in which a round meets them."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One checkable rule. `section` is the article's, `clause` that of `spec/<contract>.md`."""

    code: str
    contract: str
    clause: str
    section: str
    sight: Sight
    statement: str


@cache
def invariants() -> dict[str, Invariant]:
    """Every invariant by code, in the order of the registry."""
    name = "invariants.yaml"
    text = resources.files("medusa_spec").joinpath(name).read_text("utf-8")
    document = parse_yaml(text, name)
    validate(document, "invariants", name)
    return {entry["code"]: Invariant(**entry) for entry in document}


def of_contract(contract: str) -> tuple[Invariant, ...]:
    """The invariants of one contract."""
    return tuple(i for i in invariants().values() if i.contract == contract)
