"""What a run leaves to load: a model with its heads inside, and the heads alone, by contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from medusa_reference_engine.training_run.decoding import engine_of
from medusa_reference_engine.training_run.recipe import Recipe
from medusa_reference_engine.weights import FIXED, HEADS, SIZES, head_state
from medusa_spec.coordinate import Release

MODEL = "model.safetensors"


def save(folder: Path, recipe: Recipe, weights: Mapping[str, Tensor]) -> None:
    """A LLaMA folder, `config.json` and `model.safetensors`, which `from_checkpoint` reads."""
    folder.mkdir()
    shape = recipe.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        **{name: value for name, value in FIXED.items() if value is not None},
        **{theirs: getattr(shape, ours) for theirs, ours in SIZES.items()},
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.rms_epsilon,
        "max_position_embeddings": recipe.length,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        HEADS: recipe.heads,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    # The entry that the usual loaders of such folders ask for.
    (folder / MODEL).write_bytes(save_tensors(tensors, {"format": "pt"}))


def save_heads(
    folder: Path, recipe: Recipe, weights: Mapping[str, Tensor], backbone: str
) -> Release:
    """The heads alone, as chapter `checkpoint` asks.

    What they stand on has no name but the SHA-256 of its tensors, `backbone`.
    """
    release = Release("medusa-oracles train", backbone, "bytes", "medusa-1")
    folder.mkdir()
    engine_of(recipe, weights, torch.float32).save_checkpoint(folder, release, None)
    return release


def heads_differ(
    folder: Path,
    recipe: Recipe,
    weights: Mapping[str, Tensor],
    untrained: Mapping[str, Tensor],
    release: Release,
) -> str | None:
    """Load heads into an engine with untrained ones; the first part that is not the trained one."""
    engine = engine_of(recipe, untrained, torch.float32)
    state = engine.load_checkpoint(folder, release).state
    wanted = head_state(recipe.shape, weights)
    for part in ("weight", "bias", "projection"):
        if not np.array_equal(getattr(state, part), getattr(wanted, part)):
            return f"their {part} is another"
    return None
