"""Oracle of `spec/checkpoint.md`, A7 and A10: what stands behind a load, and is kept by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from medusa_oracles.checkpoint import (
    FAULT,
    PASSES,
    checkpoint_oracle,
    is_refused,
    release_oracle,
    trains_backbone,
    what_is_broken,
)
from medusa_oracles.heads import derive_logits, derive_residual
from medusa_oracles.judge import close, equal, telling
from medusa_spec.arrays import Array
from medusa_spec.findings import Finding
from medusa_spec.stages import HeadState
from medusa_spec.trace import Trace

_PARTS: Mapping[str, tuple[str, ...]] = {
    "weight": ("head", "block", "channel", "input"),
    "bias": ("head", "block", "channel"),
    "projection": ("head", "token", "channel"),
}
"""The parameters that are a head's own, and the axes of each; the base's own head is none."""

_LISTS = ("checkpoint.stored", "checkpoint.restored")


@checkpoint_oracle(
    "CHECKPOINT.ROUND_TRIP",
    "checkpoint.saved",
    *_LISTS,
    instead=("checkpoint.held.weight", "checkpoint.loaded.weight"),
    applies=lambda trace: not is_refused(trace),
    proves=lambda trace: any(True for _ in _pairs(trace)) or bool(_tensors(trace, _LISTS[0])),
)
def round_trip(trace: Trace) -> Iterator[Finding]:
    """Clause A7: the parameters as they are held, and the tensors as they are stored."""
    code = "CHECKPOINT.ROUND_TRIP"
    for part, held, loaded in _pairs(trace):
        message = f"a head's {part} is not loaded as it was saved"
        yield from equal(code, message, held, loaded, _PARTS[part])
    yield from _decodes_with_them(code, trace)
    if not trace.has(*_LISTS):
        return
    first, again = (_tensors(trace, name) for name in _LISTS)
    changed = sorted({name for name, *_ in (first - again) + (again - first)})
    if changed:
        share = f"{len(changed)} of {len({name for name, *_ in first | again})} tensors"
        message = f"{share} are not saved again as they were stored, {changed[0]} the first"
        sides = _form(first, changed[0]), _form(again, changed[0])
        yield Finding(code, message, {}, *sides)


def _decodes_with_them(code: str, trace: Trace) -> Iterator[Finding]:
    """Passes of the engine that loaded, from its hidden states and the loaded parameters."""
    for part, plain, axes in _BEGINS:
        if trace.has(f"checkpoint.{plain}", f"checkpoint.frontier.{part}"):
            last, shown = trace[f"checkpoint.{plain}"], trace[f"checkpoint.frontier.{part}"]
            message = f"behind a load a generation begins with another {part} than a plain pass has"
            yield from close(code, message, last[..., -1, :], shown, axes, trace.tolerance)
    names = ["weight", "bias", "lm_head"]
    if trace.coordinate.model.projection == "independent":
        names.append("projection")
    names = [f"checkpoint.loaded.{name}" for name in names]
    if not trace.has("checkpoint.loader_hidden", "checkpoint.loader_heads", *names):
        return
    weight, bias, lm_head, *own = (trace[name] for name in names)
    state = HeadState(weight, bias, lm_head, own[0] if own else None)
    residual = derive_residual(weight, bias, trace["checkpoint.loader_hidden"])
    yield from close(
        code,
        "a head of a plain pass is not what the parameters that were loaded make of it",
        derive_logits(residual, state),
        trace["checkpoint.loader_heads"],
        PASSES["head_logits"],
        trace.tolerance,
    )


_BEGINS = (("target", "loader_logits", ("token",)), ("heads", "loader_heads", ("head", "token")))
"""Each part of a frontier, the plain logits of which it is the last row, and its axes."""


def _pairs(trace: Trace) -> Iterator[tuple[str, Array, Array]]:
    """Each part of the heads that was seen on both sides."""
    for part in _PARTS:
        names = f"checkpoint.held.{part}", f"checkpoint.loaded.{part}"
        if trace.has(*names):
            yield part, *(trace[name] for name in names)


_Tensors: TypeAlias = Counter[tuple[str, str, tuple[int, ...], str]]
"""Name, dtype, shape and SHA-256 of each."""


def _tensors(trace: Trace, name: str) -> _Tensors:
    """The tensors of a folder, in whichever files: where they stand is the engine's own choice."""
    return Counter(
        (entry["tensor"], entry["dtype"], tuple(entry["shape"]), entry["sha256"])
        for entry in (trace[name] if trace.has(name) else ())
    )


def _form(tensors: _Tensors, name: str) -> str | None:
    """How a tensor is stored; `None` where it is not."""
    forms = [
        f"{dtype} {list(shape)} {sha256[:12]}"
        for tensor, dtype, shape, sha256 in tensors.elements()
        if tensor == name
    ]
    return ", ".join(sorted(forms)) or None


def _tells_rows_apart(trace: Trace) -> bool:
    """Whether a cache that shows nothing but one number is none of those that were seen."""
    if trace.has(*FAULT):
        return bool(np.ptp(trace["checkpoint.before.kv"]) > 0)
    return telling(trace["checkpoint.loader_kv"], trace.tolerance)


_SESSION = ("checkpoint.session_kv", "checkpoint.loader_kv", "checkpoint.began_kv")


@release_oracle(
    "CHECKPOINT.SESSION",
    *_SESSION,
    instead=("checkpoint.before.kv", "checkpoint.after.kv"),
    applies=lambda trace: is_refused(trace) if trace.has(*FAULT) else trains_backbone(trace),
    proves=_tells_rows_apart,
)
def session(trace: Trace) -> Iterator[Finding]:
    """Clause A10. On an unchanged base the rows of old are those of the new, and prove nothing."""
    code = "CHECKPOINT.SESSION"
    if trace.has(*FAULT):
        message = f"the session is another behind a refusal: {what_is_broken(trace)}"
        before, after = (trace[f"checkpoint.{when}.kv"] for when in ("before", "after"))
        yield from equal(code, message, before, after, _ROWS)
        return
    shown, new, old = (trace[name] for name in _SESSION)
    rows = shown.shape[-2]
    message = "behind a load the cache shows rows that are not of the model that was loaded"
    kept = rows and np.array_equal(shown, old[..., :rows, :]) and not np.array_equal(old, new)
    # Rows of both models may lie within what rounding is granted, and these are the old ones.
    if kept:
        yield from equal(code, message, new[..., :rows, :], shown, _ROWS)
    else:
        yield from close(code, message, new[..., :rows, :], shown, _ROWS, trace.tolerance)


_ROWS = ("layer", "key_or_value", "kv_head", "cache_row", "channel")
