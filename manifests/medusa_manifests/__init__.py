"""Frozen coordinates, one YAML file each, and the tolerances; data only (clause C1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from medusa_spec import Coordinate, InputError, Tolerance, load_coordinate
from medusa_spec.documents import load_document, validate

__all__ = ["load", "names", "path", "tolerance"]

_TOLERANCES = "tolerances"


@cache
def names() -> tuple[str, ...]:
    """Every manifest by name, sorted."""
    stems = {
        file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.suffix == ".yaml"
    }
    return tuple(sorted(stems - {_TOLERANCES}))


def path(name: str) -> Path:
    """The file of a manifest; an `InputError` that lists the known names for any other."""
    if name not in names():
        raise InputError(name, "", f"no such manifest; there are {', '.join(names())}")
    return _folder() / f"{name}.yaml"


@cache
def load(name: str) -> Coordinate:
    """The coordinate that a manifest freezes; raises `InputError` as `path` does."""
    return load_coordinate(path(name))


def tolerance(dtype: str) -> Tolerance:
    """How far values of `dtype`, such as "float32", may lie apart, and why."""
    known = _tolerances()
    if dtype not in known:
        raise InputError(
            f"{_TOLERANCES}.yaml", dtype, f"no such dtype; there are {', '.join(known)}"
        )
    return known[dtype]


def tolerances(dtype: str) -> tuple[Tolerance, Tolerance]:
    """Those of a forward pass in `dtype`, and of arithmetic on given logits."""
    return tolerance(dtype), tolerance("policy")


@cache
def _tolerances() -> Mapping[str, Tolerance]:
    file = _folder() / f"{_TOLERANCES}.yaml"
    document = load_document(file)
    validate(document, "tolerances", str(file))
    return {dtype: Tolerance(**given) for dtype, given in document.items()}


def _folder() -> Path:
    return Path(str(resources.files("medusa_manifests")))
