"""Text that every machine with Python has: the sources of its own standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from medusa_spec.arrays import IntArray
from medusa_spec.errors import InputError

Text: TypeAlias = NDArray[np.uint8]

# What others installed, tests, and tables: a decoder soon knows a table by heart.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}
SKIPPED |= {"pydoc_data", "__pycache__"}

BUILT = "_sysconfigdata"
"""What files begin with that a build of Python wrote about its machine."""

HELD_OUT = 10
"""Of so many files in turn the last two are held out, one for calibration, one for prompts."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Three texts `[T]`, file behind file; no file is in two of them, and the last may be cut.

    `sha256` is that of all bytes that were read, in order.
    """

    training: Text
    calibration: Text
    prompts: Text
    files: int
    sha256: str


def standard_library() -> Path:
    """The folder of the sources."""
    return Path(sysconfig.get_paths()["stdlib"])


def sources(folder: Path) -> Iterator[Path]:
    """The Python files below a folder that are read, sorted by their names."""
    found = {file.relative_to(folder): file for file in folder.rglob("*.py")}
    for name in sorted(found, key=Path.as_posix):
        skipped = SKIPPED & set(name.parts) or name.name.startswith(BUILT)
        if not skipped and found[name].is_file():
            yield found[name]


def read_corpus(folder: Path, limit: int, least: int) -> Corpus:
    """Up to `limit` bytes of a folder's sources; `InputError` where a text has fewer than `least`.

    What is held out is held out by file, so that no line of it was learnt from.
    """
    parts: tuple[list[bytes], ...] = ([], [], [])
    digest, files = hashlib.sha256(), 0
    for file in sources(folder):
        content = file.read_bytes()[:limit]
        parts[max(files % HELD_OUT - (HELD_OUT - 3), 0)].append(content)
        digest.update(content)
        files += 1
        limit -= len(content)
        if not limit:
            break
    training, calibration, prompts = (np.frombuffer(b"".join(part), np.uint8) for part in parts)
    if min(len(training), len(calibration), len(prompts)) < least:
        rule = f"holds too little Python to learn from: {files} files"
        raise InputError(str(folder), "", rule)
    return Corpus(training, calibration, prompts, files, digest.hexdigest())


def windows(text: Text, count: int, length: int, random: np.random.Generator) -> IntArray:
    """Tokens `[count, length]`: that many windows at drawn places of a text."""
    starts = random.integers(0, len(text) - length + 1, count)
    drawn: IntArray = text[starts[:, None] + np.arange(length)].astype(np.int64)
    return drawn
