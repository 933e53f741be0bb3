"""Facts about figures, what is published of them, and the tables that every publication holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

from medusa_spec.documents import parse_yaml, validate

Quantity: TypeAlias = Literal["count", "share", "time", "rate", "size", "speedup"]

CONTRACT_WORDS = ("proposal", "topology", "verification", "training", "publication")
"""The contracts by which methods are compared (0x08A)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, and where it comes from: not yet what it may be called.

    `origin` is one of these, by its `kind`: `computed` by a `formula` from `inputs`, which are
    names of figures; `made-up` for a `purpose`; `run` on a `machine` by a `command`, over a
    `sample` of `size` and `of`; `said` by a `source`.
    """

    name: str
    value: float
    unit: str
    quantity: Quantity
    origin: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Law:
    """How far a mode's output is from the law that it is to follow.

    `distance` is the greatest total variation that enumerating every outcome gave, `None` where
    nobody enumerated them. Greedy decoding is to follow itself, without a tree.
    """

    mode: str
    distance: float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before anything is claimed. A figure stands behind those it is computed of."""

    figures: tuple[Figure, ...]
    policies: tuple[Law, ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """What an engine publishes of facts; `claims.schema.json` describes it as a document."""

    figures: tuple[Mapping[str, Any], ...]
    """`name`, `value`, `unit`, `quantity`, `evidence`, `rests_on`, `sources`, `local`, and what its
    evidence needs: `formula`, `purpose`, or `machine`, `command` and `sample`."""
    policies: tuple[Mapping[str, Any], ...]
    """`mode` and `claim`: "greedy-exact", "target-law", "heuristic" or "unproven"."""
    batch: int
    """Sequences of a round."""
    lineage: tuple[Mapping[str, Any], ...]
    """`method`, and its word for each of `CONTRACT_WORDS`."""
    scope: tuple[Mapping[str, Any], ...]
    """`topic`, `owner`, and whether it is `covered`."""


def facts_from(document: Mapping[str, Any]) -> Facts:
    """The value of `claims` of a coordinate that already satisfies its schema."""
    return Facts(
        tuple(Figure(**figure) for figure in document["figures"]),
        tuple(Law(**law) for law in document["policies"]),
    )


@cache
def lineage() -> Mapping[str, Any]:
    """`words`, what each word of a contract means, and `methods`, each with its five words."""
    document: Mapping[str, Any] = _table("lineage")
    return document


@cache
def scope() -> tuple[Mapping[str, str], ...]:
    """What this suite leaves to others: `topic`, `owner`, and what is left, in `what`."""
    return tuple(_table("scope"))


def _table(name: str) -> Any:
    file = f"{name}.yaml"
    text = resources.files("medusa_spec").joinpath(file).read_text("utf-8")
    document = parse_yaml(text, file)
    validate(document, name, file)
    return document
