"""What every folder of tests may ask for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def literal() -> ModuleType:
    """The literal formulas; test folders are no packages, so the module is loaded by its path."""
    spec = importlib.util.spec_from_file_location(
        "literal_formula", Path(__file__).with_name("literal_formula.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
