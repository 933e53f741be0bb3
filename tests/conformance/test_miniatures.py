"""Engines that are wrong on purpose get the verdicts that they deserve, and none a traceback."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance import remote
from medusa_conformance.runner import Setting, judge_coordinates, reference_factory
from medusa_manifests import load
from medusa_spec.documents import schema_errors

EXITS = {"pass": 0, "fail": 1, "inconclusive": 2}

PATIENT, HASTY = "20", "0.5"
"""Seconds for each reply: more than any engine here needs, and what a hanging one is given."""

Judged = Callable[..., dict[str, Any]]


@pytest.fixture
def judged(check_here: Callable[..., Any]) -> Judged:
    """The document of a check of one miniature, or of a command."""

    def run(name: str, *target: str, timeout: str = PATIENT) -> dict[str, Any]:
        given = ["--", *target] if target else [f"miniatures:{name}"]
        answer = check_here("--json", "--timeout", timeout, *given)
        document: dict[str, Any] = json.loads(answer.out)
        assert schema_errors(document, "check") == []
        assert (answer.code, answer.err) == (EXITS[document["verdict"]], "")
        return document

    return run


def statuses(document: dict[str, Any], contract: str | None = None) -> set[str]:
    rows = document["invariants"]
    return {row["status"] for row in rows if contract in (None, row["contract"])}


def executed(document: dict[str, Any]) -> set[str]:
    return {row["contract"] for row in document["invariants"] if row["executed"]}


def causes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def told(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(entry["kind"], entry["stage"]) for entry in document["incidents"]}


def reasons(document: dict[str, Any], status: str) -> Counter[str]:
    return Counter(row["reason"] for row in document["invariants"] if row["status"] == status)


# Right, and right as far as they go


@pytest.mark.parametrize("name", ["Right", "Prints", "Slow", "Edits"])
def test_an_engine_that_is_right_passes(judged: Judged, name: str) -> None:
    document = judged(name)
    assert document["verdict"] == "pass"
    assert statuses(document) == {"pass", "not-exercised"}
    assert statuses(document, "tree") == {"pass", "not-exercised"}
    assert executed(document) == {
        "tree",
        "proposal",
        "verification",
        "posterior",
        "commit",
        "round",
    }
    assert (document["findings"], document["incidents"]) == ([], [])


@pytest.mark.parametrize(
    ("name", "contracts", "lacking"),
    [
        ("OnlyCompiles", {"tree"}, "verify"),
        ("OnlySelects", {"posterior"}, "compile_tree"),
        ("OnlyProposes", {"proposal"}, "compile_tree"),
        ("OnlyGenerates", {"round"}, "compile_tree"),
        ("NeverCommits", {"tree", "proposal", "verification"}, "commit"),
        (
            "HidesItsCache",
            {"tree", "proposal", "verification", "posterior", "commit", "round"},
            "cache",
        ),
    ],
)
def test_an_engine_with_few_stages_passes_for_those(
    judged: Judged, name: str, contracts: set[str], lacking: str
) -> None:
    document = judged(name)
    assert document["verdict"] == "pass"
    assert contracts <= executed(document)
    assert statuses(document) == {"pass", "not-exercised"}
    assert any(lacking in reason for reason in reasons(document, "not-exercised"))
    absent = {entry["stage"] for entry in document["capabilities"] if not entry["present"]}
    assert lacking in absent
    assert all(entry["calls"] == 0 for entry in document["capabilities"] if not entry["present"])


@pytest.mark.parametrize("name", ["NoStages", "SupportsNothing"])
def test_where_nothing_is_executed_nothing_is_said(judged: Judged, name: str) -> None:
    document = judged(name)
    assert document["verdict"] == "inconclusive"
    assert statuses(document) == {"not-exercised"}
    assert document["incidents"] == []


def test_what_an_engine_was_not_made_for_is_told_with_its_reason(judged: Judged) -> None:
    document = judged("SupportsNothing")
    (entry,) = (e for e in document["capabilities"] if e["stage"] == "compile_tree")
    assert entry["present"]
    assert entry["unsupported"] == entry["calls"] > 0
    assert entry["reasons"] == ["made for another card"]
    said = "compile_tree is not supported: made for another card"
    assert reasons(document, "not-exercised")[said]


# Wrong


def test_an_engine_that_is_always_wrong_fails(judged: Judged) -> None:
    document = judged("AlwaysWrong")
    assert document["verdict"] == "fail"
    failed = {row["contract"] for row in document["invariants"] if row["status"] == "fail"}
    assert failed == {"tree", "proposal", "verification", "posterior", "commit", "round"}
    assert all(finding["reproduced"] for finding in document["findings"])


def test_one_wrong_mask_is_one_finding(judged: Judged) -> None:
    document = judged("SeesSiblings")
    assert document["verdict"] == "fail"
    (finding,) = document["findings"]
    assert finding["code"] == "TREE.MASK_IS_ANCESTRY"
    assert finding["follows"]
    assert finding["reproduced"] is True
    # Two siblings and their root: no smaller tree has any.
    assert len(finding["coordinate"]["paths"]) == 2


@pytest.mark.parametrize(
    ("name", "code"),
    [("Noisy", "VERIFICATION.PATH_LOGITS"), ("Fickle", "POSTERIOR.DEFAULT_PATH")],
)
def test_an_engine_that_answers_otherwise_each_time_fails(
    judged: Judged, name: str, code: str
) -> None:
    document = judged(name)
    assert document["verdict"] == "fail"
    assert code in causes(document)


def test_a_finding_that_a_second_run_does_not_show_says_so(
    judged: Judged, check_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIATURE_MARK", str(tmp_path / "mark"))
    document = judged("WrongOnce")
    assert document["verdict"] == "fail"
    (finding,) = document["findings"]
    assert (finding["code"], finding["reproduced"]) == ("TREE.MASK_IS_ANCESTRY", False)
    # It is told of the coordinate that showed it, for no smaller one could be tried.
    assert finding["coordinate"]["name"] == "own-acceptance"
    (tmp_path / "mark").unlink()
    text = check_here("miniatures:WrongOnce").out
    assert "seen again no: a second run of the same coordinate did not show it" in text


def test_rounding_is_granted_to_who_declares_it(judged: Judged) -> None:
    assert causes(judged("Halved"))[-1] == "VERIFICATION.PATH_LOGITS"
    document = judged("HalvedAndSaysSo")
    assert (document["verdict"], document["dtype"]) == ("pass", "float16")
    assert document["dialect"] == {"dtype": "float16"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_granted_is_what_a_real_pass_needs(dtype: Any) -> None:
    setting = Setting("cpu", dtype)
    few = [load(name) for name in ("six-node", "verification-p5", "long-prefix", "two-blocks")]
    tally = judge_coordinates(reference_factory(setting), few, setting)
    assert tally.executed["VERIFICATION.PATH_LOGITS"] == len(few)
    assert (tally.failed, tally.crashes) == ({}, [])


# Out of order


def test_a_stage_that_crashes_takes_nothing_else_with_it(judged: Judged) -> None:
    document = judged("CrashesInSelect")
    assert document["verdict"] == "inconclusive"
    for contract in ("tree", "proposal", "verification"):
        assert "pass" in statuses(document, contract)
        assert "incompetent" not in statuses(document, contract)
    assert "incompetent" in statuses(document, "posterior")
    # `generate` selects, too.
    assert told(document) == {("crash", "select"), ("crash", "generate")}
    assert "RuntimeError: no kernel for this card" in document["incidents"][0]["text"]


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("ExitsInVerify", "exit", "verify"),
        ("HangsInSelect", "hang", "select"),
        ("Endless", "endless", "verify"),
    ],
)
def test_a_stage_that_ends_its_process_is_named_and_the_run_goes_on(
    judged: Judged, name: str, kind: str, stage: str
) -> None:
    document = judged(name, timeout=HASTY if kind == "hang" else PATIENT)
    assert document["verdict"] == "inconclusive"
    assert told(document) == {(kind, stage), (kind, "generate")}
    # Two tries each, on however many coordinates.
    assert {entry["times"] for entry in document["incidents"]} == {2}
    for contract in ("tree", "proposal"):
        assert "pass" in statuses(document, contract)
        assert "incompetent" not in statuses(document, contract)
    blamed = {entry["stage"]: entry["incidents"] for entry in document["capabilities"]}
    assert {name for name, count in blamed.items() if count} == {stage, "generate"}
    assert any(f"{kind} in {stage}" in reason for reason in reasons(document, "incompetent"))


@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [("ExitsInInit", "exit", 2), ("HangsInInit", "hang", 2), ("CrashesInInit", "crash", None)],
)
def test_an_engine_that_never_starts_is_told_once(
    judged: Judged, name: str, kind: str, times: int | None
) -> None:
    document = judged(name, timeout=HASTY if kind == "hang" else PATIENT)
    assert document["verdict"] == "inconclusive"
    assert statuses(document) == {"incompetent"}
    (entry,) = document["incidents"]
    assert (entry["kind"], entry["stage"]) == (kind, "start")
    if times is not None:
        assert entry["times"] == times


def test_no_stage_is_to_blame_for_a_session_that_does_not_end(judged: Judged) -> None:
    document = judged("HangsInTheEnd", timeout=HASTY)
    assert document["verdict"] == "inconclusive"
    assert told(document) == {("hang", "stop")}
    assert not any(entry["incidents"] for entry in document["capabilities"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import os\nos._exit(7)", "exit"),
        ("import time\ntime.sleep(600)", "hang"),
    ],
)
def test_a_module_that_never_loads_is_inconclusive(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: str
) -> None:
    # A process gets a minute for its first reply.
    monkeypatch.setattr(remote, "START_SECONDS", 2.0 if kind == "hang" else 60.0)
    (tmp_path / "miniatures.py").write_text(text, "utf-8")
    document = judged("Any", timeout="2" if kind == "hang" else PATIENT)
    assert document["verdict"] == "inconclusive"
    assert statuses(document) == {"incompetent"}
    (entry,) = document["incidents"]
    assert (entry["kind"], entry["stage"]) == (kind, "capabilities")
    assert (entry["coordinate"], document["coordinates"]) == ("every coordinate", 0)


@pytest.mark.parametrize("name", ["LiesUnimplemented", "LiesNone", "LiesMapping", "LiesEmpty"])
def test_stages_that_are_claimed_and_not_there_are_no_pass(judged: Judged, name: str) -> None:
    document = judged(name)
    assert document["verdict"] == "inconclusive"
    assert "pass" not in statuses(document)
    assert ("crash", "compile_tree") in told(document)
    assert ("crash", "select") in told(document)


def test_numbers_beyond_any_array_are_rubbish(judged: Judged) -> None:
    document = judged("Googol")
    assert document["verdict"] == "inconclusive"
    assert told(document) == {("rubbish", "generate")}
    assert "pass" in statuses(document, "round")


def test_no_terminal_code_of_an_engine_is_printed(check_here: Any, judged: Judged) -> None:
    assert judged("Evil")["verdict"] == "inconclusive"
    answer = check_here("miniatures:Evil", "--report", "report")
    assert answer.code == 2
    assert all(line.isprintable() for line in answer.out.splitlines())
    assert "\\x1b[2J" in answer.out
    page = Path("report/report.html").read_text("utf-8")
    assert "\x1b" not in page


# Commands

TALKER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["command"] == "capabilities":
        answer = {
            "protocol": 1, "name": "talker", "version": None, "language": "any",
            "stages": ["compile_tree", "select"], "dialect": {}, "arrays": "list",
        }
        print(json.dumps({"id": request["id"], "answer": answer}), flush=True)
    elif request["command"] == "stage":
        print(%s, flush=True)
    else:
        print(json.dumps({"id": request["id"], "answer": {}}), flush=True)
"""

REPLIES = {
    "rubbish": "'loading the weights ...'",
    "of another request": "json.dumps({'id': 0, 'answer': {}})",
    "of no form": "json.dumps({'id': request['id'], 'answer': {'slots': 'none'}})",
    "both": "json.dumps({'id': request['id'], 'answer': {}, 'error': 'x'})",
}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_command_that_talks_rubbish_is_named(judged: Judged, tmp_path: Path, reply: str) -> None:
    (tmp_path / "talker.py").write_text(TALKER % REPLIES[reply], "utf-8")
    document = judged("", sys.executable, "talker.py")
    assert document["verdict"] == "inconclusive"
    assert told(document) == {("rubbish", "compile_tree"), ("rubbish", "select")}
    # Two tries each; the text may name the request.
    assert sum(entry["times"] for entry in document["incidents"]) == 4


@pytest.mark.parametrize(
    ("program", "kind", "shown"),
    [
        ("print('hello')", "rubbish", "hello"),
        ("while True: print('x' * 10**6, end='')", "endless", "67,108,864"),
        ("import sys; sys.exit('no card')", "exit", "no card"),
    ],
)
def test_a_command_that_speaks_another_language_is_inconclusive(
    judged: Judged, program: str, kind: str, shown: str
) -> None:
    document = judged("", sys.executable, "-c", program)
    assert document["verdict"] == "inconclusive"
    (entry,) = document["incidents"]
    assert (entry["kind"], entry["stage"]) == (kind, "capabilities")
    assert shown in entry["text"]


def test_nothing_of_a_hanging_engine_is_left_behind(judged: Judged, tmp_path: Path) -> None:
    text = "import os\nfrom pathlib import Path\nPath(f'{os.getpid()}.pid').touch()\n"
    source = (tmp_path / "miniatures.py").read_text("utf-8")
    (tmp_path / "miniatures.py").write_text(source.replace("import os\n", text, 1), "utf-8")
    judged("HangsInSelect", timeout=HASTY)
    begun = [int(file.stem) for file in tmp_path.glob("*.pid")]
    # One was asked what it is; of those that were judged the last is the worker's, and lives on.
    assert len(begun) >= 3
    assert sum(alive(process) for process in begun) <= 1


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
