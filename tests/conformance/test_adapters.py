"""The adapters of published packages, as far as they can be held without those packages."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from medusa_conformance.adapters import fasterdecoding_utils
from medusa_conformance.adapters.head_modules import run_heads
from medusa_oracles.heads import derive_logits, derive_residual
from medusa_spec.dialect import dialect_from
from medusa_spec.errors import InputError, Unsupported
from medusa_spec.loading import source_pin
from medusa_spec.stages import STAGES, HeadState

ADAPTERS = {
    "draftretriever:Engine": {"compile_tree"},
    "eagle_llm:Engine": {"compile_tree", "select"},
    "fasterdecoding_engine:Engine": {"compile_tree", "propose", "select", "verify", "generate"},
    "fasterdecoding_utils:Utils": {"compile_tree", "propose", "select"},
    "medusa_llm:Engine": {"compile_tree", "propose", "select", "verify", "generate"},
    "modelopt:Engine": {"apply_heads", "align_heads"},
    "rotalabs_accel:Engine": {"apply_heads", "propose", "select", "verify", "generate"},
}


@pytest.mark.parametrize(("target", "least"), ADAPTERS.items(), ids=ADAPTERS)
def test_an_adapter_says_what_it_is_and_declares_a_lawful_dialect(target, least):
    module, _, attribute = target.partition(":")
    adapter = getattr(import_module(f"medusa_conformance.adapters.{module}"), attribute)
    assert adapter.name
    assert adapter.version
    assert {stage for stage in STAGES if callable(getattr(adapter, stage, None))} >= least
    dialect = dialect_from(getattr(adapter, "dialect", {}), target)
    assert set(dialect.reasons) <= set(dialect.tolerated)


def test_a_checkout_without_the_pinned_files_is_not_judged(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDUSA_CHECKOUT", str(tmp_path))
    with pytest.raises(InputError, match="holds none of the pinned files"):
        fasterdecoding_utils.utils()


def test_a_checkout_of_other_files_is_not_judged(monkeypatch, tmp_path):
    for name in source_pin()["files"]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("print('not the release')\n")
    monkeypatch.setenv("MEDUSA_CHECKOUT", str(tmp_path))
    with pytest.raises(InputError, match=r"medusa/model/kv_cache\.py differs"):
        fasterdecoding_utils.utils()


class Block(torch.nn.Module):
    """A residual block as the releases have it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return x + torch.nn.functional.silu(self.linear(x))


def heads(blocks):
    """Two heads of two blocks and a projection, in float64."""
    each = (torch.nn.Sequential(*blocks(), torch.nn.Linear(3, 5, bias=False)) for _ in range(2))
    return torch.nn.ModuleList(each).double()


@pytest.fixture
def given():
    draw = np.random.default_rng(3).normal
    return HeadState(
        draw(size=(2, 2, 3, 3)), draw(size=(2, 2, 3)), draw(size=(5, 3)), draw(size=(2, 5, 3))
    )


def test_heads_compute_with_the_given_parameters(given):
    hidden = np.random.default_rng(4).normal(size=(2, 4, 3))
    found = run_heads(heads(lambda: [Block(), Block()]), given, hidden)
    residual = derive_residual(given.weight, given.bias, hidden)
    np.testing.assert_allclose(found["residual"], residual, rtol=1e-12)
    np.testing.assert_allclose(found["logits"], derive_logits(residual, given), rtol=1e-12)
    for name in ("weight", "bias", "projection"):
        np.testing.assert_array_equal(found["state"][name], getattr(given, name))
    assert found["parameters"] == 2 * (2 * (3 * 3 + 3) + 5 * 3)


def test_blocks_that_are_one_are_read_back_as_one(given):
    found = run_heads(heads(lambda: [Block()] * 2), given, np.zeros((1, 3)))
    held = found["state"]["weight"]
    np.testing.assert_array_equal(held[:, 0], held[:, 1])
    assert found["parameters"] == 2 * (3 * 3 + 3 + 5 * 3)


def test_heads_that_share_a_projection_are_not_what_they_were_made_for(given):
    shared = HeadState(given.weight, given.bias, given.lm_head, None)
    with pytest.raises(Unsupported):
        run_heads(heads(lambda: [Block(), Block()]), shared, np.zeros((1, 3)))
