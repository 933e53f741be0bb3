"""Verification, broken: attention, positions or logits of another row behind correct shapes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.decoder import Cache
from medusa_reference_engine.verification import VerificationStage
from medusa_spec.arrays import BoolArray, FloatArray, IntArray


@mutant("verify-position-from-row")
class VerifyPositionFromRow(VerificationStage):
    def positions(self, depths: IntArray, committed: int) -> IntArray:
        return committed + np.arange(len(depths))


@mutant("position-misses-prefix")
class PositionMissesPrefix(VerificationStage):
    def positions(self, depths: IntArray, committed: int) -> IntArray:
        return depths


@mutant("past-length-off-by-one")
class PastLengthOffByOne(VerificationStage):
    def positions(self, depths: IntArray, committed: int) -> IntArray:
        return super().positions(depths, committed - 1)


@mutant("cache-row-as-rope-position")
class CacheRowAsRopePosition(VerificationStage):
    def phases(self, positions: IntArray, rows: IntArray) -> IntArray:
        return rows


@mutant("prompt-key-hidden")
class PromptKeyHidden(VerificationStage):
    def rectangular_mask(self, mask: BoolArray, committed: int) -> BoolArray:
        rectangle = super().rectangular_mask(mask, committed)
        rectangle[-1, 0] = False
        return rectangle


@mutant("sibling-leak-in-rectangle")
class SiblingLeakInRectangle(VerificationStage):
    def rectangular_mask(self, mask: BoolArray, committed: int) -> BoolArray:
        rectangle = super().rectangular_mask(mask, committed)
        hidden = np.flatnonzero(~mask[-1])
        rectangle[-1, committed + hidden[-1:]] = True
        return rectangle


@mutant("stale-mask-of-previous-tree")
class StaleMaskOfPreviousTree(VerificationStage):
    previous: BoolArray | None = None

    def rectangular_mask(self, mask: BoolArray, committed: int) -> BoolArray:
        rectangle = super().rectangular_mask(mask, committed)
        if self.previous is not None:
            shared = min(len(mask), len(self.previous))
            stale = self.previous[:shared, :shared]
            rectangle[:shared, committed : committed + shared] = stale
        self.previous = mask
        return rectangle


@mutant("two-rows-one-slot")
class TwoRowsOneSlot(VerificationStage):
    def staged_rows(self, nodes: int, committed: int) -> IntArray:
        rows = super().staged_rows(nodes, committed)
        rows[-1] = rows[max(nodes - 2, 0)]
        return rows


@mutant("mask-only-in-first-layer")
class MaskOnlyInFirstLayer(VerificationStage):
    def layer_masks(self, mask: Tensor, cache: Cache) -> list[Tensor]:
        first, *others = super().layer_masks(mask, cache)
        nodes, keys = mask.shape
        causal = torch.ones_like(mask).tril(keys - nodes)
        return [first, *[causal for _ in others]]


@mutant("boolean-mask-added")
class BooleanMaskAdded(VerificationStage):
    def attention_mask(self, mask: Tensor, cache: Cache) -> Tensor:
        # One is added to a visible score and nothing to a hidden one, which stays visible.
        return mask.to(cache.kv.dtype)


@mutant("mask-fill-underflows")
class MaskFillUnderflows(VerificationStage):
    def attention_mask(self, mask: Tensor, cache: Cache) -> Tensor:
        fill = torch.full(mask.shape, -2.0, dtype=cache.kv.dtype, device=mask.device)
        return fill.masked_fill(mask, 0.0)


@mutant("self-aligned-logits")
class SelfAlignedLogits(VerificationStage):
    def path_logits(self, logits: FloatArray, retrieval: IntArray) -> FloatArray:
        gathered = super().path_logits(logits, retrieval)
        gathered[:, :-1] = gathered[:, 1:].copy()
        return gathered


@mutant("retrieval-not-parent-child")
class RetrievalNotParentChild(VerificationStage):
    def path_logits(self, logits: FloatArray, retrieval: IntArray) -> FloatArray:
        crossed = retrieval.copy()
        crossed[:, 1:2] = np.roll(crossed[:, 1:2], 1, axis=0)
        return super().path_logits(logits, crossed)


@mutant("logits-slice-shifted")
class LogitsSliceShifted(VerificationStage):
    def row_logits(self, logits: Tensor) -> Tensor:
        return logits.roll(1, dims=0)


@mutant("head-logits-from-root-row")
class HeadLogitsFromRootRow(VerificationStage):
    def row_head_logits(self, head_logits: Tensor) -> Tensor:
        return head_logits[:, :1].expand_as(head_logits)
