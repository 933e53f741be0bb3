"""Laws and distances of the manifests: by formula, by oracle, by engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import medusa_manifests

FROZEN = [name for name in medusa_manifests.names() if medusa_manifests.load(name).exactness]


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_values(
    name: str, frozen_by_three_roads: Callable[[str, tuple[str, ...]], None]
) -> None:
    frozen_by_three_roads(name, ("law", "distance"))
