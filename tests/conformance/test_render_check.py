"""What a person reads of `check`: each part under its heading, nothing that says nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from medusa_conformance import render
from medusa_conformance.cli_common import progress_bar
from medusa_conformance.expected import Outcome
from medusa_conformance.finding_text import difference_text
from medusa_conformance.render_check import FATES, UNTRACED, checked
from medusa_conformance.runner import Tally
from medusa_conformance.verdicts import invariant_rows
from medusa_oracles.claims_text import audit
from medusa_spec.registry import CONTRACTS, invariants

Call = Callable[..., Any]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[dict[str, Any]], list[str]]:
    """The lines of a document of `check` in a pipe."""

    def shown(document: dict[str, Any]) -> list[str]:
        render.show(checked(document))
        return capsys.readouterr().out.splitlines()

    return shown


def under(heading: str, lines: list[str]) -> list[str]:
    """What stands between a heading and the next blank line."""
    start = lines.index(heading)
    assert lines[start - 1] == ""
    return lines[start + 1 : lines.index("", start)]


def test_a_verdict_has_no_figure_but_the_time_that_it_took(
    lines: Call, report_documents: ModuleType
) -> None:
    for document in (report_documents.passing(), report_documents.failing()):
        found = audit("\n".join(lines(document)))
        assert [figure.figure for figure in found] == [f"{document['seconds']:.1f} s"]


def test_incidents_have_a_heading(lines: Call, report_documents: ModuleType) -> None:
    hang, crash, rubbish = under("Incidents", lines(report_documents.inconclusive()))
    assert hang == "hang in verify on a31-nine-row (57 times): no reply within 10 s"
    assert crash.startswith("crash in commit on six-node: TypeError")
    assert rubbish.startswith("rubbish in propose")


def test_expected_failures_have_a_heading_and_words(
    lines: Call, report_documents: ModuleType
) -> None:
    assert under("Expected failures", lines(report_documents.failing())) == [
        "PROPOSAL.TOPK fails as expected: ties go to the greater token",
        "HEADS.PROJECTION passes, though it is expected to fail: old release",
        "TREE.NO_SUCH_RULE is the code of no rule: misspelt",
    ]
    assert set(FATES) == set(get_args(Outcome))


def test_an_expected_finding_says_so(lines: Call, report_documents: ModuleType) -> None:
    document = report_documents.failing()
    document["findings"] += [report_documents.finding("PROPOSAL.TOPK")]
    heads = [line.partition("  ")[0] for line in lines(document) if "of spec/" in line]
    assert "PROPOSAL.TOPK (expected)" in heads
    assert "TREE.MASK_IS_ANCESTRY" in heads


def test_what_no_trace_holds_is_a_line_for_each_contract(
    lines: Call, report_documents: ModuleType
) -> None:
    document = report_documents.check("inconclusive", dict.fromkeys(invariants(), "not-exercised"))
    document["invariants"] = invariant_rows(Tally(), CONTRACTS, (), traces=True)
    header, *rows = under("Not exercised", lines(document))
    assert header.split() == ["contract", "invariants", "because"]
    assert [row.split()[0] for row in rows] == [*CONTRACTS]
    assert all(UNTRACED in row for row in rows)
    assert rows[0].endswith(
        "coordinate.given, coordinate.refused, coordinate.rows or coordinate.admitted"
    )
    assert all(row.count(", ") < 6 for row in rows)


@pytest.mark.parametrize(
    ("target", "first"),
    [
        ({"name": "traces", "text": "traces", "version": None, "language": "unknown"}, "traces"),
        (
            {"name": "served", "text": "traces", "version": "1.2", "language": "unknown"},
            "served 1.2  traces",
        ),
        (
            {"name": "mine", "text": "a:b", "version": None, "language": "Python"},
            "mine  a:b, Python",
        ),
    ],
)
def test_the_first_line_says_nothing_that_is_not_known(
    lines: Call, report_documents: ModuleType, target: dict[str, Any], first: str
) -> None:
    document = report_documents.passing()
    document["target"] = {"kind": "trace", **target}
    assert lines(document)[0] == first


def test_the_verdict_names_no_stages(lines: Call, report_documents: ModuleType) -> None:
    verdict = lines(report_documents.failing())[-2]
    rules, without = len(invariants()), len(report_documents.idle(*report_documents.IDLE))
    assert verdict.startswith(f"FAIL  {rules - without} of {rules} invariants executed on 89 ")
    assert verdict.endswith(f" {without} not exercised, for the reasons above.")


def test_a_finding_in_a_trace_names_its_file(
    lines: Call, report_documents: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = report_documents.failing()
    target = {"kind": "trace", "path": str(tmp_path / "traces" / "000002.npz")}
    round_ = report_documents.finding("ROUND.PROGRESS", target=target)
    document["findings"] = [document["findings"][0] | {"target": target}, round_]
    first, second = (line for line in lines(document) if line.startswith("  at "))
    assert first.startswith("  at         row 4, key 1 of traces/000002.npz (coordinate six-node,")
    assert second.startswith("  at         traces/000002.npz (coordinate six-node,")
    monkeypatch.chdir(tmp_path.parent)
    assert f"row 4, key 1 of {tmp_path.name}/traces/000002.npz (" in "\n".join(lines(document))


@pytest.mark.parametrize(
    ("sides", "difference", "said"),
    [
        ((1, 11), (10.0, {"row": 1}, None, 1, 9), "1 of 9 entries differs"),
        (([1, 2], [1, 3]), (1.0, {"row": 1}, None, 2, 9), "2 of 9 entries differ"),
        ((1, 2), (1.0, {}, None, 1, 1), "1 of 1 entry differs"),
        ((True, False), (None, {"row": 1}, None, 6, 16), "6 of 16 entries differ"),
        (
            (0.5, 0.75),
            (0.25, {"token": 3}, 1e-9, 2, 4),
            "2 of 4 entries differ, by up to 0.25 at token 3 (1e-09 allowed)",
        ),
        (
            (0.5, "nan"),
            ("inf", {"token": 3}, None, 2, 4),
            "2 of 4 entries differ, by up to inf at token 3",
        ),
    ],
)
def test_amounts_are_told_of_what_is_no_name(
    report_documents: ModuleType, sides: tuple[Any, Any], difference: tuple[Any, ...], said: str
) -> None:
    fields = dict(zip(("greatest", "where", "allowed", "entries", "of"), difference, strict=True))
    expected, observed = sides
    document = report_documents.finding(
        "TREE.SLOT", expected=expected, observed=observed, difference=fields
    )
    assert difference_text(document) == said


@pytest.mark.parametrize("folder", [".", "mine", "a folder", "it's"])
def test_what_comes_next_can_be_pasted(folder: str, call: Call) -> None:
    answer = call("init", folder)
    files = [str(Path(folder) / name) for name in ("medusa_adapter.py", "test_medusa.py")]
    wrote = re.findall(r"^wrote (.+)$", answer.out, re.MULTILINE)
    assert [shlex.split(name) for name in wrote] == [[file] for file in files]
    (adapter,) = re.findall(r"^1\. Connect your engine in (.+)\.$", answer.out, re.MULTILINE)
    assert shlex.split(adapter) == files[:1]
    (command,) = re.findall(r"^2\. (.+)$", answer.out, re.MULTILINE)
    go = [] if folder == "." else ["cd", folder, "&&"]
    assert shlex.split(command) == [*go, "medusa-oracles", "check", "medusa_adapter:Engine"]


def test_a_folder_is_no_option(call: Call) -> None:
    answer = call("init", "--", "-x")
    assert "2. cd ./-x && medusa-oracles check medusa_adapter:Engine" in answer.out


def test_the_name_of_an_engine_is_no_markup_of_the_progress_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("asking [/red]") as progress:
        progress("evil [/b]\x1b[2J", 1, 2)
    shown = capsys.readouterr().err
    assert "evil [/b]\\x1b[2J" in shown
