"""How often each head's first ranks hold the right byte, and the tree that this is worth (0x05A).

Shapes: `K` heads behind the ordinary one, which is row 0; `B` windows of `S` tokens; `RANKS` ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from medusa_reference_engine.heads import IGNORED
from medusa_reference_engine.learner import Learner
from medusa_reference_engine.search import SearchStage
from medusa_reference_engine.training import Batch, Pass, TrainingStage
from medusa_reference_engine.training_run.heads import give
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.coordinate import Calibration
from medusa_spec.stages import SearchPlan

RANKS = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """Of each head, the ordinary one first: `labels [K+1]` judged, mean `losses [K+1]` in nats.

    `top [K+1, RANKS]` is the share of labels among the head's first 1, 2, ... tokens.
    """

    labels: IntArray
    losses: FloatArray
    top: FloatArray


@torch.inference_mode()
def measure(learner: Learner, tokens: IntArray, batch: int) -> Measured:
    """Losses and accuracies over windows `[B, S]`, `batch` of them at a time."""
    stage = TrainingStage()
    labels, losses, hits = np.zeros(1), np.zeros(1), np.zeros((1, RANKS))
    for start in range(0, len(tokens), batch):
        give(learner, tokens[start : start + batch], 0.0)
        given, seen = _with_ordinary(stage, learner)
        counts = given.owned.sum(dim=(1, 2))
        labels = labels + counts.numpy()
        losses = losses + (stage.head_losses(given, seen) * counts).double().numpy()
        right = seen.head_logits.topk(RANKS).indices == given.labels[..., None]
        hits = hits + right.cumsum(dim=-1).sum(dim=(1, 2)).numpy()
    return Measured(labels.astype(np.int64), losses / labels, hits / labels[:, None])


def _with_ordinary(stage: TrainingStage, learner: Learner) -> tuple[Batch, Pass]:
    """The learner's batch and pass, as if the ordinary head were one more, before the others."""
    given = stage.batch(learner)
    seen = stage.read(learner, given.tokens)
    following = torch.full_like(given.tokens, IGNORED)
    following[:, :-1] = given.tokens[:, 1:]
    labels = torch.cat((following[None], given.labels))
    logits = torch.cat((seen.logits[None], seen.head_logits))
    return replace(given, labels=labels, owned=labels != IGNORED), replace(seen, head_logits=logits)


def searched(measured: Measured, nodes: int) -> SearchPlan:
    """The tree of so many nodes for which these accuracies promise most."""
    table = Calibration(
        form="cumulative",
        accuracy=tuple(map(tuple, measured.top[1:].tolist())),
        nodes=nodes,
        max_rank=RANKS,
        model="the heads of this run",
        data_set="held-out sources of Python's standard library",
        prompts="windows of those sources",
        policy="greedy",
        evidence="measured",
    )
    return SearchStage().search(table)
