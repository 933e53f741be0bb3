"""The reference engine on a card: the same rules, in the dtypes that are decoded in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from medusa_conformance.runner import (
    Setting,
    frozen_coordinates,
    is_small,
    judge_coordinates,
    reference_factory,
)
from medusa_spec.registry import invariants

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_reference_engine_has_no_finding(dtype: Any) -> None:
    setting = Setting("cuda", dtype)
    small = [coordinate for coordinate in frozen_coordinates() if is_small(coordinate)]
    tally = judge_coordinates(reference_factory(setting), small, setting)
    assert tally.crashes == []
    assert [str(located.finding) for located in tally.findings] == []
    assert tally.coordinates == len(small)
    assert set(tally.executed) == set(invariants())


def test_the_engine_is_on_the_card() -> None:
    coordinate = frozen_coordinates()[0]
    engine = reference_factory(Setting("cuda", "bfloat16"))(coordinate, coordinate.capacity)
    before = torch.cuda.memory_allocated()
    larger = reference_factory(Setting("cuda", "bfloat16"))(coordinate, 1 << 16)
    shape = coordinate.model
    rows = 2 * shape.layers * shape.kv_heads * shape.head_dim
    # The second cache alone, two bytes an entry.
    assert torch.cuda.memory_allocated() - before >= 2 * rows * (1 << 16)
    assert engine.cache().backing.shape[3] == coordinate.capacity
    assert larger.cache().backing.shape[3] == 1 << 16
