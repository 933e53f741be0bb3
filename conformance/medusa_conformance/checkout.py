"""A checkout of the pinned release, hashed against the source pin (clause C2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from medusa_spec.errors import InputError
from medusa_spec.loading import source_pin


def hash_checkout(folder: Path) -> dict[str, str]:
    """Each pinned file: `matches`, `differs` or `missing`; `InputError` where all are missing."""
    try:
        return _hash(folder)
    except OSError as error:
        raise InputError(str(folder), "", f"cannot be read: {error.strerror}") from None


def _hash(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise InputError(str(folder), "", "is not a directory with a checkout")
    found = {}
    for name, digest in source_pin()["files"].items():
        file = folder / name
        if not file.is_file():
            found[name] = "missing"
            continue
        with file.open("rb") as stream:
            observed = hashlib.file_digest(stream, "sha256").hexdigest()
        found[name] = "matches" if observed == digest else "differs"
    if set(found.values()) == {"missing"}:
        raise InputError(str(folder), "", "holds none of the pinned files: is it a checkout?")
    return found


def is_pinned(found: Mapping[str, str]) -> bool:
    """Whether every pinned file is there with its pinned content."""
    return set(found.values()) == {"matches"}
