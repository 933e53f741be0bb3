"""The house as it is, and the script that writes its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from medusa_conformance.coverage import House, read_house

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def house() -> House:
    return read_house(ROOT)


@pytest.fixture(scope="session")
def script() -> Mapping[str, Any]:
    """What `docs/make_coverage.py` defines; it is no package."""
    return run_path(str(ROOT / "docs" / "make_coverage.py"))
