"""Each oracle of the training contract: silent on a lawful step, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.registry import of_contract

HEADS_ALONE, JOINT = ("assistant-only", 0), ("assistant-only-joint", 1)
TAUGHT, EMPTY = ("assistant-only-distilled", 1), ("empty-head", 0)
Corruption = Callable[[Any, Trace], dict[str, Any]]
CASES: dict[str, tuple[tuple[str, int], Corruption]] = {
    "TRAINING.LABEL_SHIFT": (HEADS_ALONE, lambda wrong, t: wrong.early(t)),
    "TRAINING.MASK_SHIFTS_WITH_LABELS": (HEADS_ALONE, lambda wrong, t: wrong.unmoved(t)),
    # Divided by 16 rows, and not by 8 labels.
    "TRAINING.OWNED_MEAN": (HEADS_ALONE, lambda wrong, t: wrong.scaled("head_losses", 0.5, t)),
    "TRAINING.EMPTY_HEAD": (
        EMPTY,
        lambda _, t: {
            "training.head_losses": np.array([*t["training.head_losses"][:2], np.nan, 0])
        },
    ),
    # 0.8^k from k = 0.
    "TRAINING.HEAD_WEIGHTS": (HEADS_ALONE, lambda wrong, t: wrong.scaled("medusa_loss", 1.25, t)),
    "TRAINING.LM_TERM": (JOINT, lambda wrong, t: wrong.scaled("backbone_loss", 0.0, t)),
    "TRAINING.DISTILL_DIRECTION": (TAUGHT, lambda wrong, t: wrong.reverse(t)),
    "TRAINING.COMBINED_LOSS": (
        JOINT,
        lambda _, t: {"training.loss": t["training.backbone_loss"] + t["training.medusa_loss"]},
    ),
    "TRAINING.TEACHER_IS_ADAPTER_OFF": (
        TAUGHT,
        lambda _, t: {"training.teacher_logits": t["training.logits"]},
    ),
    "TRAINING.HEADS_LEARN_HARD_LABELS": (TAUGHT, lambda wrong, t: wrong.soft(t)),
    "TRAINING.GRADIENT": (JOINT, lambda wrong, t: wrong.scaled("gradient.weight", 2.0, t)),
    "TRAINING.BACKBONE_FROZEN": (HEADS_ALONE, lambda wrong, t: wrong.moved(t, "backbone", True)),
    "TRAINING.BACKBONE_TRAINS": (JOINT, lambda wrong, t: wrong.moved(t, "backbone", False)),
    "TRAINING.GROUPS": (
        JOINT,
        lambda wrong, t: wrong.regrouped(t, 1, rate=t["training.groups"][0]["rate"]),
    ),
    "TRAINING.STAGES": (
        JOINT,
        lambda _, t: {"training.groups": t["training.groups"][:1]},
    ),
}


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("training")}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, shared: bool, lawful: Any, prove: Any, wrong: Any) -> None:
    (name, step), corrupt = CASES[code]
    trace = lawful(name, step, shared)
    prove(code, trace, corrupt(wrong, trace))


MANIFESTS = [n for n in medusa_manifests.names() if medusa_manifests.load(n).training is not None]


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_lawful_step_is_lawful(name: str, lawful: Any) -> None:
    executed: set[str] = set()
    planned = medusa_manifests.load(name).training
    assert planned is not None
    for step in range(planned.steps):
        judgement = judge(lawful(name, step))
        assert judgement.findings == ()
        executed |= {*judgement.executed}
    assert {"TRAINING.GRADIENT", "TRAINING.GROUPS", "TRAINING.STAGES"} <= executed
    assert ("TRAINING.DISTILL_DIRECTION" in executed) == (planned.variant == "self-distilled")


def test_a_finding_says_at_which_step_and_where(lawful: Any) -> None:
    trace = lawful(*JOINT)
    labels = trace["training.labels"].copy()
    labels[2, 1, 4] = 3
    found = judge(replace(trace, arrays={**trace.arrays, "training.labels": labels})).findings
    assert [f.where for f in found] == [{"step": 1, "head": 2, "batch": 1, "position": 4}]
    gradient = trace["training.gradient.projection"].copy()
    gradient[1, 7, 3] += 0.25
    arrays = {**trace.arrays, "training.gradient.projection": gradient}
    (finding,) = judge(replace(trace, arrays=arrays)).findings
    assert finding.where == {"step": 1, "head": 1, "token": 7, "channel": 3}
    assert finding.difference is not None
    assert finding.difference.greatest == pytest.approx(0.25)


def test_a_coordinate_without_training_has_none(lawful: Any) -> None:
    trace = lawful(*JOINT)
    bare = replace(trace, coordinate=replace(trace.coordinate, training=None))
    assert judge(bare).executed == ()


def test_what_is_shown_of_a_step_is_judged_alone(lawful: Any) -> None:
    def executed(*names: str) -> set[str]:
        whole = lawful(*JOINT)
        arrays = {n: v for n, v in whole.arrays.items() if n.removeprefix("training.") in names}
        documents = {"training.refused": None}
        partial_one = replace(whole, arrays=arrays, documents=documents)
        return {code.removeprefix("TRAINING.") for code in judge(partial_one).executed}

    assert executed() == {"EMPTY_HEAD"}
    losses = "head_losses", "medusa_loss", "head_logits"
    assert executed(*losses) == {"EMPTY_HEAD", "OWNED_MEAN", "HEAD_WEIGHTS"}
    sums = "step", "medusa_loss", "loss"
    # Of a joint loss whose terms are not shown nothing can be said.
    assert executed(*sums) == {"EMPTY_HEAD"}
    assert executed(*sums, "backbone_loss") == {"EMPTY_HEAD", "COMBINED_LOSS"}
    assert executed(*sums, "logits") == {"EMPTY_HEAD", "LM_TERM"}
    passes = "step", "plain_before", "plain_after"
    assert executed(*passes) == {"EMPTY_HEAD", "BACKBONE_TRAINS"}


def test_another_size_is_said(lawful: Any) -> None:
    trace = lawful(*HEADS_ALONE)
    arrays = {**trace.arrays, "training.head_logits": trace["training.head_logits"][:, :1]}
    said = {f.code: f.message for f in judge(replace(trace, arrays=arrays)).findings}
    assert "training.head_logits is [3, 1, 8, 48]" in said["TRAINING.OWNED_MEAN"]
    assert "the batch's is [3, 2, 8, 48]" in said["TRAINING.OWNED_MEAN"]
