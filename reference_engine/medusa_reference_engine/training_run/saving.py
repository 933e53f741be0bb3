"""The checkpoint: a Hugging Face LLaMA folder with the heads beside the base's tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from medusa_reference_engine.training_run.recipe import Recipe
from medusa_reference_engine.weights import FIXED, SIZES


def save(folder: Path, recipe: Recipe, weights: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`, which `from_checkpoint` reads."""
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
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    # The entry that the usual loaders of such folders ask for.
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
