"""Logical positions and physical rows behind the prefix: by formula, by oracle, by engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import medusa_manifests

FIELDS = ("positions", "staged_rows")
FROZEN = [
    name
    for name in medusa_manifests.names()
    if any(field in medusa_manifests.load(name).expected for field in FIELDS)
]


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_values(
    name: str, frozen_by_three_roads: Callable[[str, tuple[str, ...]], None]
) -> None:
    frozen_by_three_roads(name, FIELDS)
