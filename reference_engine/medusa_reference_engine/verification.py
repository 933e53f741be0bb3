"""Verification: one target pass over the packed tree behind the committed prefix (0x03C-0x03F)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from medusa_reference_engine.decoder import Cache, Decoder
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.stages import TreeBuffers, Verification


@dataclass(frozen=True, slots=True)
class Model:
    """The target decoder, its heads' parameters, and the stage that runs them."""

    decoder: Decoder
    held: HeadTensors
    heads: HeadStage

    def read(
        self, tokens: Tensor, positions: Tensor, rows: Tensor, masks: Sequence[Tensor], cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """Target logits `[n, V]` and head logits `[K, n, V]` of one pass."""
        return self.logits(self.decoder(tokens, positions, rows, masks, cache))

    def logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The same, of the hidden states `[n, d]` that a pass ends with."""
        return self.decoder.logits(hidden), self.heads.decode(self.held, hidden)


class VerificationStage:
    """Clauses V1 to V8."""

    def verify(
        self, tree: TreeBuffers, packed: IntArray, model: Model, cache: Cache
    ) -> Verification:
        """Stage the packed tokens `[N]` behind `cache.length` rows; the caller reserved room."""
        committed, nodes = self.committed(cache), len(packed)
        mask = self.rectangular_mask(tree.mask, committed)
        positions = self.positions(tree.depths, committed)
        rows = self.staged_rows(nodes, committed)
        device = cache.kv.device
        logits, head_logits = model.read(
            torch.as_tensor(packed, device=device),
            torch.as_tensor(self.phases(positions, rows), device=device),
            torch.as_tensor(rows, device=device),
            self.layer_masks(torch.as_tensor(mask, device=device), cache),
            cache,
        )
        logits, head_logits = self.row_logits(logits), self.row_head_logits(head_logits)
        staged = cache.kv[:, :, :, torch.as_tensor(rows, device=device)]
        return Verification(
            floats(logits),
            floats(head_logits),
            self.path_logits(floats(logits), tree.retrieval),
            mask,
            positions,
            rows,
            floats(staged),
        )

    def committed(self, cache: Cache) -> int:
        """Prefix rows that this round stands on, `P`."""
        return cache.length

    def rectangular_mask(self, mask: BoolArray, committed: int) -> BoolArray:
        """Clause V1: `[N, P + N]`."""
        rectangle = np.ones((len(mask), committed + len(mask)), np.bool_)
        rectangle[:, committed:] = mask
        return rectangle

    def positions(self, depths: IntArray, committed: int) -> IntArray:
        """Clause V2."""
        return committed + depths

    def staged_rows(self, nodes: int, committed: int) -> IntArray:
        """Clause V3."""
        return np.arange(committed, committed + nodes)

    def phases(self, positions: IntArray, rows: IntArray) -> IntArray:
        """What RoPE turns by: logical positions, never cache rows."""
        return positions

    def layer_masks(self, mask: Tensor, cache: Cache) -> list[Tensor]:
        """The mask that each layer's attention is given."""
        return [self.attention_mask(mask, cache)] * len(cache.kv)

    def attention_mask(self, mask: Tensor, cache: Cache) -> Tensor:
        """Boolean, true where visible: attention turns false into minus infinity itself."""
        return mask

    def row_logits(self, logits: Tensor) -> Tensor:
        """Target logits by packed row, `[N, V]`."""
        return logits

    def row_head_logits(self, head_logits: Tensor) -> Tensor:
        """Head logits by packed row, `[K, N, V]`."""
        return head_logits

    def path_logits(self, logits: FloatArray, retrieval: IntArray) -> FloatArray:
        """Clauses V7 and V8: `[R, W, V]`; row `j` of a path judges its token `j + 1`."""
        gathered: FloatArray = logits[np.maximum(retrieval, 0)]
        gathered[retrieval < 0] = 0.0
        return gathered


def floats(tensor: Tensor) -> FloatArray:
    """A float64 copy in host memory; the widening is exact."""
    array: FloatArray = tensor.to("cpu", torch.float64, copy=True).numpy()
    return array
