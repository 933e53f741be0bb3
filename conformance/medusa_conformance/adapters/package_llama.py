"""A tiny seeded LLaMA of a package's own class, and the tokenizer and folder that it asks for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported

LOOP_ENDS = "a loop looks for the end behind each commit"
NARROW_REFUSES = "a full cache is an error of torch's narrow, before the first write"


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


def hold_to_capacity(tokens: Any, capacity: int) -> None:
    """`Unsupported` for a prompt beyond the cache, which no loop of a package meets."""
    if len(tokens) > capacity:
        raise Unsupported("a generation empties the cache before it reads its prompt")


def hold_to_choice(staged: Any, retrieval: Any, path: int, accepted: int) -> None:
    """`Unsupported` for a commit that no selection asks for: a loop that makes its own checks none.

    `staged` is what a tree pass left behind, `None` where there was none.
    """
    named = staged is not None and 0 <= path < len(retrieval)
    if not named or not 0 <= accepted < int((retrieval[path] >= 0).sum()):
        raise Unsupported("the package commits its own selection of its own tree, and checks none")


def hold_to_commits(staged: Any) -> None:
    """`Unsupported` for a tree pass behind one that nobody committed, which no loop makes.

    Its rows would stand behind those of the first, whose length only a commit takes back.
    """
    if staged is not None:
        raise Unsupported("the package commits every tree that it verifies")


def read_rounds(rounds: Iterable[list[int]], how_many: int) -> dict[str, Any]:
    """`generate`'s answer from all new tokens behind each round, read until there are enough."""
    written: list[int] = []
    published: list[int] = []
    for tokens in rounds:
        published.append(len(tokens) - len(written))
        written = tokens
        if len(written) >= how_many:
            break
    return {"tokens": written[:how_many], "published": published}


def by_row(along_paths: Any, retrieval: Any, nodes: int) -> Any:
    """`[..., N, V]` from logits that a package shows along its paths only, `[..., R, W, V]`."""
    rows = along_paths.new_empty(*along_paths.shape[:-3], nodes, along_paths.shape[-1])
    # Each row is on a path; padding names the last row, whose logits stand there.
    rows[..., retrieval, :] = along_paths
    return rows
