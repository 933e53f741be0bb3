"""Loading manifests and choice lists: one exact error, or a value that keeps every rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from medusa_spec.arrays import RankPath
from medusa_spec.claims import facts_from
from medusa_spec.coordinate import (
    Acceptance,
    Calibration,
    Coordinate,
    CostProfile,
    Exactness,
    Generation,
    ModelShape,
    Policy,
    Ranking,
    Release,
    RowPosterior,
    Sampling,
    Source,
    Training,
    Workload,
    canonical_order,
)
from medusa_spec.documents import load_document, parse_yaml, validate
from medusa_spec.errors import InputError
from medusa_spec.lawful import inconsistencies, path_violations, violations


@cache
def source_pin() -> Mapping[str, Any]:
    """Repository, commit and SHA-256 per file of the one pinned release (0x01C)."""
    name = "source_pin.yaml"
    text = resources.files("medusa_spec").joinpath(name).read_text("utf-8")
    document: Mapping[str, Any] = parse_yaml(text, name)
    validate(document, "source_pin", name)
    return document


def load_coordinate(path: Path) -> Coordinate:
    """The coordinate in a manifest file."""
    return coordinate_from(load_document(path), str(path))


def coordinate_from(document: Any, source: str) -> Coordinate:
    """A coordinate from a document: schema, every rule of its chapter, and its own sense."""
    validate(document, "coordinate", source, "COORDINATE.SCHEMA")
    for violation in violations(document, source_pin()):
        raise InputError(source, violation.field, violation.rule, violation.code)
    for field, rule in inconsistencies(document):
        raise InputError(source, field, rule)
    return parse_coordinate(document)


def parse_coordinate(document: Mapping[str, Any]) -> Coordinate:
    """The value of a document that already satisfies its schema; no rule is looked at."""
    ranking, earlier = document.get("ranking"), document.get("earlier")
    branching, training = document.get("branching"), document.get("training")
    search, release = document.get("search"), document.get("release")
    cost = document.get("cost")
    claims = document.get("claims")
    exactness = document.get("exactness")
    return Coordinate(
        name=document["name"],
        source=Source(**document["source"]),
        prefix=tuple(document["prefix"]),
        prefix_length=document["prefix_length"],
        topk=document["topk"],
        heads=document["heads"],
        paths=canonical_order(document["paths"]),
        policy=Policy(**document["policy"]),
        capacity=document["capacity"],
        end_of_sequence=document["end_of_sequence"],
        model=ModelShape(**document["model"]),
        rounds=tuple(
            None if planned is None else Acceptance(tuple(planned["path"]), planned["edges"])
            for planned in document["rounds"]
        ),
        ranking=None
        if ranking is None
        else Ranking(ranking["root"], tuple(tuple(ranked) for ranked in ranking["heads"])),
        posterior=tuple(
            RowPosterior(
                tuple(row["path"]),
                {int(token): p for token, p in row["probabilities"].items()},
                row["rest"],
            )
            for row in document.get("posterior", ())
        ),
        earlier=None
        if earlier is None
        else Generation(tuple(earlier["prefix"]), canonical_order(earlier["paths"])),
        branching=None if branching is None else tuple(branching),
        search=None if search is None else calibration_from(search),
        exactness=None if exactness is None else exactness_from(exactness),
        training=None if training is None else training_from(training),
        release=None if release is None else Release(**release),
        cost=None if cost is None else workload_from(cost),
        claims=None if claims is None else facts_from(claims),
        expected=document.get("expected", {}),
    )


def calibration_from(document: Mapping[str, Any]) -> Calibration:
    """The value of a `search` that already satisfies its schema."""
    return Calibration(**{**document, "accuracy": tuple(map(tuple, document["accuracy"]))})


def exactness_from(document: Mapping[str, Any]) -> Exactness:
    """The value of an `exactness` that already satisfies its schema."""
    return Exactness(
        model=tuple(map(tuple, document["model"])),
        drafts=tuple(tuple(map(tuple, rows)) for rows in document["drafts"]),
        paths=canonical_order(document["paths"]),
        sampling=Sampling(**document["sampling"]),
        length=document["length"],
        samples=document["samples"],
        seed=document["seed"],
    )


def training_from(document: Mapping[str, Any]) -> Training:
    """The value of a `training` that already satisfies its schema."""
    nested = {name: tuple(map(tuple, document[name])) for name in ("tokens", "owned")}
    return Training(**{**document, **nested, "head_weights": tuple(document["head_weights"])})


def workload_from(document: Mapping[str, Any]) -> Workload:
    """The value of a `cost` that already satisfies its schema."""
    paths, profile = canonical_order(document["paths"]), document["profile"]
    measured = None if profile is None else CostProfile(**profile)
    return Workload(**{**document, "paths": paths, "profile": measured})


def choices_from(
    document: Any, source: str, topk: int, heads: int | None = None
) -> tuple[RankPath, ...]:
    """Rank paths in canonical order; an empty list is the lawful root-only tree.

    Without `heads`, there are as many as the deepest path needs.
    """
    validate(document, "choices", source)
    listed: Sequence[Sequence[int]] = document
    depth = max((len(path) for path in listed), default=0)
    for violation in path_violations(listed, topk, depth if heads is None else heads, ""):
        raise InputError(source, violation.field, violation.rule, violation.code)
    return canonical_order(listed)
