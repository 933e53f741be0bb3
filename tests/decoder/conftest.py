"""Small shapes, a decoder over seeded weights, and one plain causal pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from medusa_reference_engine.decoder import Cache, Decoder, causal_mask
from medusa_reference_engine.weights import seeded_weights
from medusa_spec.coordinate import ModelShape

CPU = torch.device("cpu")
SMALL = ModelShape(
    layers=2,
    hidden=16,
    attention_heads=4,
    kv_heads=2,
    intermediate=24,
    vocabulary=13,
    rope_theta=10_000.0,
    rms_epsilon=1e-5,
    head_blocks=1,
    projection="independent",
    weight_seed=7,
)


@pytest.fixture
def shape() -> Callable[..., ModelShape]:
    """A small shape with the given fields replaced."""
    return lambda **changes: replace(SMALL, **changes)


@pytest.fixture
def decoder() -> Callable[..., Decoder]:
    """The decoder of a shape, with its seeded weights."""

    def build(
        shape: ModelShape = SMALL, dtype: torch.dtype = torch.float64, device: torch.device = CPU
    ) -> Decoder:
        built = Decoder(shape, dtype=dtype, device=device)
        weights = seeded_weights(shape, 0)
        built.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
        return built

    return build


@pytest.fixture
def causal() -> Callable[..., tuple[Tensor, Cache]]:
    """Logits `[S, V]` of one causal pass from an empty cache, and that cache."""

    def run(decoder: Decoder, tokens: Tensor) -> tuple[Tensor, Cache]:
        device, dtype = decoder.lm_head.weight.device, decoder.lm_head.weight.dtype
        n = len(tokens)
        cache = Cache(decoder.shape, n, dtype, device)
        place = torch.arange(n, device=device)
        masks = [causal_mask(n, device)] * decoder.shape.layers
        hidden = decoder(tokens.to(device), place, place, masks, cache)
        return decoder.logits(hidden), cache

    return run


@pytest.fixture
def tokens() -> Callable[..., Tensor]:
    """`[n]` tokens from a generator of their own."""

    def draw(n: int, vocabulary: int = SMALL.vocabulary, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(vocabulary, (n,), generator=generator)

    return draw
