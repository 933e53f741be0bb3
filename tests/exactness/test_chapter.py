"""The worked examples of `spec/exactness.md` say what the oracles derive."""

from __future__ import annotations

from typing import Any


def test_worked_examples(run_chapter: Any) -> None:
    results = run_chapter("exactness")
    assert results.attempted > 0
    assert results.failed == 0
