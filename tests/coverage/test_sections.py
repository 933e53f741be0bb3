"""The list of sections is the article's, and an entry that contradicts itself is refused."""

from __future__ import annotations

from typing import Any

import pytest

from medusa_spec.errors import InputError
from medusa_spec.sections import Section, consecutive, sections, sections_from

# The letters below each chapter of the article, and its references.
CHAPTERS = {
    "0x00": "ABCDEF",
    "0x01": "ABCD",
    "0x02": "ABCDEF",
    "0x03": "ABCDEF",
    "0x04": "ABCDEFG",
    "0x05": "ABCDE",
    "0x06": "ABCDE",
    "0x07": "ABCDE",
    "0x08": "ABC",
    "0x09": "",
    "0x0A": "",
    "0xFF": "",
}


def test_every_section_of_the_article_is_listed_in_its_order() -> None:
    expected = [f"{chapter}{letter}" for chapter in CHAPTERS for letter in ["", *CHAPTERS[chapter]]]
    assert [section.id for section in sections()] == expected
    assert consecutive(sections()) == []


def test_a_reason_is_a_sentence_and_there_where_it_is_owed() -> None:
    for section in sections():
        assert bool(section.reason) == (section.kind != "covered"), section.id
        assert not section.reason or section.reason.endswith("."), section.id


def test_a_section_knows_its_chapter() -> None:
    assert Section("0x04G", "title", "covered").chapter == "0x04"
    assert Section("0x04", "title", "covered").chapter == "0x04"


@pytest.mark.parametrize(
    ("listed", "late"),
    [
        (["0x00", "0x00A", "0x00B", "0x01", "0xFF"], []),
        (["0x00", "0x00B", "0x01"], ["0x00B"]),
        (["0x00", "0x02", "0x02A"], ["0x02"]),
        (["0x01"], ["0x01"]),
        (["0x00", "0x00A", "0x00A"], ["0x00A"]),
        (["0x00", "0x01A"], ["0x01A"]),
        ([], []),
    ],
)
def test_a_hole_in_the_list_is_seen(listed: list[str], late: list[str]) -> None:
    assert consecutive([Section(name, "title", "covered") for name in listed]) == late


ENTRY = {"id": "0x04", "title": "Decode Pseudocode", "kind": "covered"}
REASON = "It leaves its matter to others."


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "4"},
        {"id": "0x04a"},
        {"title": ""},
        {"kind": "forgotten"},
        {"reason": REASON},
        {"kind": "narrative"},
        {"kind": "out-of-scope", "reason": "no"},
        {"kind": "narrative", "reason": REASON, "codes": ["TREE.SLOT"]},
        {"kind": "narrative", "reason": REASON, "files": ["docs/failures.md"]},
        {"codes": []},
        {"codes": ["tree.slot"]},
        {"codes": ["TREE.SLOT", "TREE.SLOT"]},
        {"files": ["/etc/passwd"]},
        {"chapter": "0x04"},
    ],
    ids=str,
)
def test_an_entry_outside_its_schema_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^list: \[0\]"):
        sections_from([ENTRY | changed], "list")


@pytest.mark.parametrize("name", ENTRY)
def test_an_entry_needs_each_of_its_fields(name: str) -> None:
    left = {key: value for key, value in ENTRY.items() if key != name}
    with pytest.raises(InputError, match=name):
        sections_from([left], "list")


def test_an_entry_is_read_as_it_stands() -> None:
    entry = ENTRY | {"codes": ["TREE.SLOT"], "files": ["docs/failures.md"]}
    (read,) = sections_from([entry], "list")
    files = ("docs/failures.md",)
    title = "Decode Pseudocode"
    assert read == Section("0x04", title, "covered", codes=("TREE.SLOT",), files=files)
    # A clause may say that something is left to others.
    left = entry | {"kind": "out-of-scope", "reason": REASON}
    (read,) = sections_from([left], "list")
    assert read == Section("0x04", title, "out-of-scope", REASON, ("TREE.SLOT",), files)
