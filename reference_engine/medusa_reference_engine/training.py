"""Training steps: the heads, and by the variant the backbone, learn from a batch (0x05A-0x05C).

Shapes: `B` sequences of `S` tokens, `K` heads, `d` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from medusa_reference_engine.decoder import wide
from medusa_reference_engine.heads import IGNORED, HeadStage, HeadTensors
from medusa_reference_engine.learner import Learner, Weights, part_of
from medusa_reference_engine.verification import floats
from medusa_spec.arrays import BoolArray, IntArray
from medusa_spec.coordinate import Training
from medusa_spec.stages import HeadAlignment, HeadState, TrainingStep


@dataclass(frozen=True, slots=True)
class Batch:
    """`tokens [B, S]` and whether the objective owns each, as a label; for the heads, shifted.

    `labels [K, B, S]` and `owned [K, B, S]` stand at the hidden row that they are learnt from.
    """

    tokens: Tensor
    mask: Tensor
    labels: Tensor
    owned: Tensor


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward pass over a batch, before the update.

    `hidden [B, S, d]`; `logits [B, S, V]` of the ordinary head and `teacher [B, S, V]` where the
    variant has one; `head_logits [K, B, S, V]` of the heads, which then held `held`.
    """

    hidden: Tensor
    logits: Tensor
    teacher: Tensor | None
    head_logits: Tensor
    held: HeadTensors


class TrainingStage:
    """Clauses L1 to L15."""

    def step(self, learner: Learner) -> TrainingStep:
        """The learner's next step: a pass, its loss and gradient, and one update by AdamW."""
        training, step = learner.training, learner.steps
        joint = self.joint(training, step)
        groups = self.groups(learner, joint)
        self.open(learner, {name for names in groups.values() for name in names})
        optimizer = self.optimizer(learner, groups)
        before = learner.digests()

        batch = self.batch(learner)
        seen = self.read(learner, batch.tokens)
        losses = self.head_losses(batch, seen)
        medusa = self.weigh(losses, training.head_weights)
        backbone = self.backbone_loss(batch, seen) if joint else None
        loss = medusa
        if backbone is not None:
            loss = self.combine(backbone, self.medusa_weight(training, step), medusa)
        self.clear(learner)
        if loss.requires_grad:  # It depends on nothing where no label at all is owned.
            torch.autograd.backward(loss)
        skipped = [head for head, owned in enumerate(batch.owned) if not self.learns(owned)]
        learner.forget(skipped)
        state = _state(seen.held, _floats(seen.held.lm_head))
        gradient = _state(learner.gradient(), None)

        optimizer.step()
        learner.steps += 1
        after = learner.digests()
        return TrainingStep(
            _floats(seen.hidden),
            _floats(seen.logits),
            _floats(seen.teacher),
            _floats(seen.head_logits),
            batch.labels.cpu().numpy(),
            batch.owned.cpu().numpy(),
            _floats(losses),
            _floats(medusa),
            _floats(backbone),
            _floats(loss),
            state,
            gradient,
            tuple({"head": head, "reason": "it has no owned label"} for head in skipped),
            tuple(
                {"name": group["name"], "rate": group["lr"], "parameters": group["names"]}
                for group in optimizer.param_groups
            ),
            tuple(
                {"name": name, "part": part_of(name), "before": old, "after": after[name]}
                for name, old in before.items()
            ),
        )

    def joint(self, training: Training, step: int) -> bool:
        """Clause L15: whether the backbone, or its adapter, trains beside the heads."""
        if training.variant == "medusa-1":
            return False
        return training.schedule == "ramp" or step >= training.warm_up

    def groups(self, learner: Learner, joint: bool) -> dict[str, list[str]]:
        """Clauses L12 and L14: the names of what trains, by the group that sets its rate."""
        groups = {"heads": learner.named("heads")}
        if joint:
            adapter = learner.named("adapter")
            groups["backbone"] = adapter or learner.named("backbone", "lm_head")
        return groups

    def open(self, learner: Learner, names: Set[str]) -> None:
        """Clause L13: gradients reach what trains, and nothing else."""
        for name, parameter in learner.parameters.items():
            parameter.requires_grad_(name in names)

    def optimizer(self, learner: Learner, groups: Mapping[str, list[str]]) -> torch.optim.AdamW:
        """Clause L14: each group at its own rate, going on with what it knows of each parameter."""
        optimizer = torch.optim.AdamW(
            {
                "name": group,
                "names": names,
                "params": [learner.parameters[name] for name in names],
                "lr": self.rate(learner.training, group),
            }
            for group, names in groups.items()
        )
        optimizer.state = learner.moments
        return optimizer

    def rate(self, training: Training, group: str) -> float:
        """The learning rate of a group."""
        return training.head_rate if group == "heads" else training.backbone_rate

    def batch(self, learner: Learner) -> Batch:
        """The batch on the decoder's device, its labels aligned for every head."""
        tokens, mask = np.array(learner.training.tokens), np.array(learner.training.owned)
        aligned = self.align(learner.heads, tokens, mask, len(learner.shapes.weight))
        device = learner.shapes.weight.device
        given = (tokens, mask, aligned.labels, aligned.owned)
        return Batch(*(torch.as_tensor(array, device=device) for array in given))

    def align(
        self, stage: HeadStage, tokens: IntArray, owned: BoolArray, heads: int
    ) -> HeadAlignment:
        """Clauses L1 and L2: labels and loss mask, moved as the heads are."""
        return stage.align(tokens, owned, heads)

    def read(self, learner: Learner, tokens: Tensor) -> Pass:
        """The pass that is learnt from. Losses are made of logits in at least float32."""
        student = learner.adapted()
        hidden = self.hidden(learner, student, tokens)
        exact = wide(hidden.dtype)
        teacher = None
        if learner.training.variant == "self-distilled":
            with torch.no_grad():
                weights = self.teacher(learner, student)
                taught = learner.hidden(weights, tokens)
                teacher = F.linear(taught, weights["lm_head.weight"]).to(exact)
        held = learner.held(student)
        _, head_logits = learner.heads.run(held, hidden)
        logits = F.linear(hidden, student["lm_head.weight"])
        return Pass(hidden, logits.to(exact), teacher, head_logits.to(exact), held)

    def hidden(self, learner: Learner, student: Weights, tokens: Tensor) -> Tensor:
        """Clause L13: what both losses read, and train the backbone through."""
        return learner.hidden(student, tokens)

    def teacher(self, learner: Learner, student: Weights) -> Weights:
        """Clause L9: the weights with the adapter off, which no step changes."""
        return learner.plain()

    def head_losses(self, batch: Batch, seen: Pass) -> Tensor:
        """Clauses L3 and L4: `[K]`."""
        return torch.stack(
            [
                self.mean(self.row_losses(head, batch, seen), owned)
                if self.learns(owned)
                else seen.head_logits.new_zeros(())
                for head, owned in enumerate(batch.owned)
            ]
        )

    def learns(self, owned: Tensor) -> bool:
        """Clause L4: a head without an owned label `[B, S]` is skipped, for its mean is 0/0."""
        return bool(owned.any())

    def row_losses(self, head: int, batch: Batch, seen: Pass) -> Tensor:
        """Clause L10: cross-entropy with the tokens themselves, `[B, S]`."""
        logits, labels = seen.head_logits[head], batch.labels[head]
        return F.cross_entropy(logits.mT, labels, ignore_index=IGNORED, reduction="none")

    def mean(self, losses: Tensor, owned: Tensor) -> Tensor:
        """Clause L3: of the owned rows, both `[B, S]`."""
        return losses[owned].mean()

    def weigh(self, losses: Tensor, weights: Sequence[float]) -> Tensor:
        """Clause L5: the weighted sum of `[K]` losses."""
        return (losses * losses.new_tensor(weights)).sum()

    def backbone_loss(self, batch: Batch, seen: Pass) -> Tensor:
        """What keeps the ordinary head as good as it was."""
        if seen.teacher is None:
            return self.next_token(batch, seen.logits)
        return self.distillation(batch, seen.logits, seen.teacher)

    def next_token(self, batch: Batch, logits: Tensor) -> Tensor:
        """Clause L6: mean cross-entropy of the owned next tokens; 0 where there is none."""
        owned = batch.mask[:, 1:]
        if not owned.any():
            return logits.new_zeros(())
        return F.cross_entropy(logits[:, :-1][owned], batch.tokens[:, 1:][owned])

    def distillation(self, batch: Batch, logits: Tensor, teacher: Tensor) -> Tensor:
        """Clause L7: the sum of KL(teacher || student) over rows whose next token is owned."""
        owned = batch.mask[:, 1:]
        student, target = (x[:, :-1][owned].log_softmax(-1) for x in (logits, teacher))
        return self.divergence(target, student).sum()

    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        """KL(teacher || student) of log-probabilities `[rows, V]`, `[rows]`."""
        return (teacher.exp() * (teacher - student)).sum(-1)

    def medusa_weight(self, training: Training, step: int) -> float:
        """`lambda_0`, which a ramp lets grow over its first steps."""
        if training.schedule == "two-stage" or training.warm_up == 0:
            return training.medusa_weight
        return training.medusa_weight * min((step + 1) / training.warm_up, 1.0)

    def combine(self, backbone: Tensor, weight: float, medusa: Tensor) -> Tensor:
        """Clause L8: `backbone + lambda_0 * medusa`."""
        return backbone + weight * medusa

    def clear(self, learner: Learner) -> None:
        """Clause L11: a gradient is that of one step."""
        for parameter in learner.parameters.values():
            parameter.grad = None


def _floats(tensor: Tensor | None) -> Any:
    """A float64 copy in host memory, if there is anything."""
    return None if tensor is None else floats(tensor.detach())


def _state(held: HeadTensors, lm_head: Any) -> HeadState:
    """The heads' own parameters, or their gradients, beside the ordinary head, if it is shown."""
    return HeadState(_floats(held.weight), _floats(held.bias), lm_head, _floats(held.projection))
