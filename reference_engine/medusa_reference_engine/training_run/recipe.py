"""How large a run is: every number that decides what it trains, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa_spec.coordinate import ModelShape


@dataclass(frozen=True, slots=True)
class Recipe:
    """One size of run.

    `corpus_bytes` are read at most. A batch is `batch` windows of `length` bytes; the backbone
    learns from `backbone_steps` of them, then the `heads` heads from `head_steps`. Losses and
    accuracies are those of `windows` windows. `prompts` prompts of `prompt_length` bytes are each
    continued by `new_tokens` over a tree of `nodes` candidate nodes. `threads` are torch's, on
    every machine the same: with another number sums round otherwise, and a seed is no seed.
    """

    name: str
    threads: int
    shape: ModelShape
    heads: int
    corpus_bytes: int
    batch: int
    length: int
    backbone_steps: int
    backbone_rate: float
    head_steps: int
    head_rate: float
    windows: int
    prompts: int
    prompt_length: int
    new_tokens: int
    nodes: int

    @property
    def head_weights(self) -> tuple[float, ...]:
        """`lambda_k = 0.8^k`, counted from `k = 1` (0x05A)."""
        return tuple(0.8 ** (head + 1) for head in range(self.heads))

    @property
    def capacity(self) -> int:
        """Cache rows that a prompt, its continuation and one more tree need."""
        return self.prompt_length + self.new_tokens + self.nodes + 1


FULL = Recipe(
    name="full",
    threads=2,
    shape=ModelShape(
        layers=4,
        hidden=128,
        attention_heads=4,
        kv_heads=2,
        intermediate=352,
        vocabulary=256,
        rope_theta=10_000.0,
        rms_epsilon=1e-5,
        head_blocks=1,
        projection="independent",
        weight_seed=0,
    ),
    heads=4,
    corpus_bytes=16_000_000,
    batch=8,
    length=256,
    backbone_steps=1000,
    backbone_rate=3e-3,
    head_steps=400,
    head_rate=3e-3,
    windows=64,
    prompts=16,
    prompt_length=128,
    new_tokens=128,
    nodes=24,
)

SMOKE = replace(
    FULL,
    name="smoke",
    threads=1,
    shape=replace(FULL.shape, layers=2, hidden=64, intermediate=192),
    corpus_bytes=2_000_000,
    batch=16,
    length=128,
    backbone_steps=200,
    head_steps=100,
    windows=16,
    prompts=8,
    new_tokens=48,
)
