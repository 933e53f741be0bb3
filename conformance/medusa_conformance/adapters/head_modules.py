"""Medusa heads as both releases build them: a list of `Sequential(ResBlock, ..., Linear)`."""

from __future__ import annotations

import importlib
from typing import Any

from medusa_spec.errors import Unsupported


def run_heads(modules: Any, state: Any, hidden: Any) -> dict[str, Any]:
    """Load parameters by state-dict name, run every head, and read back what the modules hold."""
    if state.projection is None:
        raise Unsupported("every head owns its projection")
    torch = importlib.import_module("torch")
    heads, blocks = state.weight.shape[:2]
    given = {}
    for j in range(heads):
        for i in range(blocks):
            given[f"{j}.{i}.linear.weight"] = torch.as_tensor(state.weight[j, i])
            given[f"{j}.{i}.linear.bias"] = torch.as_tensor(state.bias[j, i])
        given[f"{j}.{blocks}.weight"] = torch.as_tensor(state.projection[j])
    modules.load_state_dict(given)
    states = torch.as_tensor(hidden).to(modules[0][-1].weight.dtype)
    held = modules.state_dict()

    def stacked(name: str) -> Any:
        each = [held[f"{j}.{i}.linear.{name}"] for j in range(heads) for i in range(blocks)]
        size = getattr(state, name).shape
        return torch.stack(each).reshape(size) if each else torch.zeros(size)

    with torch.no_grad():
        return {
            "residual": torch.stack([head[:-1](states) for head in modules]),
            "logits": torch.stack([head(states) for head in modules]),
            "state": {
                "weight": stacked("weight"),
                "bias": stacked("bias"),
                "projection": torch.stack([head[-1].weight for head in modules]),
            },
            "parameters": sum(tensor.numel() for tensor in modules.parameters()),
        }
