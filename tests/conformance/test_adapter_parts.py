"""What adapters of published packages share, and the scripts that show what is wrong in those."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import medusa_conformance.adapters
from medusa_conformance.adapters.draftretriever import tree_of
from medusa_conformance.adapters.package_llama import by_row, hold_to_choice, read_rounds
from medusa_spec.errors import Unsupported

THIRD_PARTY = Path(__file__).parents[2] / "conformance" / "third_party"
SCRIPTS = sorted((THIRD_PARTY / "scripts").glob("*.py"))


def test_loads_no_package_before_it_is_asked_for_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    folder = Path(str(medusa_conformance.adapters.__file__)).parent
    names = [f"medusa_conformance.adapters.{file.stem}" for file in folder.glob("*.py")]
    heavy = "{'torch', 'transformers', 'medusa', 'eagle', 'draftretriever', 'modelopt'}"
    program = f"import sys, {', '.join(names)}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_short_and_told_of(script: Path) -> None:
    assert len(script.read_text("utf-8").splitlines()) < 30
    told = "".join(page.read_text("utf-8") for page in THIRD_PARTY.glob("*.md"))
    assert f"`scripts/{script.name}`" in told


def test_reads_rows_and_tokens_out_of_the_answer_of_a_search() -> None:
    # Drafts 4 1 and 2 3 over topk 2: nodes (0), (0, 1), (1), (1, 0) by their slots 1, 4, 2, 3.
    answer = (
        [[2, 3], [1, 4]],
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]],
        [0, 1, 2, 3, 4],
        [0, 1, 1, 2, 2],
        [[0, 2, 4], [0, 1, 3]],
    )
    found = tree_of(2, *answer)
    assert found["paths"] == [(), (1,), (0,), (1, 0), (0, 1)]
    assert found["slots"] == [0, 2, 1, 3, 4]


def test_reads_rounds_until_there_are_enough_tokens() -> None:
    rounds = iter([[5], [5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8, 9]])
    assert read_rounds(rounds, 2) == {"tokens": [5, 6], "published": [1, 2]}
    assert next(rounds) == [5, 6, 7, 8]


def test_rows_come_back_from_their_paths() -> None:
    rows = torch.arange(8.0).reshape(4, 2)
    retrieval = torch.tensor([[0, 1, 3], [0, 2, -1]])
    assert torch.equal(by_row(rows[retrieval], retrieval, 4), rows)


@pytest.mark.parametrize(("path", "accepted"), [(2, 0), (-1, 0), (0, 3), (1, 2), (0, -1)])
def test_no_commit_is_asked_for_that_no_selection_names(path: int, accepted: int) -> None:
    retrieval = torch.tensor([[0, 1, 3], [0, 2, -1]])
    hold_to_choice("staged", retrieval, 1, 1)
    with pytest.raises(Unsupported):
        hold_to_choice("staged", retrieval, path, accepted)
    with pytest.raises(Unsupported):
        hold_to_choice(None, retrieval, 1, 1)
