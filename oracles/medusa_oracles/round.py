"""Oracle of `spec/round.md`: what must hold over rounds, trees and generations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from medusa_oracles.heads import heads_apart
from medusa_oracles.judge import beyond, close, equal, oracle, telling
from medusa_spec.arrays import FloatArray
from medusa_spec.findings import Finding
from medusa_spec.trace import Tolerance, Trace


def derive_chain_acceptance(drafts: list[int], plain_logits: FloatArray, committed: int) -> int:
    """Accepted edges of a sequential verifier: leading drafts that the target also chooses.

    `plain_logits` `[S, V]` are those of the prefix and the output; row `committed` is the one
    that has read the root.
    """
    accepted = 0
    while accepted < len(drafts) and committed + accepted < len(plain_logits):
        if drafts[accepted] != int(plain_logits[committed + accepted].argmax()):
            break
        accepted += 1
    return accepted


def _greedy(trace: Trace) -> bool:
    return trace.coordinate.policy.mode == "greedy"


def _shortfall(logits: FloatArray, token: int) -> float:
    """How far a token's logit lies under the greatest; 0 where it is the greedy choice."""
    return float(logits.max() - logits[token])


def _undecided(logits: FloatArray, tolerance: Tolerance) -> bool:
    """Whether rounding alone could exchange the two greatest logits."""
    second, first = np.partition(logits, -2)[-2:]
    return bool(first - second <= _slack(logits, tolerance))


def _rank_undecided(logits: FloatArray, rank: int, tolerance: Tolerance) -> bool:
    """Whether rounding alone could put another token in this rank."""
    near = np.sort(logits)[::-1][max(rank - 1, 0) : rank + 2]
    return bool((-np.diff(near) <= _slack(logits, tolerance)).any())


def _slack(logits: FloatArray, tolerance: Tolerance) -> float:
    """How far apart two logits may lie and still change places: both may be off."""
    return 2 * float(tolerance.atol + tolerance.rtol * np.abs(logits).max())


_TOKENS = ("generation.tokens", "generation.prefix")
_OUTPUT = (*_TOKENS, "generation.plain_logits")

FINE = 1e-3
"""Above the absolute tolerance of float32 and below those of the half types.

In finer dtypes two passes choose one token, unless the logits of two tie but for rounding.
"""


def _proves(trace: Trace) -> bool:
    name = "generation.plain_logits"
    return not trace.has(name) or telling(trace[name], trace.tolerance)


def _decided(trace: Trace) -> bool:
    """Whether choices can be compared: plain logits say which ones rounding could exchange."""
    return trace.has("generation.plain_logits") or trace.tolerance.atol < FINE


def _decided_greedily(trace: Trace) -> bool:
    return _greedy(trace) and _decided(trace)


def _open(trace: Trace, place: int) -> bool:
    """Whether rounding alone could choose another token at this place of the output."""
    if not trace.has("generation.plain_logits"):
        return False
    plain = trace["generation.plain_logits"]
    return _undecided(plain[len(trace["generation.prefix"]) - 1 + place], trace.tolerance)


@oracle(
    "ROUND.FRONTIER_FEEDS_NEXT",
    *_OUTPUT,
    "generation.frontiers",
    "generation.published",
    proves=_proves,
)
def frontier_feeds_next(trace: Trace) -> Iterator[Finding]:
    """Clause R1."""
    plain, frontiers = trace["generation.plain_logits"], trace["generation.frontiers"]
    output, published = len(trace["generation.prefix"]), trace["generation.published"]
    if len(frontiers) != len(published):
        message = "not every round says what it began with"
        rounds = len(published), len(frontiers)
        yield Finding("ROUND.FRONTIER_FEEDS_NEXT", message, {}, *rounds)
        return
    for number, (frontier, grown) in enumerate(zip(frontiers, published, strict=True)):
        if output > len(plain):
            return
        if beyond(plain[output - 1], frontier, trace.tolerance):
            code = "ROUND.FRONTIER_FEEDS_NEXT"
            message = "the round begins with other logits than the output ends with"
            for finding in close(
                code, message, plain[output - 1], frontier, ("token",), trace.tolerance
            ):
                yield replace(finding, where={"round": number, **finding.where})
            return
        output += int(grown)


@oracle(
    "ROUND.CACHE_MATCHES_TOKENS",
    "round.visible_kv",
    "round.fresh_kv",
    proves=lambda trace: telling(trace["round.fresh_kv"], trace.tolerance),
)
def cache_matches_tokens(trace: Trace) -> Iterator[Finding]:
    """Clause R2."""
    yield from close(
        "ROUND.CACHE_MATCHES_TOKENS",
        "the cache is not that of a fresh prefill of the output",
        trace["round.fresh_kv"],
        trace["round.visible_kv"],
        ("layer", "key_or_value", "kv_head", "cache_row", "channel"),
        trace.tolerance,
    )


@oracle("ROUND.PROGRESS", "generation.tokens", "generation.asked")
def progress(trace: Trace) -> Iterator[Finding]:
    """Clause R3: the length, and what each round published where that was observed."""
    code = "ROUND.PROGRESS"
    tokens, asked = list(trace["generation.tokens"]), int(trace["generation.asked"])
    ended = bool(tokens) and tokens[-1] == trace.coordinate.end_of_sequence
    if len(tokens) != asked and not (ended and len(tokens) < asked):
        message = "the generation has another length than was asked for"
        yield Finding(code, message, {}, asked, len(tokens))
    if not trace.has("generation.published"):
        return
    published = trace["generation.published"]
    idle = np.flatnonzero(published < 1)
    if len(idle):
        where = {"round": int(idle[0])}
        yield Finding(code, "a round published nothing", where, "at least 1", 0)
    grown = np.cumsum([0, *published])
    if not grown[-1] >= len(tokens) > grown[-2:][0]:
        message = "the rounds do not end with the one that published the last token"
        yield Finding(code, message, {}, len(tokens), int(grown[-1]))


@oracle("ROUND.GREEDY_EQUALS_PLAIN", *_OUTPUT, applies=_greedy, proves=_proves)
def greedy_equals_plain(trace: Trace) -> Iterator[Finding]:
    """Clause R4: every token is plain decoding's choice behind those before it."""
    code, tokens = "ROUND.GREEDY_EQUALS_PLAIN", trace["generation.tokens"]
    plain, committed = trace["generation.plain_logits"], len(trace["generation.prefix"])
    for place, token in enumerate(map(int, tokens)):
        logits = plain[committed - 1 + place]
        known = 0 <= token < len(logits)
        if not known or _shortfall(logits, token) > _slack(logits, trace.tolerance):
            message = "a token is not the one that plain greedy decoding chooses"
            where = {"position": committed + place}
            yield Finding(code, message, where, int(logits.argmax()), token)
            return
        if token == trace.coordinate.end_of_sequence and place + 1 < len(tokens):
            message = "decoding went on behind the end of sequence"
            where = {"position": committed + place + 1}
            yield Finding(code, message, where, "nothing", int(tokens[place + 1]))
            return


@oracle(
    "ROUND.TREE_INDEPENDENT",
    *_OUTPUT,
    "chain.tokens",
    instead=(*_TOKENS, "chain.tokens"),
    applies=_decided_greedily,
    proves=_proves,
)
def tree_independent(trace: Trace) -> Iterator[Finding]:
    """Clause R5: the same output from this tree and from one of its paths alone."""
    yield from _same_output(
        "ROUND.TREE_INDEPENDENT", "another tree gives another greedy output", "chain.tokens", trace
    )


@oracle(
    "ROUND.RESTARTABLE",
    *_OUTPUT,
    "fresh.tokens",
    instead=(*_TOKENS, "fresh.tokens"),
    applies=_decided,
    proves=_proves,
)
def restartable(trace: Trace) -> Iterator[Finding]:
    """Clause R8."""
    yield from _same_output(
        "ROUND.RESTARTABLE",
        "a used engine decodes otherwise than a fresh one",
        "fresh.tokens",
        trace,
    )


@oracle(
    "ROUND.SUPERSET_NEVER_SHORTER",
    *_OUTPUT,
    "generation.published",
    "chain.published",
    instead=(*_TOKENS, "generation.published", "chain.published"),
    applies=_decided_greedily,
    proves=_proves,
)
def superset_never_shorter(trace: Trace) -> Iterator[Finding]:
    """Clause R6: the first round on the tree against the first on one of its paths."""
    whole, part = trace["generation.published"], trace["chain.published"]
    asked = len(trace["generation.tokens"])
    if any(_open(trace, place) for place in range(min(int(part[0]), asked + 1))):
        return
    if whole[0] < part[0]:
        message = "a superset of a tree accepted less"
        yield Finding(
            "ROUND.SUPERSET_NEVER_SHORTER", message, {"round": 0}, int(part[0]), int(whole[0])
        )


@oracle(
    "ROUND.CHAIN_IS_CHAIN",
    "chain.path",
    "chain.published",
    "chain.tokens",
    "chain.plain_logits",
    "chain.plain_heads",
    "generation.prefix",
    applies=_greedy,
    proves=lambda trace: telling(trace["chain.plain_logits"], trace.tolerance),
)
def chain_is_chain(trace: Trace) -> Iterator[Finding]:
    """Clause R7: every round on a one-path tree, against a sequential verifier."""
    path, output = trace["chain.path"], trace["chain.tokens"].tolist()
    plain, heads, within = trace["chain.plain_logits"], trace["chain.plain_heads"], trace.tolerance
    committed, end = len(trace["generation.prefix"]), trace.coordinate.end_of_sequence
    begin = committed
    for number, observed in enumerate(trace["chain.published"].tolist()):
        if begin >= committed + len(output):
            return
        drafting = heads[: len(path), begin - 1]
        ranked = np.argsort(-drafting, axis=-1, kind="stable").tolist()
        drafts = [tokens[rank] for tokens, rank in zip(ranked, path, strict=True)]
        expected = 1 + derive_chain_acceptance(drafts, plain, begin)
        written = [output[begin - committed], *drafts][:expected]
        ended = written.index(end) + 1 if end in written else expected
        # Where only the loop looks for the end, what a commit published behind it may be counted.
        if trace.dialect.end_of_sequence == "commit" or observed == ended:
            expected = ended
        # A plain pass that ends before a draft fails cannot say where the verifier would stop.
        open_end = len(plain) < begin + expected <= begin + len(drafts) and observed > expected
        judged = plain[begin - 1 : begin + expected]
        unsure = any(_undecided(row, within) for row in judged) or any(
            _rank_undecided(row, rank, within) for row, rank in zip(drafting, path, strict=True)
        )
        if expected != observed and not open_end and not unsure:
            message = "a one-path tree accepts otherwise than a sequential verifier"
            where = {"round": number}
            yield Finding("ROUND.CHAIN_IS_CHAIN", message, where, expected, observed)
            return
        begin += observed


@oracle("ROUND.LAWFUL_NEVER_REFUSED", "round.refused")
def lawful_never_refused(trace: Trace) -> Iterator[Finding]:
    """Clause R9: the runner asked for nothing that breaks a rule."""
    refusal = trace["round.refused"]
    if refusal is not None:
        message = "a lawful round was refused"
        yield Finding("ROUND.LAWFUL_NEVER_REFUSED", message, {}, "a round", refusal)


def _tells_frontiers(trace: Trace) -> bool:
    last, within = len(trace["generation.prefix"]) - 1, trace.tolerance
    target, heads = trace["chain.plain_logits"][last], trace["chain.plain_heads"][:, last]
    return telling(target, within) and heads_apart(heads, within)


@oracle(
    "ROUND.PREFILL_FRONTIER",
    "chain.frontier.target",
    "chain.frontier.heads",
    "chain.plain_logits",
    "chain.plain_heads",
    "generation.prefix",
    proves=_tells_frontiers,
)
def prefill_frontier(trace: Trace) -> Iterator[Finding]:
    """Clause R10: against the plain pass."""
    code = "ROUND.PREFILL_FRONTIER"
    message = "a generation does not begin with the last prefix row's"
    last, within = len(trace["generation.prefix"]) - 1, trace.tolerance
    target, heads = trace["chain.plain_logits"][last], trace["chain.plain_heads"][:, last]
    observed = trace["chain.frontier.target"]
    yield from close(code, f"{message} target logits", target, observed, ("token",), within)
    observed = trace["chain.frontier.heads"]
    yield from close(code, f"{message} head logits", heads, observed, ("head", "token"), within)


@oracle(
    "ROUND.GENERATION_IS_ROUNDS",
    *_OUTPUT,
    "generation.published",
    "rounds.tokens",
    "rounds.published",
    instead=(*_TOKENS, "generation.published", "rounds.tokens", "rounds.published"),
    applies=_decided,
)
def generation_is_rounds(trace: Trace) -> Iterator[Finding]:
    """Clause R11. A greedy choice that rounding alone could exchange is not held against either."""
    code, message = "ROUND.GENERATION_IS_ROUNDS", "a generation is not what its rounds publish"
    expected, observed = trace["rounds.tokens"], trace["generation.tokens"]
    if expected.shape == observed.shape and _greedy(trace):
        parted = np.flatnonzero(expected != observed)
        if len(parted) and _open(trace, int(parted[0])):
            return
    found = list(equal(code, f"{message}: tokens", expected, observed, ("place",)))
    if not found:
        grown = trace["rounds.published"], trace["generation.published"]
        found = list(equal(code, f"{message}: tokens a round", *grown, ("round",)))
    yield from found


def _same_output(code: str, message: str, other: str, trace: Trace) -> Iterator[Finding]:
    """The first token at which two outputs part, unless rounding alone could part them."""
    committed = len(trace["generation.prefix"])
    ours, theirs = trace[other].tolist(), trace["generation.tokens"].tolist()
    for place, (expected, observed) in enumerate(zip(ours, theirs, strict=False)):
        if expected != observed:
            if not _open(trace, place):
                where = {"position": committed + place}
                yield Finding(code, message, where, expected, observed)
            return
    if len(ours) != len(theirs):
        yield Finding(code, f"{message}, of another length", {}, len(ours), len(theirs))
