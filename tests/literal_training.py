"""Steps of training of random numbers, by literal formulas; and what makes them wrong.

Autograd is the only thing here that is not written out: `test_gradient.py` proves it equal to
finite differences.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from medusa_spec import Trace
from medusa_spec.coordinate import Coordinate, Training

NAMES = {
    "heads": ("0.weight", "0.bias", "1.weight", "1.bias"),
    "backbone": ("embed", "layers.0", "norm"),
    "lm_head": ("lm_head.weight",),
    "adapter": ("layers.0.a", "layers.0.b"),
}


def softmax(row: Any) -> list[float]:
    weights = [math.exp(x) for x in row]
    return [w / math.fsum(weights) for w in weights]


def pairs(training: Training, shift: int) -> list[tuple[int, int, int]]:
    """`(b, t, label)` of every row whose token `shift` places on is owned."""
    length = len(training.tokens[0])
    return [
        (b, t, row[t + shift])
        for b, row in enumerate(training.tokens)
        for t in range(length - shift)
        if training.owned[b][t + shift]
    ]


def mean_loss(logits: Any, owned: list[tuple[int, int, int]]) -> float:
    losses = [-math.log(softmax(logits[b, t].tolist())[label]) for b, t, label in owned]
    return math.fsum(losses) / len(losses) if losses else 0.0


def divergence(first: Any, second: Any, training: Training) -> float:
    total = 0.0
    for b, t, _ in pairs(training, 1):
        p, q = softmax(first[b, t].tolist()), softmax(second[b, t].tolist())
        total += math.fsum(a * math.log(a / c) for a, c in zip(p, q, strict=True))
    return total


def parameters(training: Training, moving: set[str]) -> list[dict[str, str]]:
    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    return [
        {
            "name": f"{part}.{name}",
            "part": part,
            "before": digest(name),
            "after": digest(f"{name}, trained" if part in moving else name),
        }
        for part, names in NAMES.items()
        for name in names
        if part != "adapter" or training.adapter_rank
    ]


def groups(training: Training, moving: set[str]) -> list[dict[str, Any]]:
    of = {
        "heads": [f"heads.{name}" for name in NAMES["heads"]],
        "backbone": [f"{part}.{n}" for part in sorted(moving - {"heads"}) for n in NAMES[part]],
    }
    rates = {"heads": training.head_rate, "backbone": training.backbone_rate}
    return [{"name": n, "rate": rates[n], "parameters": held} for n, held in of.items() if held]


def run_heads(tensors: Mapping[str, Any], hidden: Any, shared: bool) -> Any:
    """Logits `[K, B, S, V]`, head by head."""
    found = []
    for head, weights in enumerate(tensors["weight"]):
        z = hidden
        for weight, bias in zip(weights, tensors["bias"][head], strict=True):
            inner = z @ weight.T + bias
            z = z + inner * torch.sigmoid(inner)
        found.append(z @ (tensors["lm_head"] if shared else tensors["projection"][head]).T)
    return torch.stack(found)


def observed(
    planned: Coordinate, training: Training, step: int, shared: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    generator = np.random.default_rng([step, shared, len(training.tokens)])
    heads, batch, length = planned.heads, len(training.tokens), len(training.tokens[0])
    d, v, blocks = planned.model.hidden, planned.model.vocabulary, planned.model.head_blocks
    sizes = {"weight": (heads, blocks, d, d), "bias": (heads, blocks, d), "lm_head": (v, d)}
    if not shared:
        sizes["projection"] = (heads, v, d)
    state = {name: 0.5 * generator.normal(size=size) for name, size in sizes.items()}
    hidden = generator.normal(size=(batch, length, d))
    tensors = {
        name: torch.tensor(value, requires_grad=name != "lm_head") for name, value in state.items()
    }
    spoken = run_heads(tensors, torch.tensor(hidden), shared)
    labels = np.full((heads, batch, length), -100)
    owned = np.zeros((heads, batch, length), np.bool_)
    losses, medusa = [], torch.zeros((), dtype=torch.float64)
    for head in range(heads):
        for b, row in enumerate(training.tokens):
            labels[head, b, : max(length - head - 2, 0)] = row[head + 2 :]
        own = pairs(training, head + 2)
        for b, t, _ in own:
            owned[head, b, t] = True
        losses.append(mean_loss(spoken[head], own))
        for b, t, label in own:
            chosen = -torch.log_softmax(spoken[head, b, t], -1)[label]
            medusa = medusa + training.head_weights[head] * chosen / len(own)

    alone = training.variant == "medusa-1" or (
        training.schedule == "two-stage" and step < training.warm_up
    )
    weight, moving = 1.0, {"heads"}
    first = generator.normal(size=(batch, length, v))
    logits = first if step == 0 else first + 0.3 * generator.normal(size=first.shape)
    after = logits
    arrays = {"training.step": np.array(step)}
    total = float(medusa.detach())
    if not alone:
        share = min((step + 1) / training.warm_up, 1) if training.schedule == "ramp" else 1
        weight = training.medusa_weight * share
        moving |= {"adapter"} if training.adapter_rank else {"backbone", "lm_head"}
        after = logits + 0.01
        backbone = (
            mean_loss(logits, pairs(training, 1))
            if training.variant == "medusa-2"
            else divergence(first, logits, training)
        )
        total = backbone + weight * total
        arrays["training.backbone_loss"] = np.array(backbone)
    if training.variant == "self-distilled":
        arrays["training.teacher_logits"] = first
    (weight * medusa).backward()
    arrays |= {
        **{f"training.state.{name}": value for name, value in state.items()},
        **{f"training.gradient.{n}": t.grad.numpy() for n, t in tensors.items() if n != "lm_head"},
        "training.hidden": hidden,
        "training.logits": logits,
        "training.head_logits": spoken.detach().numpy(),
        "training.labels": labels,
        "training.owned": owned,
        "training.head_losses": np.array(losses),
        "training.medusa_loss": np.array(float(medusa.detach())),
        "training.loss": np.array(total),
        "training.plain_first": first,
        "training.plain_before": logits,
        "training.plain_after": after,
    }
    documents = {
        "training.refused": None,
        "training.skipped": [
            {"head": head, "reason": "no label"} for head in range(heads) if not owned[head].any()
        ],
        "training.parameters": parameters(training, moving),
        "training.groups": groups(training, moving),
    }
    return arrays, documents


def early(trace: Trace) -> dict[str, Any]:
    """Labels of the ordinary head, one place less far."""
    training, labels = trace.coordinate.training, trace["training.labels"].copy()
    assert training is not None
    for head in range(len(labels)):
        labels[head] = -100
        for b, row in enumerate(training.tokens):
            labels[head, b, : len(row) - head - 1] = row[head + 1 :]
    return {"training.labels": labels}


def unmoved(trace: Trace) -> dict[str, Any]:
    training = trace.coordinate.training
    assert training is not None
    mask = np.array(training.owned)
    return {"training.owned": np.stack([mask] * trace.coordinate.heads)}


def moved(trace: Trace, part: str, how: bool) -> dict[str, Any]:
    """A part of the model that changed, or that did not."""
    listed = [dict(entry) for entry in trace["training.parameters"]]
    for entry in listed:
        if entry["part"] == part:
            entry["after"] = "0" * 64 if how else entry["before"]
    return {"training.parameters": listed}


def regrouped(trace: Trace, number: int, **changes: Any) -> dict[str, Any]:
    found = [dict(group) for group in trace["training.groups"]]
    found[number] |= changes
    return {"training.groups": found}


def scaled(name: str, by: float, trace: Trace) -> dict[str, Any]:
    return {f"training.{name}": trace[f"training.{name}"] * by}


def soft(trace: Trace) -> dict[str, Any]:
    """Losses against the teacher's row that speaks of the same token."""
    training, losses = trace.coordinate.training, []
    assert training is not None
    for head, logits in enumerate(trace["training.head_logits"]):
        terms = []
        for b, t, _ in pairs(training, head + 2):
            p = softmax(trace["training.teacher_logits"][b, t + head + 1].tolist())
            q = softmax(logits[b, t].tolist())
            terms.append(-math.fsum(a * math.log(c) for a, c in zip(p, q, strict=True)))
        losses.append(math.fsum(terms) / len(terms))
    return {"training.head_losses": np.array(losses)}


def reverse(trace: Trace) -> dict[str, Any]:
    training = trace.coordinate.training
    assert training is not None
    logits, teacher = trace["training.logits"], trace["training.teacher_logits"]
    return {"training.backbone_loss": np.array(divergence(logits, teacher, training))}
