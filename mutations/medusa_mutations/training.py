"""Training, broken: the loss still falls, and something else is learnt, or by something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_mutations.heads import HeadOffsetOne
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.learner import Learner, Weights, part_of
from medusa_reference_engine.training import Batch, Pass, TrainingStage
from medusa_spec.arrays import BoolArray, IntArray
from medusa_spec.coordinate import Training
from medusa_spec.stages import HeadAlignment


@mutant("labels-offset-one")
class LabelsOffsetOne(TrainingStage):
    def align(
        self, stage: HeadStage, tokens: IntArray, owned: BoolArray, heads: int
    ) -> HeadAlignment:
        return super().align(HeadOffsetOne(), tokens, owned, heads)


class _MaskStays(HeadStage):
    def shifted(self, owned: BoolArray, shift: int) -> BoolArray:
        return owned[:, :-shift]


@mutant("mask-not-shifted")
class MaskNotShifted(TrainingStage):
    def align(
        self, stage: HeadStage, tokens: IntArray, owned: BoolArray, heads: int
    ) -> HeadAlignment:
        return super().align(_MaskStays(), tokens, owned, heads)


@mutant("mean-over-all-rows")
class MeanOverAllRows(TrainingStage):
    def mean(self, losses: Tensor, owned: Tensor) -> Tensor:
        return (losses * owned).mean()


@mutant("empty-head-divides")
class EmptyHeadDivides(TrainingStage):
    def learns(self, owned: Tensor) -> bool:
        return True


@mutant("weights-exponent-off")
class WeightsExponentOff(TrainingStage):
    def weigh(self, losses: Tensor, weights: Sequence[float]) -> Tensor:
        # One power more of the ratio that the first weight is, as if k began at 2.
        return super().weigh(losses, [weights[0] * weight for weight in weights])


@mutant("lm-term-missing")
class LmTermMissing(TrainingStage):
    def next_token(self, batch: Batch, logits: Tensor) -> Tensor:
        return logits.new_zeros(())


@mutant("kl-reversed")
class KlReversed(TrainingStage):
    def divergence(self, teacher: Tensor, student: Tensor) -> Tensor:
        return super().divergence(student, teacher)


@mutant("kl-term-missing")
class KlTermMissing(TrainingStage):
    def distillation(self, batch: Batch, logits: Tensor, teacher: Tensor) -> Tensor:
        return logits.new_zeros(())


@mutant("lambda-zero-on-the-lm-term")
class LambdaZeroOnTheLmTerm(TrainingStage):
    def combine(self, backbone: Tensor, weight: float, medusa: Tensor) -> Tensor:
        return weight * backbone + medusa


@mutant("ramp-starts-at-zero")
class RampStartsAtZero(TrainingStage):
    def medusa_weight(self, training: Training, step: int) -> float:
        return super().medusa_weight(training, step - 1)


@mutant("teacher-is-student")
class TeacherIsStudent(TrainingStage):
    def teacher(self, learner: Learner, student: Weights) -> Weights:
        return student


@mutant("heads-learn-the-teacher")
class HeadsLearnTheTeacher(TrainingStage):
    def row_losses(self, head: int, batch: Batch, seen: Pass) -> Tensor:
        if seen.teacher is None:
            return super().row_losses(head, batch, seen)
        # The teacher's row that predicts this head's label; rows rolled round have no label.
        target = seen.teacher.roll(-(head + 1), 1).softmax(-1)
        return -(target * seen.head_logits[head].log_softmax(-1)).sum(-1)


@mutant("gradients-accumulate")
class GradientsAccumulate(TrainingStage):
    def clear(self, learner: Learner) -> None:
        pass


@mutant("backbone-gradient-in-medusa-1")
class BackboneGradientInMedusa1(TrainingStage):
    def groups(self, learner: Learner, joint: bool) -> dict[str, list[str]]:
        groups = super().groups(learner, joint)
        if learner.training.variant == "medusa-1":
            groups["heads"] += learner.named("backbone")
        return groups


@mutant("lm-head-trains-in-medusa-1")
class LmHeadTrainsInMedusa1(TrainingStage):
    def groups(self, learner: Learner, joint: bool) -> dict[str, list[str]]:
        groups = super().groups(learner, joint)
        # Heads that share the ordinary head's matrix have it among their parameters.
        if learner.training.variant == "medusa-1" and learner.shapes.projection is None:
            groups["heads"] += learner.named("lm_head")
        return groups


@mutant("hidden-detached-in-medusa-2")
class HiddenDetachedInMedusa2(TrainingStage):
    def hidden(self, learner: Learner, student: Weights, tokens: Tensor) -> Tensor:
        return super().hidden(learner, student, tokens).detach()


@mutant("backbone-frozen-in-joint")
class BackboneFrozenInJoint(TrainingStage):
    def open(self, learner: Learner, names: Set[str]) -> None:
        super().open(learner, {name for name in names if part_of(name) == "heads"})


@mutant("groups-equalised")
class GroupsEqualised(TrainingStage):
    def rate(self, training: Training, group: str) -> float:
        return super().rate(training, "heads")


@mutant("group-incomplete")
class GroupIncomplete(TrainingStage):
    def optimizer(self, learner: Learner, groups: Mapping[str, list[str]]) -> torch.optim.AdamW:
        last = f"medusa_head.{len(learner.shapes.weight) - 1}."
        kept = [name for name in groups["heads"] if not name.startswith(last)]
        return super().optimizer(learner, {**groups, "heads": kept})


@mutant("stage-order-swapped")
class StageOrderSwapped(TrainingStage):
    def joint(self, training: Training, step: int) -> bool:
        joint = super().joint(training, step)
        return joint != (training.variant != "medusa-1" and training.schedule == "two-stage")
