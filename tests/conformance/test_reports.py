"""A report's folder: looked for before the run, whole after it, and never two runs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medusa_conformance import reports
from medusa_conformance.html import html
from medusa_conformance.junit import junit
from medusa_conformance.reports import require_room, write_report
from medusa_spec import InputError
from medusa_spec.documents import schema_errors

Documents = Callable[..., dict[str, Any]]


@pytest.fixture
def document(report_documents: ModuleType) -> Documents:
    """A document of `check` that failed by these codes."""

    def failed(*codes: str) -> dict[str, Any]:
        findings = [report_documents.finding(code) for code in codes]
        made: dict[str, Any] = report_documents.check("fail", findings=findings)
        return made

    return failed


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("passing", "check"),
        ("failing", "check"),
        ("inconclusive", "check"),
        ("verification", "verify"),
        ("at_large", "verify"),
    ],
)
def test_what_these_tests_are_given_is_what_the_commands_print(
    name: str, command: str, report_documents: ModuleType
) -> None:
    made = getattr(report_documents, name)()
    assert schema_errors(made, command) == []


def test_a_finding_is_a_file_of_its_own(tmp_path: Path, document: Documents) -> None:
    failed = document("TREE.SLOT", "TREE.SLOT")
    write_report(tmp_path / "new" / "report", failed)
    folder = tmp_path / "new" / "report"
    names = ["01-TREE.SLOT.json", "02-TREE.SLOT.json"]
    assert sorted(path.name for path in (folder / "findings").iterdir()) == names
    for name in names:
        assert json.loads((folder / "findings" / name).read_text()) == failed["findings"][0]


@pytest.mark.parametrize("name", ["failing", "inconclusive", "at_large"])
def test_the_same_result_for_programs_build_servers_and_people(
    name: str, tmp_path: Path, report_documents: ModuleType
) -> None:
    made = getattr(report_documents, name)()
    write_report(tmp_path, made)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"report.json", "junit.xml", "report.html", "findings"}
    assert json.loads((tmp_path / "report.json").read_text()) == made
    assert (tmp_path / "junit.xml").read_text("utf-8") == junit(made)
    assert (tmp_path / "report.html").read_text("utf-8") == html(made)


def test_a_page_that_cannot_be_made_leaves_the_older_report(
    tmp_path: Path, document: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, document("TREE.SLOT"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(reports, "html", lambda document: document["no such field"])
    with pytest.raises(KeyError):
        write_report(tmp_path, document("COMMIT.LENGTH"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_findings_of_an_earlier_run_go_and_other_files_stay(
    tmp_path: Path, document: Documents
) -> None:
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
        require_room(taken)
    with pytest.raises(InputError, match=r"taken: cannot be made: File exists"):
        require_room(taken / "report")
    assert taken.read_text() == "kept"


def test_looking_for_room_leaves_nothing(tmp_path: Path) -> None:
    require_room(tmp_path / "new" / "report")
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "kept"
    kept.mkdir()
    require_room(kept)
    assert list(kept.iterdir()) == []


@pytest.mark.parametrize("name", ["junit.xml", "report.html", "report.json"])
def test_a_folder_in_a_files_place_is_found_before_anything_is_written(
    tmp_path: Path, document: Documents, name: str
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}: cannot be written: it is a folder"):
        require_room(tmp_path)
    with pytest.raises(InputError, match=f"{name}: cannot be written: it is a folder"):
        write_report(tmp_path, document("TREE.SLOT"))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_in_a_findings_place_spoils_no_older_report(
    tmp_path: Path, document: Documents
) -> None:
    write_report(tmp_path, document())
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    (tmp_path / "findings" / "02-TREE.SLOT.json").mkdir()
    with pytest.raises(InputError, match=r"02-TREE.SLOT.json: cannot be written: it is a folder"):
        write_report(tmp_path, document("TREE.MASK_IS_ANCESTRY", "TREE.SLOT"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert [path.name for path in (tmp_path / "findings").iterdir()] == ["02-TREE.SLOT.json"]
