"""The worked examples of `spec/cost.md` say what the oracles derive."""

from __future__ import annotations

from typing import Any


def test_worked_examples(run_chapter: Any) -> None:
    results = run_chapter("cost")
    assert results.attempted > 0
    assert results.failed == 0
