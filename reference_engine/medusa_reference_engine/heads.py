"""Medusa heads: residual blocks on one hidden state, then a vocabulary projection (0x02)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from medusa_reference_engine.weights import block_bias, block_weight, own_projection
from medusa_spec.arrays import BoolArray, IntArray
from medusa_spec.stages import HeadAlignment, HeadState

IGNORED = -100
"""What torch's cross entropy skips."""


@dataclass(frozen=True, slots=True)
class HeadTensors:
    """`HeadState` on a device: weight `[K, R_h, d, d]`, bias `[K, R_h, d]`, projections."""

    weight: Tensor
    bias: Tensor
    lm_head: Tensor
    projection: Tensor | None

    @classmethod
    def of(cls, state: HeadState, dtype: torch.dtype, device: torch.device) -> HeadTensors:
        """Move a numpy state to a device."""

        def move(array: object) -> Tensor:
            return torch.as_tensor(array, dtype=dtype, device=device)

        own = None if state.projection is None else move(state.projection)
        return cls(move(state.weight), move(state.bias), move(state.lm_head), own)

    def sizes(self) -> tuple[tuple[int, ...] | None, ...]:
        """The shapes of weight, bias and projection."""
        own = None if self.projection is None else tuple(self.projection.shape)
        return tuple(self.weight.shape), tuple(self.bias.shape), own

    def named(self) -> dict[str, Tensor]:
        """The heads' own parameters by their state-dict names, as views."""
        found: dict[str, Tensor] = {}
        heads, blocks = self.weight.shape[:2]
        for j in range(heads):
            for i in range(blocks):
                found |= {block_weight(j, i): self.weight[j, i], block_bias(j, i): self.bias[j, i]}
            if self.projection is not None:
                found[own_projection(j, blocks)] = self.projection[j]
        return found

    def filled(self, weights: Mapping[str, Tensor]) -> HeadTensors:
        """Others of the same shapes, stacked of what `weights` has under the names of these."""
        heads, blocks = self.weight.shape[:2]
        each = [(j, i) for j in range(heads) for i in range(blocks)]
        projection = self.projection
        if projection is not None:
            own = [own_projection(j, blocks) for j in range(heads)]
            projection = _stacked(weights, own, projection)
        return HeadTensors(
            _stacked(weights, [block_weight(j, i) for j, i in each], self.weight),
            _stacked(weights, [block_bias(j, i) for j, i in each], self.bias),
            weights["lm_head.weight"],
            projection,
        )


def _stacked(weights: Mapping[str, Tensor], names: list[str], like: Tensor) -> Tensor:
    """Tensors in the order of `names`, under the shape of `like`, which is empty without any."""
    return torch.stack([weights[name] for name in names]).view(like.shape) if names else like


class HeadStage:
    """Clauses H1 to H10."""

    def load(self, given: HeadTensors) -> HeadTensors:
        """The parameters that the heads hold once loaded: every block its own."""
        return replace(given, weight=given.weight.clone(), bias=given.bias.clone())

    def run(self, held: HeadTensors, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Residual states `[K, ..., d]` and logits `[K, ..., V]` of hidden states `[..., d]`."""
        heads = range(len(held.weight))
        states = [self.residual(held, head, hidden) for head in heads]
        logits = [
            self.project(held, head, state) for head, state in zip(heads, states, strict=True)
        ]
        if not states:
            empty = hidden.new_zeros(0, *hidden.shape[:-1], held.lm_head.shape[0])
            return hidden.new_zeros(0, *hidden.shape), empty
        return torch.stack(states), self.stack(logits)

    def decode(self, held: HeadTensors, hidden: Tensor) -> Tensor:
        """Clause H10: what a pass of the target takes for its heads' logits, `[K, n, V]`."""
        return self.run(held, hidden)[1]

    def residual(self, held: HeadTensors, head: int, hidden: Tensor) -> Tensor:
        """Clause H2 for one head: `[..., d]` to `[..., d]`."""
        state = hidden
        for weight, bias in zip(held.weight[head], held.bias[head], strict=True):
            state = self.block(state, weight, bias)
        return state

    def block(self, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """`z + SiLU(Wz + b)`."""
        return state + F.silu(F.linear(state, weight, bias))

    def project(self, held: HeadTensors, head: int, state: Tensor) -> Tensor:
        """Clause H4: bias-free, by the head's own matrix or the base model's."""
        own = held.lm_head if held.projection is None else held.projection[head]
        return F.linear(state, own)

    def stack(self, logits: list[Tensor]) -> Tensor:
        """Clause H5: the head axis first."""
        return torch.stack(logits)

    def count(self, held: HeadTensors) -> int:
        """Clause H6: parameters added to the base model, whose own head is not counted."""
        own = 0 if held.projection is None else held.projection.numel()
        return held.weight.numel() + held.bias.numel() + own

    def align(self, tokens: IntArray, owned: BoolArray, heads: int) -> HeadAlignment:
        """Clauses H1, H7 and H8 over a batch `[B, S]`."""
        batch, length = tokens.shape
        labels = np.full((heads, batch, length), IGNORED, np.int64)
        kept = np.zeros((heads, batch, length), np.bool_)
        for head in range(heads):
            shift = self.shift(head)
            if shift < length:
                labels[head, :, : length - shift] = tokens[:, shift:]
                kept[head, :, : length - shift] = self.shifted(owned, shift)
        coverage = np.array([batch * self.covered(length, head) for head in range(heads)], np.int64)
        return HeadAlignment(labels, kept, coverage, self.masked_coverage(kept, labels))

    def shift(self, head: int) -> int:
        """How far ahead head `j` looks: the ordinary head takes the first token."""
        return head + 2

    def shifted(self, owned: BoolArray, shift: int) -> BoolArray:
        """The loss mask, moved with the labels."""
        return owned[:, shift:]

    def covered(self, length: int, head: int) -> int:
        """Labels of one head inside one sequence."""
        return max(length - head - 2, 0)

    def masked_coverage(self, kept: BoolArray, labels: IntArray) -> IntArray:
        """Owned labels of each head."""
        counts: IntArray = (kept & (labels != IGNORED)).sum(axis=(1, 2))
        return counts
