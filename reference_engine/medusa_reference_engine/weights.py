"""Weights by state-dict name: seeded ones for any shape, or a LLaMA safetensors checkpoint."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from medusa_spec.arrays import FloatArray
from medusa_spec.coordinate import ModelShape, Projection
from medusa_spec.documents import load_document, schema
from medusa_spec.errors import InputError
from medusa_spec.stages import HeadState

GAINS = {
    "embed_tokens": 1.0,
    "q_proj": 1.5,
    "k_proj": 1.5,
    "v_proj": 1.0,
    "o_proj": 1.5,
    "gate_proj": 1.0,
    "up_proj": 1.0,
    "down_proj": 2.0,
    "lm_head": 2.0,
    "linear": 1.0,
    "projection": 2.0,
}
"""Standard deviation over `1/sqrt(fan_in)`, per kind of matrix (over 1 for the embedding).

Chosen so that a tiny random model is a sensitive instrument: attention scores far from uniform,
logits far enough apart for a clear argmax, and no residual stream that drowns its branches.
"""
NORM_NOISE = 0.1
BIAS_SCALE = 0.5


def parameter_shapes(shape: ModelShape, heads: int) -> dict[str, tuple[int, ...]]:
    """Every tensor name of the decoder and its `heads` Medusa heads, with its shape."""
    d, d_h, inner = shape.hidden, shape.head_dim, shape.intermediate
    queries, keys = shape.attention_heads * d_h, shape.kv_heads * d_h
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocabulary, d)}
    for i in range(shape.layers):
        layer = f"model.layers.{i}"
        found[f"{layer}.input_layernorm.weight"] = (d,)
        found[f"{layer}.self_attn.q_proj.weight"] = (queries, d)
        found[f"{layer}.self_attn.k_proj.weight"] = (keys, d)
        found[f"{layer}.self_attn.v_proj.weight"] = (keys, d)
        found[f"{layer}.self_attn.o_proj.weight"] = (d, queries)
        found[f"{layer}.post_attention_layernorm.weight"] = (d,)
        found[f"{layer}.mlp.gate_proj.weight"] = (inner, d)
        found[f"{layer}.mlp.up_proj.weight"] = (inner, d)
        found[f"{layer}.mlp.down_proj.weight"] = (d, inner)
    found["model.norm.weight"] = (d,)
    found["lm_head.weight"] = (shape.vocabulary, d)
    for j in range(heads):
        for i in range(shape.head_blocks):
            found[block_weight(j, i)] = (d, d)
            found[block_bias(j, i)] = (d,)
        if shape.projection == "independent":
            found[own_projection(j, shape.head_blocks)] = (shape.vocabulary, d)
    return found


def block_weight(head: int, block: int) -> str:
    """The state-dict name of a residual block's matrix."""
    return f"medusa_head.{head}.{block}.linear.weight"


def block_bias(head: int, block: int) -> str:
    """The state-dict name of a residual block's bias."""
    return f"medusa_head.{head}.{block}.linear.bias"


def own_projection(head: int, blocks: int) -> str:
    """The state-dict name of a head's own projection, which stands behind its blocks."""
    return f"medusa_head.{head}.{blocks}.weight"


def seeded_weights(shape: ModelShape, heads: int) -> dict[str, FloatArray]:
    """Random float64 weights, the same for the same `shape.weight_seed` on every machine.

    Each tensor is drawn from a generator of its own, seeded by its name, so that one more head or
    layer leaves every other tensor as it was.
    """
    return {
        name: _drawn(name, size, shape.weight_seed)
        for name, size in parameter_shapes(shape, heads).items()
    }


def adapter_weights(shape: ModelShape, rank: int) -> dict[str, FloatArray]:
    """LoRA factors `A [rank, d]`, drawn, and `B [out, rank]`, zero: at first they add nothing.

    By their state-dict names, for the query and value matrices of every layer; none for rank 0.
    """
    return {
        name: np.zeros(size) if name.endswith("lora_B") else _drawn(name, size, shape.weight_seed)
        for name, size in (adapter_shapes(shape, rank) if rank else {}).items()
    }


def adapter_shapes(shape: ModelShape, rank: int) -> dict[str, tuple[int, ...]]:
    """Every tensor name of LoRA factors of a rank, with its shape."""
    found: dict[str, tuple[int, ...]] = {}
    for name, size in parameter_shapes(shape, 0).items():
        matrix = name.removesuffix(".weight")
        if matrix.endswith(("q_proj", "v_proj")):
            found |= {f"{matrix}.lora_A": (rank, size[1]), f"{matrix}.lora_B": (size[0], rank)}
    return found


def _drawn(name: str, size: tuple[int, ...], seed: int) -> FloatArray:
    noise: FloatArray = np.random.default_rng([seed, crc32(name.encode())]).standard_normal(size)
    kind = name.split(".")[-2]
    if name.endswith("bias"):
        return BIAS_SCALE * noise
    if kind.endswith("norm"):
        return 1.0 + NORM_NOISE * noise
    if kind.isdigit():
        kind = "projection"
    fan_in = 1 if kind == "embed_tokens" else size[1]
    scale: float = GAINS[kind] / fan_in**0.5
    return scale * noise


def head_state(
    shape: ModelShape, weights: Mapping[str, Tensor], heads: int | None = None
) -> HeadState:
    """The Medusa heads among `weights`, stacked in float64, which holds every narrower float.

    Without `heads` they are counted by name; heads without blocks that share the base projection
    have no tensors, so there only the caller knows how many there are.
    """
    if heads is None:
        heads = len({name.split(".")[1] for name in weights if name.startswith("medusa_head.")})
    d, blocks = shape.hidden, shape.head_blocks
    weight, bias = np.empty((heads, blocks, d, d)), np.empty((heads, blocks, d))
    for j in range(heads):
        for i in range(blocks):
            weight[j, i] = _array(weights[block_weight(j, i)])
            bias[j, i] = _array(weights[block_bias(j, i)])
    projection = None
    if shape.projection == "independent":
        projection = np.empty((heads, shape.vocabulary, d))
        for j in range(heads):
            projection[j] = _array(weights[own_projection(j, blocks)])
    return HeadState(weight, bias, _array(weights["lm_head.weight"]), projection)


def _array(tensor: Tensor) -> FloatArray:
    array: FloatArray = tensor.double().cpu().numpy()
    return array


SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "attention_heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "intermediate",
    "vocab_size": "vocabulary",
}
"""`config.json` key to field of `ModelShape`."""
HEADS = "medusa_heads"
"""`config.json` key of how many Medusa heads stand beside the base's tensors."""
FIXED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "quantization_config": None,
}
"""Options that change the function; this decoder has one setting of each."""
ROPE = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0}
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
HEAD_NAME = re.compile(
    r"medusa_head\.(?P<head>\d{1,4})\.(?P<block>\d{1,4})\."
    r"(?:(?P<linear>linear)\.(?:weight|bias)|weight)",
    re.ASCII,
)
"""Up to four digits: a name cannot ask for more heads or blocks than the file could hold."""


def load_checkpoint(path: Path) -> tuple[ModelShape, dict[str, Tensor]]:
    """Shape and CPU tensors of a Hugging Face LLaMA checkpoint directory, in its own dtypes.

    Reads `config.json`, and `model.safetensors` or the shards of `model.safetensors.index.json`.
    A tied `lm_head.weight` is the embedding itself. Medusa heads, where `medusa_head.*` tensors
    are there, set `head_blocks` and `projection` (0x05D); without them the shape says none.

    Raises `InputError` for whatever is missing, unexpected, misshapen or would compute another
    function than this decoder does.
    """
    if not path.is_dir():
        raise InputError(str(path), "", "no such directory")
    config_file = path / "config.json"
    config = load_document(config_file)
    shape, tied = _config(config, str(config_file))
    source, located = _located(path)
    names = {name for name in located if not name.endswith(".rotary_emb.inv_freq")}
    shape, heads = _with_heads(shape, names, source)
    # A key of this suite's own: nothing else says that a head is missing.
    declared = config.get(HEADS, heads)
    if declared != heads:
        rule = f"is {shown(declared)}, and {heads} heads are in {Path(source).name}"
        raise InputError(str(config_file), HEADS, rule)
    expected = parameter_shapes(shape, heads)
    for name in sorted(names - expected.keys()):
        raise InputError(source, shown(name), "is not a tensor of this model")
    for name in expected:
        if name not in names and not (tied and name == "lm_head.weight"):
            raise InputError(source, name, "is missing")
    weights: dict[str, Tensor] = {}
    for file in sorted(set(located.values())):
        here = {name: size for name, size in expected.items() if located.get(name) == file}
        weights.update(_read(file, here))
    if tied:
        embedding = weights["model.embed_tokens.weight"]
        if not torch.equal(weights.setdefault("lm_head.weight", embedding), embedding):
            raise InputError(source, "lm_head.weight", "differs from the embedding it is tied to")
    return shape, weights


def _config(config: Any, source: str) -> tuple[ModelShape, bool]:
    """The shape, without heads, and whether the language-model head is tied."""
    if not isinstance(config, dict):
        raise InputError(source, "", "is not a JSON object")
    _refuse_other_options(config, FIXED, source, "")
    if config.get("num_key_value_heads") is None:
        config["num_key_value_heads"] = config.get("num_attention_heads")
    sizes = {ours: _size(config, theirs, ours, source) for theirs, ours in SIZES.items()}
    shape = ModelShape(
        **sizes,
        rope_theta=_rope_theta(config, source),
        rms_epsilon=_positive(config, "rms_norm_eps", source),
        head_blocks=0,
        projection="shared",
        weight_seed=0,
    )
    if shape.hidden % shape.attention_heads:
        rule = f"is {shape.attention_heads}, which does not divide hidden_size {shape.hidden}"
        raise InputError(source, "num_attention_heads", rule)
    if shape.attention_heads % shape.kv_heads:
        rule = f"is {shape.kv_heads}, which does not divide {shape.attention_heads} query heads"
        raise InputError(source, "num_key_value_heads", rule)
    if shape.head_dim % 2:
        rule = f"gives heads of odd width {shape.head_dim}, which RoPE cannot pair"
        raise InputError(source, "hidden_size", rule)
    _refuse_other_options(config, {"head_dim": shape.head_dim}, source, "")
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise InputError(source, "tie_word_embeddings", f"is {shown(tied)}, not true or false")
    return shape, tied


def _refuse_other_options(
    config: Mapping[str, Any], needed: Mapping[str, Any], source: str, owner: str
) -> None:
    for field, value in needed.items():
        given = config.get(field)
        if given is not None and given != value:
            rule = f"is {shown(given)}; this decoder computes only {value!r}"
            raise InputError(source, owner + field, rule)


def _size(config: Mapping[str, Any], theirs: str, ours: str, source: str) -> int:
    limits = schema("coordinate")["properties"]["model"]["properties"][ours]
    low, high = limits["minimum"], limits["maximum"]
    value = config.get(theirs)
    if value is None:
        raise InputError(source, theirs, "is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        rule = f"is {shown(value)}; an integer from {low:,} to {high:,} is needed"
        raise InputError(source, theirs, rule)
    return value


def _positive(config: Mapping[str, Any], field: str, source: str, owner: str = "") -> float:
    value = config.get(field)
    if value is None:
        raise InputError(source, owner + field, "is missing")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:
        raise InputError(source, owner + field, f"is {shown(value)}, not a positive number")
    return float(value)


def _rope_theta(config: Mapping[str, Any], source: str) -> float:
    """The one RoPE base that the config's old and new places agree on; LLaMA's first was 10,000."""
    bases = {}
    if config.get("rope_theta") is not None:
        bases["rope_theta"] = _positive(config, "rope_theta", source)
    for field in ("rope_scaling", "rope_parameters"):
        options = config.get(field)
        if options is None:
            continue
        if not isinstance(options, dict):
            raise InputError(source, field, "is not a JSON object")
        _refuse_other_options(options, ROPE, source, f"{field}.")
        for name in sorted(options.keys() - ROPE.keys() - {"rope_theta"}):
            raise InputError(source, field, f"{shown(name)} is not an option of default RoPE")
        if options.get("rope_theta") is not None:
            bases[field] = _positive(options, "rope_theta", source, f"{field}.")
    if len(set(bases.values())) > 1:
        raise InputError(source, "rope_theta", f"is given as {sorted(bases.values())}")
    return next(iter(bases.values()), 10_000.0)


def _located(path: Path) -> tuple[str, dict[str, Path]]:
    """The file that lists the tensors, and the file that holds each."""
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if single.exists() or not index.exists():
        with opened(single) as stored:
            return str(single), dict.fromkeys(stored.keys(), single)
    source = str(index)
    document = load_document(index)
    listed = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(listed, dict):
        raise InputError(source, "weight_map", "is not a JSON object")
    for name, shard in listed.items():
        # A shard is a neighbour: anything else would let a checkpoint name any file.
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.-]+\.safetensors", shard, re.ASCII):
            raise InputError(source, shown(name), f"{shown(shard)} is not a shard's file name")
    located = {name: path / shard for name, shard in listed.items()}
    for shard in sorted(set(located.values())):
        with opened(shard) as stored:
            held = set(stored.keys())
        promised = {name for name, file in located.items() if file == shard}
        for name in sorted(held ^ promised):
            rule = "is listed, and not in the file" if name in promised else "is not listed here"
            raise InputError(source, shown(name), f"{rule}: {shard.name}")
    return source, located


def _with_heads(shape: ModelShape, names: Iterable[str], source: str) -> tuple[ModelShape, int]:
    """The shape with what the names say of Medusa heads, and how many there are."""
    found = [match for match in map(HEAD_NAME.fullmatch, names) if match]
    heads = {match["head"] for match in found}
    blocks = {match["block"] for match in found if match["linear"]}
    most = schema("coordinate")["properties"]["model"]["properties"]["head_blocks"]["maximum"]
    if len(blocks) > most:
        rule = f"has {len(blocks)} blocks a head; at most {most} are read"
        raise InputError(source, "medusa_head", rule)
    independent = any(not match["linear"] for match in found)
    projection: Projection = "independent" if independent else "shared"
    return replace(shape, head_blocks=len(blocks), projection=projection), len(heads)


def _read(file: Path, expected: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Tensor]]:
    with opened(file) as stored:
        for name, size in expected.items():
            given = tuple(stored.get_slice(name).get_shape())
            if given != size:
                rule = f"has shape {list(given)}; config.json needs {list(size)}"
                raise InputError(str(file), name, rule)
            tensor: Tensor = stored.get_tensor(name)
            if tensor.dtype not in FLOATS:
                raise InputError(str(file), name, f"has dtype {tensor.dtype}, not a float")
            yield name, tensor


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """A safetensors file, its header read; `InputError` where it is none."""
    if not file.is_file():
        raise InputError(str(file), "", "no such file")
    try:
        with safe_open(str(file), framework="pt") as stored:
            yield stored
    except (SafetensorError, OSError) as error:
        raise InputError(str(file), "", f"not safetensors: {shown(str(error))}") from None


def shown(value: Any) -> str:
    """Untrusted text, safe on one line of a terminal."""
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
