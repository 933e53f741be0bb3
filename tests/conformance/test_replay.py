"""A finding is replayed from its file alone: fixed, still failing, or nobody can say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.finding_file import finding_documents
from medusa_conformance.folding import fold
from medusa_conformance.runner import (
    Setting,
    judge_coordinates,
    reference_factory,
)
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_spec.documents import schema_errors

Call = Callable[..., Any]

FIXED, STILL, ERROR = 0, 1, 2
WORDS = {FIXED: "fixed", STILL: "still-failing", ERROR: "error"}

RIGHT = "from miniatures import Right as Mine\n"
WRONG = "from miniatures import SeesSiblings as Mine\n"


def replayed(call: Call, file: Path | str, *options: str) -> tuple[int, str]:
    answer = call("replay", "--json", *options, file)
    document = json.loads(answer.out)
    assert schema_errors(document, "replay") == []
    assert document["outcome"] == WORDS[answer.code]
    assert (document["finding"] is None) == (answer.code != STILL)
    assert answer.err == ""
    return answer.code, document["text"]


@pytest.fixture
def found(check_here: Call, tmp_path: Path) -> Callable[..., Path]:
    """The file of the one finding of `mine:Mine`, or of a command that serves it."""

    def run(*target: str) -> Path:
        (tmp_path / "mine.py").write_text(WRONG, "utf-8")
        check_here(*(target or ("mine:Mine",)))
        (file,) = (tmp_path / ".medusa" / "findings").iterdir()
        return file

    return run


def test_a_finding_is_fixed_once_its_module_is(
    call: Call, found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = found()
    assert replayed(call, file)[0] == STILL
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert replayed(call, file)[0] == STILL
    # Longer than the one before, so that nothing takes it for what was compiled of that.
    (tmp_path / "mine.py").write_text(f"{RIGHT}# mended\n", "utf-8")
    assert replayed(call, file) == (FIXED, "TREE.MASK_IS_ANCESTRY holds on this coordinate")
    (tmp_path / "mine.py").unlink()
    code, text = replayed(call, file)
    assert code == ERROR
    assert "cannot import mine" in text


def test_a_module_that_goes_wrong_now_is_no_mended_one(
    call: Call, found: Any, tmp_path: Path
) -> None:
    file = found()
    for name, said in (
        ("CrashesEverywhere", "crash in compile_tree: RuntimeError: no kernel for compile_tree"),
        ("OnlySelects", "TREE.MASK_IS_ANCESTRY was not executed this time"),
        ("ExitsInInit", "exit in start: ended with status 4"),
    ):
        (tmp_path / "mine.py").write_text(f"from miniatures import {name} as Mine\n", "utf-8")
        code, text = replayed(call, file)
        assert code == ERROR
        assert text.startswith(said)
    (tmp_path / "mine.py").write_text("import os\nos._exit(9)\n", "utf-8")
    assert replayed(call, file) == (ERROR, "exit in capabilities: ended with status 9")
    # What goes wrong elsewhere does not hide this rule.
    (tmp_path / "mine.py").write_text("from miniatures import CrashesInSelect as Mine\n", "utf-8")
    assert replayed(call, file)[0] == FIXED


def test_a_module_of_the_same_second_and_size_is_read_as_it_is(
    call: Call, found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where nothing compiled is ever written, this could not go wrong.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    file, module = found(), tmp_path / "mine.py"
    for name, said in (
        ("OnlySelects", "TREE.MASK_IS_ANCESTRY was not executed this time"),
        ("ExitsInInit", "exit in start: ended with status 4"),
    ):
        module.write_text(f"from miniatures import {name} as Mine\n", "utf-8")
        os.utime(module, (1_700_000_000, 1_700_000_000))
        assert replayed(call, file) == (ERROR, said)


def test_a_command_is_begun_where_it_was(
    call: Call, found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = found("--", sys.executable, "-m", "medusa_conformance.serve", "mine:Mine")
    document = json.loads(file.read_text("utf-8"))
    assert document["target"]["kind"] == "command"
    monkeypatch.chdir(tmp_path.parent)
    assert replayed(call, file)[0] == STILL
    (tmp_path / "mine.py").write_text(f"{RIGHT}# mended\n", "utf-8")
    assert replayed(call, file)[0] == FIXED
    document["target"]["argv"] = ["no-such-program"]
    file.write_text(json.dumps(document), "utf-8")
    code, text = replayed(call, file)
    assert code == ERROR
    assert "no-such-program: cannot be started" in text


def write_finding(folder: Path, target: dict[str, Any]) -> Path:
    """The finding of a mutant, said to be another target's."""
    setting = Setting("cpu", "float64")
    factory = reference_factory(setting, mutations()["sibling-visible"])
    tally = judge_coordinates(factory, [load("depth-one")], setting)
    (document,) = finding_documents(fold(tally.findings), target, setting, 0)
    file = folder / "finding.json"
    file.write_text(json.dumps(document), "utf-8")
    return file


def test_findings_of_our_own_engines_are_replayed(call: Call, tmp_path: Path) -> None:
    mutant = {"kind": "mutant", "id": "sibling-visible"}
    assert replayed(call, write_finding(tmp_path, mutant))[0] == STILL
    assert replayed(call, write_finding(tmp_path, {"kind": "reference"}))[0] == FIXED
    unknown = write_finding(tmp_path, {"kind": "mutant", "id": "nobody"})
    assert replayed(call, unknown) == (ERROR, "target: id: nobody is no mutant of this release")


def test_a_trace_is_judged_again(call: Call, tmp_path: Path, monkeypatch: Any) -> None:
    from medusa_conformance.runner import line_of
    from medusa_spec.trace import Trace
    from medusa_spec.tracefile import write_trace

    setting = Setting("cpu", "float64")

    def write(mutant: str | None) -> None:
        mutation = None if mutant is None else mutations()[mutant]
        line = line_of(reference_factory(setting, mutation), load("six-node"), setting)
        tree = next(t for t in line.run() if isinstance(t, Trace) and t.has("tree.mask"))
        seen = {**tree.arrays, **tree.documents}
        write_trace("served.npz", tree.coordinate, seen, dtype="float64")

    write("sibling-visible")
    assert call("check", "served.npz").code == 1
    (file,) = (tmp_path / ".medusa" / "findings").iterdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert replayed(call, file)[0] == STILL
    monkeypatch.chdir(tmp_path)
    write(None)
    assert replayed(call, file)[0] == FIXED
    Path("served.npz").unlink()
    code, text = replayed(call, file)
    assert code == ERROR
    assert text.endswith("served.npz: no such file or folder")


RUBBISH = {
    "no file": None,
    "no JSON": "{",
    "no finding": '{"format": "medusa-finding/2"}',
    "a list": "[]",
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_a_file_that_is_no_finding_is_an_error(call: Call, tmp_path: Path, kind: str) -> None:
    text = RUBBISH[kind]
    if text is not None:
        (tmp_path / "finding.json").write_text(text, "utf-8")
    code, said = replayed(call, "finding.json")
    assert code == ERROR
    assert said.startswith("finding.json: ")
    answer = call("replay", "finding.json")
    assert answer.code == ERROR
    (line,) = answer.out.replace("\n  ", " ").splitlines()
    assert line.startswith("ERROR")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"code": "TREE.NOTHING"}, "code: TREE.NOTHING is no invariant of this release"),
        ({"coordinate": {"name": "six-node"}}, "is a required property"),
        ({"dtype": "float8"}, "dtype: 'float8' is not one of"),
        ({"target": {"kind": "module"}}, "target: "),
    ],
)
def test_a_finding_that_was_edited_is_an_error(
    call: Call, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    file = write_finding(tmp_path, {"kind": "reference"})
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), "utf-8")
    code, text = replayed(call, file)
    assert code == ERROR
    assert said in text


WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
sys.argv = ["medusa-oracles", "replay", sys.argv[1]]
from medusa_conformance.cli import main
main()
"""


def test_replay_owes_nothing_to_hypothesis(
    call: Call, python: Any, found: Any, tmp_path: Path
) -> None:
    file = found()
    (tmp_path / "without.py").write_text(WITHOUT_HYPOTHESIS, "utf-8")
    done = python(tmp_path / "without.py", file)
    assert (done.returncode, done.stderr) == (STILL, "")
    assert "STILL FAILING" in done.stdout


def test_an_older_finding_does_not_say_whether_it_was_seen_again(
    call: Call, tmp_path: Path
) -> None:
    file = write_finding(tmp_path, {"kind": "mutant", "id": "sibling-visible"})
    document = json.loads(file.read_text("utf-8"))
    del document["reproduced"]
    file.write_text(json.dumps(document), "utf-8")
    assert replayed(call, file)[0] == STILL


def test_a_timeout_is_an_option_of_replay(call: Call, found: Any, tmp_path: Path) -> None:
    file = found()
    text = "from miniatures import HangsInInit as Mine\n"
    (tmp_path / "mine.py").write_text(text, "utf-8")
    code, said = replayed(call, file, "--timeout", "0.5")
    assert (code, said) == (ERROR, "hang in start: no reply within 0.5 s")
