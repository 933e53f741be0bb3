"""A tiny seeded LLaMA of a package's own class, and the tokenizer and folder that it asks for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from medusa_spec.coordinate import Coordinate


def decoder(
    make: Callable[[Any], Any], coordinate: Coordinate, capacity: int, kv_heads: int
) -> tuple[Any, dict[str, Any]]:
    """`make(LlamaConfig)` in float64 with the coordinate's seeded weights, and those of its heads.

    `kv_heads` need not be the coordinate's: not every package shares keys and values.
    """
    shape = replace(coordinate.model, kv_heads=kv_heads)
    config = importlib.import_module("transformers").LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.attention_heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=capacity,
        rms_norm_eps=shape.rms_epsilon,
        rope_theta=shape.rope_theta,
        pad_token_id=None,
    )
    torch = importlib.import_module("torch")
    seeded = importlib.import_module("medusa_reference_engine.weights").seeded_weights
    given = {k: torch.from_numpy(v) for k, v in seeded(shape, coordinate.heads).items()}
    heads = {name: tensor for name, tensor in given.items() if name.startswith("medusa_head.")}
    model = make(config).double().eval()
    # Tables of a package's own are in no checkpoint either.
    model.load_state_dict({k: v for k, v in given.items() if k not in heads}, strict=False)
    return model, heads


@cache
def folder() -> str:
    """A folder with a tokenizer of one word, for packages that load one with the model."""
    place = TemporaryDirectory()
    _OPEN.append(place)
    tokenizers = importlib.import_module("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"0": 0}, unk_token="0"))
    fast = importlib.import_module("transformers").PreTrainedTokenizerFast
    fast(tokenizer_object=words).save_pretrained(place.name)
    return place.name


_OPEN: list[TemporaryDirectory[str]] = []
"""A temporary folder goes when nothing holds it."""


class Ids:
    """A tokenizer whose text is the token ids themselves, so that nothing is lost in words."""

    def __init__(self, end_of_sequence: int | None) -> None:
        # Every tokenizer has an end of sequence; no token is -1.
        self.eos_token_id = -1 if end_of_sequence is None else end_of_sequence

    def decode(self, ids: Any, **_: Any) -> list[int]:
        """The ids."""
        return [int(token) for token in ids]
