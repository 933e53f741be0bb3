"""The adapter stub and the test that `medusa-oracles init` writes."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from medusa_spec.errors import InputError
from medusa_spec.files import write_text

FILES = {"medusa_adapter.py": "adapter_stub.txt", "test_medusa.py": "test_stub.txt"}
"""What is written, and the template that it is written from."""


def write_stub(folder: Path) -> list[str]:
    """Write the files; `InputError` where one is there already, before any is written."""
    for name in FILES:
        # A link that leads nowhere is somebody's file, too.
        if os.path.lexists(folder / name):
            raise InputError(str(folder / name), "", "is there already, and is not overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), "", f"cannot be made: {error.strerror}") from None
    templates = resources.files("medusa_conformance")
    for name, template in FILES.items():
        write_text(folder / name, templates.joinpath(template).read_text("utf-8"))
    return [str(folder / name) for name in FILES]
