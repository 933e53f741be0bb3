"""A report's folder: made before the run, whole after it, and never two runs at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.reports import open_report, write_report
from medusa_spec import InputError


def document(*codes: str) -> dict[str, Any]:
    return {"verdict": "fail", "findings": [{"code": code} for code in codes]}


def test_a_finding_is_a_file_of_its_own(tmp_path: Path) -> None:
    write_report(tmp_path / "new" / "report", document("TREE.SLOT", "TREE.SLOT"))
    folder = tmp_path / "new" / "report"
    assert sorted(path.name for path in (folder / "findings").iterdir()) == [
        "01-TREE.SLOT.json",
        "02-TREE.SLOT.json",
    ]
    assert json.loads((folder / "report.json").read_text()) == document("TREE.SLOT", "TREE.SLOT")


def test_findings_of_an_earlier_run_go_and_other_files_stay(tmp_path: Path) -> None:
    write_report(tmp_path, document("TREE.SLOT", "TREE.INVERSE"))
    (tmp_path / "findings" / "notes.json").write_text("{}")
    (tmp_path / "findings" / "07-folder.json").mkdir()
    write_report(tmp_path, document("COMMIT.LENGTH"))
    names = sorted(path.name for path in (tmp_path / "findings").iterdir())
    assert names == ["01-COMMIT.LENGTH.json", "07-folder.json", "notes.json"]


def test_a_file_in_the_folders_place_is_one_error(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("kept")
    with pytest.raises(InputError, match=r"taken: cannot be made"):
        open_report(taken)
    with pytest.raises(InputError, match=r"report: cannot be made"):
        open_report(taken / "report")
    assert taken.read_text() == "kept"
