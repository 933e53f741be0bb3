"""The files of heads that other projects leave: which one it is, and the tensors in it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from medusa_reference_engine.weights import opened, shown
from medusa_spec.errors import InputError

FILES = (
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
    "model.safetensors",
    "pytorch_model.bin",
)
"""Where heads are found; in the last two a base model may stand beside them."""

_INDEX = "model.safetensors.index.json"


def file_of_heads(folder: Path) -> Path:
    """The one file of a folder that can hold heads; `InputError` for none, and for several."""
    if (folder / _INDEX).exists():
        raise InputError(str(folder / _INDEX), "", "names shards; heads are read from one file")
    there = [name for name in FILES if (folder / name).exists()]
    if len(there) != 1:
        found = f"{' and '.join(there)} are" if there else "none of them is"
        rule = f"one of {', '.join(FILES)} is needed; {found} here"
        raise InputError(str(folder), "", rule)
    return folder / there[0]


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, without those of a base model beside the heads.

    Of a pickle the tensors alone are read, and nothing in it is run. `InputError` for what is no
    such file, or holds anything but tensors under names.
    """
    if file.suffix == ".safetensors":
        with opened(file) as stored:
            names = [name for name in stored.keys() if not _is_base(name)]  # noqa: SIM118
            return {name: stored.get_tensor(name).clone() for name in names}
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # Of a hostile file the restricted reader may raise anything at all.
        first = str(error).partition("\n")[0]
        rule = f"cannot be read for its tensors alone: {type(error).__name__}: {shown(first)}"
        raise InputError(str(file), "", rule) from None
    if not isinstance(found, dict):
        raise InputError(str(file), "", f"holds a {type(found).__name__}, and no state dict")
    for name, tensor in found.items():
        plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not isinstance(name, str) or not plain or tensor.is_meta:
            raise InputError(str(file), shown(name), "is no tensor under a name")
    return {name: tensor.detach() for name, tensor in found.items() if not _is_base(name)}


def _is_base(name: str) -> bool:
    return name.startswith("model.")
