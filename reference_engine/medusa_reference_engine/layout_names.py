"""The names under which other projects store the tensors of Medusa heads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from medusa_reference_engine.weights import shown
from medusa_spec.errors import InputError

LM_HEAD = "lm_head.weight"
OWN = -1
"""In the place of a block's index: the projection that stands behind a head's blocks."""

_LINEAR = r"(?P<head>#)\.(?P<block>#)\.linear\.(?P<part>weight|bias)"
_BLOCK = r"blocks\.(?P<head>#)\.layers\.(?P<block>#)\.(?P<part>weight|bias)"
_LAST = r"(?P<head>#)\.(?P<last>#)\.weight"
_NAMES = tuple(
    (family, re.compile(pattern.replace("#", "(?:0|[1-9][0-9]{0,3})")))
    for family, pattern in (
        ("medusa", rf"(medusa_head\.|){_LINEAR}"),
        ("medusa", rf"(medusa_head\.|){_LAST}"),
        ("modelopt", rf"(medusa_heads\.){_LINEAR}"),
        ("modelopt", rf"(medusa_heads\.){_LAST}"),
        ("vllm", rf"(medusa_heads\.|){_BLOCK}"),
        ("vllm", r"(medusa_heads\.|)lm_heads\.(?P<head>#)\.weight"),
    )
)


class Place(NamedTuple):
    """Which parameter a tensor is: `part` "weight", "bias" or "projection" of a block of a head."""

    head: int
    block: int
    part: str


class Name(NamedTuple):
    """What a tensor's name says. `last` is where among its head's modules a projection stands."""

    family: str
    prefix: str
    place: Place
    last: int | None


def family_of(file: Path, stored: Mapping[str, Tensor]) -> tuple[str, dict[str, Name]]:
    """The project that the names are of, and what each says; of one family, under one prefix."""
    names: dict[str, Name] = {}
    for name in sorted(stored):
        if name == LM_HEAD:
            continue
        if name.removeprefix("medusa_heads.") == "token_map":
            rule = f"keeps {stored[name].numel()} tokens, and heads have no logits of the others"
            raise InputError(str(file), name, rule)
        found = _read_name(name)
        if found is None:
            raise InputError(str(file), shown(name), "is a tensor of no layout that is known")
        names[name] = found
        first = next(iter(names))
        if found[:2] != names[first][:2]:
            raise InputError(str(file), name, f"is of another layout than {first}")
    if not names:
        raise InputError(str(file), "", "holds no tensor of a Medusa head")
    return next(iter(names.values())).family, names


def _read_name(name: str) -> Name | None:
    for family, pattern in _NAMES:
        match = pattern.fullmatch(name)
        if match:
            found = match.groupdict()
            block, last = int(found.get("block") or OWN), found.get("last")
            place = Place(int(found["head"]), block, found.get("part") or "projection")
            return Name(family, match[1], place, None if last is None else int(last))
    return None
