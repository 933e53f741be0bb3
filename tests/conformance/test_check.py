"""`check`: targets that are none, trace files, and what is written of a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.line import Line
from medusa_conformance.runner import Setting, line_of, reference_factory
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_spec.documents import schema_errors
from medusa_spec.trace import Trace
from medusa_spec.tracefile import write_trace

Call = Callable[..., Any]
Refuse = Callable[..., str]

SETTING = Setting("cpu", "float64")


# Targets that are none

MODULES = {
    "broken": "import nowhere",
    "ending": "raise SystemExit('no licence')",
    "fine": "number = 3\nclass Engine:\n    pass\n",
    "odd": "class Engine:\n    dialect = {'mask': 'striped'}\n    def label(self, policy): ...\n",
    "unsaid": "class Engine:\n    dialect = {'slots': 'own'}\n    def label(self, policy): ...\n",
}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:Engine", "cannot import nowhere: ModuleNotFoundError"),
        ("broken:Engine", "cannot import broken: ModuleNotFoundError"),
        ("ending:Engine", "cannot import ending: SystemExit: no licence"),
        ("fine:Motor", "fine has no attribute Motor"),
        ("fine:number", "is not callable"),
        ("fine:Engine", "makes no engine for the coordinate six-node: TypeError"),
        ("fine:", "is not module:attribute"),
        (":Engine", "is not module:attribute"),
        ("fine.py:Engine", "names a file, not a module; did you mean fine:Engine?"),
        ("gone.py:Engine", "cannot import gone.py: ModuleNotFoundError"),
        ("odd:Engine", "dialect: mask: 'striped' is not one of"),
        ("unsaid:Engine", "slots leaves rules unjudged, so reasons needs a sentence under slots"),
        ("no-such-program", "is neither module:attribute, a trace file or folder, nor a program"),
        ("nowhere.npz", "nowhere.npz: no such file or folder"),
        ("", "TARGET: is an empty word"),
    ],
)
def test_a_target_that_is_none_is_one_line(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    # An import leaves what it compiled beside the module, which is no output of the command.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    assert said in refuse("check", target)


def test_a_target_that_is_none_leaves_no_report(refuse: Refuse) -> None:
    assert "no such" in refuse("check", "nowhere.npz", "--report", "new/report")


def test_a_command_that_cannot_be_run_is_one_line(refuse: Refuse, tmp_path: Path) -> None:
    assert "no-such-program" in refuse("check", "--", "no-such-program", "--flag")
    (tmp_path / "text").write_text("no program", "utf-8")
    (tmp_path / "text").chmod(0o755)
    assert "cannot be started" in refuse("check", "--", "./text")


# Trace files


def traces_of(line: Line) -> list[Trace]:
    return [seen for seen in line.run() if isinstance(seen, Trace)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write the traces of the reference engine, or of a mutant, into a folder of that name."""

    def run(folder: str, mutant: str | None = None, suffix: str = ".npz", **more: Any) -> Path:
        mutation = None if mutant is None else mutations()[mutant]
        keep = more.pop("keep", lambda name: True)
        line = line_of(reference_factory(SETTING, mutation), load("six-node"), SETTING)
        for number, seen in enumerate(traces_of(line)):
            held = {**seen.arrays, **seen.documents}
            write_trace(
                tmp_path / folder / f"seen-{number}{suffix}",
                seen.coordinate,
                {name: value for name, value in held.items() if keep(name)},
                generation=seen.generation,
                round=seen.round,
                **{"dtype": "float64", "engine": {"name": "served", "version": "1.2"}} | more,
            )
        return tmp_path / folder

    return run


def checked(call: Call, *arguments: Any) -> dict[str, Any]:
    answer = call("check", "--json", *arguments)
    document: dict[str, Any] = json.loads(answer.out)
    assert schema_errors(document, "check") == []
    assert answer.code == {"pass": 0, "fail": 1, "inconclusive": 2}[document["verdict"]]
    return document


def status(document: dict[str, Any], code: str) -> tuple[str, str | None]:
    (row,) = (row for row in document["invariants"] if row["code"] == code)
    return row["status"], row["reason"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_traces_of_the_reference_engine_pass(call: Call, write: Any, suffix: str) -> None:
    document = checked(call, write("served", suffix=suffix))
    assert document["verdict"] == "pass"
    assert document["coordinates"] == len(list(Path("served").iterdir()))
    target = document["target"]
    assert (target["kind"], target["name"], target["version"]) == ("trace", "served", "1.2")
    assert status(document, "TREE.MASK_IS_ANCESTRY") == ("pass", None)
    assert status(document, "COMMIT.SOURCE_ROWS") == ("pass", None)
    # Nobody was asked anything.
    assert not any(entry["present"] or entry["calls"] for entry in document["capabilities"])


def test_traces_of_the_current_folder_have_its_name(
    call: Call, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("served", engine=None)
    monkeypatch.chdir(folder)
    assert checked(call, ".")["target"]["name"] == "served"


def test_traces_of_a_mutant_fail_with_their_cause(call: Call, write: Any) -> None:
    folder = write("served", "sibling-visible")
    document = checked(call, "served")
    assert document["verdict"] == "fail"
    # The last generation has another tree, whose buffers are in no file: it stands by itself.
    (finding,) = (each for each in document["findings"] if each["generation"] < 2)
    assert (finding["code"], finding["reproduced"]) == ("TREE.MASK_IS_ANCESTRY", None)
    # The file in which it is, wherever it is replayed from.
    path = Path(finding["target"]["path"])
    assert path.is_absolute()
    assert path.parent == folder
    assert checked(call, path)["verdict"] == "fail"


def test_partial_traces_are_judged_for_what_they_hold(call: Call, write: Any) -> None:
    write("served", keep=lambda name: name.startswith("tree."))
    document = checked(call, "served")
    assert document["verdict"] == "pass"
    executed = {row["contract"] for row in document["invariants"] if row["executed"]}
    assert executed == {"tree"}
    said = "no trace holds selection.candidates"
    assert status(document, "POSTERIOR.GREEDY_MATCH")[0] == "not-exercised"
    assert str(status(document, "POSTERIOR.GREEDY_MATCH")[1]).startswith(said)


def test_traces_that_hold_nothing_are_inconclusive(call: Call, write: Any) -> None:
    write("served", keep=lambda _: False)
    assert checked(call, "served")["verdict"] == "inconclusive"


def test_one_bad_trace_is_one_line(call: Call, refuse: Refuse, write: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no trace" in refuse("check", "empty")
    write("served")
    (tmp_path / "served" / "seen-3.npz").write_bytes(b"rubbish")
    assert "seen-3.npz: not npz" in refuse("check", "served")


def test_traces_of_two_dtypes_are_judged_apart(refuse: Refuse, write: Any, tmp_path: Path) -> None:
    write("served")
    write("other", dtype="bfloat16")
    (tmp_path / "other" / "seen-0.npz").rename(tmp_path / "served" / "seen-99.npz")
    text = refuse("check", "served")
    assert "seen-99.npz: header.dtype: is another than that of seen-0.npz" in text


# What is written


def test_a_report_holds_the_result_in_every_form(check_here: Call, tmp_path: Path) -> None:
    answer = check_here("miniatures:SeesSiblings", "--json", "--report", "report")
    document = json.loads(answer.out)
    assert document == json.loads((tmp_path / "report" / "report.json").read_text("utf-8"))
    written = {str(p.relative_to("report")) for p in Path("report").rglob("*") if p.is_file()}
    (finding,) = document["findings"]
    name = f"findings/01-{finding['code']}.json"
    assert written == {"report.json", "junit.xml", "report.html", name}
    assert json.loads((tmp_path / "report" / name).read_text("utf-8")) == finding
    assert finding["replay"] == f"medusa-oracles replay report/{name}"
    assert not (tmp_path / ".medusa").exists()


def test_findings_are_kept_where_no_report_is_asked_for(check_here: Call, tmp_path: Path) -> None:
    assert check_here("miniatures:Right").code == 0
    assert not (tmp_path / ".medusa").exists()
    answer = check_here("miniatures:SeesSiblings")
    assert answer.code == 1
    (file,) = (tmp_path / ".medusa" / "findings").iterdir()
    assert f"medusa-oracles replay .medusa/findings/{file.name}" in answer.out


def test_only_the_contracts_that_are_asked_for_are_judged(check_here: Call) -> None:
    document = json.loads(
        check_here("miniatures:SeesSiblings", "--json", "--contract", "commit").out
    )
    assert {row["contract"] for row in document["invariants"]} == {"commit"}
    document = json.loads(check_here("miniatures:SeesSiblings", "--json", "--contract", "tree").out)
    assert [finding["code"] for finding in document["findings"]] == ["TREE.MASK_IS_ANCESTRY"]
    assert document["findings"][0]["follows"] == []


def test_workers_of_their_own_give_the_same_result(
    check_here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from medusa_conformance import check
    from medusa_conformance.pool import pool

    here = json.loads(check_here("miniatures:SeesSiblings", "--json").out)
    monkeypatch.setattr(check, "pool", pool)
    monkeypatch.setattr(check, "CHUNK", 1)
    apart = json.loads(check_here("miniatures:SeesSiblings", "--json").out)
    for document in (here, apart):
        del document["seconds"]
    assert here == apart


def test_a_command_is_judged_as_a_module_is(check_here: Call) -> None:
    command = [sys.executable, "-m", "medusa_conformance.serve", "miniatures:Right"]
    document = json.loads(check_here("--json", "--", *command).out)
    assert document["verdict"] == "pass"
    assert document["target"]["kind"] == "command"
    assert document["target"]["text"] == " ".join(command)
