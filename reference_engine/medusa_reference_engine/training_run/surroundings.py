"""What a run stands on: a folder of its own, torch's threads, a clock, and the machine's name."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch

from medusa_spec.errors import InputError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is, and how much there is."""


class Clock:
    """The seconds of each stage, and who is told how far it has come."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str, total: int) -> Iterator[Callable[[int], None]]:
        """One stage of `total` steps; gives what its steps are reported to."""
        self.progress(stage, 0, total)
        begun = time.perf_counter()
        yield lambda done: self.progress(stage, done, total)
        self.seconds[stage] = time.perf_counter() - begun


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its place at the end; nothing is left of a failed run.

    `InputError`, before anything is done, where something is there already or cannot be made.
    """
    target = folder.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(str(folder), "", "is there already, and is not an empty folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as error:
        raise InputError(str(folder), "", f"cannot be made: {error.strerror}") from None
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise InputError(str(folder), "", f"cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def machine(threads: int) -> dict[str, Any]:
    """What the figures were measured on."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return {
        "cores": len(usable) if usable else os.cpu_count() or 1,
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": threads,
    }
