"""The name of an engine, `module:attribute`, looked at before anything is imported."""

from __future__ import annotations

from pathlib import Path, PurePath


def misnamed(text: str, folder: Path) -> str | None:
    """What is wrong with a name that is given in a folder, `None` where it may name an engine."""
    module, _, attribute = text.partition(":")
    if not (module and attribute):
        return "is not module:attribute"
    if module.endswith(".py") and (folder / module).is_file():
        meant = ".".join(PurePath(module).with_suffix("").parts)
        return f"names a file, not a module; did you mean {meant}:{attribute}?"
    return None
