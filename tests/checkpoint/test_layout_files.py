"""The files that hold heads of other projects: what is no such file is refused, and never run."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from medusa_reference_engine.layouts import import_heads
from medusa_spec.errors import InputError

Refusal = Callable[[Path], InputError]

K, R, D = 3, 2, 8
CONFIG = {"medusa_num_heads": K, "medusa_num_layers": R}
SAFE, PICKLED = "medusa_lm_head.safetensors", "medusa_lm_head.pt"


def heads() -> dict[str, Tensor]:
    each = [f"{j}.{i}.linear" for j in range(K) for i in range(R)]
    blocks = {f"{name}.weight": torch.randn(D, D) for name in each}
    return blocks | {f"{name}.bias": torch.randn(D) for name in each}


def configured(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


class Wrapper(nn.Module):
    """Heads as the pinned release makes them: every block of a head is one module."""

    def __init__(self) -> None:
        super().__init__()
        for j in range(K):
            block = nn.Module()
            block.linear = nn.Linear(D, D)
            self.add_module(str(j), nn.Sequential(*([block] * R)))


def test_blocks_that_alias_one_module_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    configured(tmp_path)
    wrapper = Wrapper()
    # A pickle keeps both names, and that they are one; safetensors keeps one of the names.
    file = tmp_path / PICKLED
    torch.save(wrapper.state_dict(), file)
    said = refusal(tmp_path)
    assert said.field == "0.1.linear.weight"
    assert said.rule == "is 0.0.linear.weight again: both are one module"
    file.unlink()
    save_model(wrapper, str(tmp_path / SAFE))
    said = refusal(tmp_path)
    assert said.field == "medusa_num_layers"
    assert f"is 2, and the blocks a head of {SAFE} are 1; blocks that are one module" in said.rule


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("file", [PICKLED, "pytorch_model.bin"])
@pytest.mark.parametrize("bare", [True, False])
def test_a_pickle_runs_nothing(tmp_path: Path, file: str, bare: bool, refusal: Refusal) -> None:
    marker = tmp_path / "executed"
    configured(tmp_path)
    if bare:
        (tmp_path / file).write_bytes(pickle.dumps(Bomb(marker), protocol=2))
    else:
        torch.save(heads() | {"bomb": Bomb(marker)}, tmp_path / file)
    said = refusal(tmp_path)
    assert "cannot be read for its tensors alone" in said.rule
    assert not marker.exists()
    # It would have run: what is refused here is no dud.
    with suppress(RuntimeError, pickle.UnpicklingError):
        torch.load(tmp_path / file, weights_only=False)
    assert marker.exists()


@pytest.mark.parametrize("held", [[1, 2], {"0.0.linear.weight": 1}, {3: torch.zeros(1)}, "text"])
def test_a_pickle_holds_tensors_under_names(tmp_path: Path, held: Any, refusal: Refusal) -> None:
    configured(tmp_path)
    torch.save(held, tmp_path / PICKLED)
    assert refusal(tmp_path).rule.startswith(("is no tensor under a name", "holds a "))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"this is no checkpoint"])
@pytest.mark.parametrize("file", [SAFE, PICKLED])
def test_a_file_that_cannot_be_read(
    tmp_path: Path, file: str, content: bytes, refusal: Refusal
) -> None:
    configured(tmp_path)
    (tmp_path / file).write_bytes(content)
    assert refusal(tmp_path).source == str(tmp_path / file)


def test_one_file_is_there(tmp_path: Path, refusal: Refusal) -> None:
    configured(tmp_path)
    save_file(heads(), tmp_path / SAFE)
    torch.save(heads(), tmp_path / PICKLED)
    assert f"{SAFE} and {PICKLED} are here" in refusal(tmp_path).rule
    for name in (SAFE, PICKLED):
        (tmp_path / name).unlink()
    assert "none of them is here" in refusal(tmp_path).rule
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "names shards" in refusal(tmp_path).rule


def test_a_config_is_there(tmp_path: Path, refusal: Refusal) -> None:
    configured(tmp_path)
    save_file(heads(), tmp_path / SAFE)
    import_heads(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert refusal(tmp_path).rule == "is not a JSON object"
    (tmp_path / "config.json").unlink()
    assert refusal(tmp_path).rule == "no such file"
