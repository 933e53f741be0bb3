"""Cost: a round counted as it runs, on torch's meta device, where sizes are all there is (0x07)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from medusa_reference_engine.decoder import Cache, Decoder
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_reference_engine.tree import TreeStage
from medusa_spec.arrays import BoolArray, IntArray
from medusa_spec.coordinate import CostProfile, HeadRows, ModelShape, Workload
from medusa_spec.cost import CostLedger

META = torch.device("meta")

DTYPES = {2: torch.float16, 4: torch.float32, 8: torch.float64}
"""By bytes a scalar."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a verification pass over a tree ran, and the tensors that it left, all without data.

    `flops` are by part: `attention` of one layer, `lm`, `residual`, `projection`.
    """

    flops: Mapping[str, int]
    mask: BoolArray
    """`[N, P + N]`, of which the prefix is `prefix` columns of truth."""
    retrieval: IntArray
    kv: Tensor
    """`[L, 2, H_kv, P + N, d_h]`"""
    logits: Tensor
    """`[N, V]`"""
    head_logits: Tensor
    """`[K, T_h, V]`"""
    held: HeadTensors

    @property
    def nodes(self) -> int:
        """Packed rows, `N`."""
        return len(self.mask)


class Meter(HeadStage):
    """The heads as the engine runs them, with torch's own count of what each part of them takes."""

    def __init__(self) -> None:
        self.flops: dict[str, int] = {"lm": 0, "residual": 0, "projection": 0}

    @contextmanager
    def part(self, name: str) -> Iterator[FlopCounterMode]:
        """Add what runs inside to a part."""
        with FlopCounterMode(display=False) as counter:
            yield counter
        self.flops[name] = self.flops.get(name, 0) + counter.get_total_flops()

    def residual(self, held: HeadTensors, head: int, hidden: Tensor) -> Tensor:
        """As it is, counted."""
        with self.part("residual"):
            return super().residual(held, head, hidden)

    def project(self, held: HeadTensors, head: int, state: Tensor) -> Tensor:
        """As it is, counted."""
        with self.part("projection"):
            return super().project(held, head, state)


def attention_flops(counter: FlopCounterMode) -> int:
    """Of scores and values: what the attention modules ran beside their four projections."""
    counts = counter.get_flop_counts()
    inside = {n: sum(ops.values()) for n, ops in counts.items() if ".self_attn" in n}
    whole = sum(flops for name, flops in inside.items() if name.endswith(".self_attn"))
    return whole - sum(flops for name, flops in inside.items() if name.endswith("_proj"))


# Hundreds of mutants tell the same few rounds otherwise; none of them holds any data.
@lru_cache(maxsize=64)
def run_round(workload: Workload, head_rows: HeadRows) -> Round:
    """One pass of the engine's own decoder and heads.

    Layers are alike, so one of them is run; the cache is that of all.
    """
    ranks = 1 + max((rank for path in workload.paths for rank in path), default=0)
    tree = TreeStage().compile(workload.paths, ranks, "canonical", -1)
    nodes, committed = len(tree.slots), workload.prefix
    dtype = DTYPES[workload.scalar_bytes]
    shape = shape_of(workload)
    cache = Cache(shape, committed + nodes, dtype, META)
    decoder = Decoder(replace(shape, layers=1), dtype=dtype, device=META)
    scratch = Cache(decoder.shape, committed + nodes, dtype, META)
    rows = torch.empty(nodes, dtype=torch.int64, device=META)
    mask = torch.empty(nodes, committed + nodes, dtype=torch.bool, device=META)
    meter = Meter()
    with meter.part("backbone") as counter:
        hidden = decoder(rows, rows, rows, [mask], scratch)
    with meter.part("lm"):
        logits = decoder.logits(hidden)
    held = head_tensors(workload, decoder.lm_head.weight)
    head_logits = meter.decode(held, hidden if head_rows == "all" else hidden[-1:])
    flops = {**meter.flops, "attention": attention_flops(counter)}
    return Round(flops, tree.mask, tree.retrieval, cache.kv, logits, head_logits, held)


def shape_of(workload: Workload) -> ModelShape:
    """The decoder of a workload; its angles and its seed are nobody's, since nothing is drawn."""
    return ModelShape(
        layers=workload.layers,
        hidden=workload.hidden,
        attention_heads=workload.attention_heads,
        kv_heads=workload.kv_heads,
        intermediate=workload.intermediate,
        vocabulary=workload.vocabulary,
        rope_theta=10_000.0,
        rms_epsilon=1e-5,
        head_blocks=workload.head_blocks,
        projection=workload.projection,
        weight_seed=0,
    )


def head_tensors(workload: Workload, lm_head: Tensor) -> HeadTensors:
    """Heads of a workload's sizes."""
    heads, blocks, width = workload.heads, workload.head_blocks, workload.hidden
    weight = lm_head.new_empty(heads, blocks, width, width)
    bias = lm_head.new_empty(heads, blocks, width)
    own = None
    if workload.projection == "independent":
        own = lm_head.new_empty(heads, *lm_head.shape)
    return HeadTensors(weight, bias, lm_head, own)


class CostStage:
    """Clauses F1 to F14."""

    def ledger(self, workload: Workload) -> CostLedger:
        """Everything that a round of a workload takes, and what its profile makes of it."""
        # Neither has a part in what is run.
        sizes = replace(workload, published=1, profile=None)
        run = run_round(replace(sizes, head_rows="all"), self.head_rows(workload))
        parameters, profile = self.parameters(run), workload.profile
        return CostLedger(
            head_parameters=parameters,
            head_bytes=self.size(parameters, workload),
            head_rows=self.active(run),
            residual_flops=self.residual_flops(run),
            projection_flops=self.projection_flops(run),
            lm_flops=self.lm_flops(run),
            dense_pairs=self.dense_pairs(run, workload),
            allowed_pairs=self.allowed_pairs(run, workload),
            logit_elements=self.logits(run),
            head_logit_elements=self.head_logits(run),
            path_logit_elements=self.path_logits(run),
            staged_bytes=self.staged_bytes(run, workload),
            committed_bytes=self.committed_bytes(run, workload),
            overhead=None if profile is None else np.asarray(self.overhead(profile)),
            speedup=None if profile is None else np.asarray(self.speedup(profile)),
            breaks_even=None if profile is None else np.asarray(self.breaks_even(profile)),
            claim=self.claim(workload),
        )

    def parameters(self, run: Round) -> int:
        """Clause F1."""
        return HeadStage().count(run.held)

    def size(self, scalars: int, workload: Workload) -> int:
        """Bytes of so many scalars."""
        return scalars * DTYPES[workload.scalar_bytes].itemsize

    def head_rows(self, workload: Workload) -> HeadRows:
        """Clause F2: the rows of hidden states that heads are given."""
        return workload.head_rows

    def active(self, run: Round) -> int:
        """The rows that they ran on."""
        return run.head_logits.shape[1]

    def residual_flops(self, run: Round) -> int:
        """Clause F3."""
        return run.flops["residual"]

    def projection_flops(self, run: Round) -> int:
        """Clause F3: whoever owns the weights."""
        return run.flops["projection"]

    def lm_flops(self, run: Round) -> int:
        """Clause F4."""
        return run.flops["lm"]

    def dense_pairs(self, run: Round, workload: Workload) -> int:
        """Clause F5: a pair is a product for its score and one for its value, in every head."""
        each = 2 * 2 * workload.attention_heads * workload.head_dim
        return run.flops["attention"] // each

    def allowed_pairs(self, run: Round, workload: Workload) -> int:
        """Clause F6."""
        return run.nodes * workload.prefix + int(run.mask.sum())

    def logits(self, run: Round) -> int:
        """Clause F7."""
        return run.logits.numel()

    def head_logits(self, run: Round) -> int:
        """Clause F7."""
        return run.head_logits.numel()

    def path_logits(self, run: Round) -> int:
        """Clause F8."""
        return self.gathered(run).numel()

    def gathered(self, run: Round) -> Tensor:
        """`[R, D, V]`: a copy for every entry of every retrieval row, padding too."""
        rows = torch.as_tensor(np.maximum(run.retrieval, 0), device=META)
        return run.logits[rows]

    def staged_bytes(self, run: Round, workload: Workload) -> int:
        """Clause F9."""
        first = workload.prefix
        return self.payload(run, workload, range(first, first + run.nodes))

    def committed_bytes(self, run: Round, workload: Workload) -> int:
        """Clause F10."""
        first = workload.prefix
        return self.payload(run, workload, range(first, first + workload.published))

    def payload(self, run: Round, workload: Workload, rows: Sequence[int]) -> int:
        """Bytes of the keys and values of some cache rows."""
        moved = run.kv[:, :, :, torch.as_tensor(rows, dtype=torch.int64, device=META)]
        return moved.numel() * moved.element_size()

    def expected(self, profile: CostProfile) -> float:
        """Published tokens of a round, `E[G]`."""
        return profile.published / profile.rounds

    def overhead(self, profile: CostProfile) -> float:
        """Clause F11: a round in baseline steps."""
        return profile.round / profile.baseline_step

    def speedup(self, profile: CostProfile) -> float:
        """Clause F11."""
        return self.expected(profile) / self.overhead(profile)

    def breaks_even(self, profile: CostProfile) -> bool:
        """Clause F12."""
        return self.expected(profile) > self.overhead(profile)

    def claim(self, workload: Workload) -> Mapping[str, Any]:
        """Clauses F13 and F14."""
        profile = workload.profile
        evidence = None if profile is None else profile.evidence
        return {"counts": "derived", "profile": evidence, "batch": workload.batch}
