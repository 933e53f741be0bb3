"""Heads as other projects store them, written to disk as those do, and what becomes of each."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from medusa_oracles.heads import derive_logits, derive_residual
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.layouts import Imported, import_heads
from medusa_spec.coordinate import ModelShape, Release
from medusa_spec.errors import InputError

Refusal = Callable[[Path], InputError]

K, R, D, V = 3, 2, 8, 16
SHARED, OWN = "medusa_lm_head.safetensors", "model.safetensors"
MEDUSA = {
    "medusa_num_heads": K,
    "medusa_num_layers": R,
    "base_model_name_or_path": "example/base",
}
VLLM = {
    "model_type": "medusa",
    "hidden_size": D,
    "vocab_size": V,
    "num_heads": K,
    "num_hidden_layers": R,
    "truncated_vocab_size": V,
    "medusa_fc_bias": True,
}
MODELOPT = {"hidden_size": D, "medusa": {"num_medusa_heads": K, "num_medusa_layers": R}}


def numbers(*size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def weight(j: int, i: int) -> Tensor:
    return numbers(D, D, seed=100 * j + i)


def bias(j: int, i: int) -> Tensor:
    return numbers(D, seed=1000 + 100 * j + i)


def projection(j: int) -> Tensor:
    return numbers(V, D, seed=2000 + j)


LM_HEAD = numbers(V, D, seed=3000)
BASE = {"lm_head.weight": LM_HEAD, "model.embed_tokens.weight": numbers(V, D, seed=3001)}


def medusa(prefix: str, own: bool) -> dict[str, Tensor]:
    found = {}
    for j in range(K):
        for i in range(R):
            found[f"{prefix}{j}.{i}.linear.weight"] = weight(j, i)
            found[f"{prefix}{j}.{i}.linear.bias"] = bias(j, i)
        if own:
            found[f"{prefix}{j}.{R}.weight"] = projection(j)
    return found


def vllm(prefix: str = "", own: bool = True, with_bias: bool = True) -> dict[str, Tensor]:
    found = {}
    for j in range(K):
        for i in range(R):
            found[f"{prefix}blocks.{j}.layers.{i}.weight"] = weight(j, i)
            if with_bias:
                found[f"{prefix}blocks.{j}.layers.{i}.bias"] = bias(j, i)
        if own:
            found[f"{prefix}lm_heads.{j}.weight"] = projection(j)
    return found


def written(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], name: str = SHARED
) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(OrderedDict(tensors), folder / name)
    return folder


def check(found: Imported, own: bool, with_bias: bool = True) -> None:
    """Every parameter, in its place and to the bit."""
    for j in range(K):
        for i in range(R):
            assert found.weight[j, i].tolist() == weight(j, i).tolist()
            assert found.bias[j, i].tolist() == (bias(j, i) * with_bias).tolist()
        if own:
            assert found.projection is not None
            assert found.projection[j].tolist() == projection(j).tolist()
    assert (found.projection is not None) == own
    said = {name: found.identity[name] for name in ("heads", "blocks", "projection", "dtype")}
    assert said == {
        "heads": K,
        "blocks": R,
        "projection": "independent" if own else "shared",
        "dtype": "float32",
    }


@pytest.mark.parametrize("file", [SHARED, "medusa_lm_head.pt"])
@pytest.mark.parametrize("prefix", ["", "medusa_head."])
@pytest.mark.parametrize(("layout", "own"), [("legacy", False), ("current", True)])
def test_both_layouts_of_the_pinned_release(
    tmp_path: Path, layout: str, own: bool, prefix: str, file: str
) -> None:
    found = import_heads(written(tmp_path, MEDUSA, medusa(prefix, own), file))
    check(found, own)
    assert found.layout == layout
    assert found.identity["base"] == "example/base"
    assert found.unsaid == ("base_revision", "tokenizer", "variant", "offset")
    assert found.lm_head is None


def test_a_base_model_beside_the_heads_is_left_alone(tmp_path: Path) -> None:
    tensors = BASE | medusa("medusa_head.", True)
    found = import_heads(written(tmp_path, MEDUSA, tensors, OWN))
    check(found, True)
    assert found.lm_head is not None
    assert found.lm_head.tolist() == LM_HEAD.tolist()


@pytest.mark.parametrize("file", [OWN, "pytorch_model.bin"])
def test_the_layout_of_modelopt(tmp_path: Path, file: str) -> None:
    tensors = BASE | medusa("medusa_heads.", True)
    found = import_heads(written(tmp_path, MODELOPT, tensors, file))
    check(found, True)
    assert found.layout == "modelopt"
    assert "base" not in found.identity


@pytest.mark.parametrize("prefix", ["", "medusa_heads."])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_layout_of_vllm(tmp_path: Path, prefix: str, with_bias: bool) -> None:
    config = VLLM | {"medusa_fc_bias": with_bias}
    tensors = vllm(prefix, with_bias=with_bias)
    found = import_heads(written(tmp_path, config, tensors, OWN))
    check(found, True, with_bias)
    assert found.layout == "vllm"


@pytest.mark.parametrize("name", ["lm_head.weight", "lm_heads.0.weight"])
def test_heads_of_vllm_that_share_the_original_head(tmp_path: Path, name: str) -> None:
    tensors = vllm(own=False) | {name: LM_HEAD}
    config = VLLM | {"original_lm_head": True}
    found = import_heads(written(tmp_path, config, tensors, OWN))
    check(found, False)
    assert found.lm_head is not None
    assert found.lm_head.tolist() == LM_HEAD.tolist()


def test_older_names_of_the_counts_are_read_for_vllm(tmp_path: Path) -> None:
    config = {key: value for key, value in VLLM.items() if not key.startswith("num_")}
    config |= {"medusa_num_heads": K, "medusa_num_layers": R}
    check(import_heads(written(tmp_path, config, vllm(), OWN)), True)


@pytest.mark.parametrize("own", [True, False])
def test_imported_heads_are_decoded_with(tmp_path: Path, own: bool) -> None:
    kind = "independent" if own else "shared"
    shape = ModelShape(1, D, 2, 1, 16, V, 10_000.0, 1e-5, R, kind, 3)
    release = Release("example/base", "c" * 40, "example/base", "medusa-1")
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    found = import_heads(written(tmp_path / "theirs", MEDUSA, medusa("", own)))
    engine = ReferenceEngine.seeded(shape, K, 16)
    before = engine.forward((1, 2, 3))
    assert before.state is not None
    state = found.state(before.state.lm_head)
    engine.save_checkpoint(tmp_path / "ours", release, state)
    engine.load_checkpoint(tmp_path / "ours", release)
    after = engine.forward((1, 2, 3))
    residual = derive_residual(state.weight, state.bias, after.hidden)
    np.testing.assert_allclose(after.head_logits, derive_logits(residual, state), atol=1e-10)


# What is refused, and why.

BROKEN: dict[str, tuple[dict[str, Any], dict[str, Tensor], str, str]] = {
    "a head count that differs": (
        MEDUSA | {"medusa_num_heads": 5},
        medusa("", True),
        "medusa_num_heads",
        f"is 5, and the heads of {SHARED} are 3",
    ),
    "no head count": (
        {"medusa_num_layers": R},
        medusa("", True),
        "medusa_num_heads",
        "is missing; nothing else says how many heads",
    ),
    "a head count that is no number": (
        MEDUSA | {"medusa_num_heads": True},
        medusa("", True),
        "medusa_num_heads",
        "is True",
    ),
    "a block count beyond all bounds": (
        MEDUSA | {"medusa_num_layers": 10**12},
        medusa("", True),
        "medusa_num_layers",
        "are 2; blocks that are one module are often stored once",
    ),
    "a head that is missing": (
        MEDUSA | {"medusa_num_heads": 2},
        {n: t for n, t in medusa("", True).items() if n[0] != "1"},
        "",
        "the heads are not counted from 0: [0, 2]",
    ),
    "a block that is missing": (
        MEDUSA,
        {n: t for n, t in medusa("", False).items() if not n.startswith("1.1.")},
        "",
        "the weight of block 1 of head 1 is missing",
    ),
    "a bias that is missing": (
        MEDUSA,
        {n: t for n, t in medusa("", True).items() if n != "2.0.linear.bias"},
        "",
        "the bias of block 0 of head 2 is missing",
    ),
    "a projection that is missing": (
        MEDUSA,
        {n: t for n, t in medusa("", True).items() if n != f"1.{R}.weight"},
        "",
        "the projection of head 1 is missing",
    ),
    "no projection, of ModelOpt": (
        MODELOPT,
        medusa("medusa_heads.", False),
        "",
        "the projection of head 0 is missing",
    ),
    "a projection behind one block of two": (
        MODELOPT,
        medusa("medusa_heads.", False)
        | {f"medusa_heads.{j}.1.weight": projection(j) for j in range(K)},
        "medusa_heads.0.1.weight",
        "is no projection behind 2 blocks",
    ),
    "two projections of one head": (
        MEDUSA,
        medusa("", True) | {"0.7.weight": projection(0)},
        "0.7.weight",
        "is no projection behind 2 blocks",
    ),
    "an unknown name": (
        MEDUSA,
        medusa("", True) | {"optimizer.step": torch.zeros(1)},
        "'optimizer.step'",
        "is a tensor of no layout that is known",
    ),
    "a name with a leading zero": (
        MEDUSA,
        medusa("", True) | {"00.0.linear.weight": weight(0, 0)},
        "'00.0.linear.weight'",
        "is a tensor of no layout that is known",
    ),
    "two prefixes": (
        MEDUSA,
        medusa("", True) | {"medusa_head.3.0.linear.weight": weight(3, 0)},
        "medusa_head.3.0.linear.weight",
        "is of another layout than 0.0.linear.bias",
    ),
    "two projects": (
        MEDUSA | MODELOPT,
        medusa("medusa_head.", True) | medusa("medusa_heads.", True),
        "medusa_heads.0.0.linear.bias",
        "is of another layout than medusa_head.0.0.linear.bias",
    ),
    "no head at all": (MEDUSA, BASE, "", "holds no tensor of a Medusa head"),
    "a weight of another shape": (
        MEDUSA,
        medusa("", True) | {"1.0.linear.weight": numbers(D, D + 1, seed=1)},
        "1.0.linear.weight",
        "has shape [8, 9]; beside 0.0.linear.weight, [8, 8] is needed",
    ),
    "a projection of another vocabulary": (
        MEDUSA,
        medusa("", True) | {f"1.{R}.weight": numbers(V + 1, D, seed=1)},
        f"1.{R}.weight",
        "has shape [17, 8]",
    ),
    "another dtype": (
        MEDUSA,
        medusa("", True) | {"1.0.linear.weight": weight(1, 0).half()},
        "1.0.linear.weight",
        "has dtype torch.float16; 0.0.linear.weight has torch.float32",
    ),
    "integers": (
        MEDUSA,
        {n: (8 * t).to(torch.int8) for n, t in medusa("", True).items()},
        "0.0.linear.weight",
        "has dtype torch.int8",
    ),
    "another width in the config": (
        MODELOPT | {"hidden_size": 9},
        medusa("medusa_heads.", True),
        "hidden_size",
        "is 9, and the tensors have 8",
    ),
    "a token map": (
        VLLM,
        vllm() | {"token_map": torch.arange(4)},
        "token_map",
        "keeps 4 tokens, and heads have no logits of the others",
    ),
    "a truncated vocabulary": (
        VLLM | {"truncated_vocab_size": 12},
        vllm(),
        "truncated_vocab_size",
        "is 12 of 16: heads have no logits of the others",
    ),
    "logits that are scaled": (
        VLLM | {"logit_scale": 0.5},
        vllm(),
        "logit_scale",
        "is 0.5; logits are not scaled here",
    ),
    "biases that vLLM would leave out": (
        VLLM | {"medusa_fc_bias": False},
        vllm(),
        "blocks.0.layers.0.bias",
        "vLLM leaves those out where medusa_fc_bias is not true",
    ),
    "biases that are declared and missing": (
        VLLM,
        vllm(with_bias=False),
        "",
        "the bias of block 0 of head 0 is missing",
    ),
    "an original head that is not used": (
        VLLM,
        vllm() | {"lm_head.weight": LM_HEAD},
        "lm_head.weight",
        "is not used where original_lm_head is not true",
    ),
    "an original head that is not there": (
        VLLM | {"original_lm_head": True},
        vllm(own=False),
        "lm_head.weight",
        "one of it and lm_heads.0.weight is needed; 0 are here",
    ),
    "own heads beside the original one": (
        VLLM | {"original_lm_head": True},
        vllm(),
        "lm_heads.1.weight",
        "is no tensor of these heads",
    ),
    "counts that contradict each other": (
        VLLM | {"medusa_num_heads": 4},
        vllm(),
        "medusa_num_heads",
        "is 4, and",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_converted_is_refused_with_its_reason(
    tmp_path: Path, case: str, refusal: Refusal
) -> None:
    config, tensors, field, rule = BROKEN[case]
    said = refusal(written(tmp_path, config, tensors))
    assert said.field == field
    assert rule in said.rule
