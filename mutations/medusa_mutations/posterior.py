"""Posterior, broken: plausible winners by another rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.posterior import PosteriorStage
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.coordinate import Policy
from medusa_spec.stages import TreeBuffers, Verification


@mutant("rejection-publishes-nothing")
class RejectionPublishesNothing(CommitStage):
    def published_rows(
        self,
        path: int,
        accepted: int,
        tree: TreeBuffers,
        packed: IntArray,
        end_of_sequence: int | None,
    ) -> IntArray:
        rows = super().published_rows(path, accepted, tree, packed, end_of_sequence)
        return rows if accepted else rows[:0]

    def target_frontier(self, rows: IntArray, verified: Verification) -> FloatArray:
        return super().target_frontier(rows, verified) if len(rows) else verified.logits[0]

    def head_frontier(self, rows: IntArray, verified: Verification) -> FloatArray:
        return super().head_frontier(rows, verified) if len(rows) else verified.head_logits[:, 0]


@mutant("second-best-matches")
class SecondBestMatches(PosteriorStage):
    def greedy_passes(self, tokens: Tensor, judging: Tensor) -> Tensor:
        best = judging.topk(2, dim=-1).indices
        return (tokens[..., None] == best).any(dim=-1)


@mutant("passes-counted-after-mismatch")
class PassesCountedAfterMismatch(PosteriorStage):
    def lengths(self, passes: Tensor) -> Tensor:
        return passes.to(torch.int64).sum(dim=1)


@mutant("last-maximal-path")
class LastMaximalPath(PosteriorStage):
    def first_maximal(self, lengths: Tensor) -> int:
        if int(lengths.max()) == 0:
            return super().first_maximal(lengths)
        return len(lengths) - 1 - int(lengths.flip(0).argmax())


@mutant("default-path-last")
class DefaultPathLast(PosteriorStage):
    def default_path(self, lengths: Tensor) -> int:
        return len(lengths) - 1

    def first_maximal(self, lengths: Tensor) -> int:
        winner = super().first_maximal(lengths)
        return winner if int(lengths.max()) else self.default_path(lengths)


@mutant("max-for-min")
class MaxForMin(PosteriorStage):
    def threshold(self, entropy: Tensor, policy: Policy) -> Tensor:
        return torch.clamp(policy.alpha * torch.exp(-entropy), min=policy.epsilon)


@mutant("greater-or-equal")
class GreaterOrEqual(PosteriorStage):
    def exceeds(self, probability: Tensor, threshold: Tensor) -> Tensor:
        return probability >= threshold


@mutant("entropy-sign-flipped")
class EntropySignFlipped(PosteriorStage):
    def entropy(self, probabilities: Tensor, policy: Policy) -> Tensor:
        return -super().entropy(probabilities, policy)


@mutant("entropy-in-bits")
class EntropyInBits(PosteriorStage):
    def entropy(self, probabilities: Tensor, policy: Policy) -> Tensor:
        return super().entropy(probabilities, policy) / math.log(2)


@mutant("temperature-ignored")
class TemperatureIgnored(PosteriorStage):
    def tempered(self, judging: Tensor, policy: Policy) -> Tensor:
        return judging


@mutant("judged-by-epsilon-alone")
class JudgedByEpsilonAlone(PosteriorStage):
    epsilon = 0.0

    def threshold(self, entropy: Tensor, policy: Policy) -> Tensor:
        self.epsilon = policy.epsilon
        return super().threshold(entropy, policy)

    def exceeds(self, probability: Tensor, threshold: Tensor) -> Tensor:
        return probability > self.epsilon


@mutant("probability-sum-tie")
class ProbabilitySumTie(PosteriorStage):
    def score(self, probability: Tensor, longest: int) -> Tensor:
        return probability[:, :longest].sum(dim=1)


@mutant("tie-over-all-positions")
class TieOverAllPositions(PosteriorStage):
    def score(self, probability: Tensor, longest: int) -> Tensor:
        # Padding has probability zero; a floor keeps its logarithm a number.
        return probability.clamp(min=1e-30).log().sum(dim=1)


@mutant("padding-accepted")
class PaddingAccepted(PosteriorStage):
    """Padding was filled with token 0, which is a real token."""

    def greedy_passes(self, tokens: Tensor, judging: Tensor) -> Tensor:
        return super().greedy_passes(tokens.clamp(min=0), judging)

    def mask_padding(self, values: Tensor, real: Tensor) -> Tensor:
        return values


@mutant("nan-matches-token-zero")
class NanMatchesTokenZero(PosteriorStage):
    def check_finite(self, path_logits: Tensor, real: Tensor) -> None:
        pass


@mutant("root-counted-as-accepted")
class RootCountedAsAccepted(PosteriorStage):
    def accepted(self, lengths: Tensor) -> int:
        return super().accepted(lengths) + 1


@mutant("exact-label-on-typical")
class ExactLabelOnTypical(PosteriorStage):
    def label(self, policy: Policy) -> Mapping[str, Any]:
        return {**super().label(policy), "claim": "greedy-exact"}


@mutant("rejection-without-correction-state")
class RejectionWithoutCorrectionState(PosteriorStage):
    def label(self, policy: Policy) -> Mapping[str, Any]:
        return {**super().label(policy), "rejects": True}
