"""Oracle of `spec/heads.md` (inference part): residual heads, their shapes, and their labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from medusa_oracles.judge import beyond, close, equal, oracle
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.coordinate import ModelShape
from medusa_spec.findings import Finding
from medusa_spec.stages import HeadAlignment, HeadState
from medusa_spec.trace import Trace

IGNORED = -100
"""The label where a head has none."""


def derive_residual(weight: FloatArray, bias: FloatArray, hidden: FloatArray) -> FloatArray:
    """Clause H2: `[K, ..., d]` from blocks `[K, R_h, d, d]`, `[K, R_h, d]` and `[..., d]`."""
    states = []
    for head_weight, head_bias in zip(weight, bias, strict=True):
        state = hidden
        for block_weight, block_bias in zip(head_weight, head_bias, strict=True):
            inner = state @ block_weight.T + block_bias
            state = state + inner / (1.0 + np.exp(-inner))
        states.append(state)
    return np.stack(states)


def derive_logits(residual: FloatArray, state: HeadState) -> FloatArray:
    """Clause H4: `[K, ..., V]`, by each head's own projection or by the base model's."""
    if state.projection is None:
        shared: FloatArray = residual @ state.lm_head.T
        return shared
    own = [z @ u.T for z, u in zip(residual, state.projection, strict=True)]
    return np.stack(own)


def derive_parameter_count(shape: ModelShape, heads: int) -> int:
    """Clause H6."""
    width = shape.hidden
    blocks = shape.head_blocks * (width * width + width)
    projection = shape.vocabulary * width if shape.projection == "independent" else 0
    return heads * (blocks + projection)


def derive_alignment(tokens: IntArray, owned: BoolArray, heads: int) -> HeadAlignment:
    """Clauses H1, H7, H8: labels `[K, B, S]` and counts `[K]` from a batch `[B, S]`."""
    batch, length = tokens.shape
    target = np.arange(length) + np.arange(heads)[:, None] + 2
    inside = np.broadcast_to((target < length)[:, None, :], (heads, batch, length))
    source = np.minimum(target, length - 1)
    labels = np.where(inside, tokens[:, source].swapaxes(0, 1), IGNORED)
    kept = inside & owned[:, source].swapaxes(0, 1)
    return HeadAlignment(labels, kept, inside.sum((1, 2)), kept.sum((1, 2)))


def _given(trace: Trace) -> HeadState:
    projection = trace["heads.given.projection"] if _independent(trace) else None
    return HeadState(
        trace["heads.given.weight"],
        trace["heads.given.bias"],
        trace["heads.given.lm_head"],
        projection,
    )


def _independent(trace: Trace) -> bool:
    return trace.coordinate.model.projection == "independent"


def _expected_logits(trace: Trace) -> FloatArray:
    given = _given(trace)
    residual = derive_residual(given.weight, given.bias, trace["heads.hidden"])
    return derive_logits(residual, given)


_RUN = ("heads.given.weight", "heads.given.bias", "heads.given.lm_head", "heads.hidden")
_ROW = ("head", "batch", "row")


@oracle("HEADS.OFFSET", "heads.labels", "heads.tokens", *_RUN, "heads.logits")
def offset(trace: Trace) -> Iterator[Finding]:
    """Clause H1: the labels, and that no head answers in another's place."""
    code, labels = "HEADS.OFFSET", trace["heads.labels"]
    owned = np.ones_like(trace["heads.tokens"], np.bool_)
    expected = derive_alignment(trace["heads.tokens"], owned, len(labels)).labels
    yield from equal(code, "a label is not token t + head + 2", expected, labels, _ROW)
    logits, observed = _expected_logits(trace), trace["heads.logits"]
    if observed.shape != logits.shape:
        return
    for head, theirs in enumerate(observed):
        if not beyond(logits[head], theirs, trace.tolerance):
            continue
        for other, ours in enumerate(logits):
            if other != head and not beyond(ours, theirs, trace.tolerance):
                message = "a head answers for the offset of another"
                yield Finding(code, message, {"head": head}, head, other)
                return


@oracle("HEADS.RESIDUAL_FORM", *_RUN, "heads.residual")
def residual_form(trace: Trace) -> Iterator[Finding]:
    """Clause H2."""
    given = _given(trace)
    yield from close(
        "HEADS.RESIDUAL_FORM",
        "the residual state is not z + SiLU(Wz + b), block by block",
        derive_residual(given.weight, given.bias, trace["heads.hidden"]),
        trace["heads.residual"],
        (*_ROW, "channel"),
        trace.tolerance,
    )


@oracle("HEADS.BLOCKS_DISTINCT", "heads.given.weight", "heads.state.weight")
def blocks_distinct(trace: Trace) -> Iterator[Finding]:
    """Clause H3: blocks that were given different parameters hold different parameters."""
    given, held = trace["heads.given.weight"], trace["heads.state.weight"]
    if given.shape != held.shape:
        message = "the heads hold another number of blocks"
        shapes = list(given.shape), list(held.shape)
        yield Finding("HEADS.BLOCKS_DISTINCT", message, {}, *shapes)
        return
    heads, blocks = given.shape[:2]
    for head in range(heads):
        for block in range(1, blocks):
            was_one = np.array_equal(given[head, block], given[head, 0])
            if np.array_equal(held[head, block], held[head, 0]) and not was_one:
                message = "two blocks of one head are one set of parameters"
                where = {"head": head, "block": block}
                yield Finding("HEADS.BLOCKS_DISTINCT", message, where)
                return


@oracle("HEADS.PROJECTION", *_RUN, "heads.residual", "heads.logits")
def projection(trace: Trace) -> Iterator[Finding]:
    """Clause H4, over the observed residual state."""
    yield from close(
        "HEADS.PROJECTION",
        f"logits are not the residual state times the {trace.coordinate.model.projection} projection",
        derive_logits(trace["heads.residual"], _given(trace)),
        trace["heads.logits"],
        (*_ROW, "token"),
        trace.tolerance,
    )


@oracle("HEADS.SHAPES", *_RUN, "heads.logits")
def shapes(trace: Trace) -> Iterator[Finding]:
    """Clause H5: the shape, and that the first axis is the head's where another fits as well."""
    code, expected = "HEADS.SHAPES", _expected_logits(trace)
    observed = trace["heads.logits"]
    if observed.shape != expected.shape:
        message = "head logits are not [K, B, S, V]"
        yield Finding(code, message, {}, list(expected.shape), list(observed.shape))
    elif beyond(expected, observed, trace.tolerance):
        swapped = expected.swapaxes(0, 1)
        fits = swapped.shape == observed.shape
        if fits and not beyond(swapped, observed, trace.tolerance):
            message = "the first axis of the head logits is the batch"
            yield Finding(code, message, {}, "[K, B, S, V]", "[B, K, S, V]")


@oracle("HEADS.PARAMETER_COUNT", "heads.parameters", "heads.given.weight")
def parameter_count(trace: Trace) -> Iterator[Finding]:
    """Clause H6."""
    heads = len(trace["heads.given.weight"])
    expected = derive_parameter_count(trace.coordinate.model, heads)
    observed = int(trace["heads.parameters"])
    if expected != observed:
        message = f"{heads} heads add another number of parameters"
        yield Finding("HEADS.PARAMETER_COUNT", message, {}, expected, observed)


@oracle("HEADS.COVERAGE", "heads.coverage", "heads.tokens")
def coverage(trace: Trace) -> Iterator[Finding]:
    """Clause H7."""
    batch, length = trace["heads.tokens"].shape
    observed = trace["heads.coverage"]
    expected = np.array([batch * max(length - j - 2, 0) for j in range(len(observed))])
    message = "a head's coverage is not B*max(S-j-2, 0)"
    yield from equal("HEADS.COVERAGE", message, expected, observed, ("head",))


@oracle("HEADS.MASKED_COVERAGE", "heads.masked_coverage", "heads.tokens", "heads.owned_tokens")
def masked_coverage(trace: Trace) -> Iterator[Finding]:
    """Clause H8."""
    observed = trace["heads.masked_coverage"]
    derived = derive_alignment(trace["heads.tokens"], trace["heads.owned_tokens"], len(observed))
    message = "owned labels are not counted after the shift"
    yield from equal("HEADS.MASKED_COVERAGE", message, derived.masked_coverage, observed, ("head",))


@oracle("HEADS.SAME_HIDDEN_STATE", "heads.logits", "heads.altered_logits", "heads.altered_head")
def same_hidden_state(trace: Trace) -> Iterator[Finding]:
    """Clause H9: one head was given other parameters; no other head may notice."""
    before, after = trace["heads.logits"], trace["heads.altered_logits"]
    altered = int(trace["heads.altered_head"])
    for head in range(len(before)):
        if head != altered and beyond(before[head], after[head], trace.tolerance):
            message = f"a head changes when the choice of head {altered} does"
            difference = float(np.abs(before[head] - after[head]).max())
            yield Finding("HEADS.SAME_HIDDEN_STATE", message, {"head": head}, 0.0, difference)
            return
