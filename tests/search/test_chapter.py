"""The worked examples of `spec/search.md` say what the oracles derive, and its table is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from medusa_conformance.tables import read_calibration


def test_worked_examples(run_chapter: Any) -> None:
    results = run_chapter("search")
    assert results.attempted > 0
    assert results.failed == 0


def test_the_table_that_is_shown_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "spec" / "search.md").read_text("utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "table.yaml"
    file.write_text(shown, "utf-8")
    calibration = read_calibration(file, nodes=4, max_rank=None, run=None)
    assert calibration.accuracy == ((0.60, 0.71, 0.76), (0.35, 0.46, 0.52))
    assert (calibration.form, calibration.evidence) == ("cumulative", "measured")
    assert (calibration.nodes, calibration.max_rank) == (4, 3)
