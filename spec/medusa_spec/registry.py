"""The invariant registry: every code, its clause, and the depth of sight that it needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

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
    "search",
    "exactness",
    "training",
    "checkpoint",
    "cost",
    "claims",
)
"""In the order in which a round meets them, and behind them those around it."""

AROUND = ("search", "exactness", "training", "checkpoint", "cost", "claims")
"""Contracts around decoding: nothing of them shows in a round, and little of a round in them."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """One checkable rule. `section` is the article's, `clause` that of `spec/<contract>.md`.

    `cause` is what usually breaks it, for the author of an engine. `follows_from` are the rules
    whose breach can break this one as well, by code, or all of a contract by its name. A rule of a
    later contract can do so in the round before.
    """

    code: str
    contract: str
    clause: str
    section: str
    sight: Sight
    statement: str
    cause: str
    follows_from: tuple[str, ...] = ()

    @property
    def chapter(self) -> str:
        """The file that says the rule."""
        return f"spec/{self.contract}.md"


@cache
def invariants() -> dict[str, Invariant]:
    """Every invariant by code, in the order of the registry."""
    name = "invariants.yaml"
    text = resources.files("medusa_spec").joinpath(name).read_text("utf-8")
    document = parse_yaml(text, name)
    validate(document, "invariants", name)
    return {entry["code"]: _invariant(entry) for entry in document}


def _invariant(entry: dict[str, Any]) -> Invariant:
    return Invariant(**entry | {"follows_from": tuple(entry.get("follows_from", ()))})


@cache
def sources_of(code: str) -> frozenset[str]:
    """Every other code whose breach can break the rule of `code`, contracts spelled out."""
    named = invariants()[code].follows_from
    listed = invariants().values()
    return frozenset(i.code for i in listed if i.code in named or i.contract in named) - {code}


def of_contract(contract: str) -> tuple[Invariant, ...]:
    """The invariants of one contract."""
    return tuple(i for i in invariants().values() if i.contract == contract)
