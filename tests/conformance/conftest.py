"""What the tests of the runner and the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Tiny matrices gain nothing by a second thread.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Run this interpreter, with what is importable here, in a folder of its own."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    # A checkout need not be installed: pytest found its folders, and the other process must.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(
            command, cwd=elsewhere, env=env, capture_output=True, text=True, check=False
        )

    return run
