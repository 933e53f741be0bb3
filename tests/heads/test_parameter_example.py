"""What the heads of a model of seven billion parameters add to it, counted without any of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from medusa_oracles.heads import derive_parameter_count
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_reference_engine.weights import parameter_shapes
from medusa_spec.coordinate import ModelShape, Projection

K, V, D, R = 4, 32_000, 4096, 1
SHAPE = ModelShape(32, D, 32, 32, 11_008, V, 10_000.0, 1e-5, R, "independent", 0)

# The worked example of 0x02E.
ADDED: dict[Projection, int] = {"independent": 591_413_248, "shared": 67_125_248}


@pytest.mark.parametrize(("projection", "added"), ADDED.items())
def test_every_count_is_that_of_the_example(projection: Projection, added: int) -> None:
    shape = replace(SHAPE, projection=projection)
    sizes = {
        name: size
        for name, size in parameter_shapes(shape, K).items()
        if name.startswith("medusa_head.")
    }
    with torch.device("meta"):
        own = torch.empty(K, V, D) if projection == "independent" else None
        held = HeadTensors(torch.empty(K, R, D, D), torch.empty(K, R, D), torch.empty(V, D), own)
    assert {name: tuple(tensor.shape) for name, tensor in held.named().items()} == sizes
    assert sum(map(math.prod, sizes.values())) == added
    assert HeadStage().count(held) == added
    assert derive_parameter_count(shape, K) == added
