"""The formulas of training a second time: one sequence, one row, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa_manifests
from medusa_oracles.training_loss import (
    derive_divergence,
    derive_head_losses,
    derive_joint,
    derive_labels,
    derive_lm_loss,
    derive_loss,
    derive_medusa_loss,
    derive_medusa_weight,
    derive_soft_losses,
)
from medusa_spec.coordinate import Training

V = 5
DIRECT = medusa_manifests.load("assistant-only-joint").training
TAUGHT = medusa_manifests.load("assistant-only-distilled").training
ALONE = medusa_manifests.load("assistant-only").training
assert DIRECT is not None
assert TAUGHT is not None
assert ALONE is not None


def log_p(row: Sequence[float], token: int) -> float:
    """`log softmax`, by its definition."""
    return row[token] - math.log(math.fsum(math.exp(x) for x in row))


def owned_labels(training: Training, shift: int) -> list[tuple[int, int, int]]:
    """`(b, t, label)` of every row whose token `shift` places on is owned."""
    return [
        (b, t, tokens[t + shift])
        for b, tokens in enumerate(training.tokens)
        for t in range(len(tokens))
        if t + shift < len(tokens) and training.owned[b][t + shift]
    ]


def mean(losses: list[float]) -> float:
    return math.fsum(losses) / len(losses) if losses else 0.0


def batches() -> st.SearchStrategy[tuple[Training, Any]]:
    """A recipe over a small batch, and a generator for what its model says."""

    @st.composite
    def drawn(draw: st.DrawFn) -> tuple[Training, Any]:
        batch, length, heads = (draw(st.integers(1, high)) for high in (3, 7, 4))
        rows = st.lists(st.integers(0, V - 1), min_size=length, max_size=length)
        flags = st.lists(st.booleans(), min_size=length, max_size=length)
        weights = st.lists(st.sampled_from((0.8, 0.64, 1.0, 2.5)), min_size=heads, max_size=heads)
        training = replace(
            draw(st.sampled_from((ALONE, DIRECT, TAUGHT))),
            tokens=tuple(map(tuple, draw(st.lists(rows, min_size=batch, max_size=batch)))),
            owned=tuple(map(tuple, draw(st.lists(flags, min_size=batch, max_size=batch)))),
            head_weights=tuple(draw(weights)),
        )
        return training, np.random.default_rng(draw(st.integers(0, 2**16)))

    return drawn()


@settings(max_examples=60, deadline=None)
@given(batches())
def test_labels_and_losses_of_the_heads(drawn: tuple[Training, Any]) -> None:
    training, generator = drawn
    heads, batch, length = len(training.head_weights), len(training.tokens), len(training.tokens[0])
    logits = 3 * generator.normal(size=(heads, batch, length, V))
    aligned = derive_labels(training)
    losses = derive_head_losses(logits, aligned)
    total = 0.0
    for head in range(heads):
        owned = owned_labels(training, head + 2)
        assert int(aligned.masked_coverage[head]) == len(owned)
        assert {(b, t) for b, t, _ in owned} == {
            *zip(*np.nonzero(aligned.owned[head]), strict=True)
        }
        assert all(int(aligned.labels[head, b, t]) == label for b, t, label in owned)
        expected = mean([-log_p(logits[head, b, t].tolist(), label) for b, t, label in owned])
        assert losses[head] == pytest.approx(expected, abs=1e-12)
        total += training.head_weights[head] * expected
    assert derive_medusa_loss(training.head_weights, losses) == pytest.approx(total, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_losses_of_the_backbone(drawn: tuple[Training, Any]) -> None:
    training, generator = drawn
    shape = (len(training.tokens), len(training.tokens[0]), V)
    student, teacher = 3 * generator.normal(size=shape), 3 * generator.normal(size=shape)
    owned = owned_labels(training, 1)
    expected = mean([-log_p(student[b, t].tolist(), label) for b, t, label in owned])
    assert derive_lm_loss(student, training) == pytest.approx(expected, abs=1e-12)
    divergence = 0.0
    for b, t, _ in owned:
        for token in range(V):
            of_teacher = log_p(teacher[b, t].tolist(), token)
            of_student = log_p(student[b, t].tolist(), token)
            divergence += math.exp(of_teacher) * (of_teacher - of_student)
    assert derive_divergence(teacher, student, training) == pytest.approx(divergence, abs=1e-12)
    assert derive_divergence(student, student, training) == 0


@settings(max_examples=30, deadline=None)
@given(batches())
def test_what_heads_would_lose_to_a_teacher(drawn: tuple[Training, Any]) -> None:
    training, generator = drawn
    heads, batch, length = len(training.head_weights), len(training.tokens), len(training.tokens[0])
    logits = generator.normal(size=(heads, batch, length, V))
    teacher = generator.normal(size=(batch, length, V))
    crossed, diverged = derive_soft_losses(logits, teacher, training)
    for head in range(heads):
        terms: tuple[list[float], list[float]] = [], []
        for b, t, _ in owned_labels(training, head + 2):
            # The teacher's row that speaks of the token `head + 2` places on.
            rows = teacher[b, t + head + 1].tolist(), logits[head, b, t].tolist()
            p = [math.exp(log_p(rows[0], token)) for token in range(V)]
            terms[0].append(-math.fsum(p[v] * log_p(rows[1], v) for v in range(V)))
            terms[1].append(
                math.fsum(p[v] * (log_p(rows[0], v) - log_p(rows[1], v)) for v in range(V))
            )
        assert crossed[head] == pytest.approx(mean(terms[0]), abs=1e-12)
        assert diverged[head] == pytest.approx(mean(terms[1]), abs=1e-12)


def test_rows_that_nobody_owns_may_hold_anything() -> None:
    owned = tuple((False, False, True, False) for _ in range(2))
    training = replace(DIRECT, tokens=((0, 1, 2, 3),) * 2, owned=owned, head_weights=(1.0,))
    logits = np.zeros((2, 4, V))
    lone = logits.copy()
    lone[:, [0, 2, 3]] = np.nan
    assert derive_lm_loss(lone, training) == pytest.approx(math.log(V))
    assert derive_divergence(lone, logits, training) == 0
    heads = logits.copy()[None]
    heads[:, :, 1:] = np.nan
    assert derive_head_losses(heads, derive_labels(training)) == pytest.approx([math.log(V)])


def test_a_token_that_is_impossible_to_the_teacher_costs_nothing() -> None:
    training = replace(DIRECT, tokens=((0, 1),), owned=((True, True),))
    teacher, student = np.zeros((1, 2, 2)), np.zeros((1, 2, 2))
    teacher[0, 0, 1] = -np.inf
    assert derive_divergence(teacher, student, training) == pytest.approx(math.log(2))
    # What the student finds impossible and the teacher does not costs everything.
    assert derive_divergence(student, teacher, training) == np.inf


@pytest.mark.parametrize(
    ("variant", "schedule", "warm_up", "joint", "weights"),
    [
        ("medusa-1", "two-stage", 0, "....", [1, 1, 1, 1]),
        ("medusa-2", "two-stage", 0, "####", [0.2, 0.2, 0.2, 0.2]),
        ("medusa-2", "two-stage", 2, "..##", [1, 1, 0.2, 0.2]),
        ("medusa-2", "two-stage", 4, "....", [1, 1, 1, 1]),
        ("medusa-2", "ramp", 0, "####", [0.2, 0.2, 0.2, 0.2]),
        ("medusa-2", "ramp", 1, "####", [0.2, 0.2, 0.2, 0.2]),
        ("medusa-2", "ramp", 4, "####", [0.05, 0.1, 0.15, 0.2]),
        ("self-distilled", "ramp", 2, "####", [0.1, 0.2, 0.2, 0.2]),
        ("self-distilled", "two-stage", 1, ".###", [1, 0.2, 0.2, 0.2]),
    ],
)
def test_schedules(
    variant: Any, schedule: Any, warm_up: int, joint: str, weights: list[float]
) -> None:
    training = replace(
        DIRECT, variant=variant, schedule=schedule, warm_up=warm_up, medusa_weight=0.2, steps=4
    )
    assert "".join(".#"[derive_joint(training, step)] for step in range(4)) == joint
    assert [derive_medusa_weight(training, step) for step in range(4)] == pytest.approx(weights)
    for step, weight in enumerate(weights):
        # Of a step of the heads alone, the backbone's loss is not even read.
        expected = 7.0 + 3 * weight if joint[step] == "#" else 3.0
        assert derive_loss(training, step, 3.0, 7.0) == pytest.approx(expected)


def test_a_joint_loss_needs_the_backbone_s() -> None:
    with pytest.raises(ValueError, match="trains at step 1, and its loss is not given"):
        derive_loss(DIRECT, 1, 3.0, None)
    assert derive_loss(DIRECT, 0, 3.0, None) == 3.0


@pytest.mark.parametrize(
    ("name", "coverage", "owned"),
    [
        ("labels-seven", [5, 4, 3], [5, 4, 3]),
        ("assistant-only", [12, 10, 8], [8, 8, 7]),
        ("padded-batch", [18, 15, 12], [10, 7, 5]),
        ("two-turns", [30, 27], [12, 11]),
        ("empty-head", [6, 4, 2, 0], [4, 2, 0, 0]),
    ],
)
def test_the_manifests_have_the_labels_that_their_notes_count(
    name: str, coverage: list[int], owned: list[int]
) -> None:
    # Counted on paper from the masks.
    training = medusa_manifests.load(name).training
    assert training is not None
    aligned = derive_labels(training)
    assert (aligned.coverage.tolist(), aligned.masked_coverage.tolist()) == (coverage, owned)


def test_the_manifests_train_what_they_should() -> None:
    """Every variant, both projections, one block and two, adapters and whole backbones."""
    planned = [medusa_manifests.load(name) for name in medusa_manifests.names()]
    trained = [(c.model, c.training) for c in planned if c.training is not None]
    assert {t.variant for _, t in trained} == {"medusa-1", "medusa-2", "self-distilled"}
    assert {t.schedule for _, t in trained} == {"two-stage", "ramp"}
    assert {m.projection for m, _ in trained} == {"independent", "shared"}
    assert {m.head_blocks for m, _ in trained} == {1, 2}
    assert {t.adapter_rank > 0 for _, t in trained if t.variant == "medusa-2"} == {True, False}
    batches = {medusa_manifests.load(f"assistant-only{end}").training for end in VARIANTS}
    assert len({(t.tokens, t.owned, t.head_weights) for t in batches if t is not None}) == 1


VARIANTS = ("", "-joint", "-distilled")
