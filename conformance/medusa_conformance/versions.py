"""What a run depends on, by name and version."""

from __future__ import annotations

import platform
from importlib import metadata

NAMED = ("medusa-oracles", "numpy", "torch", "hypothesis")


def versions() -> dict[str, str]:
    """Each version as it is installed; a checkout that is run where it lies has none."""
    found = {"python": platform.python_version()}
    for name in NAMED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
