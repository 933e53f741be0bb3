"""Posterior: which edges pass, and which path wins (0x04D-0x04G).

The arithmetic runs in float64 whatever the model's dtype: a threshold is a policy, not a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.coordinate import Policy
from medusa_spec.errors import Refused
from medusa_spec.stages import Selection


class PosteriorStage:
    """Clauses P1 to P15. Shapes: candidates `[R, W]`, path logits `[R, W, V]`, edges `[R, W-1]`."""

    def select(self, candidates: IntArray, path_logits: FloatArray, policy: Policy) -> Selection:
        """The winner, or `Refused` where a real logit is not finite."""
        tokens = torch.as_tensor(candidates[:, 1:])
        real = tokens >= 0
        judging = torch.as_tensor(path_logits)
        self.check_finite(judging, torch.as_tensor(candidates >= 0))
        judging = judging[:, :-1]
        if policy.mode == "greedy":
            passes = self.mask_padding(self.greedy_passes(tokens, judging), real)
            lengths = self.lengths(passes)
            path = self.first_maximal(lengths)
            return self.selection(path, lengths, passes)
        probabilities = self.probabilities(judging, policy)
        entropy = self.entropy(probabilities, policy)
        threshold = self.threshold(entropy, policy)
        probability = probabilities.gather(-1, tokens.clamp(min=0)[..., None])[..., 0]
        probability = self.mask_padding(probability, real)
        passes = self.mask_padding(self.exceeds(probability, threshold), real)
        lengths = self.lengths(passes)
        path = self.likeliest(lengths, probability)
        return self.selection(path, lengths, passes, probability, entropy, threshold)

    def check_finite(self, path_logits: Tensor, real: Tensor) -> None:
        """Clause P12."""
        if not path_logits[real].isfinite().all():
            raise Refused("path logits are not finite")

    def greedy_passes(self, tokens: Tensor, judging: Tensor) -> Tensor:
        """Clause P2."""
        return tokens == judging.argmax(dim=-1)

    def mask_padding(self, values: Tensor, real: Tensor) -> Tensor:
        """Clause P11."""
        return torch.where(real, values, torch.zeros_like(values))

    def probabilities(self, judging: Tensor, policy: Policy) -> Tensor:
        """Clause P9."""
        return torch.softmax(self.tempered(judging, policy), dim=-1)

    def tempered(self, judging: Tensor, policy: Policy) -> Tensor:
        """Logits over temperature."""
        return judging / policy.temperature

    def entropy(self, probabilities: Tensor, policy: Policy) -> Tensor:
        """Clause P8: nats; `xlogy` makes an impossible token contribute nothing."""
        return -torch.xlogy(probabilities, probabilities + policy.entropy_guard).sum(dim=-1)

    def threshold(self, entropy: Tensor, policy: Policy) -> Tensor:
        """Clause P6."""
        return torch.clamp(policy.alpha * torch.exp(-entropy), max=policy.epsilon)

    def exceeds(self, probability: Tensor, threshold: Tensor) -> Tensor:
        """Clause P7."""
        return probability > threshold

    def lengths(self, passes: Tensor) -> Tensor:
        """Clause P3: `[R]`."""
        return torch.cumprod(passes.to(torch.int64), dim=1).sum(dim=1)

    def first_maximal(self, lengths: Tensor) -> int:
        """Clauses P4 and P5; `argmax` is the first of equals, and path zero where all are zero."""
        return int(lengths.argmax())

    def likeliest(self, lengths: Tensor, probability: Tensor) -> int:
        """Clauses P5 and P10."""
        longest = int(lengths.max())
        if longest == 0:
            return self.default_path(lengths)
        tied = torch.nonzero(lengths == longest)[:, 0]
        return int(tied[self.score(probability[tied], longest).argmax()])

    def default_path(self, lengths: Tensor) -> int:
        """Clause P5."""
        return 0

    def score(self, probability: Tensor, longest: int) -> Tensor:
        """Clause P10: the log likelihood of the accepted edges."""
        return probability[:, :longest].log().sum(dim=1)

    def accepted(self, lengths: Tensor) -> int:
        """Clause P13: suffix edges, without the root."""
        return int(lengths.max())

    def selection(self, path: int, lengths: Tensor, passes: Tensor, *edges: Tensor) -> Selection:
        """The decision and what it was made of."""
        made_of = [edge.numpy() for edge in edges]
        return Selection(
            path,
            self.accepted(lengths),
            passes.numpy().astype(np.bool_),
            lengths.numpy(),
            *made_of,
        )

    def label(self, policy: Policy) -> Mapping[str, Any]:
        """Clauses P14 and P15: what the policy may claim; none here rejects and resamples."""
        claim = "greedy-exact" if policy.mode == "greedy" else "heuristic"
        return {"mode": policy.mode, "claim": claim, "rejects": False}
