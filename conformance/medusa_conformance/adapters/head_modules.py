"""Medusa heads as both releases build them: a list of `Sequential(ResBlock, ..., Linear)`."""

from __future__ import annotations

import importlib
from typing import Any

from medusa_spec.errors import Unsupported


def run_heads(modules: Any, state: Any, hidden: Any) -> dict[str, Any]:
    """Load parameters by state-dict name, run every head, and read back what the modules hold."""
    load_heads(modules, state)
    torch = importlib.import_module("torch")
    states = torch.as_tensor(hidden).to(modules[0][-1].weight.dtype)
    with torch.no_grad():
        return {
            "residual": torch.stack([head[:-1](states) for head in modules]),
            "logits": torch.stack([head(states) for head in modules]),
            "state": state_of(modules, state.weight.shape[1]),
            "parameters": sum(tensor.numel() for tensor in modules.parameters()),
        }


def load_heads(modules: Any, state: Any) -> None:
    """Give modules the parameters of a state, by state-dict name."""
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


def state_of(modules: Any, blocks: int) -> dict[str, Any]:
    """What modules of so many blocks a head hold."""
    torch = importlib.import_module("torch")
    held = modules.state_dict()
    heads, width = len(modules), modules[0][-1].weight.shape[1]

    def stacked(name: str, *size: int) -> Any:
        each = [held[f"{j}.{i}.linear.{name}"] for j in range(heads) for i in range(blocks)]
        shape = (heads, blocks, *size)
        return torch.stack(each).reshape(shape) if each else torch.zeros(shape)

    return {
        "weight": stacked("weight", width, width),
        "bias": stacked("bias", width),
        "projection": torch.stack([head[-1].weight.detach() for head in modules]),
    }
