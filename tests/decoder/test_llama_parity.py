"""The decoder against Hugging Face's LLaMA with the same weights: an outside source."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from medusa_reference_engine.decoder import Cache, causal_mask
from medusa_reference_engine.weights import parameter_shapes

CPU = torch.device("cpu")
ATOL = 2e-5  # float32 rounding over three layers; 6e-6 is the most that 20 seeds showed
SETTINGS = [
    pytest.param({"layers": 1, "kv_heads": 4}, id="one-layer-kv-equals-heads"),
    pytest.param({"layers": 2, "kv_heads": 2}, id="grouped"),
    pytest.param({"layers": 3, "hidden": 32, "kv_heads": 1}, id="one-kv-head"),
    pytest.param({"kv_heads": 2, "rope_theta": 500_000.0}, id="theta-500000"),
    pytest.param(
        {"hidden": 64, "attention_heads": 8, "kv_heads": 1, "rope_theta": 500_000.0},
        id="eight-heads-one-kv-theta-500000",
    ),
    pytest.param({"attention_heads": 8, "kv_heads": 8, "hidden": 16}, id="head-width-two"),
    pytest.param({"rms_epsilon": 0.5, "vocabulary": 101}, id="large-epsilon"),
]


@pytest.fixture(params=SETTINGS)
def model(request, shape):
    return shape(**request.param)


@pytest.fixture
def llama(model, decoder):
    """The same weights in both."""
    config = LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.attention_heads,
        num_key_value_heads=model.kv_heads,
        rope_theta=model.rope_theta,
        rms_norm_eps=model.rms_epsilon,
    )
    theirs = LlamaForCausalLM(config).eval()
    ours = decoder(model, torch.float32)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs


def test_names_and_shapes_are_those_of_llama(model, llama):
    ours, theirs = llama
    expected = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    assert {name: tuple(tensor.shape) for name, tensor in ours.state_dict().items()} == expected
    assert parameter_shapes(replace(model, head_blocks=0), heads=0) == expected


@torch.no_grad()
def test_full_causal_pass(model, llama, causal, tokens):
    ours, theirs = llama
    prompt = tokens(23, model.vocabulary)
    expected = theirs(prompt[None]).logits[0]
    observed, _ = causal(ours, prompt)
    torch.testing.assert_close(observed, expected, atol=ATOL, rtol=0)


@torch.no_grad()
def test_prefill_then_one_token_at_a_time(model, llama, tokens):
    ours, theirs = llama
    prompt = tokens(17, model.vocabulary)
    expected = theirs(prompt[None], output_hidden_states=True)
    cache = Cache(model, 20, torch.float32, CPU)
    hidden = []
    for start, stop in [(0, 6), *((i, i + 1) for i in range(6, 17))]:
        place = torch.arange(start, stop)
        masks = [causal_mask(stop, CPU)[start:]] * model.layers
        hidden.append(ours(prompt[start:stop], place, place, masks, cache))
    joined = torch.cat(hidden)
    torch.testing.assert_close(joined, expected.hidden_states[-1][0], atol=ATOL, rtol=0)
    torch.testing.assert_close(ours.logits(joined), expected.logits[0], atol=ATOL, rtol=0)
