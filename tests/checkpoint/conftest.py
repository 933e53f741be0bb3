"""Lawful checkpoints and broken ones, and what is said of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medusa_spec import Trace


@pytest.fixture(scope="session")
def by() -> ModuleType:
    """The literal traces, and how they are changed and judged; a module, loaded by its path."""
    path = Path(__file__).parents[1] / "literal_checkpoint.py"
    spec = importlib.util.spec_from_file_location("literal_checkpoint", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def saved(by: ModuleType, coordinate: Any) -> Callable[..., Trace]:
    """A builder of lawful checkpoints."""
    return partial(by.lawful, coordinate)


@pytest.fixture(scope="session")
def broken(by: ModuleType, saved: Callable[..., Trace]) -> Callable[..., Trace]:
    """A builder of broken ones, of a variant that ships its backbone."""
    return partial(by.broken, saved("medusa-2").coordinate)
