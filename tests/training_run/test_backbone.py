"""The decoder in training computes what it computes when it decodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from medusa_reference_engine.decoder import Cache, causal_mask
from medusa_reference_engine.training_run import Recipe
from medusa_reference_engine.training_run.backbone import (
    hidden_states,
    loaded,
    new_decoder,
    scheduled,
    train_backbone,
)


def test_a_batch_is_its_windows_read_one_by_one(tiny: Recipe) -> None:
    weights = new_decoder(tiny.shape, 0).state_dict()
    decoder = loaded(tiny.shape, weights, torch.float64)
    tokens = torch.as_tensor(np.random.default_rng(0).integers(0, 256, (3, 11)))
    rows = torch.arange(11)
    masks = [causal_mask(11, rows.device)] * tiny.shape.layers
    with torch.no_grad():
        together = hidden_states(decoder, tokens)
        for window, found in zip(tokens, together, strict=True):
            cache = Cache(tiny.shape, 11, torch.float64, rows.device)
            alone = decoder(window, rows, rows, masks, cache)
            torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)


def test_gradients_of_a_batch_are_those_of_its_windows(tiny: Recipe) -> None:
    decoder = loaded(tiny.shape, new_decoder(tiny.shape, 0).state_dict(), torch.float64)
    decoder.requires_grad_(True)
    tokens = torch.as_tensor(np.random.default_rng(1).integers(0, 256, (3, 9)))

    def gradients(*batches: torch.Tensor) -> list[torch.Tensor]:
        total = torch.stack([hidden_states(decoder, batch).square().sum() for batch in batches])
        # The projection to the vocabulary is behind the hidden states.
        return list(torch.autograd.grad(total.sum(), list(decoder.model.parameters())))

    for one, other in zip(gradients(tokens), gradients(*tokens.split(1)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_new_decoder_knows_nothing_and_learns(tiny: Recipe) -> None:
    decoder = new_decoder(tiny.shape, 0)
    same = torch.as_tensor(np.tile(np.frombuffer(b"def f(self):\n", np.uint8), (4, 2)))
    batch = same.long().numpy()

    def loss() -> float:
        with torch.no_grad():
            logits = decoder.logits(hidden_states(decoder, torch.as_tensor(batch)))
        shares = logits[:, :-1].softmax(-1).gather(-1, torch.as_tensor(batch)[:, 1:, None])
        return -float(shares.log().mean())

    assert loss() == pytest.approx(math.log(256), abs=0.1)
    heard: list[int] = []
    train_backbone(decoder, iter([batch] * 40), 30, 1e-2, heard.append)
    assert heard == list(range(1, 31))
    assert loss() < 3
    assert not any(parameter.requires_grad for parameter in decoder.parameters())


def test_another_seed_is_another_decoder(tiny: Recipe) -> None:
    one, same, other = (new_decoder(tiny.shape, seed).lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    shares = [scheduled(step, 100) for step in range(100)]
    assert shares[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert shares[5:] == sorted(shares[5:], reverse=True)
    assert shares[5] == pytest.approx(1.0)
    assert shares[-1] == pytest.approx(0.1, abs=0.001)
    assert scheduled(0, 1) == 1.0
