"""The engine's training steps, against what it then decodes, and row by row."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.weights import seeded_weights
from medusa_spec import Refused
from medusa_spec.coordinate import ModelShape, Training
from medusa_spec.stages import TrainingStep

SHAPE = ModelShape(
    layers=2,
    hidden=8,
    attention_heads=4,
    kv_heads=2,
    intermediate=12,
    vocabulary=11,
    rope_theta=10_000.0,
    rms_epsilon=1e-5,
    head_blocks=1,
    projection="independent",
    weight_seed=4,
)
HEADS = 3
MEDUSA_1 = Training(
    variant="medusa-1",
    tokens=((3, 1, 4, 1, 5, 9, 2), (6, 5, 3, 5, 8, 0, 0)),
    owned=(
        (False, False, True, True, True, True, True),
        (True, True, False, True, True, False, False),
    ),
    head_weights=(0.8, 0.64, 0.512),
    medusa_weight=1.0,
    head_rate=4e-3,
    backbone_rate=0.0,
    schedule="two-stage",
    warm_up=0,
    steps=3,
    adapter_rank=0,
)
JOINT = replace(MEDUSA_1, variant="medusa-2", medusa_weight=0.2, backbone_rate=1e-3)
DISTILLED = replace(
    JOINT, variant="self-distilled", medusa_weight=0.5, schedule="ramp", warm_up=2, adapter_rank=2
)
VARIANTS = pytest.mark.parametrize(
    "training",
    [MEDUSA_1, JOINT, replace(JOINT, adapter_rank=3), DISTILLED],
    ids=["medusa-1", "medusa-2", "medusa-2-adapter", "self-distilled"],
)
SHAPES = pytest.mark.parametrize(
    "shape",
    [SHAPE, replace(SHAPE, head_blocks=2, projection="shared"), replace(SHAPE, head_blocks=0)],
    ids=["independent", "shared", "no-blocks"],
)


def seeded(
    shape: ModelShape = SHAPE, dtype: str = "float64", device: str = "cpu"
) -> ReferenceEngine:
    return ReferenceEngine.seeded(shape, HEADS, 16, dtype=dtype, device=device)


def steps(engine: ReferenceEngine, training: Training, count: int) -> Iterator[TrainingStep]:
    return (engine.train_step(training, step) for step in range(count))


def forward(engine: ReferenceEngine, training: Training) -> tuple[np.ndarray, np.ndarray]:
    """Logits `[B, S, V]` and head logits `[K, B, S, V]` of plain passes."""
    passes = [engine.forward(row) for row in training.tokens]
    return np.stack([p.logits for p in passes]), np.stack([p.head_logits for p in passes], 1)


def changed(step: TrainingStep) -> set[str]:
    return {p["part"] for p in step.parameters if p["before"] != p["after"]}


def decoder_weights(engine: ReferenceEngine) -> dict[str, np.ndarray]:
    state = engine._model.decoder.state_dict()
    return {name: tensor.clone().numpy() for name, tensor in state.items()}


@VARIANTS
def test_the_loss_falls_over_twenty_steps(training: Training) -> None:
    seen = list(steps(seeded(), training, 20))
    losses = np.array([float(step.medusa_loss) for step in seen])
    assert (losses[1:] < losses[:-1]).all()
    assert losses[-1] < 0.8 * losses[0]
    if training.variant == "medusa-2":
        assert float(seen[-1].backbone_loss) < float(seen[0].backbone_loss)


@SHAPES
def test_medusa_1_leaves_every_byte_of_the_backbone(shape: ModelShape) -> None:
    engine = seeded(shape)
    logits, head_logits = forward(engine, MEDUSA_1)
    seen = list(steps(engine, MEDUSA_1, 3))
    given = seeded_weights(shape, 0)
    held = decoder_weights(engine)
    assert {name: w.tobytes() for name, w in held.items()} == {
        name: w.tobytes() for name, w in given.items()
    }
    after, heads_after = forward(engine, MEDUSA_1)
    assert after.tobytes() == logits.tobytes()
    for head in range(HEADS):
        assert not np.array_equal(heads_after[head], head_logits[head])
    for step in seen:
        assert changed(step) == {"heads"}
        assert {group["name"] for group in step.groups} == {"heads"}


def test_digests_are_those_of_the_seeded_bytes_and_name_every_parameter() -> None:
    seen = seeded().train_step(DISTILLED, 0)
    own = {p["name"]: p["before"] for p in seen.parameters if p["part"] != "adapter"}
    assert own == {
        name: hashlib.sha256(weight.tobytes()).hexdigest()
        for name, weight in seeded_weights(SHAPE, HEADS).items()
    }
    adapted = {p["name"] for p in seen.parameters if p["part"] == "adapter"}
    assert adapted == {
        f"model.layers.{layer}.self_attn.{matrix}_proj.lora_{factor}"
        for layer in (0, 1)
        for matrix in "qv"
        for factor in "AB"
    }


@VARIANTS
def test_the_shared_seeded_decoder_is_untouched(training: Training) -> None:
    shape = replace(SHAPE, weight_seed=5)
    other = seeded(shape)
    logits, head_logits = forward(other, training)
    list(steps(seeded(shape), training, 2))
    for engine in (other, seeded(shape)):
        again, heads_again = forward(engine, training)
        assert again.tobytes() == logits.tobytes()
        assert heads_again.tobytes() == head_logits.tobytes()


@SHAPES
@VARIANTS
def test_the_engine_decodes_with_what_was_trained(training: Training, shape: ModelShape) -> None:
    engine = seeded(shape)
    previous = None
    for step in range(3):
        logits, head_logits = forward(engine, training)
        seen = engine.train_step(training, step)
        # A step shows the pass before its update: what the one before it left.
        np.testing.assert_allclose(seen.logits, logits, atol=1e-12, rtol=0)
        np.testing.assert_allclose(seen.head_logits, head_logits, atol=1e-12, rtol=0)
        again = engine.apply_heads(seen.state, seen.hidden)
        np.testing.assert_allclose(again.logits, head_logits, atol=1e-12, rtol=0)
        assert previous is None or not np.allclose(previous, head_logits, atol=1e-6)
        previous = head_logits


def test_a_generation_goes_on_with_the_trained_weights() -> None:
    engine = seeded()
    list(steps(engine, JOINT, 3))
    frontier = engine.prefill((3, 1, 4))
    plain = engine.forward((3, 1, 4))
    np.testing.assert_allclose(frontier.target, plain.logits[-1], atol=1e-12, rtol=0)
    np.testing.assert_allclose(frontier.heads, plain.head_logits[:, -1], atol=1e-12, rtol=0)


def test_a_training_step_ends_the_generation_before_it() -> None:
    engine = seeded()
    engine.prefill((3, 1, 4))
    assert engine.cache().length == 3
    engine.train_step(MEDUSA_1, 0)
    view = engine.cache()
    assert (view.length, view.backing.shape[3]) == (0, 16)
    assert not view.backing.any()


def log_softmax(row: np.ndarray) -> list[float]:
    total = math.log(math.fsum(math.exp(x) for x in row.tolist()))
    return [x - total for x in row.tolist()]


@VARIANTS
def test_losses_row_by_row(training: Training) -> None:
    tokens, owned = training.tokens, training.owned
    batch, length = range(len(tokens)), len(tokens[0])
    for step, seen in enumerate(steps(seeded(), training, 3)):
        medusa = 0.0
        for j, weight in enumerate(training.head_weights):
            terms = [
                -log_softmax(seen.head_logits[j, b, t])[tokens[b][t + j + 2]]
                for b in batch
                for t in range(length - j - 2)
                if owned[b][t + j + 2]
            ]
            assert float(seen.head_losses[j]) == pytest.approx(math.fsum(terms) / len(terms))
            medusa += weight * math.fsum(terms) / len(terms)
        assert float(seen.medusa_loss) == pytest.approx(medusa)
        rows = [(b, t) for b in batch for t in range(length - 1) if owned[b][t + 1]]
        student = [log_softmax(seen.logits[b, t]) for b, t in rows]
        if training.variant == "medusa-1":
            assert seen.backbone_loss is None
            assert float(seen.loss) == pytest.approx(medusa)
            continue
        if training.variant == "medusa-2":
            pairs = zip(student, rows, strict=True)
            backbone = -math.fsum(s[tokens[b][t + 1]] for s, (b, t) in pairs) / len(rows)
        else:
            teacher = [log_softmax(seen.teacher_logits[b, t]) for b, t in rows]
            backbone = math.fsum(
                math.exp(p) * (p - q)
                for target, own in zip(teacher, student, strict=True)
                for p, q in zip(target, own, strict=True)
            )
        share = {"two-stage": [0.2] * 3, "ramp": [0.25, 0.5, 0.5]}[training.schedule][step]
        assert float(seen.backbone_loss) == pytest.approx(backbone, abs=1e-12)
        assert float(seen.loss) == pytest.approx(backbone + share * medusa)


def test_the_backbone_joins_behind_the_warm_up() -> None:
    heads, backbone = {"heads"}, {"heads", "backbone", "lm_head"}
    seen = list(steps(seeded(), replace(JOINT, warm_up=2), 4))
    assert [changed(step) for step in seen] == [heads, heads, backbone, backbone]
    assert [step.backbone_loss is None for step in seen] == [True, True, False, False]
    rates = [[group["rate"] for group in step.groups] for step in seen]
    assert rates == [[4e-3], [4e-3], [4e-3, 1e-3], [4e-3, 1e-3]]


@VARIANTS
def test_groups_hold_what_trains_once_and_the_parts_that_changed(training: Training) -> None:
    for seen in steps(seeded(), training, 2):
        parts = {p["name"]: p["part"] for p in seen.parameters}
        assert len(parts) == len(seen.parameters)
        held = [name for group in seen.groups for name in group["parameters"]]
        assert len(held) == len(set(held))
        trained = {parts[name] for name in held}
        assert set(held) == {name for name, part in parts.items() if part in trained}
        assert changed(seen) == trained


def test_the_student_leaves_the_teacher_and_the_teacher_stays() -> None:
    engine = seeded()
    untrained, _ = forward(engine, DISTILLED)
    seen = list(steps(engine, DISTILLED, 3))
    np.testing.assert_array_equal(seen[0].logits, seen[0].teacher_logits)
    assert float(seen[0].backbone_loss) == 0
    for step in seen:
        np.testing.assert_allclose(step.teacher_logits, untrained, atol=1e-12, rtol=0)
        assert changed(step) == {"heads", "adapter"}
    for step in seen[1:]:
        assert np.abs(step.logits - untrained).max() > 1e-4
        assert float(step.backbone_loss) > 0


def test_a_head_without_labels_is_skipped_and_stays() -> None:
    # Three tokens hold one label for head 0, and none for the others.
    training = replace(MEDUSA_1, tokens=((3, 1, 4),), owned=((True, True, True),))
    for seen in steps(seeded(), training, 2):
        assert [entry["head"] for entry in seen.skipped] == [1, 2]
        assert all(entry["reason"] for entry in seen.skipped)
        assert seen.head_losses[1:].tolist() == [0, 0]
        assert float(seen.loss) == pytest.approx(0.8 * float(seen.head_losses[0]))
        moved = {p["name"] for p in seen.parameters if p["before"] != p["after"]}
        assert moved
        assert all(name.startswith("medusa_head.0.") for name in moved)
        for gradient in (seen.gradient.weight, seen.gradient.bias, seen.gradient.projection):
            assert gradient[0].any()
            assert not gradient[1:].any()


@pytest.mark.parametrize("length", [1, 2, 7])
def test_nothing_is_learnt_where_nothing_is_owned(length: int) -> None:
    rows = tuple(row[:length] for row in JOINT.tokens)
    training = replace(JOINT, tokens=rows, owned=((False,) * length,) * 2)
    seen = seeded().train_step(training, 0)
    assert changed(seen) == set()
    assert (float(seen.loss), float(seen.backbone_loss)) == (0, 0)
    assert [entry["head"] for entry in seen.skipped] == [0, 1, 2]


def test_a_step_out_of_order_is_refused_and_changes_nothing() -> None:
    engine = seeded()
    with pytest.raises(Refused, match="step 1 does not follow"):
        engine.train_step(MEDUSA_1, 1)
    engine.train_step(MEDUSA_1, 0)
    before = forward(engine, MEDUSA_1)
    for training, step in [(MEDUSA_1, 2), (JOINT, 1)]:
        with pytest.raises(Refused, match=f"step {step} does not follow"):
            engine.train_step(training, step)
    for ours, theirs in zip(before, forward(engine, MEDUSA_1), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    engine.train_step(MEDUSA_1, 1)


def test_a_second_training_goes_on_from_the_first_with_fresh_moments() -> None:
    engine = seeded()
    first = list(steps(engine, MEDUSA_1, 2))
    trained, _ = forward(engine, DISTILLED)
    second = engine.train_step(DISTILLED, 0)
    np.testing.assert_array_equal(second.teacher_logits, second.logits)
    np.testing.assert_allclose(second.logits, trained, atol=1e-12, rtol=0)
    assert float(second.medusa_loss) < float(first[-1].medusa_loss)


@VARIANTS
def test_equal_trainings_are_equal_to_the_bit(training: Training) -> None:
    ours, theirs = (list(steps(seeded(), training, 3)) for _ in range(2))
    assert [step.parameters for step in ours] == [step.parameters for step in theirs]
    assert [step.loss.tobytes() for step in ours] == [step.loss.tobytes() for step in theirs]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@VARIANTS
def test_narrow_engines_learn_alike(training: Training, dtype: str) -> None:
    # A rate far below the spacing of half-precision weights still adds up.
    slow = replace(training, head_rate=1e-5, backbone_rate=training.backbone_rate and 1e-6)
    exact, narrow = (list(steps(seeded(dtype=d), slow, 3)) for d in ("float64", dtype))
    parts = [changed(step) for step in exact]
    assert [changed(step) for step in narrow] == parts
    room = 1e-4 if dtype == "float32" else 0.1
    for ours, theirs in zip(exact, narrow, strict=True):
        assert float(theirs.loss) == pytest.approx(float(ours.loss), rel=room)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@VARIANTS
def test_an_accelerator_learns_the_same(training: Training) -> None:
    ours, theirs = (list(steps(seeded(device=d), training, 3)) for d in ("cpu", "cuda"))
    for here, there in zip(ours, theirs, strict=True):
        for name in ("hidden", "logits", "head_logits", "head_losses", "loss"):
            expected, found = getattr(here, name), getattr(there, name)
            np.testing.assert_allclose(found, expected, atol=1e-9, rtol=1e-9)
        np.testing.assert_allclose(
            there.gradient.weight, here.gradient.weight, atol=1e-9, rtol=1e-9
        )
