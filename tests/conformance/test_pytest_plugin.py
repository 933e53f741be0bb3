"""The pytest plugin, in sessions of its own: items, cases, outcomes, and what it costs others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from medusa_conformance import pytest_plugin
from medusa_conformance.cli_check import check
from medusa_spec.registry import invariants

"""Each is an item, and the verdict is one more."""

Session = Callable[..., subprocess.CompletedProcess[str]]

ENGINES = """
import os
from pathlib import Path

from medusa_oracles.tree import derive_tree


class Right:
    name = "right"

    def __init__(self, coordinate, capacity):
        pass

    def compile_tree(self, paths, topk, retrieval_order, sentinel):
        return derive_tree(paths, topk, retrieval_order, sentinel)


class Wrong(Right):
    def compile_tree(self, *given):
        tree = super().compile_tree(*given)
        tree.depths[:] += 1
        return tree


class Late(Right):
    def compile_tree(self, *given):
        tree = super().compile_tree(*given)
        tree.slots[1:] += 1
        return tree


class Crashing(Right):
    def compile_tree(self, *given):
        raise RuntimeError("no tree today")


class Empty:
    def __init__(self, coordinate, capacity):
        pass


class Counted(Right):
    def __init__(self, coordinate, capacity):
        Path("starts").mkdir(exist_ok=True)
        (Path("starts") / str(os.getpid())).touch()
"""

OWN = """
from medusa_conformance.pytest_plugin import parametrize_with_invariants


@parametrize_with_invariants({0!r}, max_examples=1{1})
def test_invariant(invariant):
    invariant.check()
"""

ALL = len(invariants()) + 1
"""Items of an engine: its invariants, and the verdict."""

FEW = ("--medusa-max-examples", "1")


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A checkout need not be installed: pytest found its folders, and the other process must.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # On a build server pytest's summary repeats each failure in full.
    env = {name: value for name, value in env.items() if name not in ("CI", "BUILD_NUMBER")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Run pytest in a folder of its own that holds the engines."""
    (tmp_path / "engines.py").write_text(ENGINES, "utf-8")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        # Installed, the plugin is there already; from a checkout it must be named.
        plugin = ("-p", "no:medusa", "-p", "medusa_conformance.pytest_plugin")
        return python(tmp_path, "-m", "pytest", *plugin, *options)

    return run


def counts(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.strip().splitlines()[-1].strip("= ").rpartition(" in ")[0]


def test_there_is_an_item_for_each_invariant_and_one_for_the_verdict(session: Session) -> None:
    done = session("--co", "-q", "--medusa-engine", "engines:Right")
    found = [line for line in done.stdout.splitlines() if line.startswith("medusa::")]
    assert found == [f"medusa::{code}" for code in (*invariants(), "VERDICT")]
    assert done.returncode == 0


def test_what_is_not_exercised_is_skipped_with_its_reason(session: Session) -> None:
    done = session("-q", "-rs", *FEW, "--medusa-engine", "engines:Right")
    assert (done.returncode, counts(done)) == (0, f"10 passed, {ALL - 10} skipped")
    assert "the engine has no admit" in done.stdout


def test_a_finding_is_told_once_and_what_follows_in_a_line(session: Session) -> None:
    # As the README chooses a chapter's rules and the verdict.
    chosen = ("-k", "TREE. or VERDICT", "--medusa-engine", "engines:Wrong")
    done = session("-q", *FEW, *chosen)
    said = f"2 failed, 8 passed, 1 skipped, {ALL - 11} deselected"
    assert (done.returncode, counts(done)) == (1, said)
    assert done.stdout.count("usually    ") == 1
    # The summary has the first line of each failure.
    assert re.search(r"^FAILED medusa::TREE.POSITION_IS_DEPTH - Failed: [a-z]", done.stdout, re.M)
    assert "medusa::VERDICT - Failed: broken: TREE.POSITION_IS_DEPTH" in done.stdout
    assert f"FAIL  9 of {ALL - 1} invariants executed" in done.stdout
    assert "medusa-oracles replay .medusa/findings/01-TREE.POSITION_IS_DEPTH.json" in done.stdout


def test_a_crash_is_no_pass(session: Session) -> None:
    done = session("-q", *FEW, "-k", "SLOT or VERDICT", "--medusa-engine", "engines:Crashing")
    assert (done.returncode, counts(done)) == (1, f"2 failed, {ALL - 2} deselected")
    assert "\nincompetent: crash in compile_tree: RuntimeError: no tree today" in done.stdout
    assert "INCONCLUSIVE" in done.stdout


def test_a_session_that_judged_nothing_is_not_green(session: Session) -> None:
    done = session("-q", *FEW, "--medusa-engine", "engines:Empty")
    assert (done.returncode, counts(done)) == (1, f"1 failed, {ALL - 1} skipped")
    assert f"INCONCLUSIVE  None of {ALL - 1} invariants was executed." in done.stdout


def test_an_expected_failure_is_an_xfail(session: Session, tmp_path: Path) -> None:
    entry = "- {invariant: TREE.POSITION_IS_DEPTH, reason: known, link: issue-1}\n"
    (tmp_path / "expected.yaml").write_text(entry, "utf-8")
    chosen = ("-k", "TREE or VERDICT", "--medusa-expected-failures", "expected.yaml")
    done = session("-q", *FEW, *chosen, "--medusa-engine", "engines:Wrong")
    said = f"9 passed, 2 skipped, {ALL - 12} deselected, 1 xfailed"
    assert (done.returncode, counts(done)) == (0, said)


def test_an_expected_failure_that_is_no_longer_lawful_fails(
    session: Session, tmp_path: Path
) -> None:
    entry = "- {{invariant: {0}, reason: known, link: issue-1{1}}}\n"
    entries = (("TREE.SLOT", ""), ("TREE.GONE", ""), ("TREE.POSITION_IS_DEPTH", ", expires: {0}"))
    text = "".join(entry.format(code, more.format("2020-01-31")) for code, more in entries)
    (tmp_path / "expected.yaml").write_text(text, "utf-8")
    chosen = ("-k", "SLOT or POSITION_IS or VERDICT", "--medusa-expected-failures")
    done = session("-q", *FEW, *chosen, "expected.yaml", "--medusa-engine", "engines:Wrong")
    assert (done.returncode, counts(done)) == (1, f"3 failed, {ALL - 3} deselected")
    assert "\nunexpected-pass: expected to fail: known\n" in done.stdout
    assert "TREE.GONE is the code of no rule: known" in done.stdout
    assert "TREE.POSITION_IS_DEPTH is not expected to fail any more: known" in done.stdout


def test_without_xfails_an_expected_failure_shows_its_finding(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    shutil.copy(tmp_path / "engines.py", tmp_path / "deep")
    entry = "- {invariant: TREE.POSITION_IS_DEPTH, reason: known, link: issue-1}\n"
    (tmp_path / "deep" / "expected.yaml").write_text(entry, "utf-8")
    # The file of expected failures is named as it is seen from the file of tests.
    own = OWN.format("engines:Wrong", ", contracts=['tree'], expected_failures='expected.yaml'")
    (tmp_path / "deep" / "test_own.py").write_text(own, "utf-8")
    done = session("-q", "--runxfail", "-k", "POSITION_IS")
    assert (done.returncode, counts(done)) == (1, "1 failed, 10 deselected")
    assert "observed   1" in done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_an_engine_that_is_not_there_fails_its_own_items_alone(
    session: Session, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_zero.py").write_text("def test_zero():\n    pass\n", "utf-8")
    chosen = ("-k", "zero or SLOT or VERDICT", "--medusa-engine", "engines:Missing")
    done = session("-q", "-rN", *chosen, *workers)
    # A process of pytest-xdist tells of no deselection.
    assert (done.returncode, counts(done)[:18]) == (1, "2 failed, 1 passed")
    assert done.stdout.count("target: engines:Missing: engines has no attribute Missing") == 2


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_module_that_is_nowhere_is_one_error(
    session: Session, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    said = "there is no module of the engine 'nowhere:Engine'"
    done = session("-q", "-rN", "--medusa-engine", "nowhere:Engine", *workers)
    assert done.returncode in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED)
    assert (counts(done), done.stdout.count(said)) == ("1 error", 1)
    (tmp_path / "test_own.py").write_text(OWN.format("nowhere:Engine", ""), "utf-8")
    done = session("-q", "-rN", *workers)
    assert (counts(done), done.stdout.count(said)) == ("1 error", 1)


def test_a_judge_that_ends_is_told_of(session: Session, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('not the jinja2 you want')\n", "utf-8")
    done = session("-q", "-k", "SLOT", "--medusa-engine", "engines:Right")
    assert (done.returncode, counts(done)) == (1, f"1 failed, {ALL - 1} deselected")
    assert "engines:Right: the judge ended with status 1: not the jinja2 you want" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--medusa-engine", "nonsense"), "--medusa-engine: 'nonsense' is not module:attribute"),
        (("--medusa-engine", "engines.py:Right"), "did you mean engines:Right?"),
        (("--medusa-seed", "-1"), "-1 is not from 0 to 4294967295"),
        (("--medusa-max-examples", "0"), "0 is not from 1 to 100000"),
        (("--medusa-timeout", "soon"), "'soon' is no float"),
        (("--medusa-engine", "a:b", "medusa::TREE.GONE"), "there is no medusa::TREE.GONE"),
        (("--medusa-engine", "a:b", "--medusa-expected-failures", "gone.yaml"), "gone.yaml"),
    ],
)
def test_what_leads_nowhere_is_a_usage_error(
    session: Session, options: tuple[str, ...], said: str
) -> None:
    done = session("-q", *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr


def test_the_defaults_are_those_of_the_command() -> None:
    of_command = {option.name: option.default for option in check.params}
    names = ("seed", "max_examples", "timeout")
    ours = (pytest_plugin.SEED, pytest_plugin.MAX_EXAMPLES, pytest_plugin.TIMEOUT)
    assert tuple(of_command[name] for name in names) == ours


def test_an_item_is_named_as_a_test_is_and_found_among_the_last_failures(session: Session) -> None:
    named = ("medusa::TREE.POSITION_IS_DEPTH", "medusa::TREE.SLOT")
    engine = ("--medusa-engine", "engines:Wrong")
    done = session("-v", *FEW, *engine, *named)
    assert "collected 2 items" in done.stdout
    assert "medusa::TREE.SLOT PASSED" in done.stdout
    assert (done.returncode, counts(done)) == (1, "1 failed, 1 passed")
    again = session("-q", "--lf", "--co", *engine)
    assert again.stdout.splitlines()[0] == "medusa::TREE.POSITION_IS_DEPTH"
    assert f"1/{ALL} tests collected ({ALL - 1} deselected)" in again.stdout


def test_workers_of_xdist_judge_an_engine_once_together(session: Session, tmp_path: Path) -> None:
    alone = session("-q", *FEW, "--medusa-engine", "engines:Counted")
    starts = tmp_path / "starts"
    expected = len(list(starts.iterdir()))
    for mark in starts.iterdir():
        mark.unlink()
    together = session("-q", *FEW, "-n", "2", "--medusa-engine", "engines:Counted")
    assert counts(together) == counts(alone) == f"10 passed, {ALL - 10} skipped"
    assert len(list(starts.iterdir())) == expected


def test_a_build_server_reads_stable_names(session: Session, tmp_path: Path) -> None:
    session("-q", *FEW, "-k", "TREE.S", "--junitxml", "out.xml", "--medusa-engine", "engines:Right")
    names = [
        (case.get("classname"), case.get("name"))
        for case in ET.parse(tmp_path / "out.xml").iter("testcase")
    ]
    assert names == [("medusa", "TREE.SLOT"), ("medusa", "TREE.SENTINEL")]


def test_other_sessions_do_not_notice(session: Session, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import sys\n\n\ndef test_one():\n"
        "    assert 'medusa_conformance.pytest_plugin' in sys.modules\n"
        "    assert not {'torch', 'hypothesis', 'numpy', 'medusa_spec'} & set(sys.modules)\n",
        "utf-8",
    )
    done = session("-q", "-p", "no:hypothesispytest")
    assert (done.returncode, counts(done)) == (0, "1 passed")


def test_a_session_that_judges_imports_neither_torch_nor_hypothesis(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\n\n\ndef pytest_sessionfinish():\n"
        "    print('imported', sorted({'torch', 'hypothesis'} & set(sys.modules)))\n",
        "utf-8",
    )
    chosen = ("-k", "SLOT", "--medusa-engine", "engines:Right")
    done = session("-qs", "-W", "error", "-p", "no:hypothesispytest", *FEW, *chosen)
    assert done.returncode == 0
    assert "imported []" in done.stdout


def test_a_script_may_start_pytest_without_a_guard(tmp_path: Path) -> None:
    (tmp_path / "engines.py").write_text(ENGINES, "utf-8")
    plugin = ("-p", "no:medusa", "-p", "medusa_conformance.pytest_plugin")
    options = ["-q", *plugin, *FEW, "-k", "SLOT", "--medusa-engine", "engines:Right"]
    (tmp_path / "run.py").write_text(f"import pytest\npytest.main({options})\n", "utf-8")
    assert counts(python(tmp_path, "run.py")) == f"1 passed, {ALL - 1} deselected"


def test_a_file_of_tests_has_a_case_for_each_invariant(session: Session, tmp_path: Path) -> None:
    own = OWN.format("engines:Wrong", ", contracts=['tree']")
    (tmp_path / "test_own.py").write_text(own, "utf-8")
    done = session("-q")
    assert (done.returncode, counts(done)) == (1, "2 failed, 8 passed, 1 skipped")
    assert "test_own.py::test_invariant[TREE.POSITION_IS_DEPTH]" in done.stdout
    assert "test_own.py::test_invariant[VERDICT]" in done.stdout


def test_no_examples_are_one_error(session: Session, tmp_path: Path) -> None:
    own = OWN.format("engines:Right", "").replace("max_examples=1", "max_examples=0")
    (tmp_path / "test_own.py").write_text(own, "utf-8")
    done = session("-q", "-rN")
    said = "parametrize_with_invariants: max_examples=0 is no number from 1 to 100000"
    assert (counts(done), done.stdout.count(said)) == ("1 error", 1)


def test_a_file_of_tests_needs_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "engines.py").write_text(ENGINES, "utf-8")
    own = OWN.format("engines:Right", ", contracts=['tree']")
    (tmp_path / "test_own.py").write_text(own, "utf-8")
    done = python(tmp_path, "-m", "pytest", "-q", "-p", "no:medusa")
    assert (done.returncode, counts(done)) == (0, "10 passed, 1 skipped")


def test_each_engine_of_a_session_keeps_its_own_findings(session: Session, tmp_path: Path) -> None:
    for name, engine in (("test_one", "engines:Wrong"), ("test_two", "engines:Late")):
        own = OWN.format(engine, ", contracts=['tree']")
        (tmp_path / f"{name}.py").write_text(own, "utf-8")
    done = session("-q", "-k", "TREE")
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("  replay ")]
    assert [line[:3] for line in lines] == [["replay", "medusa-oracles", "replay"]] * 2
    found = [(tmp_path / line[3]).read_text("utf-8") for line in lines]
    assert '"code": "TREE.POSITION_IS_DEPTH"' in found[0]
    assert '"code": "TREE.SLOT"' in found[1]


def test_an_engine_imports_what_pytest_can_and_is_replayed(
    session: Session, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "engines.py").rename(tmp_path / "src" / "library.py")
    (tmp_path / "adapter.py").write_text("from library import Wrong as Engine\n", "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\n", "utf-8")
    done = session("-q", "-k", "POSITION_IS", *FEW, "--medusa-engine", "adapter:Engine")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("  replay ")]
    path, program, *arguments = line.split()[1:]
    assert path.startswith(f"PYTHONPATH={tmp_path / 'src'}:")
    assert program == "medusa-oracles"
    again = subprocess.run(
        [sys.executable, "-m", "medusa_conformance.cli", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path.removeprefix("PYTHONPATH=")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert "STILL FAILING" in again.stdout


def test_an_engine_is_found_beside_its_file_of_tests(session: Session, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "engines.py").rename(inner / "elsewhere.py")
    own = OWN.format("elsewhere:Right", ", contracts=['tree']")
    (inner / "test_own.py").write_text(own, "utf-8")
    done = session("-q", "--import-mode=importlib")
    assert (done.returncode, counts(done)) == (0, "10 passed, 1 skipped")
