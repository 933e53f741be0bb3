"""What a training holds between its steps: every parameter, and the decoder that they make.

Shapes: `B` sequences of `S` tokens, `d` hidden width; a head is `R_h` blocks and a projection.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call

from medusa_reference_engine.decoder import Decoder, causal_mask, wide
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_reference_engine.verification import Model
from medusa_reference_engine.weights import adapter_weights
from medusa_spec.coordinate import Training

Part: TypeAlias = Literal["heads", "backbone", "lm_head", "adapter"]
Weights: TypeAlias = Mapping[str, Tensor]


def part_of(name: str) -> Part:
    """The part of the model that a parameter belongs to."""
    if name.startswith("medusa_head."):
        return "heads"
    if name.endswith((".lora_A", ".lora_B")):
        return "adapter"
    return "lm_head" if name == "lm_head.weight" else "backbone"


def with_adapter(weights: Weights, adapter: Weights) -> dict[str, Tensor]:
    """The weights of a decoder with the factors of an adapter added: `W + B A`."""
    found = dict(weights)
    for name, factor in adapter.items():
        if name.endswith(".lora_A"):
            matrix = name.removesuffix(".lora_A")
            update = adapter[f"{matrix}.lora_B"] @ factor
            found[f"{matrix}.weight"] = found[f"{matrix}.weight"] + update
    return found


@dataclass(frozen=True, slots=True)
class Scratch:
    """In place of a `Cache`: a tensor a layer, since autograd allows no write into a view."""

    kv: list[Tensor]

    @classmethod
    def of(cls, decoder: Decoder, length: int) -> Scratch:
        """Rows for one sequence, `[2, H_kv, length, d_h]` a layer."""
        shape = decoder.shape
        size = (2, shape.kv_heads, length, shape.head_dim)
        return cls([decoder.lm_head.weight.new_zeros(size) for _ in range(shape.layers)])


@dataclass(slots=True)
class Learner:
    """One training: `parameters` by name are what gradients are taken by.

    Beside a forward pass in a half type they are float32, or small updates would be rounded away.
    `moments` are the optimizer's; they outlive its groups, which change with the training's stage.
    """

    training: Training
    decoder: Decoder
    heads: HeadStage
    shapes: HeadTensors
    parameters: dict[str, Tensor]
    moments: defaultdict[Tensor, Any] = field(default_factory=lambda: defaultdict(dict))
    steps: int = 0

    @classmethod
    def begin(cls, training: Training, model: Model) -> Learner:
        """Start from `model`, which stays as it is: others may decode with it."""
        decoder, held = deepcopy(model.decoder), model.held
        given = dict(decoder.state_dict())
        adapter = adapter_weights(decoder.shape, training.adapter_rank)
        given |= {name: held.bias.new_tensor(weight) for name, weight in adapter.items()}
        given |= held.named()
        exact = wide(held.bias.dtype)
        leaves = {name: w.detach().to(exact, copy=True) for name, w in given.items()}
        return cls(training, decoder, model.heads, held, leaves)

    def named(self, *parts: Part) -> list[str]:
        """The parameters of some parts of the model."""
        return [name for name in self.parameters if part_of(name) in parts]

    def plain(self) -> dict[str, Tensor]:
        """Every parameter as a forward pass takes it; of the backbone, with the adapter off."""
        dtype = self.shapes.bias.dtype
        return {name: leaf.to(dtype) for name, leaf in self.parameters.items()}

    def adapted(self) -> dict[str, Tensor]:
        """The same with the adapter, if there is one, on: `W + B A`."""
        weights = self.plain()
        return with_adapter(weights, {name: weights[name] for name in self.named("adapter")})

    def hidden(self, weights: Weights, tokens: Tensor) -> Tensor:
        """`[B, S, d]` of `tokens [B, S]`: a causal pass over each row by itself."""
        length, device = tokens.shape[1], tokens.device
        rows = torch.arange(length, device=device)
        masks = [causal_mask(length, device)] * self.decoder.shape.layers
        base = self._base(weights)
        passes: list[Tensor] = []
        for row in tokens:
            given = (row, rows, rows, masks, Scratch.of(self.decoder, length))
            passes.append(functional_call(self.decoder, base, given))
        return torch.stack(passes)

    def held(self, weights: Weights) -> HeadTensors:
        """The heads' parameters among `weights`, stacked as the heads read them."""
        return self.shapes.filled(weights)

    def gradient(self) -> HeadTensors:
        """Of the last loss, as `held`; zero where it did not depend on a parameter."""
        return self.held(
            {
                name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
                for name, leaf in self.parameters.items()
            }
        )

    def forget(self, heads: Iterable[int]) -> None:
        """Drop the gradients of some heads: AdamW's decay moves what has one, though it be zero."""
        prefixes = tuple(f"medusa_head.{head}." for head in heads)
        for name in self.named("heads"):
            if name.startswith(prefixes):
                self.parameters[name].grad = None

    @torch.no_grad()
    def model(self) -> Model:
        """What decodes with all that was learnt: the adapter is merged into the weights."""
        weights = {name: weight.detach() for name, weight in self.adapted().items()}
        self.decoder.load_state_dict(self._base(weights))
        return Model(self.decoder, self.held(weights), self.heads)

    def adapter(self) -> dict[str, Tensor]:
        """The adapter's factors as a forward pass takes them; none where there is no adapter."""
        weights = self.plain()
        return {name: weights[name].detach().clone() for name in self.named("adapter")}

    def digests(self) -> dict[str, str]:
        """SHA-256 of every parameter's bytes."""
        return {
            name: hashlib.sha256(leaf.detach().cpu().numpy().tobytes()).hexdigest()
            for name, leaf in self.parameters.items()
        }

    def _base(self, weights: Weights) -> dict[str, Tensor]:
        return {name: weights[name] for name in self.named("backbone", "lm_head")}
