"""Which files a folder's traces are, and what stands by the name of one and is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import InputError, Trace
from medusa_spec.dialect import CANONICAL
from medusa_spec.tracefile import read_trace, served_coordinate, trace_files, write_trace


@pytest.fixture(scope="module")
def lawful(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    trace: Trace = lawful_trace(coordinate(), literal, ((0, 2), (2, 6)))
    return trace


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value.field, caught.value.rule


def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    names = ["g2-r1.npz", "g10-r0.npz", "g2-r10.SafeTensors", "g2-r9.NPZ", "a.npz", "g2-٣.npz"]
    for name in (*names, ".g0.npz.7.part", ".hidden.npz", "notes.txt"):
        (tmp_path / name).touch()
    ordered = ["a.npz", "g2-r1.npz", "g2-r9.NPZ", "g2-r10.SafeTensors", "g2-٣.npz", "g10-r0.npz"]
    assert [file.name for file in trace_files(tmp_path)] == ordered
    assert trace_files(str(tmp_path / "a.npz")) == [tmp_path / "a.npz"]


def test_nothing_to_judge_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    rule = "holds no trace: no .npz and no .safetensors file"
    assert refusal(lambda: trace_files(tmp_path)) == ("", rule)
    assert refusal(lambda: trace_files(tmp_path / "no")) == ("", "no such file or folder")
    assert "is no trace file" in refusal(lambda: trace_files(tmp_path / "notes.txt"))[1]
    assert refusal(lambda: read_trace(tmp_path / "no.npz"))[1].startswith("cannot be read: ")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_has_the_name_of_a_trace_and_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "1.npz").touch()
    odd = tmp_path / "2.NPZ"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "link":
        odd.symlink_to("nowhere")
    else:
        odd.mkdir()
    # A pipe would be waited for.
    for ask in (lambda: read_trace(odd), lambda: trace_files(tmp_path)):
        assert refusal(ask) == ("", "is no regular file")


def test_digits_of_another_script_are_no_numbers(tmp_path: Path) -> None:
    names = ["1٣2.npz", "1٣10.npz", "12.npz"]
    for name in names:
        (tmp_path / name).touch()
    assert [file.name for file in trace_files(tmp_path)] == names


@pytest.mark.parametrize("suffix", [".NPZ", ".SafeTensors"])
def test_a_suffix_may_be_in_capitals(suffix: str, tmp_path: Path, lawful: Trace) -> None:
    file = tmp_path / f"round{suffix}"
    write_trace(file, lawful.coordinate, {"tree.slots": [0, 1]}, dtype="float32")
    assert read_trace(file).arrays["tree.slots"].tolist() == [0, 1]


# What a file's dialect grants


def test_ties_are_granted_to_a_file_as_to_an_engine(tmp_path: Path, lawful: Trace) -> None:
    policy = lawful.coordinate.policy
    given = served_coordinate(
        [1, 2], [[0], [1]], topk=2, heads=1, vocabulary=8, policy=policy, end_of_sequence=None
    )
    heads = np.zeros((1, 8))
    heads[0, [3, 7]] = 1.0
    target = np.zeros(8)
    target[[5, 6]] = 2.0
    # Of two equal logits the greater token first, at the root and in the tree.
    seen = {"proposal.packed": [6, 7, 3], "frontier": {"target": target, "heads": heads}}
    dialect = {"topk_ties": "any", "reasons": {"topk_ties": "torch.topk says nothing of them"}}

    def codes(**more: Any) -> set[str]:
        file = tmp_path / "round.npz"
        write_trace(file, given, seen, dtype="float32", **more)
        trace = read_trace(file).trace(lawful.tolerance, lawful.policy_tolerance)
        judgement = judge(trace)
        assert set(judgement.executed) == {"PROPOSAL.ROOT_FROM_TARGET", "PROPOSAL.TOPK"}
        return {finding.code for finding in judgement.findings}

    assert codes() == {"PROPOSAL.ROOT_FROM_TARGET", "PROPOSAL.TOPK"}
    assert codes(dialect=dialect) == set()


def test_a_trace_brings_the_dialect_of_its_file(tmp_path: Path, lawful: Trace) -> None:
    file = tmp_path / "round.npz"
    reasons = {"end_of_sequence": "the loop cuts"}
    for dialect in ({}, {"end_of_sequence": "loop", "reasons": reasons}):
        write_trace(file, lawful.coordinate, {}, dtype="float64", dialect=dialect)
        trace = read_trace(file).trace(lawful.tolerance, lawful.policy_tolerance)
        assert trace.dialect.end_of_sequence == dialect.get("end_of_sequence", "commit")
        assert (trace.dialect == CANONICAL) == (not dialect)
