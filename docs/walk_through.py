"""The walk-through of the README as files: its blocks, and what they make of a folder."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
FENCE = re.compile(r"^```([a-z]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = "## Point it at your engine\n"


def blocks() -> list[tuple[str, str]]:
    """The kind and the text of each block, which goes on where the one before it ended."""
    section = README.read_text("utf-8").split(HEADING)[1].split("\n## ")[0]
    return FENCE.findall(section)


def follow(kind: str, text: str, folder: Path) -> None:
    """Do in a folder what a block says that is no console: write its file, or change it."""
    if kind == "diff":
        edit(text, folder)
    else:
        name = text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(text, "utf-8")


def edit(diff: str, folder: Path) -> None:
    """Change the file that a diff names: its lines that go, each hunk once, for those that come.

    `ValueError` where a hunk's lines do not stand there once.
    """
    head, *hunks = diff.split("@@\n")
    path = folder / head.removeprefix("--- ").strip()
    text = path.read_text("utf-8")
    for hunk in hunks:
        old, new = (
            "".join(line[1:] for line in hunk.splitlines(True) if line[0] in signs)
            for signs in ("- ", "+ ")
        )
        if text.count(old) != 1:
            raise ValueError(f"{path.name} has {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
