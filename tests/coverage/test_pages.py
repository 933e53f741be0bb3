"""The pages are what the script writes now, and say in both directions what the data say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.coverage import House
from medusa_spec.registry import invariants

NAMES = ("coverage.md", "mutants.md", "sections.md", "failures.md")
CODE = re.compile(r"`([A-Z]+\.[A-Z0-9_]+)`")


def rows(page: str) -> list[list[str]]:
    """The cells of every table of a page, without the lines that begin one."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ").replace("|  |", "| |")) for line in lines]
    return [[cell.strip() for cell in row] for row in cells]


@pytest.fixture(scope="session")
def pages(script: Mapping[str, Any], house: House) -> dict[str, str]:
    written: dict[str, str] = script["pages"](house)
    return written


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_what_is_written_now(name: str, root: Path, pages: dict[str, str]) -> None:
    kept = (root / "docs" / name).read_text("utf-8")
    assert kept == pages[name], f"docs/{name} is behind what it is made of; run: make coverage"


def test_there_are_these_pages(pages: dict[str, str]) -> None:
    assert tuple(pages) == NAMES


def test_a_rule_is_followed_to_what_exposes_its_mutants(pages: dict[str, str]) -> None:
    assert (
        "| [T2](../spec/tree.md#clauses) | `TREE.SLOT` "
        "| [`slot`](../oracles/medusa_oracles/tree.py) "
        "| `slot-without-root-offset`, `slot-is-row`, `slot-without-depth` "
        "| [chain-three](../manifests/medusa_manifests/chain-three.yaml) |"
    ) in pages["coverage.md"].splitlines()


def test_a_mutant_is_followed_to_the_rule(pages: dict[str, str]) -> None:
    assert (
        "| `slot-is-row` | `TreeStage.slot` | A row's slot is its packed number. "
        "| [T2](../spec/tree.md#clauses) `TREE.SLOT` "
        "| [chain-three](../manifests/medusa_manifests/chain-three.yaml) |"
    ) in pages["mutants.md"].splitlines()


def test_a_section_is_followed_to_its_clauses_and_their_code(pages: dict[str, str]) -> None:
    assert (
        "| 0x03B | Six-Node Mask Example | [tree](../spec/tree.md#clauses) T3 T4 "
        "| tree [oracle](../oracles/medusa_oracles/tree.py) "
        "[`TreeStage`](../reference_engine/medusa_reference_engine/tree.py) "
        "| [six-node](../manifests/medusa_manifests/six-node.yaml) |"
    ) in pages["sections.md"].splitlines()


def test_a_section_that_no_clause_can_cover_is_followed_to_what_does(pages: dict[str, str]) -> None:
    assert (
        "| 0x08C | Failure Matrix Bound To Executable Guards | [failures.md](failures.md) "
        "| [coverage.py](../conformance/medusa_conformance/coverage.py) |  |"
    ) in pages["sections.md"].splitlines()


def test_a_failure_is_followed_to_who_notices(pages: dict[str, str]) -> None:
    assert (
        "| Siblings get different RoPE phases, and all but the first are scored at a wrong "
        f"distance. | {invariants()['TREE.POSITION_IS_DEPTH'].cause} "
        "| [T4](../spec/tree.md#clauses) `TREE.POSITION_IS_DEPTH` "
        "| [`position_is_depth`](../oracles/medusa_oracles/tree.py) "
        "| `position-from-row`, `position-root-is-one`, `permute-only-positions` |"
    ) in pages["failures.md"].splitlines()


def test_both_directions_say_the_same(house: House, pages: dict[str, str]) -> None:
    known = {(mutant.id, mutant.killer) for mutant in house.mutants.values()}
    forth = {
        (mutant, code)
        for row in rows(pages["coverage.md"])
        for code in CODE.findall(row[1])
        for mutant in re.findall(r"`([^`]+)`", row[3])
    }
    back = {
        (row[0].strip("`"), code)
        for row in rows(pages["mutants.md"])
        for code in CODE.findall(row[3])
    }
    wrong = {
        (mutant, code)
        for row in rows(pages["failures.md"])
        for code in CODE.findall(row[2])
        for mutant in re.findall(r"`([^`]+)`", row[4])
    }
    assert forth == back == wrong == known


def test_every_section_has_a_row(house: House, pages: dict[str, str]) -> None:
    listed = [row[0] for row in rows(pages["sections.md"]) if row[0].startswith("0x")]
    assert listed == [section.id for section in house.sections]


def test_a_gap_stands_out(script: Mapping[str, Any], house: House) -> None:
    code, mutants = "TREE.SLOT", house.mutants.values()
    bare = replace(
        house,
        oracles={name: place for name, place in house.oracles.items() if name != code},
        mutants={mutant.id: mutant for mutant in mutants if mutant.killer != code},
        clauses=tuple(clause for clause in house.clauses if clause.code != code),
    )
    written = script["pages"](bare)
    row = "| [T2](../spec/tree.md#clauses) | `TREE.SLOT` | **none** | **none** |  |"
    assert row in written["coverage.md"].splitlines()
    (failure,) = (line for line in written["failures.md"].splitlines() if "TREE.SLOT" in line)
    assert failure.startswith("| **none** |")
    assert failure.endswith("| **none** | **none** |")


def test_a_mutant_of_no_rule_stands_out(script: Mapping[str, Any], house: House) -> None:
    lost = replace(house.mutants["slot-is-row"], killer="TREE.BARK")
    written = script["pages"](replace(house, mutants=house.mutants | {lost.id: lost}))
    (row,) = (line for line in written["mutants.md"].splitlines() if "`slot-is-row`" in line)
    assert "| `TREE.BARK` **none** |" in row


def test_a_cell_stays_a_cell(script: Mapping[str, Any]) -> None:
    assert script["table"](("a", "b"), [("|T| = 1", 2)]) == (
        "| a | b |\n|---|---|\n| \\|T\\| = 1 | 2 |"
    )
    assert script["plain"]("a*b < `c`") == "a\\*b \\< \\`c\\`"


def test_the_script_writes_the_pages_and_names_the_gaps(
    script: Mapping[str, Any],
    house: House,
    pages: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = script["main"].__globals__
    incomplete = replace(house, oracles={})
    monkeypatch.setitem(names, "DOCS", tmp_path)
    monkeypatch.setitem(names, "read_house", lambda root: incomplete)
    with pytest.raises(SystemExit) as left:
        script["main"]()
    assert "TREE.SLOT: no oracle judges it" in str(left.value).splitlines()
    assert {file.name for file in tmp_path.iterdir()} == {*NAMES}
    assert (tmp_path / "mutants.md").read_text("utf-8") == pages["mutants.md"]
    monkeypatch.setitem(names, "gaps", lambda house: iter(()))
    script["main"]()
