"""The pytest plugin, in sessions of its own: items, cases, outcomes, and what it costs others."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from medusa_spec.registry import invariants

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

FEW = ("--medusa-max-examples", "1")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Run pytest in a folder of its own that holds the engines."""
    (tmp_path / "engines.py").write_text(ENGINES, "utf-8")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        # Installed, the plugin is there already; from a checkout it must be named.
        plugin = ("-p", "no:medusa", "-p", "medusa_conformance.pytest_plugin")
        command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stdout + done.stderr
        return done

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
    assert (done.returncode, counts(done)) == (0, "10 passed, 73 skipped")
    assert "the engine has no admit" in done.stdout


def test_a_finding_is_told_once_and_what_follows_in_a_line(session: Session) -> None:
    chosen = ("-k", "TREE and not ROUND or VERDICT", "--medusa-engine", "engines:Wrong")
    # Without the summary, which repeats a failure in full on a build server.
    done = session("-q", "-rN", *FEW, *chosen)
    assert (done.returncode, counts(done)) == (1, "2 failed, 8 passed, 1 skipped, 72 deselected")
    assert done.stdout.count("usually    ") == 1
    assert "FAIL  9 of 10 invariants executed" in done.stdout
    assert "medusa-oracles replay .medusa/findings/01-TREE.POSITION_IS_DEPTH.json" in done.stdout


def test_a_crash_is_no_pass(session: Session) -> None:
    done = session("-q", *FEW, "-k", "SLOT or VERDICT", "--medusa-engine", "engines:Crashing")
    assert (done.returncode, counts(done)) == (1, "2 failed, 81 deselected")
    assert (
        "TREE.SLOT incompetent: crash in compile_tree: RuntimeError: no tree today" in done.stdout
    )
    assert "INCONCLUSIVE" in done.stdout


def test_a_session_that_judged_nothing_is_not_green(session: Session) -> None:
    done = session("-q", *FEW, "--medusa-engine", "engines:Empty")
    assert (done.returncode, counts(done)) == (1, "1 failed, 82 skipped")
    assert "INCONCLUSIVE  None of 82 invariants was executed." in done.stdout


def test_an_expected_failure_is_an_xfail(session: Session, tmp_path: Path) -> None:
    entry = "- {invariant: TREE.POSITION_IS_DEPTH, reason: known, link: issue-1}\n"
    (tmp_path / "expected.yaml").write_text(entry, "utf-8")
    chosen = ("-k", "TREE or VERDICT", "--medusa-expected-failures", "expected.yaml")
    done = session("-q", *FEW, *chosen, "--medusa-engine", "engines:Wrong")
    assert (done.returncode, counts(done)) == (0, "9 passed, 2 skipped, 71 deselected, 1 xfailed")


def test_an_engine_that_is_not_there_is_one_line(session: Session) -> None:
    done = session("-q", "--medusa-engine", "engines:Missing")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "engines has no attribute Missing" in done.stdout + done.stderr


def test_workers_of_xdist_judge_an_engine_once_together(session: Session, tmp_path: Path) -> None:
    alone = session("-q", *FEW, "--medusa-engine", "engines:Counted")
    starts = tmp_path / "starts"
    expected = len(list(starts.iterdir()))
    for mark in starts.iterdir():
        mark.unlink()
    together = session("-q", *FEW, "-n", "2", "--medusa-engine", "engines:Counted")
    assert counts(together) == counts(alone) == "10 passed, 73 skipped"
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
        "    assert not {'torch', 'hypothesis', 'numpy', 'medusa_spec'} & set(sys.modules)\n",
        "utf-8",
    )
    done = session("-q", "-p", "no:hypothesispytest")
    assert (done.returncode, counts(done)) == (0, "1 passed")


def test_a_file_of_tests_has_a_case_for_each_invariant(session: Session, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "from medusa_conformance.pytest_plugin import parametrize_with_invariants\n\n\n"
        "@parametrize_with_invariants('engines:Wrong', max_examples=1, contracts=['tree'])\n"
        "def test_invariant(invariant):\n"
        "    invariant.check()\n",
        "utf-8",
    )
    done = session("-q")
    assert (done.returncode, counts(done)) == (1, "2 failed, 8 passed, 1 skipped")
    assert "test_own.py::test_invariant[TREE.POSITION_IS_DEPTH]" in done.stdout
    assert "test_own.py::test_invariant[VERDICT]" in done.stdout


def test_a_session_inside_another_shares_nothing_with_it(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("MEDUSA_SHARED", str(shared))
    done = session("-q", *FEW, "-k", "SLOT", "--medusa-engine", "engines:Right")
    assert (done.returncode, counts(done)) == (0, "1 passed, 82 deselected")
    assert list(shared.iterdir()) == []


def test_an_engine_is_found_beside_its_file_of_tests(session: Session, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "engines.py").rename(inner / "elsewhere.py")
    (inner / "test_own.py").write_text(
        "from medusa_conformance.pytest_plugin import parametrize_with_invariants\n\n\n"
        "@parametrize_with_invariants('elsewhere:Right', max_examples=1, contracts=['tree'])\n"
        "def test_invariant(invariant):\n"
        "    invariant.check()\n",
        "utf-8",
    )
    done = session("-q", "--import-mode=importlib")
    assert (done.returncode, counts(done)) == (0, "10 passed, 1 skipped")
