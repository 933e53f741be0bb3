"""Cost, broken: a round runs as it did, and one line of its ledger says something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.cost import CostStage, Round
from medusa_spec.coordinate import CostProfile, HeadRows, Workload


@mutant("projections-not-resident")
class ProjectionsNotResident(CostStage):
    def parameters(self, run: Round) -> int:
        return run.held.weight.numel() + run.held.bias.numel()


@mutant("shared-projection-multiplied")
class SharedProjectionMultiplied(CostStage):
    def parameters(self, run: Round) -> int:
        shared = 0 if run.held.projection is not None else run.held.lm_head.numel()
        return super().parameters(run) + len(run.held.weight) * shared


@mutant("terminal-sold-as-all-rows")
class TerminalSoldAsAllRows(CostStage):
    def head_rows(self, workload: Workload) -> HeadRows:
        return "terminal"


@mutant("all-rows-sold-as-terminal")
class AllRowsSoldAsTerminal(CostStage):
    def head_rows(self, workload: Workload) -> HeadRows:
        return "all"


@mutant("head-projection-omitted")
class HeadProjectionOmitted(CostStage):
    def projection_flops(self, run: Round) -> int:
        return 0


@mutant("shared-weights-cost-nothing")
class SharedWeightsCostNothing(CostStage):
    def projection_flops(self, run: Round) -> int:
        return 0 if run.held.projection is None else super().projection_flops(run)


@mutant("residual-blocks-free")
class ResidualBlocksFree(CostStage):
    def residual_flops(self, run: Round) -> int:
        return 0


@mutant("lm-head-on-one-row")
class LmHeadOnOneRow(CostStage):
    def lm_flops(self, run: Round) -> int:
        return super().lm_flops(run) // run.nodes


@mutant("multiply-add-is-one-flop")
class MultiplyAddIsOneFlop(CostStage):
    def lm_flops(self, run: Round) -> int:
        return super().lm_flops(run) // 2


@mutant("mask-proves-sparsity")
class MaskProvesSparsity(CostStage):
    def dense_pairs(self, run: Round, workload: Workload) -> int:
        return self.allowed_pairs(run, workload)


@mutant("prefix-not-attended")
class PrefixNotAttended(CostStage):
    def allowed_pairs(self, run: Round, workload: Workload) -> int:
        return int(run.mask.sum())


@mutant("triangle-counted-for-tree")
class TriangleCountedForTree(CostStage):
    def allowed_pairs(self, run: Round, workload: Workload) -> int:
        return run.nodes * workload.prefix + int(np.tril(np.ones_like(run.mask)).sum())


@mutant("logits-of-one-head")
class LogitsOfOneHead(CostStage):
    def head_logits(self, run: Round) -> int:
        return run.head_logits[:1].numel()


@mutant("logits-of-the-frontier-alone")
class LogitsOfTheFrontierAlone(CostStage):
    def logits(self, run: Round) -> int:
        return run.logits[-1].numel()


@mutant("paths-deduplicated")
class PathsDeduplicated(CostStage):
    def gathered(self, run: Round) -> Tensor:
        # A row that several paths share is there once.
        return run.logits


@mutant("padding-not-gathered")
class PaddingNotGathered(CostStage):
    def gathered(self, run: Round) -> Tensor:
        rows = run.retrieval[run.retrieval >= 0]
        return run.logits[torch.as_tensor(rows, device=run.logits.device)]


@mutant("root-not-staged")
class RootNotStaged(CostStage):
    def staged_bytes(self, run: Round, workload: Workload) -> int:
        first = workload.prefix + 1
        return self.payload(run, workload, range(first, workload.prefix + run.nodes))


@mutant("query-heads-for-kv-heads")
class QueryHeadsForKvHeads(CostStage):
    def payload(self, run: Round, workload: Workload, rows: Sequence[int]) -> int:
        return super().payload(run, workload, rows) // workload.kv_heads * workload.attention_heads


@mutant("bits-for-bytes")
class BitsForBytes(CostStage):
    def payload(self, run: Round, workload: Workload, rows: Sequence[int]) -> int:
        return 8 * super().payload(run, workload, rows)


@mutant("keys-staged-without-values")
class KeysStagedWithoutValues(CostStage):
    def staged_bytes(self, run: Round, workload: Workload) -> int:
        return super().staged_bytes(run, workload) // run.kv.shape[1]


@mutant("commit-bytes-omitted")
class CommitBytesOmitted(CostStage):
    def committed_bytes(self, run: Round, workload: Workload) -> int:
        return 0


@mutant("commit-counts-accepted-edges")
class CommitCountsAcceptedEdges(CostStage):
    def committed_bytes(self, run: Round, workload: Workload) -> int:
        accepted = range(workload.prefix + 1, workload.prefix + workload.published)
        return self.payload(run, workload, accepted)


@mutant("rounds-for-tokens")
class RoundsForTokens(CostStage):
    def expected(self, profile: CostProfile) -> float:
        return profile.rounds / profile.rounds


@mutant("speedup-of-accepted-edges")
class SpeedupOfAcceptedEdges(CostStage):
    def speedup(self, profile: CostProfile) -> float:
        return (self.expected(profile) - 1) / self.overhead(profile)


@mutant("speedup-inverted")
class SpeedupInverted(CostStage):
    def speedup(self, profile: CostProfile) -> float:
        return self.overhead(profile) / self.expected(profile)


@mutant("overhead-left-out")
class OverheadLeftOut(CostStage):
    def speedup(self, profile: CostProfile) -> float:
        return self.expected(profile)


@mutant("any-acceptance-breaks-even")
class AnyAcceptanceBreaksEven(CostStage):
    def breaks_even(self, profile: CostProfile) -> bool:
        return self.expected(profile) > 1


@mutant("par-breaks-even")
class ParBreaksEven(CostStage):
    def breaks_even(self, profile: CostProfile) -> bool:
        return self.expected(profile) >= self.overhead(profile)


@mutant("synthetic-latency-called-measured")
class SyntheticLatencyCalledMeasured(CostStage):
    def claim(self, workload: Workload) -> Mapping[str, Any]:
        claim = super().claim(workload)
        return {**claim, "profile": None if claim["profile"] is None else "measured"}


@mutant("ledger-called-a-measurement")
class LedgerCalledAMeasurement(CostStage):
    def claim(self, workload: Workload) -> Mapping[str, Any]:
        return {**super().claim(workload), "counts": "measured"}


@mutant("batch-claimed")
class BatchClaimed(CostStage):
    def claim(self, workload: Workload) -> Mapping[str, Any]:
        return {**super().claim(workload), "batch": 8}
