"""What the engine's optimizer is given, by finite differences, and what it does, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from medusa_manifests import load
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.decoder import Decoder
from medusa_reference_engine.weights import head_state, seeded_weights
from medusa_spec.coordinate import Training
from medusa_spec.stages import HeadState

COORDINATE = load("assistant-only")
SHAPE, HEADS = COORDINATE.model, COORDINATE.heads
assert COORDINATE.training is not None
MEDUSA_1 = COORDINATE.training
JOINT = replace(MEDUSA_1, variant="medusa-2", medusa_weight=0.2, backbone_rate=1e-3)
DISTILLED = replace(JOINT, variant="self-distilled", adapter_rank=2)
VARIANTS = pytest.mark.parametrize(
    "training",
    [MEDUSA_1, JOINT, replace(JOINT, schedule="ramp", warm_up=2, adapter_rank=3), DISTILLED],
    ids=["medusa-1", "medusa-2", "medusa-2-adapter", "self-distilled"],
)


def engine_of(weights: dict[str, np.ndarray], heads: HeadState) -> ReferenceEngine:
    """An engine over exactly these weights."""
    decoder = Decoder(SHAPE, dtype=torch.float64, device=torch.device("cpu"))
    decoder.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    return ReferenceEngine(decoder, heads, 16)


def given() -> tuple[dict[str, np.ndarray], HeadState]:
    """The decoder's seeded weights, and its heads'."""
    weights = {n: torch.from_numpy(w) for n, w in seeded_weights(SHAPE, HEADS).items()}
    return seeded_weights(SHAPE, 0), head_state(SHAPE, weights, HEADS)


def slope(training: Training, name: str, place: tuple[int, ...]) -> float:
    """Of the first loss, by one number of a decoder's weight or of a field of the heads."""
    losses = []
    for nudge in (1e-5, -1e-5):
        weights, state = given()
        moved = weights[name] if name in weights else getattr(state, name)
        moved[place] += nudge
        if name == "lm_head.weight":
            state.lm_head[place] += nudge
        losses.append(float(engine_of(weights, state).train_step(training, 0).loss))
    return (losses[0] - losses[1]) / 2e-5


@VARIANTS
def test_gradients_are_finite_differences_of_the_loss(training: Training) -> None:
    weights, state = given()
    gradient = engine_of(weights, state).train_step(training, 0).gradient
    generator = np.random.default_rng(3)
    for name in ("weight", "bias", "projection"):
        found = getattr(gradient, name)
        assert found.shape == getattr(state, name).shape
        for _ in range(4):
            place = tuple(int(generator.integers(size)) for size in found.shape)
            assert found[place] == pytest.approx(slope(training, name, place), abs=1e-8, rel=1e-6)


def test_the_backbone_goes_down_the_slope_of_the_whole_loss() -> None:
    weights, state = given()
    engine = engine_of(weights, state)
    engine.train_step(JOINT, 0)
    after = engine._model.decoder.state_dict()
    generator, judged = np.random.default_rng(8), 0
    for name, weight in weights.items():
        place = tuple(int(generator.integers(size)) for size in weight.shape)
        uphill = slope(JOINT, name, place)
        if abs(uphill) > 1e-4:
            # AdamW's first update is the rate against the gradient's sign, beside the decay.
            decayed = weight[place] * (1 - JOINT.backbone_rate * 0.01)
            expected = decayed - JOINT.backbone_rate * math.copysign(1, uphill)
            assert float(after[name][place]) == pytest.approx(expected, abs=1e-6), name
            judged += 1
    assert judged > len(weights) / 2


def test_updates_are_adamw_and_its_moments_outlive_a_stage() -> None:
    training = replace(JOINT, warm_up=2)
    engine = engine_of(*given())
    seen = [engine.train_step(training, step) for step in range(5)]
    assert [len(step.groups) for step in seen] == [1, 1, 2, 2, 2]
    for name in ("weight", "bias", "projection"):
        weight = getattr(seen[0].state, name)
        first, second = np.zeros_like(weight), np.zeros_like(weight)
        for count, step in enumerate(seen, 1):
            np.testing.assert_allclose(getattr(step.state, name), weight, atol=1e-12, rtol=0)
            slope = getattr(step.gradient, name)
            first = 0.9 * first + 0.1 * slope
            second = 0.999 * second + 0.001 * slope**2
            scale = np.sqrt(second / (1 - 0.999**count)) + 1e-8
            decayed = weight * (1 - training.head_rate * 0.01)
            weight = decayed - training.head_rate * first / (1 - 0.9**count) / scale
