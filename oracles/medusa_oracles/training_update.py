"""Oracle of `spec/training.md`, second half: the gradient, and what a step changes (L11 to L15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from medusa_oracles.judge import close, equal, same
from medusa_oracles.training import counted, is_joint, plan_of, shown, step_of, training_oracle
from medusa_oracles.training_loss import derive_gradient
from medusa_spec.coordinate import Training
from medusa_spec.findings import Finding
from medusa_spec.stages import HeadState
from medusa_spec.trace import Trace

_GIVEN = ("training.state.weight", "training.state.bias")


def _projects(trace: Trace) -> str:
    """The matrix that the heads' logits come from."""
    own = trace.coordinate.model.projection == "independent"
    return "training.state.projection" if own else "training.state.lm_head"


@training_oracle(
    "TRAINING.GRADIENT",
    "training.step",
    "training.hidden",
    *_GIVEN,
    "training.gradient.weight",
    "training.gradient.bias",
    applies=lambda trace: trace.has(_projects(trace)),
)
def gradient(trace: Trace) -> Iterator[Finding]:
    """Clause L11: derived from the hidden states and the parameters before the update."""
    code, name, axes = "TRAINING.GRADIENT", _projects(trace), ("head", "block", "channel", "input")
    weight, bias = (shown(trace, given) for given in _GIVEN)
    matrix = shown(trace, name)
    own = matrix if name == "training.state.projection" else None
    state = HeadState(weight, bias, matrix, own)
    hidden = shown(trace, "training.hidden")
    derived = derive_gradient(plan_of(trace), step_of(trace), hidden, state)
    parts = [("weight", derived.weight, axes), ("bias", derived.bias, axes[:3])]
    if derived.projection is not None and trace.has("training.gradient.projection"):
        parts.append(("projection", derived.projection, ("head", "token", "channel")))
    for part, expected, places in parts:
        message = f"the gradient by the heads' {part} is not that of the loss"
        observed = trace[f"training.gradient.{part}"]
        yield from close(code, message, expected, observed, places, trace.tolerance)


_BACKBONE = frozenset({"backbone", "lm_head", "adapter"})


def _trainable(planned: Training) -> frozenset[str]:
    """The parts that train beside the heads in a joint step."""
    return frozenset({"adapter"} if planned.adapter_rank else {"backbone", "lm_head"})


def _frozen(trace: Trace) -> frozenset[str]:
    return _BACKBONE - _trainable(plan_of(trace)) if is_joint(trace) else _BACKBONE


def _parameters(trace: Trace, parts: frozenset[str]) -> list[Mapping[str, Any]]:
    """The entries of `parts`; none where no parameters were observed."""
    listed = trace["training.parameters"] if trace.has("training.parameters") else ()
    return [entry for entry in listed if entry["part"] in parts]


def _changed(trace: Trace, parts: frozenset[str]) -> list[Mapping[str, Any]]:
    return [entry for entry in _parameters(trace, parts) if entry["before"] != entry["after"]]


_SAME_RATE = 1e-6
"""Relative: an optimizer may hold its rates in single precision."""

_DIGESTS = ("training.step", "training.parameters")
_PASSES = ("training.plain_before", "training.plain_after")


@training_oracle(
    "TRAINING.BACKBONE_FROZEN",
    *_DIGESTS,
    instead=("training.step", *_PASSES),
    applies=lambda trace: not is_joint(trace) or bool(plan_of(trace).adapter_rank),
)
def backbone_frozen(trace: Trace) -> Iterator[Finding]:
    """Clause L12: by the bytes of the parameters, and where heads train alone by a plain pass."""
    code, parts = "TRAINING.BACKBONE_FROZEN", _frozen(trace)
    if trace.has("training.parameters"):
        frozen, changed = _parameters(trace, parts), _changed(trace, parts)
        if not frozen:
            message = "no parameter that must stay is listed"
            yield Finding(code, message, {}, ", ".join(sorted(parts)), None)
        for entry in changed[:1]:
            share = f"{len(changed)} of {len(frozen)} frozen parameters changed"
            message = f"{share}, {entry['name']} of part {entry['part']} the first"
            yield Finding(code, message, {}, entry["before"], entry["after"])
    if trace.has(*_PASSES) and not is_joint(trace):
        message = "a plain pass gives other logits behind a step of the heads alone"
        before, after = (shown(trace, name) for name in _PASSES)
        yield from equal(code, message, before, after, ("batch", "position", "token"))


def _learns(trace: Trace) -> bool:
    """Whether the batch has anything to learn from, without which a step may change nothing."""
    return bool(counted(trace).any())


@training_oracle(
    "TRAINING.BACKBONE_TRAINS",
    *_DIGESTS,
    instead=("training.step", *_PASSES),
    applies=lambda trace: is_joint(trace) and _learns(trace),
)
def backbone_trains(trace: Trace) -> Iterator[Finding]:
    """Clause L13: some parameter of each part that trains changes, and with it a plain pass."""
    code = "TRAINING.BACKBONE_TRAINS"
    if trace.has("training.parameters"):
        for part in sorted(_trainable(plan_of(trace))):
            listed, changed = (of(trace, frozenset({part})) for of in (_parameters, _changed))
            # A model whose heads are tied to its embedding has no other ordinary head.
            if not changed and (listed or part != "lm_head"):
                message = f"no parameter of part {part} changes in a joint step"
                yield Finding(code, message, {}, None, len(listed))
    if trace.has(*_PASSES) and same(*(shown(trace, name) for name in _PASSES)):
        yield Finding(code, "a plain pass gives the same logits behind a joint step")


def _in_groups(trace: Trace, name: str) -> list[str]:
    groups = trace["training.groups"]
    return [p for group in groups if group["name"] == name for p in group["parameters"]]


@training_oracle("TRAINING.GROUPS", *_DIGESTS, "training.groups")
def groups(trace: Trace) -> Iterator[Finding]:
    """Clause L14. Whether the backbone may be there at this step is L15's, but in Medusa-1."""
    code, planned = "TRAINING.GROUPS", plan_of(trace)
    owed = {"heads": (frozenset({"heads"}), planned.head_rate)}
    if is_joint(trace) or (planned.variant != "medusa-1" and _in_groups(trace, "backbone")):
        owed["backbone"] = _trainable(planned), planned.backbone_rate
    held = Counter(p for group in trace["training.groups"] for p in group["parameters"])
    twice = [name for name, times in held.items() if times > 1]
    if twice:
        message = f"{twice[0]} is in more than one place of the optimizer's groups"
        yield Finding(code, message, {}, 1, held[twice[0]])
    others = set(held)
    for name, (parts, rate) in owed.items():
        wanted = {entry["name"] for entry in _parameters(trace, parts)}
        present = set(_in_groups(trace, name))
        missing, foreign = sorted(wanted - present), sorted(present - wanted)
        others -= present
        if missing:
            message = f"group {name} lacks {missing[0]}, which trains"
            yield Finding(code, message, {}, len(wanted), len(wanted & present))
        if foreign:
            message = (
                f"group {name} holds {foreign[0]}, which is not of {' and '.join(sorted(parts))}"
            )
            yield Finding(code, message, {}, len(wanted), len(present))
        for group in trace["training.groups"]:
            if group["name"] == name and not isclose(group["rate"], rate, rel_tol=_SAME_RATE):
                message = f"group {name} has another rate than the declared one"
                yield Finding(code, message, {}, rate, group["rate"])
                break
    if others and planned.variant == "medusa-1":
        message = f"the optimizer holds {min(others)}, and the heads alone train"
        yield Finding(code, message, {}, 0, len(others))


@training_oracle(
    "TRAINING.STAGES",
    *_DIGESTS,
    instead=("training.step", "training.groups"),
)
def stages(trace: Trace) -> Iterator[Finding]:
    """Clause L15: who trains at this step, by the groups; and that the heads did, by what changed.

    Without groups, what changed tells of the backbone, too; beside them that is L12's and L13's.
    """
    code, planned, step = "TRAINING.STAGES", plan_of(trace), step_of(trace)
    shape = trace.coordinate.model
    # Heads without blocks that share the base projection have no parameter to train.
    owned = shape.head_blocks > 0 or shape.projection == "independent"
    due = {"heads": True} if owned else {}
    if planned.variant != "medusa-1":
        due["backbone"] = is_joint(trace)
    for name, trains in due.items():
        when = f"at step {step} of a training with a warm-up of {planned.warm_up}"
        says = "does not train" if trains else "trains"
        seen = {}
        if trace.has("training.groups"):
            seen["by the optimizer's groups"] = bool(_in_groups(trace, name))
        told = name == "backbone" and seen
        if not told and trace.has("training.parameters") and (_learns(trace) or not trains):
            parts = _BACKBONE if name == "backbone" else frozenset({"heads"})
            seen["by its parameters"] = bool(_changed(trace, parts))
        for how, found in seen.items():
            if found != trains:
                message = f"group {name} {says} {how} {when}"
                yield Finding(code, message, {}, trains, found)
                break
