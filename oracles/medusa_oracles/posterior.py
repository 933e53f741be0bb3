"""Oracle of `spec/posterior.md`: which edges pass, how long a path is accepted, which one wins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from medusa_oracles.judge import equal, oracle
from medusa_oracles.selection import (
    EDGE,
    accepted_edges,
    close_edges,
    overrun,
    same_passes,
)
from medusa_spec.arrays import BoolArray, FloatArray, IntArray
from medusa_spec.coordinate import Policy
from medusa_spec.findings import Finding
from medusa_spec.stages import Selection
from medusa_spec.trace import Tolerance, Trace


def derive_probabilities(logits: FloatArray, policy: Policy) -> FloatArray:
    """Clause P9: `[..., V]` after temperature, stable under large logits."""
    scaled = logits / policy.temperature
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    probabilities: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def derive_entropy(probabilities: FloatArray, policy: Policy) -> FloatArray:
    """Clause P8: `[...]` in nats; an impossible token contributes nothing."""
    possible = np.where(probabilities > 0, probabilities, 1.0)
    entropy: FloatArray = -(probabilities * np.log(possible + policy.entropy_guard)).sum(axis=-1)
    return entropy


def derive_threshold(entropy: FloatArray, policy: Policy) -> FloatArray:
    """Clause P6: `[...]`, a probability."""
    threshold: FloatArray = np.minimum(policy.epsilon, policy.alpha * np.exp(-entropy))
    return threshold


def derive_greedy_passes(candidates: IntArray, path_logits: FloatArray) -> BoolArray:
    """Clauses P2 and P11: `[R, W-1]` from candidates `[R, W]` and path logits `[R, W, V]`."""
    choice = path_logits[:, :-1].argmax(axis=-1)
    passes: BoolArray = (candidates[:, 1:] == choice) & (candidates[:, 1:] >= 0)
    return passes


def derive_edge_probability(probabilities: FloatArray, candidates: IntArray) -> FloatArray:
    """Probability of each path token under its parent's row, `[R, W-1]`; 0 at padding."""
    tokens = candidates[:, 1:]
    index = np.maximum(tokens, 0)[..., None]
    taken = np.take_along_axis(probabilities, index, axis=-1)[..., 0]
    edges: FloatArray = np.where(tokens < 0, 0.0, taken)
    return edges


def derive_lengths(passes: BoolArray) -> IntArray:
    """Clause P3: leading passes of each path, `[R]`."""
    lengths: IntArray = np.logical_and.accumulate(passes, axis=1).sum(axis=1, dtype=np.int64)
    return lengths


def derive_selection(candidates: IntArray, path_logits: FloatArray, policy: Policy) -> Selection:
    """The whole choice: candidates `[R, W]`, path logits `[R, W, V]`, all finite."""
    if policy.mode == "greedy":
        passes = derive_greedy_passes(candidates, path_logits)
        lengths = derive_lengths(passes)
        return Selection(int(lengths.argmax()), int(lengths.max()), passes, lengths)
    probabilities = derive_probabilities(path_logits[:, :-1], policy)
    entropy = derive_entropy(probabilities, policy)
    threshold = derive_threshold(entropy, policy)
    probability = derive_edge_probability(probabilities, candidates)
    passes = (probability > threshold) & (candidates[:, 1:] >= 0)
    lengths = derive_lengths(passes)
    path = derive_likeliest(lengths, probability)
    accepted = int(lengths.max())
    return Selection(path, accepted, passes, lengths, probability, entropy, threshold)


def derive_likelihood(probability: FloatArray, accepted: int) -> FloatArray:
    """Sum of logs over the accepted edges, `[R]`; minus infinity where an edge has none."""
    edges = probability[:, :accepted]
    logs = np.log(edges, out=np.full_like(edges, -np.inf), where=edges > 0)
    likelihood: FloatArray = logs.sum(axis=1)
    return likelihood


def derive_likeliest(lengths: IntArray, probability: FloatArray) -> int:
    """Clause P10: the likeliest among the longest, the first of equals; path zero at length 0."""
    accepted = int(lengths.max())
    if accepted == 0:
        return 0
    likelihood = derive_likelihood(probability, accepted)
    return int(np.where(lengths == accepted, likelihood, -np.inf).argmax())


def _greedy(trace: Trace) -> bool:
    return trace.coordinate.policy.mode == "greedy"


def _typical(trace: Trace) -> bool:
    return not _greedy(trace)


def _finite(trace: Trace) -> bool:
    return bool(np.isfinite(_judged(trace)).all())


def _judged(trace: Trace) -> FloatArray:
    """The path logits that the selection was given, zero where nothing real is judged.

    `ValueError` where they are not those of the candidates.
    """
    candidates, logits = trace["selection.candidates"], trace["selection.path_logits"]
    # One would otherwise be stretched to the other, to any size, where an axis has one entry.
    if logits.shape[:2] != candidates.shape:
        raise ValueError(f"path logits of {logits.shape} for candidates of {candidates.shape}")
    return np.where(candidates[..., None] < 0, 0.0, logits)


_GIVEN = ("selection.candidates", "selection.path_logits")


@oracle("POSTERIOR.ROOT_PUBLISHED", "commit.tokens", "proposal.packed")
def root_published(trace: Trace) -> Iterator[Finding]:
    """Clause P1."""
    code, tokens = "POSTERIOR.ROOT_PUBLISHED", trace["commit.tokens"]
    root = next(map(int, trace["proposal.packed"]), None)
    if len(tokens) == 0:
        yield Finding(code, "the round published nothing", {}, [root], [])
    elif int(tokens[0]) != root:
        yield Finding(code, "the first token is not the root", {}, root, int(tokens[0]))


_WINNER = (*_GIVEN, "selection.path", "selection.accepted")
_LONGEST = ("selection.lengths", "selection.path")


@oracle("POSTERIOR.GREEDY_MATCH", *_GIVEN, "selection.passes", instead=_WINNER, applies=_greedy)
def greedy_match(trace: Trace) -> Iterator[Finding]:
    """Clause P2: every edge, or the accepted edges where no passes were observed."""
    if _finite(trace):
        expected = derive_greedy_passes(
            trace["selection.candidates"], trace["selection.path_logits"]
        )
        if not trace.has("selection.passes"):
            yield from accepted_edges("POSTERIOR.GREEDY_MATCH", derive_lengths(expected), trace)
            return
        message = "an edge passes without, or fails with, the greatest logit"
        yield from same_passes("POSTERIOR.GREEDY_MATCH", message, expected, trace)


@oracle("POSTERIOR.CONTIGUOUS_PREFIX", "selection.passes", "selection.lengths")
def contiguous_prefix(trace: Trace) -> Iterator[Finding]:
    """Clause P3, over the observed passes."""
    expected = derive_lengths(trace["selection.passes"])
    message = "the accepted length is not the number of leading passes"
    observed = trace["selection.lengths"]
    yield from equal("POSTERIOR.CONTIGUOUS_PREFIX", message, expected, observed, ("path",))


def _lengths(trace: Trace) -> bool:
    """Whether any path has a length; P3 reports where none has."""
    return len(_lengths_of(trace)) > 0


def _lengths_of(trace: Trace) -> IntArray:
    """The observed lengths, or those that the given logits demand where none were observed."""
    if trace.has("selection.lengths"):
        observed: IntArray = trace["selection.lengths"]
        return observed
    if not _finite(trace):
        return np.zeros(0, np.int64)
    return _demanded(trace).lengths


def _demanded(trace: Trace) -> Selection:
    """The selection that the given logits demand."""
    policy = trace.coordinate.policy
    return derive_selection(trace["selection.candidates"], _judged(trace), policy)


@oracle(
    "POSTERIOR.FIRST_MAXIMAL_PATH",
    *_LONGEST,
    instead=_WINNER,
    applies=lambda trace: _greedy(trace) and _lengths(trace),
)
def first_maximal_path(trace: Trace) -> Iterator[Finding]:
    """Clause P4, over the lengths; a winner that counts padding is the business of P11."""
    if not trace.has("selection.lengths") and overrun(trace):
        return
    expected, observed = int(_lengths_of(trace).argmax()), int(trace["selection.path"])
    if expected != observed:
        message = "the winner is not the first path of greatest length"
        yield Finding("POSTERIOR.FIRST_MAXIMAL_PATH", message, {}, expected, observed)


@oracle("POSTERIOR.DEFAULT_PATH", *_LONGEST, instead=_WINNER, applies=_lengths)
def default_path(trace: Trace) -> Iterator[Finding]:
    """Clause P5, over the lengths."""
    observed = int(trace["selection.path"])
    if _lengths_of(trace).max() == 0 and observed != 0:
        message = "nothing was accepted, and the winner is not path zero"
        yield Finding("POSTERIOR.DEFAULT_PATH", message, {}, 0, observed)


@oracle(
    "POSTERIOR.THRESHOLD", "selection.threshold", "selection.entropy", *_GIVEN, applies=_typical
)
def threshold(trace: Trace) -> Iterator[Finding]:
    """Clause P6, over the observed entropy."""
    expected = derive_threshold(trace["selection.entropy"], trace.coordinate.policy)
    message = "the threshold is not min(epsilon, alpha*exp(-H))"
    yield from close_edges("POSTERIOR.THRESHOLD", message, expected, "threshold", trace)


@oracle(
    "POSTERIOR.STRICT",
    "selection.passes",
    "selection.probability",
    "selection.threshold",
    "selection.candidates",
    applies=_typical,
)
def strict(trace: Trace) -> Iterator[Finding]:
    """Clause P7, over the observed probability and threshold."""
    probability, threshold = trace["selection.probability"], trace["selection.threshold"]
    edges = trace["selection.candidates"][:, 1:].shape
    # Of another shape they are the business of P9 and P6.
    if probability.shape == threshold.shape == edges:
        message = "an edge does not pass exactly when its probability exceeds the threshold"
        yield from same_passes("POSTERIOR.STRICT", message, probability > threshold, trace)


@oracle("POSTERIOR.ENTROPY", *_GIVEN, "selection.entropy", applies=_typical)
def entropy(trace: Trace) -> Iterator[Finding]:
    """Clause P8."""
    if _finite(trace):
        policy = trace.coordinate.policy
        expected = derive_entropy(derive_probabilities(_judged(trace)[:, :-1], policy), policy)
        message = "the entropy is not that of the path's target distribution, in nats"
        yield from close_edges("POSTERIOR.ENTROPY", message, expected, "entropy", trace)


@oracle("POSTERIOR.TEMPERATURE", *_GIVEN, "selection.probability", applies=_typical)
def temperature(trace: Trace) -> Iterator[Finding]:
    """Clause P9."""
    if _finite(trace):
        candidates, policy = trace["selection.candidates"], trace.coordinate.policy
        probabilities = derive_probabilities(_judged(trace)[:, :-1], policy)
        expected = derive_edge_probability(probabilities, candidates)
        message = "an edge's probability is not that of softmax(logits / temperature)"
        yield from close_edges("POSTERIOR.TEMPERATURE", message, expected, "probability", trace)


@oracle("POSTERIOR.TYPICAL_MATCH", *_GIVEN, "selection.passes", instead=_WINNER, applies=_typical)
def typical_match(trace: Trace) -> Iterator[Finding]:
    """Clause P16, from the given logits alone; rounding may decide an edge at its threshold."""
    if not _finite(trace):
        return
    derived = _demanded(trace)
    decided = _decided(derived, trace.policy_tolerance)
    if not trace.has("selection.passes"):
        if decided.all():
            yield from accepted_edges("POSTERIOR.TYPICAL_MATCH", derived.lengths, trace)
        return
    observed = trace["selection.passes"]
    if observed.shape == derived.passes.shape:
        real = trace["selection.candidates"][:, 1:] >= 0
        observed = np.where(decided & real, observed, derived.passes)
    message = "an edge does not pass exactly when its token is above the threshold"
    yield from equal("POSTERIOR.TYPICAL_MATCH", message, derived.passes, observed, EDGE)


def _decided(derived: Selection, within: Tolerance) -> BoolArray:
    """Which edges `[R, W-1]` rounding alone could not decide."""
    assert derived.probability is not None
    assert derived.threshold is not None
    near = within.atol + within.rtol * derived.threshold
    decided: BoolArray = np.abs(derived.probability - derived.threshold) > near
    return decided


@oracle(
    "POSTERIOR.LIKELIHOOD_TIE",
    *_LONGEST,
    "selection.probability",
    instead=_WINNER,
    applies=lambda trace: _typical(trace) and _lengths(trace),
)
def likelihood_tie(trace: Trace) -> Iterator[Finding]:
    """Clause P10, over the observed lengths and probabilities, or over those that are demanded.

    Padding has no likelihood: where it counts, the winner is the business of P11.
    """
    if overrun(trace):
        return
    if trace.has("selection.lengths", "selection.probability"):
        lengths, probability = trace["selection.lengths"], trace["selection.probability"]
    else:
        derived = _demanded(trace)
        assert derived.probability is not None
        if not _decided(derived, trace.policy_tolerance).all():
            return
        lengths, probability = derived.lengths, derived.probability
    if len(lengths) != len(probability):
        return
    expected, observed = derive_likeliest(lengths, probability), int(trace["selection.path"])
    if expected == observed:
        return
    accepted, within = int(lengths.max()), trace.policy_tolerance
    likelihood = derive_likelihood(probability, accepted)
    among_longest = 0 <= observed < len(lengths) and lengths[observed] == accepted
    # Sums of the same logs in another order may differ in the last bits; that decides nothing.
    slack = within.atol + within.rtol * abs(float(likelihood[expected]))
    with np.errstate(invalid="ignore"):
        # Two impossible paths are no nearer to each other than any two.
        short = likelihood[expected] - likelihood[observed]
    if accepted and among_longest and short <= slack:
        return
    message = "the winner is not the likeliest of the longest paths"
    yield Finding("POSTERIOR.LIKELIHOOD_TIE", message, {}, expected, observed)


@oracle(
    "POSTERIOR.SENTINEL",
    "selection.candidates",
    "selection.passes",
    instead=("selection.candidates", "selection.path", "selection.accepted"),
)
def sentinel(trace: Trace) -> Iterator[Finding]:
    """Clause P11: every edge, or the lengths where no passes were observed."""
    code, padding = "POSTERIOR.SENTINEL", trace["selection.candidates"][:, 1:] < 0
    if trace.has("selection.passes"):
        passes = trace["selection.passes"]
        if passes.shape != padding.shape:
            return
        for path, edge in np.argwhere(padding & passes)[:1].tolist():
            where = {"path": path, "entry": edge + 1}
            yield Finding(code, "padding is accepted", where, False, True)
    elif (over := overrun(trace)) is not None:
        ends = f"path {over.path} ends after {over.edges} edge{'' if over.edges == 1 else 's'}"
        message = f"{ends}, and {over.accepted} were accepted"
        where = {"path": over.path, "entry": over.edges + 1}
        yield Finding(code, message, where, over.edges, over.accepted)


@oracle("POSTERIOR.FINITE", *_GIVEN, "selection.refused", applies=lambda trace: not _finite(trace))
def finite(trace: Trace) -> Iterator[Finding]:
    """Clause P12: the selection was given a logit that is no number."""
    if trace["selection.refused"] is None:
        path, entry, token = map(int, np.argwhere(~np.isfinite(_judged(trace)))[0])
        where = {"path": path, "entry": entry, "token": token}
        message = "logits that are not finite were judged instead of refused"
        owed = "a refusal (raise medusa_spec.Refused, or declare the dialect refusals: any-error)"
        yield Finding("POSTERIOR.FINITE", message, where, owed, "a selection")


@oracle("POSTERIOR.LENGTH_CONVENTION", "selection.lengths", "selection.accepted", applies=_lengths)
def length_convention(trace: Trace) -> Iterator[Finding]:
    """Clause P13, over the observed lengths."""
    expected = int(trace["selection.lengths"].max())
    observed = int(trace["selection.accepted"])
    if expected != observed:
        message = "the accepted length does not count suffix edges"
        yield Finding("POSTERIOR.LENGTH_CONVENTION", message, {}, expected, observed)


@oracle("POSTERIOR.EXACT_LABEL", "selection.label")
def exact_label(trace: Trace) -> Iterator[Finding]:
    """Clause P14."""
    expected = "greedy-exact" if _greedy(trace) else "heuristic"
    observed = trace["selection.label"].get("claim", "absent")
    if observed != expected:
        message = f"the policy {trace.coordinate.policy.mode} is labelled for what it is not"
        yield Finding("POSTERIOR.EXACT_LABEL", message, {}, expected, observed)


CORRECTION_STATE = ("proposal_law", "stored_probabilities", "randomness", "residual")


@oracle("POSTERIOR.CORRECTION_STATE", "selection.label")
def correction_state(trace: Trace) -> Iterator[Finding]:
    """Clause P15."""
    label = trace["selection.label"]
    if label.get("claim") == "target-law" or label.get("rejects"):
        state = label.get("correction") or {}
        missing = [name for name in CORRECTION_STATE if not state.get(name)]
        if missing:
            message = f"a rejecting policy does not name {', '.join(missing)}"
            yield Finding("POSTERIOR.CORRECTION_STATE", message, {}, list(CORRECTION_STATE), label)
