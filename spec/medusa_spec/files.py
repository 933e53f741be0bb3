"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from medusa_spec.errors import InputError


@contextmanager
def written_whole(target: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes become `target` in one step; nothing is left behind where that fails.

    Raises `InputError` where the file system says no.
    """
    # Beside the target, for a rename is one step only within a file system; opened as any new
    # file is, so that it is readable by whom the umask lets read it.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("xb") as stream:
                yield stream
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(str(target), "", f"cannot be written: {error.strerror}") from None


def write_text(target: Path, text: str) -> None:
    """Put `text` into `target` as UTF-8, whole or not at all; errors as `written_whole`."""
    with written_whole(target) as stream:
        stream.write(text.encode("utf-8"))


def write_beside(source: Path, texts: Iterable[tuple[Path, str]]) -> None:
    """Put each text into its file as UTF-8: all of them whole, or none at all.

    Raises `InputError` as `written_whole` does, and where a file is `source`, from which the texts
    were made, or another one of them.
    """
    files = list(texts)
    places = [source.resolve()]
    for target, _ in files:
        if target.resolve() in places:
            what = "is what was read" if target.resolve() == places[0] else "is named twice"
            raise InputError(str(target), "", f"{what}, and is not written over")
        places.append(target.resolve())
    with ExitStack() as opened:
        for target, text in files:
            opened.enter_context(written_whole(target)).write(text.encode("utf-8"))
