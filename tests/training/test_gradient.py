"""The gradient by hand, against finite differences and autograd of formulas written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import medusa_manifests
from medusa_oracles.heads import derive_logits, derive_residual
from medusa_oracles.training_loss import (
    HeadGradient,
    derive_gradient,
    derive_head_losses,
    derive_joint,
    derive_labels,
    derive_medusa_loss,
    derive_medusa_weight,
)
from medusa_spec.coordinate import Training
from medusa_spec.stages import HeadState

D, V = 4, 16
CASES = ("labels-seven", "assistant-only-joint", "assistant-only-distilled", "empty-head")


def planned(name: str) -> Training:
    training = medusa_manifests.load(name).training
    assert training is not None
    return training


def heads_of(training: Training, blocks: int, shared: bool) -> tuple[HeadState, Any]:
    """Random heads, and hidden states of the batch."""
    generator = np.random.default_rng([blocks, shared, len(training.tokens)])
    heads, batch, length = len(training.head_weights), len(training.tokens), len(training.tokens[0])
    state = HeadState(
        0.5 * generator.normal(size=(heads, blocks, D, D)),
        generator.normal(size=(heads, blocks, D)),
        generator.normal(size=(V, D)),
        None if shared else generator.normal(size=(heads, V, D)),
    )
    return state, generator.normal(size=(batch, length, D))


def loss_of(training: Training, step: int, hidden: Any, state: HeadState) -> float:
    """The part of the loss that the heads decide; the backbone's is a constant to them."""
    logits = derive_logits(derive_residual(state.weight, state.bias, hidden), state)
    losses = derive_head_losses(logits, derive_labels(training))
    return derive_medusa_weight(training, step) * derive_medusa_loss(training.head_weights, losses)


def parts(state: HeadState, gradient: HeadGradient) -> list[tuple[str, Any, Any]]:
    found = [(n, getattr(state, n), getattr(gradient, n)) for n in ("weight", "bias", "projection")]
    return [part for part in found if part[1] is not None]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_finite_differences(name: str, blocks: int, shared: bool) -> None:
    training, step, width = planned(name), 1, 1e-5
    state, hidden = heads_of(training, blocks, shared)
    gradient = derive_gradient(training, step, hidden, state)
    assert (gradient.projection is None) == shared
    for part, held, derived in parts(state, gradient):
        assert derived.shape == held.shape
        # A few entries of each block, head and projection stand for all of them.
        for place in [*np.ndindex(held.shape)][:: max(held.size // 12, 1)]:
            sides = []
            for sign in (1, -1):
                moved = held.copy()
                moved[place] += sign * width
                sides.append(loss_of(training, step, hidden, replace(state, **{part: moved})))
            expected = (sides[0] - sides[1]) / (2 * width)
            assert derived[place] == pytest.approx(expected, rel=1e-6, abs=1e-9), (part, place)


def torch_loss(training: Training, step: int, hidden: Any, tensors: dict[str, Any]) -> Any:
    """The heads' part of the loss, written from the article's formulas in torch alone."""
    total = torch.zeros((), dtype=torch.float64)
    tokens, owned = torch.tensor(training.tokens), torch.tensor(training.owned)
    length = tokens.shape[1]
    for head, weight in enumerate(training.head_weights):
        shift = head + 2
        if shift >= length or not owned[:, shift:].any():
            continue
        state = hidden[:, : length - shift]
        blocks = zip(tensors["weight"][head], tensors["bias"][head], strict=True)
        for block_weight, block_bias in blocks:
            inner = torch.nn.functional.linear(state, block_weight, block_bias)
            state = state + torch.nn.functional.silu(inner)
        own = tensors.get("projection")
        logits = state @ (tensors["lm_head"] if own is None else own[head]).T
        kept = owned[:, shift:]
        labels = tokens[:, shift:][kept]
        total = total + weight * torch.nn.functional.cross_entropy(logits[kept], labels)
    if derive_joint(training, step):
        ramp = training.schedule == "ramp" and training.warm_up > 0
        share = min((step + 1) / training.warm_up, 1.0) if ramp else 1.0
        total = total * training.medusa_weight * share
    return total


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_autograd(name: str, blocks: int, shared: bool, step: int) -> None:
    training = planned(name)
    state, hidden = heads_of(training, blocks, shared)
    names = ("weight", "bias", "lm_head") if shared else ("weight", "bias", "projection")
    tensors = {n: torch.tensor(getattr(state, n), requires_grad=n != "lm_head") for n in names}
    loss = torch_loss(training, step, torch.tensor(hidden), tensors)
    assert float(loss.detach()) == pytest.approx(loss_of(training, step, hidden, state))
    loss.backward()
    gradient = derive_gradient(training, step, hidden, state)
    for part, _, derived in parts(state, gradient):
        found = tensors[part].grad
        assert found is not None
        assert np.abs(derived).max() > 1e-4
        np.testing.assert_allclose(derived, found.numpy(), rtol=1e-10, atol=1e-13)


def test_a_head_without_labels_gets_none() -> None:
    training = planned("empty-head")
    state, hidden = heads_of(training, 2, False)
    for _, _, derived in parts(state, derive_gradient(training, 0, hidden, state)):
        assert np.abs(derived[2:]).max() == 0
        assert (np.abs(derived[:2]).reshape(2, -1).max(axis=1) > 0).all()


def test_hidden_states_behind_which_nothing_is_learnt_may_hold_anything() -> None:
    training = planned("assistant-only")
    state, hidden = heads_of(training, 1, False)
    spoiled = hidden.copy()
    # Row 0 of the second sequence predicts places 2 to 4, and the assistant begins at 5.
    spoiled[1, 0] = np.nan
    spoiled[:, 6:] = np.nan
    for clean, derived in zip(
        derive_gradient(training, 0, hidden, state),
        derive_gradient(training, 0, spoiled, state),
        strict=True,
    ):
        assert np.array_equal(clean, derived)
