"""The backbone: the project's decoder, trained from scratch to say the next byte.

Shapes: `B` windows of `S` tokens, `d` hidden width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from medusa_reference_engine.decoder import Decoder, causal_mask
from medusa_reference_engine.learner import Scratch
from medusa_reference_engine.weights import parameter_shapes
from medusa_spec.arrays import IntArray
from medusa_spec.coordinate import ModelShape

WARM_UP = 0.05
"""Share of the steps in which the rate grows from zero."""


def new_decoder(shape: ModelShape, seed: int) -> Decoder:
    """A decoder to train: small random matrices, those that end a residual branch smaller still.

    The seeded weights of `weights` are made to be told apart, and not to be trained.
    """
    random = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, size in parameter_shapes(shape, 0).items():
        if len(size) == 1:
            weights[name] = torch.ones(size)
        else:
            ends = name.endswith(("o_proj.weight", "down_proj.weight"))
            deviation = 0.02 / math.sqrt(2 * shape.layers if ends else 1)
            weights[name] = deviation * torch.randn(size, generator=random)
    return loaded(shape, weights, torch.float32)


def loaded(shape: ModelShape, weights: Mapping[str, Tensor], dtype: torch.dtype) -> Decoder:
    """A decoder with the tensors among `weights` that are not the heads'."""
    decoder = Decoder(shape, dtype=dtype, device=torch.device("cpu"))
    own = {name: w for name, w in weights.items() if not name.startswith("medusa_head.")}
    decoder.load_state_dict(own, strict=True)
    return decoder.eval()


def hidden_states(decoder: Decoder, tokens: Tensor) -> Tensor:
    """`[B, S, d]` of `tokens [B, S]`: each window read by itself, all of them in one pass.

    The decoder is written for one sequence; `vmap` makes a batch of it. Windows packed into one
    sequence behind a block mask are the same numbers at five times the cost, since attention then
    forms every score that the mask throws away.
    """
    batch, length = tokens.shape
    rows = torch.arange(length)
    masks = [causal_mask(length, rows.device)] * decoder.shape.layers
    scratch = [kv.new_zeros(batch, *kv.shape) for kv in Scratch.of(decoder, length).kv]

    def one(window: Tensor, kv: list[Tensor]) -> Tensor:
        out: Tensor = decoder(window, rows, rows, masks, Scratch(kv))
        return out

    out: Tensor = torch.vmap(one)(tokens, scratch)
    return out


def train_backbone(
    decoder: Decoder,
    batches: Iterable[IntArray],
    steps: int,
    rate: float,
    done: Callable[[int], None],
) -> None:
    """One step of AdamW a batch `[B, S]`, on the loss of the next byte; `done` hears each."""
    decoder.requires_grad_(True)
    optimizer = torch.optim.AdamW(decoder.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step, batch in zip(range(steps), batches, strict=False):
        tokens = torch.as_tensor(batch)
        logits = decoder.logits(hidden_states(decoder, tokens))
        loss = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * scheduled(step, steps)
        optimizer.step()
        done(step + 1)
    decoder.requires_grad_(False)


def scheduled(step: int, steps: int) -> float:
    """The share of the rate that a step has: a warm-up, then half a cosine to a tenth."""
    warm_up = max(1, round(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return 0.55 + 0.45 * math.cos(math.pi * progress)
