"""The heads: Medusa-1 on a frozen backbone, step by step as the training contract has it (0x05A).

Shapes: `B` windows of `S` tokens, `K` heads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from medusa_reference_engine.decoder import Decoder
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_reference_engine.learner import Learner
from medusa_reference_engine.training import TrainingStage
from medusa_reference_engine.training_run.backbone import scheduled
from medusa_reference_engine.training_run.recipe import Recipe
from medusa_reference_engine.verification import Model
from medusa_reference_engine.weights import head_state, seeded_weights
from medusa_spec.arrays import IntArray
from medusa_spec.coordinate import Training


def new_heads(decoder: Decoder, heads: int, seed: int) -> Model:
    """The decoder with untrained heads: the seeded ones that any engine of the project has."""
    shape = replace(decoder.shape, weight_seed=seed)
    drawn = {name: torch.from_numpy(w) for name, w in seeded_weights(shape, heads).items()}
    state = head_state(shape, drawn | {"lm_head.weight": decoder.lm_head.weight.detach()}, heads)
    held = HeadTensors.of(state, torch.float32, torch.device("cpu"))
    return Model(decoder, held, HeadStage())


def begin(model: Model, recipe: Recipe) -> Learner:
    """A training of the model's heads alone, of no batch yet."""
    training = Training(
        variant="medusa-1",
        tokens=(),
        owned=(),
        head_weights=recipe.head_weights,
        medusa_weight=1.0,
        head_rate=recipe.head_rate,
        backbone_rate=0.0,
        schedule="two-stage",
        warm_up=0,
        steps=recipe.head_steps,
        adapter_rank=0,
    )
    return Learner.begin(training, model)


def give(learner: Learner, tokens: IntArray, rate: float) -> None:
    """The batch `[B, S]` of the learner's next step; the objective owns every byte of it."""
    rows = tuple(map(tuple, tokens.tolist()))
    owned = tuple(map(tuple, np.ones(tokens.shape, bool).tolist()))
    learner.training = replace(learner.training, tokens=rows, owned=owned, head_rate=rate)


def train_heads(
    learner: Learner,
    batches: Iterable[IntArray],
    steps: int,
    rate: float,
    done: Callable[[int], None],
) -> None:
    """One step of the training stage a batch `[B, S]`; `done` hears each."""
    stage = TrainingStage()
    for step, batch in zip(range(steps), batches, strict=False):
        give(learner, batch, rate * scheduled(step, steps))
        stage.step(learner)
        done(step + 1)


def backbone_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of every tensor that is not a head's, name by name."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        if not name.startswith("medusa_head."):
            digest.update(name.encode())
            digest.update(weights[name].detach().numpy().tobytes())
    return digest.hexdigest()
