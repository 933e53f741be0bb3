"""The model of the pinned FasterDecoding release, with a coordinate's weights."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from medusa_conformance.adapters.fasterdecoding_utils import checkout
from medusa_conformance.adapters.package_llama import decoder, folder
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported


@cache
def release() -> Any:
    """The release's module `medusa_model`."""
    sys.path.insert(0, str(checkout()))
    return importlib.import_module("medusa.model.medusa_model")


def model_of(coordinate: Coordinate, capacity: int) -> Any:
    """`MedusaModelLlama` in float32: the release's causal mask holds nothing wider.

    Its heads own their projections, whatever the coordinate's share: for whole rounds any will do.
    """
    if not coordinate.heads:
        raise Unsupported("the release stacks the logits of its heads, and has none")
    shape = replace(coordinate.model, projection="independent")

    def make(config: Any) -> Any:
        config.medusa_num_heads, config.medusa_num_layers = coordinate.heads, shape.head_blocks
        config._name_or_path = folder()
        return release().MedusaModelLlama(config)

    given = replace(coordinate, model=shape)
    model, heads = decoder(make, given, capacity, shape.kv_heads)
    model.load_state_dict(heads, strict=False)
    return model.float().requires_grad_(False)
