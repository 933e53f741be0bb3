"""Untrusted checkpoints: one `InputError` that names file, field and rule, and nothing else."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from medusa_reference_engine.weights import load_checkpoint, seeded_weights
from medusa_spec.errors import InputError

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 13,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": False,
}


@pytest.fixture
def stored(shape):
    """The tensors of a lawful checkpoint with two heads."""
    return {
        name: torch.from_numpy(array).float() for name, array in seeded_weights(shape(), 2).items()
    }


@pytest.fixture
def checkpoint(tmp_path, stored):
    """A lawful checkpoint directory, from which each test departs in one place."""
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    save_file(stored, directory / "model.safetensors")
    load_checkpoint(directory)
    return directory


def refusal(directory):
    """What loading says, after a look at its form: one line that starts with the file."""
    with pytest.raises(InputError) as caught:
        load_checkpoint(directory)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.startswith(caught.value.source)
    return caught.value


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"attention_bias": True}, "attention_bias", "True; this decoder computes only False"),
        ({"mlp_bias": True}, "mlp_bias", "True; this decoder computes only False"),
        ({"hidden_act": "gelu"}, "hidden_act", "'gelu'; this decoder computes only 'silu'"),
        ({"model_type": "gemma"}, "model_type", "'gemma'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config", "only None"),
        ({"head_dim": 8}, "head_dim", "is 8; this decoder computes only 4"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.type", "'linear'"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling.rope_type",
            "'llama3'",
        ),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling", "'factor' is not an option"),
        ({"rope_scaling": "linear"}, "rope_scaling", "is not a JSON object"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type", "'yarn'"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor",
            "is 0.5",
        ),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_parameters.rope_theta", "not a positive"),
        ({"rope_theta": 500_000.0}, "rope_theta", "is given as [10000.0, 500000.0]"),
        ({"rope_theta": 10**400}, "rope_theta", "not a positive number"),
        ({"rms_norm_eps": None}, "rms_norm_eps", "is missing"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps", "not a positive number"),
        ({"rms_norm_eps": True}, "rms_norm_eps", "not a positive number"),
        ({"hidden_size": None}, "hidden_size", "is missing"),
        ({"hidden_size": 16.0}, "hidden_size", "is 16.0; an integer"),
        ({"num_hidden_layers": True}, "num_hidden_layers", "is True; an integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "is 0; an integer from 1"),
        ({"vocab_size": 10**12}, "vocab_size", "1,048,576 is needed"),
        ({"num_attention_heads": 3}, "num_attention_heads", "does not divide hidden_size 16"),
        ({"num_key_value_heads": 3}, "num_key_value_heads", "does not divide 4 query heads"),
        ({"num_attention_heads": 16}, "hidden_size", "odd width 1"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "not true or false"),
    ],
)
def test_config_options(checkpoint, change, field, rule):
    file = checkpoint / "config.json"
    file.write_text(json.dumps(CONFIG | change))
    error = refusal(checkpoint)
    assert error.source == str(file)
    assert error.field == field
    assert rule in str(error)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", "is not a JSON object"),
        ('{"hidden_size": ', "not JSON"),
        ('{"rms_norm_eps": NaN}', "NaN is not a JSON value"),
        (json.dumps(CONFIG).replace("1e-05", "1e999"), "rms_norm_eps: is inf"),
    ],
)
def test_config_text(checkpoint, text, rule):
    (checkpoint / "config.json").write_text(text)
    assert rule in str(refusal(checkpoint))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_files(checkpoint, name):
    (checkpoint / name).unlink()
    error = refusal(checkpoint)
    assert error.source == str(checkpoint / name)
    assert "no such file" in error.rule


def test_missing_directory(tmp_path):
    assert "no such directory" in str(refusal(tmp_path / "nowhere"))


def test_a_file_is_not_a_directory(checkpoint):
    assert "no such directory" in str(refusal(checkpoint / "model.safetensors"))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 64, id="header-length-beyond-file"),
        pytest.param(b"\x02\x00\x00\x00\x00\x00\x00\x00{]", id="header-not-json"),
    ],
)
def test_corrupt_header(checkpoint, content):
    file = checkpoint / "model.safetensors"
    file.write_bytes(content)
    error = refusal(checkpoint)
    assert error.source == str(file)
    assert error.rule.startswith("not safetensors: ")


def test_truncated_data(checkpoint):
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    assert refusal(checkpoint).rule.startswith("not safetensors: ")


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.norm.weight",
        "model.layers.1.mlp.up_proj.weight",
        "medusa_head.0.0.linear.weight",
        "medusa_head.1.0.linear.bias",
        "medusa_head.1.1.weight",
    ],
)
def test_missing_tensors(checkpoint, stored, name):
    del stored[name]
    save_file(stored, checkpoint / "model.safetensors")
    error = refusal(checkpoint)
    assert (error.source, error.field) == (str(checkpoint / "model.safetensors"), name)
    assert error.rule == "is missing"


def test_a_whole_head_missing_in_between(checkpoint, stored):
    kept = {n: t for n, t in stored.items() if not n.startswith("medusa_head.0.")}
    save_file(kept, checkpoint / "model.safetensors")
    error = refusal(checkpoint)
    assert error.field == "'medusa_head.1.0.linear.bias'"
    assert error.rule == "is not a tensor of this model"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("model.layers.2.mlp.up_proj.weight", "'model.layers.2.mlp.up_proj.weight'"),
        (
            "model.layers.0.self_attn.q_proj.bias",
            "'model.layers.0.self_attn.q_proj.bias'",
        ),
        ("medusa_head.1.1.bias", "'medusa_head.1.1.bias'"),
        ("line\nbreak \u202e", "'line\\nbreak \\u202e'"),
    ],
)
def test_unexpected_tensors(checkpoint, stored, name, shown):
    stored[name] = torch.zeros(1)
    save_file(stored, checkpoint / "model.safetensors")
    error = refusal(checkpoint)
    assert (error.field, error.rule) == (shown, "is not a tensor of this model")


def test_too_many_blocks(checkpoint, stored):
    for block in range(17):
        stored[f"medusa_head.0.{block}.linear.bias"] = torch.zeros(16)
    save_file(stored, checkpoint / "model.safetensors")
    assert "at most 16 are read" in refusal(checkpoint).rule


@pytest.mark.parametrize("size", [(13, 17), (13,), (1, 13, 16)])
def test_misshapen_tensor(checkpoint, stored, size):
    stored["lm_head.weight"] = torch.zeros(size)
    save_file(stored, checkpoint / "model.safetensors")
    error = refusal(checkpoint)
    assert error.field == "lm_head.weight"
    assert error.rule == f"has shape {list(size)}; config.json needs [13, 16]"


def test_integer_tensor(checkpoint, stored):
    stored["lm_head.weight"] = torch.zeros(13, 16, dtype=torch.int8)
    save_file(stored, checkpoint / "model.safetensors")
    error = refusal(checkpoint)
    assert (error.field, error.rule) == ("lm_head.weight", "has dtype torch.int8, not a float")


def test_tied_head_that_differs(checkpoint):
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": True}))
    assert "differs from the embedding" in refusal(checkpoint).rule


@pytest.fixture
def sharded(checkpoint, stored):
    """The lawful checkpoint in two shards, and its index as a document."""
    (checkpoint / "model.safetensors").unlink()
    weight_map = {}
    for number, names in enumerate((sorted(stored)[::2], sorted(stored)[1::2])):
        shard = f"model-{number}.safetensors"
        save_file({name: stored[name] for name in names}, checkpoint / shard)
        weight_map |= dict.fromkeys(names, shard)

    def index(**changes):
        text = json.dumps({"weight_map": weight_map} | changes)
        (checkpoint / "model.safetensors.index.json").write_text(text)

    index()
    load_checkpoint(checkpoint)
    return checkpoint, weight_map, index


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/outside.safetensors", 3, "a.bin"])
def test_a_shard_is_a_neighbour(sharded, shard):
    directory, weight_map, index = sharded
    shutil.copy(directory / "model-0.safetensors", directory.parent / "outside.safetensors")
    index(weight_map=weight_map | {"lm_head.weight": shard})
    assert refusal(directory).rule == f"{shard!r} is not a shard's file name"


def test_missing_shard(sharded):
    directory, _, _ = sharded
    (directory / "model-1.safetensors").unlink()
    error = refusal(directory)
    assert error.source == str(directory / "model-1.safetensors")
    assert error.rule == "no such file"


def test_index_promises_what_no_shard_holds(sharded):
    directory, weight_map, index = sharded
    index(weight_map=weight_map | {"more": "model-0.safetensors"})
    error = refusal(directory)
    assert (error.field, error.rule) == (
        "'more'",
        "is listed, and not in the file: model-0.safetensors",
    )


def test_a_shard_holds_what_the_index_leaves_out(sharded):
    directory, weight_map, index = sharded
    name = "model.norm.weight"
    shard = weight_map.pop(name)
    index(weight_map=weight_map)
    assert refusal(directory).rule == f"is not listed here: {shard}"


@pytest.mark.parametrize("document", [{"weight_map": None}, {"weight_map": []}])
def test_index_without_a_map(sharded, document):
    directory, _, index = sharded
    index(**document)
    assert refusal(directory).field == "weight_map"
