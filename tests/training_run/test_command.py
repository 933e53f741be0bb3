"""`medusa-oracles train`, from the command line to the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from medusa_conformance.cli_train import train
from medusa_reference_engine import training_run
from medusa_spec.documents import schema_errors
from medusa_spec.errors import InputError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tiny: Any) -> None:
    """Let the command run the tiny recipe; threads are no matter of this process here."""
    monkeypatch.setattr(training_run, "SMOKE", tiny)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(train, list(map(str, arguments)), standalone_mode=False)


def test_the_smoke_run_learns(tmp_path: Path) -> None:
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "medusa_conformance.cli", "train", "trained", "--smoke"]
    done = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "trained" / "report.json").read_text("utf-8"))
    assert document["command"] == "medusa-oracles train trained --smoke --seed 0"
    assert document["verdict"] == "pass"
    assert len(document["rules"]) == 5

    for row in document["heads"]:
        for text in ("training", "held_out"):
            assert row["loss"][text]["end"] < row["loss"][text]["start"] - 1
    trained, untrained = document["decoding"]
    assert (trained["heads"], untrained["heads"]) == ("trained", "untrained")
    assert untrained["published_per_round"] < 1.2 < trained["published_per_round"]


def test_a_person_sees_losses_rounds_and_the_verdict(small: None, tmp_path: Path) -> None:
    folder = tmp_path / "trained"
    done = call(folder, "--smoke", "--seed", 7)
    assert done.return_value == 0
    document = json.loads((folder / "report.json").read_text("utf-8"))
    lines = done.output.splitlines()
    assert lines[0] == "Heads, on held-out text"
    tops = [f"top{rank}" for rank in (1, 2, 3, 5, 10)]
    assert lines[1].split() == ["head", "loss", "before", "after", *tops]
    for row, line in zip(document["heads"], lines[2:6], strict=True):
        loss, top = row["loss"]["held_out"], row["top"]
        figures = (loss["start"], loss["end"], *(top[rank - 1] for rank in (1, 2, 3, 5, 10)))
        assert line.split() == [row["head"], *(f"{figure:.3f}" for figure in figures)]
    for row in document["decoding"]:
        mean = row["published"] / row["rounds"]
        figures = (row["heads"], row["prompts"], row["rounds"], row["published"], f"{mean:.2f}")
        assert list(map(str, figures)) in [line.split() for line in lines]
    assert any(line.startswith("PASS  5 of 5 rules hold") for line in lines)
    assert f"wrote {folder}: checkpoint, heads, " in done.output
    assert "measured here: " in lines[-1]
    assert ", seed 7, " in lines[-1]


def test_another_output_is_exit_one_and_says_where(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_run.run, "plain", lambda *given: [(256,) * 10] * 2)
    done = call(tmp_path / "trained", "--smoke")
    assert done.return_value == 1
    assert "FAIL  3 of 5 rules hold" in done.output
    line = "broken: greedy rounds of trained heads publish what plain greedy decoding does: "
    assert f"{line}prompt 0, byte 0: expected 256, published " in done.output
    json_ = call(tmp_path / "other", "--smoke", "--json")
    assert json_.return_value == 1
    assert schema_errors(json.loads(json_.stdout), "train") == []


def test_a_folder_with_something_in_it_is_refused_before_any_work(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_run.run, "learn", lambda *given: pytest.fail("work was done"))
    (tmp_path / "mine").write_text("mine", "utf-8")
    done = call(tmp_path, "--smoke")
    assert isinstance(done.exception, InputError)
    assert str(done.exception).endswith("is there already, and is not an empty folder")
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
