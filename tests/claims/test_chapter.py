"""The worked examples of `spec/claims.md` are what is derived, and its tables are the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from medusa_spec.claims import CONTRACT_WORDS, lineage, scope

TEXT = (Path(__file__).parents[2] / "spec" / "claims.md").read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its two head lines."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = section[section.index("\n|") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def test_worked_examples(run_chapter: Any) -> None:
    results = run_chapter("claims")
    assert results.attempted > 0
    assert results.failed == 0


def test_the_lineage_is_that_of_the_data() -> None:
    keys = ("method", *CONTRACT_WORDS)
    assert table("The lineage") == [[m[key] for key in keys] for m in lineage()["methods"]]


def test_the_scope_is_that_of_the_data() -> None:
    listed = table("What is left to others")
    assert listed == [[entry["topic"], entry["owner"]] for entry in scope()]
