"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from medusa_spec.errors import InputError


def write_text(target: Path, text: str) -> None:
    """Put `text` into `target` in one step; nothing is left behind where that fails.

    Raises `InputError` where the file system says no.
    """
    # Beside the target, for a rename is one step only within a file system; opened as any new
    # file is, so that it is readable by whom the umask lets read it.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(str(target), "", f"cannot be written: {error.strerror}") from None
