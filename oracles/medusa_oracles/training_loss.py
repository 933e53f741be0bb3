"""What `spec/training.md` derives: losses of a batch, when which apply, and a gradient by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from medusa_oracles.heads import derive_alignment
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.coordinate import Training
from medusa_spec.stages import HeadAlignment, HeadState


class HeadGradient(NamedTuple):
    """By `weight [K, R_h, d, d]`, `bias [K, R_h, d]` and `projection [K, V, d]` of the heads.

    `projection` is `None` where they use the base model's, which is not theirs.
    """

    weight: FloatArray
    bias: FloatArray
    projection: FloatArray | None


def derive_labels(training: Training) -> HeadAlignment:
    """Clauses L1, L2, L4: labels and owners `[K, B, S]` and counts `N_j [K]` of a batch.

    The rule is that of the heads (H1, H8), over the batch that the coordinate freezes.
    """
    tokens, owned = np.array(training.tokens), np.array(training.owned, np.bool_)
    return derive_alignment(tokens, owned, len(training.head_weights))


def derive_joint(training: Training, step: int) -> bool:
    """Clause L15: whether the backbone trains at `step`, counted from zero."""
    if training.variant == "medusa-1":
        return False
    return training.schedule == "ramp" or step >= training.warm_up


def derive_medusa_weight(training: Training, step: int) -> float:
    """Clause L8: what the heads' loss is multiplied by at `step`."""
    if not derive_joint(training, step):
        return 1.0
    if training.schedule == "two-stage" or training.warm_up == 0:
        return training.medusa_weight
    return training.medusa_weight * min((step + 1) / training.warm_up, 1.0)


def derive_log_probabilities(logits: FloatArray) -> FloatArray:
    """Natural logarithms of the softmax over the last axis."""
    below = logits - logits.max(axis=-1, keepdims=True)
    found: FloatArray = below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
    return found


def derive_cross_entropy(logits: FloatArray, labels: IntArray, owned: BoolArray) -> float:
    """The mean of `-log p(label)` over owned rows of `[..., V]` and `[...]`; 0 where none is."""
    if not owned.any():
        return 0.0
    # Unowned rows are left out before anything is computed: they may hold no number at all.
    chosen = derive_log_probabilities(logits[owned])[np.arange(owned.sum()), labels[owned]]
    return float(-chosen.sum() / len(chosen))


def derive_head_losses(head_logits: FloatArray, aligned: HeadAlignment) -> FloatArray:
    """Clause L3: `[K]` from `[K, B, S, V]`; 0 for a head without owned labels."""
    triples = zip(head_logits, aligned.labels, aligned.owned, strict=True)
    return np.array([derive_cross_entropy(*triple) for triple in triples])


def derive_soft_losses(
    head_logits: FloatArray, teacher: FloatArray, training: Training
) -> FloatArray:
    """What clause L10 forbids, `[2, K]`: cross-entropy with the teacher, and KL from it.

    Head `j` at row `t` against the teacher's row `t + j + 1`, which speaks of the same token.
    """
    aligned, heads = derive_labels(training), len(training.head_weights)
    found = np.zeros((2, heads))
    for head in range(heads):
        batch, rows = np.nonzero(aligned.owned[head])
        if len(rows) == 0:
            continue
        log_t = derive_log_probabilities(teacher[batch, rows + head + 1])
        log_s = derive_log_probabilities(head_logits[head, batch, rows])
        with np.errstate(invalid="ignore"):
            terms = np.exp(log_t) * np.stack([-log_s, log_t - log_s])
        found[:, head] = terms.sum(axis=-1).mean(axis=-1)
    return found


def derive_medusa_loss(head_weights: Sequence[float], head_losses: FloatArray) -> float:
    """Clause L5."""
    return sum(w * float(loss) for w, loss in zip(head_weights, head_losses, strict=True))


def derive_next(training: Training) -> tuple[IntArray, BoolArray]:
    """Clauses L6, L7: the ordinary head's labels and owners, `[B, S - 1]` of rows `0 <= t < S - 1`.

    The one head that these formulas number -1: its label is token `t + 1`.
    """
    tokens, owned = np.array(training.tokens), np.array(training.owned, np.bool_)
    return tokens[:, 1:], owned[:, 1:]


def derive_lm_loss(logits: FloatArray, training: Training) -> float:
    """Clause L6: the ordinary head's mean cross-entropy, from its logits `[B, S, V]`."""
    return derive_cross_entropy(logits[:, :-1], *derive_next(training))


def derive_divergence(teacher: FloatArray, student: FloatArray, training: Training) -> float:
    """Clause L7: the sum of `KL(teacher || student)`, in nats, from logits `[B, S, V]`."""
    _, owned = derive_next(training)
    log_t = derive_log_probabilities(teacher[:, :-1][owned])
    log_s = derive_log_probabilities(student[:, :-1][owned])
    p = np.exp(log_t)
    with np.errstate(invalid="ignore"):
        terms = np.where(p > 0, p * (log_t - log_s), 0.0)
    return float(terms.sum())


def derive_loss(
    training: Training, step: int, medusa_loss: float, backbone_loss: float | None
) -> float:
    """Clause L8: the loss whose gradient is taken; `backbone_loss` is not read in a warm-up."""
    if not derive_joint(training, step):
        return medusa_loss
    if backbone_loss is None:
        raise ValueError(f"the backbone trains at step {step}, and its loss is not given")
    return backbone_loss + derive_medusa_weight(training, step) * medusa_loss


def derive_gradient(
    training: Training, step: int, hidden: FloatArray, state: HeadState
) -> HeadGradient:
    """Clause L11: the loss's gradient by the heads' own parameters, from `hidden [B, S, d]`.

    By the chain rule from the logits back through each residual block; nothing is approximated.
    """
    aligned, factor = derive_labels(training), derive_medusa_weight(training, step)
    own = state.projection
    weight, bias = np.zeros(state.weight.shape), np.zeros(state.bias.shape)
    projection = None if own is None else np.zeros(own.shape)
    for head, head_weight in enumerate(training.head_weights):
        owned, count = aligned.owned[head], int(aligned.masked_coverage[head])
        if count == 0:
            continue
        matrix = state.lm_head if own is None else own[head]
        inputs, inner = _forward(state.weight[head], state.bias[head], hidden[owned])
        # dL/dlogits = softmax - onehot, each row by its share of the mean.
        by_logits = np.exp(derive_log_probabilities(inputs[-1] @ matrix.T))
        by_logits[np.arange(count), aligned.labels[head][owned]] -= 1.0
        by_logits *= factor * head_weight / count
        if projection is not None:
            projection[head] = by_logits.T @ inputs[-1]
        by_state = by_logits @ matrix
        for block in reversed(range(len(inner))):
            by_inner = by_state * _silu_slope(inner[block])
            weight[head, block] = by_inner.T @ inputs[block]
            bias[head, block] = by_inner.sum(axis=0)
            by_state = by_state + by_inner @ state.weight[head, block]
    return HeadGradient(weight, bias, projection)


def _forward(
    weight: FloatArray, bias: FloatArray, rows: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Inputs `z_0 … z_R` of the blocks and the projection, and `W z + b` of each block."""
    inputs, inner = [rows], []
    for block_weight, block_bias in zip(weight, bias, strict=True):
        inner.append(inputs[-1] @ block_weight.T + block_bias)
        inputs.append(inputs[-1] + inner[-1] / (1.0 + np.exp(-inner[-1])))
    return inputs, inner


def _silu_slope(a: FloatArray) -> FloatArray:
    """`SiLU'(a) = s + a s (1 - s)` with `s = 1 / (1 + exp(-a))`."""
    s = 1.0 / (1.0 + np.exp(-a))
    slope: FloatArray = s + a * s * (1.0 - s)
    return slope
