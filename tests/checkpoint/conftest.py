"""Lawful checkpoints and broken ones, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medusa_reference_engine.layouts import import_heads
from medusa_spec import Trace
from medusa_spec.errors import InputError


@pytest.fixture(scope="session")
def by(module: Callable[[str], ModuleType]) -> ModuleType:
    """The literal traces, and how they are changed and judged."""
    return module("literal_checkpoint")


@pytest.fixture(scope="session")
def saved(by: ModuleType, coordinate: Any) -> Callable[..., Trace]:
    """A builder of lawful checkpoints."""
    return partial(by.lawful, coordinate)


@pytest.fixture(scope="session")
def broken(by: ModuleType, saved: Callable[..., Trace]) -> Callable[..., Trace]:
    """A builder of broken ones, of a variant that ships its backbone."""
    return partial(by.broken, saved("medusa-2").coordinate)


@pytest.fixture
def refusal() -> Callable[[Path], InputError]:
    """The one line that says why a folder's heads are not read; it names the folder first."""

    def refused(folder: Path) -> InputError:
        with pytest.raises(InputError) as caught:
            import_heads(folder)
        said = str(caught.value)
        assert said.isprintable()
        assert said.startswith(str(folder))
        return caught.value

    return refused
