"""Oracle of `spec/training.md`, first half: labels and losses of one step (L1 to L10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps

import numpy as np

from medusa_oracles.judge import Check, beyond, close, equal, oracle_beside
from medusa_oracles.training_loss import (
    derive_divergence,
    derive_head_losses,
    derive_joint,
    derive_labels,
    derive_lm_loss,
    derive_loss,
    derive_medusa_loss,
    derive_medusa_weight,
    derive_soft_losses,
)
from medusa_spec.arrays import Array, BoolArray, FloatArray
from medusa_spec.coordinate import Training
from medusa_spec.findings import Finding
from medusa_spec.trace import Tolerance, Trace
from medusa_spec.trace_names import ARRAYS

_ROW = ("head", "batch", "position")


def training_oracle(
    code: str,
    *needs: str,
    instead: tuple[str, ...] = (),
    applies: Callable[[Trace], bool] = lambda _: True,
) -> Callable[[Check], Check]:
    """An oracle of traces that train, whose findings say at which step they lie."""

    def register(check: Check) -> Check:
        @wraps(check)
        def placed(trace: Trace) -> Iterator[Finding]:
            step = {"step": step_of(trace)} if trace.has("training.step") else {}
            for finding in check(trace):
                yield replace(finding, where={**step, **finding.where})

        found = oracle_beside("training", code, *needs, instead=instead, applies=applies)
        return found(placed)

    return register


def plan_of(trace: Trace) -> Training:
    """The batch and the recipe; every training oracle applies only where there is one."""
    planned = trace.coordinate.training
    assert planned is not None
    return planned


def step_of(trace: Trace) -> int:
    """Which step this is, from zero."""
    return int(trace["training.step"])


def is_joint(trace: Trace) -> bool:
    """Whether the backbone trains in this step."""
    return derive_joint(plan_of(trace), step_of(trace))


def shown(trace: Trace, name: str) -> Array:
    """What an engine showed; `ValueError` where it has not the size of the batch and the model."""
    planned, shape = plan_of(trace), trace.coordinate.model
    sizes = {
        "K": trace.coordinate.heads,
        "B": len(planned.tokens),
        "S": len(planned.tokens[0]),
        "V": shape.vocabulary,
        "d": shape.hidden,
        "R_h": shape.head_blocks,
    }
    axes = ARRAYS[name]
    expected = [sizes[axis] for axis in axes.split(", ")] if axes else []
    found: Array = trace[name]
    if list(found.shape) != expected:
        raise ValueError(f"{name} is {list(found.shape)}; the batch's is {expected}")
    return found


def _number(
    code: str, message: str, expected: float, trace: Trace, name: str, tolerance: Tolerance
) -> Iterator[Finding]:
    """At most one finding: a loss that is not what was expected."""
    return close(code, message, np.asarray(expected), shown(trace, name), (), tolerance)


@training_oracle("TRAINING.LABEL_SHIFT", "training.labels")
def label_shift(trace: Trace) -> Iterator[Finding]:
    """Clause L1."""
    message, expected = "a label is not token t + head + 2", derive_labels(plan_of(trace)).labels
    yield from equal("TRAINING.LABEL_SHIFT", message, expected, trace["training.labels"], _ROW)


@training_oracle("TRAINING.MASK_SHIFTS_WITH_LABELS", "training.owned")
def mask_shifts_with_labels(trace: Trace) -> Iterator[Finding]:
    """Clause L2."""
    code, observed = "TRAINING.MASK_SHIFTS_WITH_LABELS", trace["training.owned"]
    message = "a label is not owned where the loss mask owns its place"
    yield from equal(code, message, derive_labels(plan_of(trace)).owned, observed, _ROW)


@training_oracle("TRAINING.OWNED_MEAN", "training.head_logits", "training.head_losses")
def owned_mean(trace: Trace) -> Iterator[Finding]:
    """Clause L3, for heads with owned labels; of the others L4 speaks."""
    hard = derive_head_losses(shown(trace, "training.head_logits"), derive_labels(plan_of(trace)))
    message = "a head's loss is not the mean over its own owned labels"
    yield from _head_losses("TRAINING.OWNED_MEAN", message, hard, trace)


def _head_losses(code: str, message: str, expected: FloatArray, trace: Trace) -> Iterator[Finding]:
    observed = np.where(counted(trace), shown(trace, "training.head_losses"), expected)
    yield from close(code, message, expected, observed, ("head",), trace.policy_tolerance)


def counted(trace: Trace) -> BoolArray:
    """Which heads `[K]` have an owned label."""
    some: BoolArray = derive_labels(plan_of(trace)).masked_coverage > 0
    return some


@training_oracle("TRAINING.EMPTY_HEAD", "training.refused")
def empty_head(trace: Trace) -> Iterator[Finding]:
    """Clause L4: skipped with a reason or refused, as declared, and never divided."""
    code, refused = "TRAINING.EMPTY_HEAD", trace["training.refused"]
    some = counted(trace)
    empty = [int(head) for head in np.flatnonzero(~some)]
    rejects = bool(empty) and trace.dialect.empty_heads == "reject"
    if refused is not None:
        if not rejects:
            why = "no head lacks labels" if not empty else "it is not declared that such are"
            yield Finding(code, f"a batch was refused, and {why}", {}, None, refused)
        return
    if rejects:
        message = "a batch with a head without labels was not refused, as is declared"
        yield Finding(code, message, {"head": empty[0]}, "refused", None)
        return
    if trace.has("training.skipped"):
        yield from _skips(code, empty, trace)
    if trace.has("training.head_losses"):
        losses = shown(trace, "training.head_losses")
        expected = np.where(some, losses, 0.0)
        message = "a head without owned labels has a loss"
        yield from equal(code, message, expected, losses, ("head",))
    for name in ("logits", "head_logits", "teacher_logits"):
        if trace.has(f"training.{name}") and not np.isfinite(trace[f"training.{name}"]).all():
            return
    for name in ("medusa_loss", "backbone_loss", "loss"):
        if trace.has(f"training.{name}") and not np.isfinite(trace[f"training.{name}"]).all():
            message = f"the {name.replace('_', ' ')} of finite logits is no finite number"
            yield Finding(code, message, {}, None, float(shown(trace, f"training.{name}")))
            return


def _skips(code: str, empty: list[int], trace: Trace) -> Iterator[Finding]:
    skipped = [int(entry["head"]) for entry in trace["training.skipped"]]
    if sorted(skipped) != empty:
        different = sorted({*skipped} ^ {*empty}) or skipped
        message = "the heads that were skipped are not those without owned labels"
        where = {"head": different[0]} if different[0] >= 0 else {}
        yield Finding(code, message, where, empty, sorted(skipped))
    for entry in trace["training.skipped"]:
        if not str(entry.get("reason") or "").strip():
            message = "a head was skipped without a reason"
            yield Finding(code, message, {"head": int(entry["head"])})
            return


@training_oracle("TRAINING.HEAD_WEIGHTS", "training.head_losses", "training.medusa_loss")
def head_weights(trace: Trace) -> Iterator[Finding]:
    """Clause L5, from the losses that were observed."""
    losses = np.where(counted(trace), shown(trace, "training.head_losses"), 0.0)
    expected = derive_medusa_loss(plan_of(trace).head_weights, losses)
    code, message = "TRAINING.HEAD_WEIGHTS", "the heads' loss is not the weighted sum of theirs"
    name, tolerance = "training.medusa_loss", trace.policy_tolerance
    yield from _number(code, message, expected, trace, name, tolerance)


_UNSPLIT = ("training.loss", "training.medusa_loss")


def _backbone(
    code: str, what: str, expected: float, trace: Trace, tolerance: Tolerance
) -> Iterator[Finding]:
    """The backbone's term; of an engine that shows no terms, within the whole loss."""
    if trace.has("training.backbone_loss"):
        message = f"the backbone's loss is not {what}"
        yield from _number(code, message, expected, trace, "training.backbone_loss", tolerance)
        return
    medusa = float(shown(trace, "training.medusa_loss"))
    whole = derive_loss(plan_of(trace), step_of(trace), medusa, expected)
    message = f"what the loss holds beside the heads' is not {what}"
    yield from _number(code, message, whole, trace, "training.loss", tolerance)


_DIRECT = ("training.step", "training.logits")


@training_oracle(
    "TRAINING.LM_TERM",
    *_DIRECT,
    "training.backbone_loss",
    instead=(*_DIRECT, *_UNSPLIT),
    applies=lambda trace: plan_of(trace).variant == "medusa-2" and is_joint(trace),
)
def lm_term(trace: Trace) -> Iterator[Finding]:
    """Clause L6."""
    expected = derive_lm_loss(shown(trace, "training.logits"), plan_of(trace))
    what = "the mean cross-entropy of the owned next tokens"
    yield from _backbone("TRAINING.LM_TERM", what, expected, trace, trace.policy_tolerance)


def _distils(trace: Trace) -> bool:
    return plan_of(trace).variant == "self-distilled"


_TAUGHT = ("training.step", "training.logits", "training.teacher_logits")


@training_oracle(
    "TRAINING.DISTILL_DIRECTION",
    *_TAUGHT,
    "training.backbone_loss",
    instead=(*_TAUGHT, *_UNSPLIT),
    applies=lambda trace: _distils(trace) and is_joint(trace),
)
def distill_direction(trace: Trace) -> Iterator[Finding]:
    """Clause L7.

    Teacher and student are close, so the sum is one of small differences of logarithms: what it
    loses to rounding goes with the forward pass, and not with its own size.
    """
    teacher, student = (shown(trace, name) for name in _TAUGHT[:0:-1])
    expected = derive_divergence(teacher, student, plan_of(trace))
    reverse = derive_divergence(student, teacher, plan_of(trace))
    what = "the sum of KL(teacher || student)"
    for finding in _backbone("TRAINING.DISTILL_DIRECTION", what, expected, trace, trace.tolerance):
        turned = not [*_backbone(finding.code, what, reverse, trace, trace.tolerance)]
        message = f"{finding.message}, but of KL(student || teacher)" if turned else finding.message
        yield replace(finding, message=message)


@training_oracle(
    "TRAINING.COMBINED_LOSS",
    "training.step",
    *_UNSPLIT,
    applies=lambda trace: not is_joint(trace) or trace.has("training.backbone_loss"),
)
def combined_loss(trace: Trace) -> Iterator[Finding]:
    """Clause L8, from the terms that were observed."""
    planned, step, backbone = plan_of(trace), step_of(trace), None
    message = "the loss of heads that train alone is not theirs"
    if is_joint(trace):
        backbone = float(shown(trace, "training.backbone_loss"))
        weight = derive_medusa_weight(planned, step)
        message = f"the loss is not the backbone's plus {weight:g} times the heads'"
    expected = derive_loss(planned, step, float(shown(trace, "training.medusa_loss")), backbone)
    code, name = "TRAINING.COMBINED_LOSS", "training.loss"
    yield from _number(code, message, expected, trace, name, trace.policy_tolerance)


@training_oracle(
    "TRAINING.TEACHER_IS_ADAPTER_OFF",
    "training.teacher_logits",
    "training.plain_first",
    applies=_distils,
)
def teacher_is_adapter_off(trace: Trace) -> Iterator[Finding]:
    """Clause L9: the teacher says what a plain pass said before the first step."""
    yield from close(
        "TRAINING.TEACHER_IS_ADAPTER_OFF",
        "the teacher is not the model as it was before training",
        shown(trace, "training.plain_first"),
        trace["training.teacher_logits"],
        ("batch", "position", "token"),
        trace.tolerance,
    )


@training_oracle(
    "TRAINING.HEADS_LEARN_HARD_LABELS",
    "training.head_logits",
    "training.head_losses",
    "training.teacher_logits",
    applies=_distils,
)
def heads_learn_hard_labels(trace: Trace) -> Iterator[Finding]:
    """Clause L10: losses that are not those of L3, but those of the teacher's distribution."""
    planned, logits = plan_of(trace), shown(trace, "training.head_logits")
    code = "TRAINING.HEADS_LEARN_HARD_LABELS"
    message = "the heads learn the teacher's distribution, and not the hard labels"
    hard = derive_head_losses(logits, derive_labels(planned))
    soft = derive_soft_losses(logits, shown(trace, "training.teacher_logits"), planned)
    observed = np.where(counted(trace), shown(trace, "training.head_losses"), 0.0)
    # An engine that took a teacher for labels may have read it in the precision of its own pass.
    within = max(trace.tolerance, trace.policy_tolerance, key=lambda t: t.atol)
    if any(not beyond(losses, observed, within) for losses in soft):
        yield from _head_losses(code, message, hard, trace)
