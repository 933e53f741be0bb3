"""What a run depends on, by name and version."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

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


def suite_commit() -> str | None:
    """The commit of the checkout that this suite is run from; `None` for an installed release."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return said.stdout.strip()
    return None
