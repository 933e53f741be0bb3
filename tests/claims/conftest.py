"""Lawful claims, written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from medusa_spec import Trace


@pytest.fixture(scope="session")
def by(module: Callable[[str], ModuleType]) -> ModuleType:
    """The literal claims."""
    return module("literal_claims")


@pytest.fixture(scope="session")
def trace(by: ModuleType, coordinate: Any) -> Trace:
    """What a lawful engine publishes of the literal facts."""
    found: Trace = by.trace(coordinate())
    return found
