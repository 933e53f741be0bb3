"""Checkpoints that Hugging Face wrote load and mean the same; heads are read from their names."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from medusa_reference_engine.decoder import Decoder
from medusa_reference_engine.weights import load_checkpoint, seeded_weights
from medusa_spec.coordinate import ModelShape

CPU = torch.device("cpu")


def save_llama(directory, tied=False, theta=500_000.0, **options):
    """A small LLaMA that Hugging Face initialised and wrote."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=13,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_theta=theta,
        rms_norm_eps=1e-5,
        initializer_range=0.5,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(directory, **options)
    return model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, {"model.safetensors"}, id="single"),
        pytest.param({"max_shard_size": "4KB"}, {"model.safetensors.index.json"}, id="sharded"),
        pytest.param({"tied": True}, {"model.safetensors"}, id="tied"),
        pytest.param(
            {"tied": True, "max_shard_size": "4KB"},
            {"model.safetensors.index.json"},
            id="tied-and-sharded",
        ),
    ],
)
@torch.no_grad()
def test_a_saved_llama_gives_its_own_logits(tmp_path, causal, tokens, options, expected):
    theirs = save_llama(tmp_path, **options)
    assert expected <= {file.name for file in tmp_path.iterdir()}
    shape, weights = load_checkpoint(tmp_path)
    assert shape == ModelShape(2, 16, 4, 2, 24, 13, 500_000.0, 1e-5, 0, "shared", 0)
    if options.get("tied"):
        assert weights["lm_head.weight"] is weights["model.embed_tokens.weight"]
    ours = Decoder(shape, dtype=torch.float32, device=CPU)
    ours.load_state_dict(weights)
    prompt = tokens(19)
    observed, _ = causal(ours, prompt)
    torch.testing.assert_close(observed, theirs(prompt[None]).logits[0], atol=2e-5, rtol=0)


def test_an_older_config_and_its_buffers_load(tmp_path):
    """No `rope_parameters`, no key/value heads, no head width, and stored inverse frequencies."""
    config = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "vocab_size": 13,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_scaling": None,
        "num_key_value_heads": None,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = ModelShape(1, 16, 4, 4, 24, 13, 10_000.0, 1e-6, 0, "shared", 0)
    stored = {name: torch.from_numpy(w) for name, w in seeded_weights(expected, 0).items()}
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    save_file(stored | buffer, tmp_path / "model.safetensors")
    shape, weights = load_checkpoint(tmp_path)
    assert shape == expected
    assert weights.keys() == stored.keys()


def test_tensors_keep_their_dtype(tmp_path):
    save_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    stored = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
    save_file(stored, file)
    _, weights = load_checkpoint(tmp_path)
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("projection", ["independent", "shared"])
def test_heads_are_read_from_their_names(tmp_path, shape, blocks, projection):
    save_llama(tmp_path)
    model = shape(head_blocks=blocks, projection=projection, weight_seed=0, rope_theta=500_000.0)
    expected = {name: torch.from_numpy(w) for name, w in seeded_weights(model, 3).items()}
    save_file(expected, tmp_path / "model.safetensors")
    observed, weights = load_checkpoint(tmp_path)
    assert observed == model
    assert weights.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(weights[name], expected[name])] == []


def test_a_tied_head_may_be_stored_where_it_is_the_embedding(tmp_path):
    save_llama(tmp_path, tied=True)
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    save_file(stored, file)
    _, weights = load_checkpoint(tmp_path)
    assert torch.equal(weights["lm_head.weight"], stored["model.embed_tokens.weight"])
