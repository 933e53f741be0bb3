"""Oracle of `spec/heads.md` (inference part): residual heads, their shapes, and their labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from medusa_oracles.judge import beyond, close, difference, equal, oracle, same, telling
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.coordinate import ModelShape, Workload
from medusa_spec.findings import Finding
from medusa_spec.stages import HeadAlignment, HeadState
from medusa_spec.trace import Tolerance, Trace

IGNORED = -100
"""The label where a head has none."""


def derive_residual(weight: FloatArray, bias: FloatArray, hidden: FloatArray) -> FloatArray:
    """Clause H2: `[K, ..., d]` from blocks `[K, R_h, d, d]`, `[K, R_h, d]` and `[..., d]`."""
    states = np.empty((len(weight), *hidden.shape))
    for head, (head_weight, head_bias) in enumerate(zip(weight, bias, strict=True)):
        state = hidden
        for block_weight, block_bias in zip(head_weight, head_bias, strict=True):
            inner = state @ block_weight.T + block_bias
            state = state + inner / (1.0 + np.exp(-inner))
        states[head] = state
    return states


def derive_logits(residual: FloatArray, state: HeadState) -> FloatArray:
    """Clause H4: `[K, ..., V]`, by each head's own projection or by the base model's."""
    if state.projection is None:
        shared: FloatArray = residual @ state.lm_head.T
        return shared
    logits = np.empty((*residual.shape[:-1], state.projection.shape[1]))
    for head, (z, u) in enumerate(zip(residual, state.projection, strict=True)):
        logits[head] = z @ u.T
    return logits


def derive_parameter_count(shape: ModelShape | Workload, heads: int) -> int:
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


def heads_apart(logits: FloatArray, tolerance: Tolerance) -> bool:
    """Whether there are heads in `[K, ..., V]`, none of which can pass for another.

    Freshly made ones are all alike, and where there is but one no order was seen.
    """
    if len(logits) < 2 or not telling(logits, tolerance):
        return False
    return all(beyond(one, other, tolerance) for one, other in combinations(logits, 2))


def _parameters(trace: Trace, place: str) -> HeadState:
    """The parameters under a name of the trace; `ValueError` where they are not the model's.

    Their sizes decide how much is derived, and a trace may come from anywhere.
    """
    shape, heads = trace.coordinate.model, trace.coordinate.heads
    width, blocks, vocabulary = shape.hidden, shape.head_blocks, shape.vocabulary
    sizes: dict[str, tuple[int, ...]] = {
        "weight": (heads, blocks, width, width),
        "bias": (heads, blocks, width),
        "lm_head": (vocabulary, width),
    }
    if _independent(trace):
        sizes["projection"] = (heads, vocabulary, width)
    held = {name: trace[f"{place}.{name}"] for name in sizes}
    for name, size in sizes.items():
        if held[name].shape != size:
            found = list(held[name].shape)
            raise ValueError(f"{place}.{name} is {found}; the model's is {list(size)}")
    return HeadState(**{"projection": None, **held})


def _given(trace: Trace) -> HeadState:
    return _parameters(trace, "heads.given")


def _independent(trace: Trace) -> bool:
    return trace.coordinate.model.projection == "independent"


def _expected_logits(trace: Trace) -> FloatArray:
    given = _given(trace)
    residual = derive_residual(given.weight, given.bias, trace["heads.hidden"])
    return derive_logits(residual, given)


def _residual_fits(trace: Trace) -> bool:
    return bool(trace["heads.residual"].shape == _residual_shape(trace))


def _residual_shape(trace: Trace) -> tuple[int, ...]:
    return trace.coordinate.heads, *trace["heads.hidden"].shape


def _logits_shape(trace: Trace) -> tuple[int, ...]:
    return *_residual_shape(trace)[:-1], trace.coordinate.model.vocabulary


_RUN = ("heads.given.weight", "heads.given.bias", "heads.given.lm_head", "heads.hidden")
_ROW = ("head", "batch", "position")


@oracle("HEADS.OFFSET", "heads.labels", "heads.tokens", instead=(*_RUN, "heads.logits"))
def offset(trace: Trace) -> Iterator[Finding]:
    """Clause H1: the labels, and that no head answers in another's place."""
    code = "HEADS.OFFSET"
    if trace.has("heads.labels", "heads.tokens"):
        owned = np.ones_like(trace["heads.tokens"], np.bool_)
        expected = derive_alignment(trace["heads.tokens"], owned, trace.coordinate.heads).labels
        message = "a label is not token t + head + 2"
        yield from equal(code, message, expected, trace["heads.labels"], _ROW)
    if not trace.has(*_RUN, "heads.logits"):
        return
    observed = trace["heads.logits"]
    if observed.shape != _logits_shape(trace):
        return
    logits = _expected_logits(trace)
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
    given, message = _given(trace), "the residual state is not z + SiLU(Wz + b), block by block"
    if not _residual_fits(trace):
        shapes = list(_residual_shape(trace)), list(trace["heads.residual"].shape)
        yield Finding("HEADS.RESIDUAL_FORM", f"{message}; the shape differs", {}, *shapes)
        return
    yield from close(
        "HEADS.RESIDUAL_FORM",
        message,
        derive_residual(given.weight, given.bias, trace["heads.hidden"]),
        trace["heads.residual"],
        (*_ROW, "channel"),
        trace.tolerance,
    )


@oracle("HEADS.BLOCKS_DISTINCT", "heads.given.weight", "heads.state.weight")
def blocks_distinct(trace: Trace) -> Iterator[Finding]:
    """Clause H3: blocks, of one head or of two, that were given different parameters hold such."""
    heads, blocks = trace.coordinate.heads, trace.coordinate.model.head_blocks
    given, held = trace["heads.given.weight"], trace["heads.state.weight"]
    if given.shape != held.shape:
        message = "the heads hold another number of blocks"
        shapes = list(given.shape), list(held.shape)
        yield Finding("HEADS.BLOCKS_DISTINCT", message, {}, *shapes)
        return
    if given.shape[:2] != (heads, blocks):
        found = list(given.shape[:2])
        raise ValueError(f"parameters of {found} blocks were given; the model has {heads, blocks}")
    for one, other in combinations(np.ndindex(given.shape[:2]), 2):
        if same(held[one], held[other]) and not same(given[one], given[other]):
            where = {"head": other[0], "block": other[1]}
            message = f"head {one[0]} block {one[1]} is the same set of parameters"
            yield Finding("HEADS.BLOCKS_DISTINCT", message, where)
            return


@oracle("HEADS.PROJECTION", *_RUN, "heads.residual", "heads.logits")
def projection(trace: Trace) -> Iterator[Finding]:
    """Clause H4, over the observed residual state (H2 reports one of another shape)."""
    if not _residual_fits(trace):
        return
    declared = trace.coordinate.model.projection
    message = f"logits are not the residual state times the {declared} projection"
    if trace["heads.logits"].shape != _logits_shape(trace):
        shapes = list(_logits_shape(trace)), list(trace["heads.logits"].shape)
        yield Finding("HEADS.PROJECTION", f"{message}; the shape differs", {}, *shapes)
        return
    yield from close(
        "HEADS.PROJECTION",
        message,
        derive_logits(trace["heads.residual"], _given(trace)),
        trace["heads.logits"],
        (*_ROW, "token"),
        trace.tolerance,
    )


@oracle("HEADS.SHAPES", *_RUN, "heads.logits")
def shapes(trace: Trace) -> Iterator[Finding]:
    """Clause H5: the shape, and that the first axis is the head's where another fits as well."""
    code, shape, observed = "HEADS.SHAPES", _logits_shape(trace), trace["heads.logits"]
    if observed.shape != shape:
        message = "head logits are not [K, B, S, V]"
        yield Finding(code, message, {}, list(shape), list(observed.shape))
        return
    expected = _expected_logits(trace)
    if beyond(expected, observed, trace.tolerance):
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
    expected = np.array(
        [batch * max(length - j - 2, 0) for j in range(trace.coordinate.heads)], np.int64
    )
    message = "a head's coverage is not B*max(S-j-2, 0)"
    yield from equal("HEADS.COVERAGE", message, expected, observed, ("head",))


@oracle("HEADS.MASKED_COVERAGE", "heads.masked_coverage", "heads.tokens", "heads.owned_tokens")
def masked_coverage(trace: Trace) -> Iterator[Finding]:
    """Clause H8: the counts, and which labels were counted where that was observed."""
    code, observed = "HEADS.MASKED_COVERAGE", trace["heads.masked_coverage"]
    derived = derive_alignment(
        trace["heads.tokens"], trace["heads.owned_tokens"], trace.coordinate.heads
    )
    message = "owned labels are not counted after the shift"
    found = list(equal(code, message, derived.masked_coverage, observed, ("head",)))
    if not found and trace.has("heads.owned"):
        message = "the loss mask did not move with the labels"
        found = list(equal(code, message, derived.owned, trace["heads.owned"], _ROW))
    yield from found


@oracle("HEADS.SAME_HIDDEN_STATE", "heads.logits", "heads.altered_logits", "heads.altered_head")
def same_hidden_state(trace: Trace) -> Iterator[Finding]:
    """Clause H9: one head was given other parameters; no other head may notice."""
    before, after = trace["heads.logits"], trace["heads.altered_logits"]
    altered = int(trace["heads.altered_head"])
    if before.shape != after.shape:
        message = "the shape of the logits follows a head's choice"
        shapes = list(before.shape), list(after.shape)
        yield Finding("HEADS.SAME_HIDDEN_STATE", message, {}, *shapes)
        return
    for head in range(len(before)):
        if head != altered and beyond(before[head], after[head], trace.tolerance):
            message = f"a head changes when the choice of head {altered} does"
            apart = difference(before[head], after[head], (*_ROW[1:], "token"), trace.tolerance)
            moved = None if apart is None else apart.greatest
            where = {"head": head}
            yield Finding("HEADS.SAME_HIDDEN_STATE", message, where, 0.0, moved, apart)
            return


def _shows_projection(trace: Trace) -> bool:
    # A state without it says nothing of heads that each own one.
    return not _independent(trace) or trace.has("plain.state.projection")


@oracle(
    "HEADS.DECODES_AS_APPLIED",
    "plain.hidden",
    "plain.head_logits",
    "plain.state.weight",
    "plain.state.bias",
    "plain.state.lm_head",
    applies=_shows_projection,
    proves=lambda trace: heads_apart(trace["plain.head_logits"], trace.tolerance),
)
def decodes_as_applied(trace: Trace) -> Iterator[Finding]:
    """Clause H10: a plain pass, from the hidden states and the parameters that it shows."""
    code = "HEADS.DECODES_AS_APPLIED"
    state, hidden = _parameters(trace, "plain.state"), trace["plain.hidden"]
    logits = len(hidden), trace.coordinate.model.vocabulary
    expected = {"plain.head_logits": (trace.coordinate.heads, *logits), "plain.logits": logits}
    for name in filter(trace.has, expected):
        if trace[name].shape != expected[name]:
            message = f"{name} are not those of the hidden states"
            shapes = list(expected[name]), list(trace[name].shape)
            yield Finding(code, f"{message}; the shape differs", {}, *shapes)
            return
    if trace.has("plain.logits"):
        yield from close(
            code,
            "logits of a plain pass are not its hidden states times the base model's head",
            hidden @ state.lm_head.T,
            trace["plain.logits"],
            ("row", "token"),
            trace.tolerance,
        )
    yield from close(
        code,
        "a head of a plain pass is not what its own parameters make of the hidden states",
        derive_logits(derive_residual(state.weight, state.bias, hidden), state),
        trace["plain.head_logits"],
        ("head", "row", "token"),
        trace.tolerance,
    )
