"""Heads, broken: the logits keep their shape and mean something else."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from medusa_mutations.catalog import mutant
from medusa_reference_engine.heads import IGNORED, HeadStage, HeadTensors
from medusa_spec.arrays import BoolArray, IntArray


@mutant("head-offset-one")
class HeadOffsetOne(HeadStage):
    def shift(self, head: int) -> int:
        return head + 1


@mutant("head-order-swapped")
class HeadOrderSwapped(HeadStage):
    def stack(self, logits: list[Tensor]) -> Tensor:
        return super().stack(logits[::-1])


@mutant("heads-axis-transposed")
class HeadsAxisTransposed(HeadStage):
    def stack(self, logits: list[Tensor]) -> Tensor:
        stacked = super().stack(logits)
        return stacked.transpose(0, 1) if stacked.shape[0] == stacked.shape[1] else stacked


@mutant("residual-dropped")
class ResidualDropped(HeadStage):
    def block(self, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.silu(F.linear(state, weight, bias))


@mutant("activation-replaced")
class ActivationReplaced(HeadStage):
    def block(self, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return state + F.relu(F.linear(state, weight, bias))


@mutant("blocks-aliased")
class BlocksAliased(HeadStage):
    def load(self, given: HeadTensors) -> HeadTensors:
        held = super().load(given)
        held.weight[:] = given.weight[:, -1:]
        held.bias[:] = given.bias[:, -1:]
        return held


@mutant("projection-shared-for-independent")
class ProjectionSharedForIndependent(HeadStage):
    def project(self, held: HeadTensors, head: int, state: Tensor) -> Tensor:
        return F.linear(state, held.lm_head)


@mutant("projection-independent-for-shared")
class ProjectionIndependentForShared(HeadStage):
    def load(self, given: HeadTensors) -> HeadTensors:
        held = super().load(given)
        if held.projection is not None:
            return held
        # A copy of the base projection that training then moved away from it.
        own = [given.lm_head + 0.5 * given.lm_head.roll(1, 0) for _ in given.weight]
        return replace(held, projection=torch.stack(own)) if own else held


@mutant("projection-with-bias")
class ProjectionWithBias(HeadStage):
    def project(self, held: HeadTensors, head: int, state: Tensor) -> Tensor:
        logits = super().project(held, head, state)
        width = logits.shape[-1]
        return logits + torch.linspace(-1, 1, width, dtype=logits.dtype, device=logits.device)


@mutant("count-forgets-biases")
class CountForgetsBiases(HeadStage):
    def count(self, held: HeadTensors) -> int:
        return super().count(held) - held.bias.numel()


@mutant("coverage-same-for-all-heads")
class CoverageSameForAllHeads(HeadStage):
    def covered(self, length: int, head: int) -> int:
        return super().covered(length, 0)


@mutant("coverage-ignores-loss-mask")
class CoverageIgnoresLossMask(HeadStage):
    def masked_coverage(self, kept: BoolArray, labels: IntArray) -> IntArray:
        counts: IntArray = (labels != IGNORED).sum(axis=(1, 2))
        return counts


@mutant("head-conditions-on-candidate")
class HeadConditionsOnCandidate(HeadStage):
    def run(self, held: HeadTensors, hidden: Tensor) -> tuple[Tensor, Tensor]:
        states: list[Tensor] = []
        logits: list[Tensor] = []
        for head in range(len(held.weight)):
            # As a dependent head does: the earlier choice's embedding joins the hidden state.
            chosen = held.lm_head[logits[-1].argmax(dim=-1)] if logits else 0.0
            states.append(self.residual(held, head, hidden + chosen))
            logits.append(self.project(held, head, states[-1]))
        return (torch.stack(states), self.stack(logits)) if states else super().run(held, hidden)


@mutant("decode-heads-swapped")
class DecodeHeadsSwapped(HeadStage):
    def decode(self, held: HeadTensors, hidden: Tensor) -> Tensor:
        return super().decode(held, hidden).flip(0)


@mutant("decode-heads-without-residual")
class DecodeHeadsWithoutResidual(HeadStage):
    def decode(self, held: HeadTensors, hidden: Tensor) -> Tensor:
        # The blocks of decoding are others than those of a head that is applied by itself.
        return ResidualDropped().run(held, hidden)[1]
