"""Oracle of `spec/exactness.md`: what a mode publishes, held to what its claim says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from medusa_oracles.judge import Check, close, difference, equal, oracle_beside
from medusa_oracles.output_law import (
    EXACT_MODES,
    Tables,
    derive_distance,
    derive_greedy,
    derive_law,
    derive_path_probability,
    derive_products,
    derive_tables,
    derive_target,
)
from medusa_oracles.tails import FALSE_ALARM, derive_tail, derive_unlikely
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.coordinate import Exactness
from medusa_spec.findings import Finding
from medusa_spec.trace import Tolerance, Trace

UNDECIDED = 1e-6
"""What lies nearer to a threshold, rounding may put on either side."""

COINCIDENCE = 1e-6
"""Two seeds that would give the same tokens more often than this say nothing when they do."""

PAIRINGS = 8
"""Tails that share a false alarm: of neighbours, and of two seeds' sequences in two pairings."""

CORRECTION = ("proposal_law", "stored_probabilities", "randomness", "residual")
"""What a rejection names, as in the posterior's P15."""


class Derived(NamedTuple):
    """All that follows from a coordinate's tables."""

    tables: Tables
    law: FloatArray
    target: FloatArray
    decided: bool
    """Whether no choice that the law depends on is left to rounding."""


@lru_cache(maxsize=64)
def derived(given: Exactness) -> Derived:
    """The derivation of one coordinate, which every oracle reads."""
    tables = derive_tables(given)
    law, target = derive_law(tables), derive_target(tables)
    return Derived(tables, law, target, tables.margin > UNDECIDED)


def given_to(trace: Trace) -> Exactness:
    """The tables; every oracle here applies only where there are some."""
    exactness = trace.coordinate.exactness
    assert exactness is not None
    return exactness


def exactness_oracle(
    code: str,
    *needs: str,
    instead: tuple[str, ...] = (),
    applies: Callable[[Trace], bool] = lambda _: True,
    decided: bool = True,
    proves: Callable[[Trace], bool] | None = None,
) -> Callable[[Check], Check]:
    """An oracle of laws over tables; `decided` where it reads what rounding must not decide."""

    def meant(trace: Trace) -> bool:
        return (not decided or derived(given_to(trace)).decided) and applies(trace)

    return oracle_beside("exactness", code, *needs, instead=instead, applies=meant, proves=proves)


def sequence(index: int, given: Exactness) -> list[int]:
    """The tokens of a place in lexicographic order."""
    shape = (given.vocabulary,) * given.length
    return [int(token) for token in np.unravel_index(index, shape)]


def claimed(trace: Trace) -> str:
    """What the engine claims of its law; where it claims nothing, what the mode is."""
    mode = given_to(trace).sampling.mode
    of_mode = "greedy-exact" if mode == "greedy" else "target-law"
    word = of_mode if mode in EXACT_MODES else "heuristic"
    if trace.has("exactness.claim"):
        word = str(trace["exactness.claim"].get("claim", word))
    return word


def is_greedy(trace: Trace) -> bool:
    """Whether the law is that of greedy decoding."""
    return given_to(trace).sampling.mode == "greedy"


def claims_target(trace: Trace) -> bool:
    """Whether the law is called the target's own, with or without chance."""
    return not is_greedy(trace) and claimed(trace) in ("target-law", "greedy-exact")


@exactness_oracle("EXACTNESS.PROCESSED_ROWS", "exactness.roots", instead=("exactness.rows",))
def processed_rows(trace: Trace) -> Iterator[Finding]:
    """Clause X1."""
    expected = derived(given_to(trace)).tables.processed
    for name, rows in (("roots", expected), ("rows", expected[1:])):
        if not trace.has(f"exactness.{name}"):
            continue
        what = "a root" if name == "roots" else "a row of the tree"
        message = f"{what} is not drawn from the tempered row, cut and renormalised"
        observed, axes = trace[f"exactness.{name}"], ("context", "token")
        found = [*close("EXACTNESS.PROCESSED_ROWS", message, rows, observed, axes, within(trace))]
        for finding in found:
            where = dict(finding.where)
            if where and name == "rows":
                # Rows of the tree have none for the start, which is context 0.
                where["context"] += 1
            yield replace(finding, where=where)


def within(trace: Trace) -> Tolerance:
    """The tolerance of arithmetic on given numbers."""
    return trace.policy_tolerance


@exactness_oracle("EXACTNESS.TARGET", "exactness.target")
def target(trace: Trace) -> Iterator[Finding]:
    """Clause X2."""
    message = "the target law is not that of drawing one token after the other"
    expected = derived(given_to(trace)).target
    yield from _of_laws("EXACTNESS.TARGET", message, expected, trace, "target")


@exactness_oracle("EXACTNESS.GREEDY", "exactness.law", applies=is_greedy)
def greedy(trace: Trace) -> Iterator[Finding]:
    """Clause X3."""
    given = given_to(trace)
    expected = np.zeros((given.vocabulary,) * given.length)
    expected[derive_greedy(given)] = 1.0
    message = "greedy publishes something else than plain greedy decoding"
    yield from _of_laws("EXACTNESS.GREEDY", message, expected.ravel(), trace, "law")


@exactness_oracle("EXACTNESS.LAW", "exactness.law", applies=claims_target)
def law(trace: Trace) -> Iterator[Finding]:
    """Clause X4."""
    given = given_to(trace)
    message = f"{given.sampling.mode} is called the target's law, and is not"
    yield from _of_laws("EXACTNESS.LAW", message, derived(given).target, trace, "law")


@exactness_oracle(
    "EXACTNESS.MODE_LAW",
    "exactness.law",
    applies=lambda trace: not is_greedy(trace) and not claims_target(trace),
)
def mode_law(trace: Trace) -> Iterator[Finding]:
    """Clause X5."""
    given = given_to(trace)
    message = f"the law is not the one that the draws of {given.sampling.mode} make"
    yield from _of_laws("EXACTNESS.MODE_LAW", message, derived(given).law, trace, "law")


def _of_laws(
    code: str, message: str, expected: FloatArray, trace: Trace, name: str
) -> Iterator[Finding]:
    """Two laws, with how far they lie apart as a whole, and where most."""
    observed = trace[f"exactness.{name}"]
    for found in close(code, message, expected, observed, ("sequence",), within(trace)):
        if not found.where:
            yield found
            continue
        tokens = sequence(found.where["sequence"], given_to(trace))
        far = derive_distance(observed, expected)
        more = f"{message}: total variation {far:.6g}, and most of it at {tokens}"
        yield replace(found, message=more)


@exactness_oracle("EXACTNESS.DISTANCE", "exactness.law", "exactness.distance")
def distance(trace: Trace) -> Iterator[Finding]:
    """Clause X6, of the laws that were observed; of the target as it must be where none was."""
    law, target = trace["exactness.law"], derived(given_to(trace)).target
    if trace.has("exactness.target"):
        target = trace["exactness.target"]
    message = "the distance is not half the sum of absolute differences"
    sides = np.asarray(derive_distance(law, target)), trace["exactness.distance"]
    # A sum may be off by what each of its terms may be.
    allowed = replace(within(trace), atol=within(trace).atol * (1 + law.size))
    yield from close("EXACTNESS.DISTANCE", message, *sides, (), allowed)


@exactness_oracle("EXACTNESS.LABEL", "exactness.claim", decided=False)
def label(trace: Trace) -> Iterator[Finding]:
    """Clause X7; what is exact may be called less than that."""
    mode, claim = given_to(trace).sampling.mode, trace["exactness.claim"]
    allowed = {"heuristic"}
    if mode in EXACT_MODES:
        allowed |= {"target-law", "greedy-exact"} if mode == "greedy" else {"target-law"}
    if claim.get("mode") != mode:
        message = "the claim is made of another mode"
        yield Finding("EXACTNESS.LABEL", message, {}, mode, claim.get("mode"))
    elif claim.get("claim") not in allowed:
        message = f"{mode} is called what it is not"
        yield Finding("EXACTNESS.LABEL", message, {}, sorted(allowed), claim.get("claim"))


def is_rejection(trace: Trace) -> bool:
    """Whether drafts are drawn and may be rejected."""
    return given_to(trace).sampling.rejects


def says_it_rejects(trace: Trace) -> bool:
    """Whether drafts are rejected, or are said to be."""
    said = trace.has("exactness.claim") and trace["exactness.claim"].get("rejects")
    return is_rejection(trace) or bool(said)


@exactness_oracle(
    "EXACTNESS.CORRECTION_STATE",
    "exactness.claim",
    instead=("exactness.proposal",),
    applies=says_it_rejects,
    decided=False,
)
def correction_state(trace: Trace) -> Iterator[Finding]:
    """Clause X8: the names and the numbers, whichever are shown."""
    code = "EXACTNESS.CORRECTION_STATE"
    if trace.has("exactness.claim"):
        claim = trace["exactness.claim"]
        if not is_rejection(trace):
            message = f"{given_to(trace).sampling.mode} is said to reject drafts"
            yield Finding(code, message, {}, False, claim["rejects"])
            return
        state = claim.get("correction") or {}
        missing = [name for name in CORRECTION if not _is_named(state.get(name))]
        if missing or claim.get("rejects") is not True:
            message = f"a rejection does not name {', '.join(missing) or 'itself'}"
            yield Finding(code, message, {}, list(CORRECTION), claim)
            return
    if trace.has("exactness.proposal") and given_to(trace).drafts:
        message = "the stored probabilities are not those that drafts are drawn with"
        expected, observed = derived(given_to(trace)).tables.drafts, trace["exactness.proposal"]
        axes = ("head", "context", "token")
        yield from close(code, message, expected, observed, axes, within(trace))


def _is_named(value: object) -> bool:
    return isinstance(value, str) and bool(value)


@exactness_oracle(
    "EXACTNESS.PRODUCT_IS_NOT_PATH",
    "exactness.claim",
    instead=("exactness.path_probability",),
)
def product_is_not_path(trace: Trace) -> Iterator[Finding]:
    """Clause X9: the word and the numbers, whichever are shown."""
    code = "EXACTNESS.PRODUCT_IS_NOT_PATH"
    if trace.has("exactness.claim") and trace["exactness.claim"].get("scores") != "ranking":
        message, said = "products of head probabilities are called more than a ranking", "scores"
        yield Finding(code, message, {}, "ranking", trace["exactness.claim"].get(said))
        return
    if trace.has("exactness.path_probability"):
        tables, observed = derived(given_to(trace)).tables, trace["exactness.path_probability"]
        expected = derive_path_probability(tables)
        message = "a path is given another probability than the target's own"
        if difference(derive_products(tables), observed, (), within(trace)) is None:
            message = "the product of head probabilities is given for a path's"
        yield from close(code, message, expected, observed, ("context", "path"), within(trace))


def tokens_of(trace: Trace, name: str) -> IntArray:
    """Sequences that were drawn; `ValueError` where they are not what was asked for."""
    given, tokens = given_to(trace), np.asarray(trace[f"exactness.{name}"])
    asked = given.samples, given.length
    if tokens.shape != asked:
        raise ValueError(f"{name} are {tokens.shape}; asked for were {asked}")
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"{name} are of {tokens.dtype}, and no integers")
    if tokens.min() < 0 or tokens.max() >= given.vocabulary:
        raise ValueError(f"{name} hold a token outside the {given.vocabulary} of the table")
    return tokens.astype(np.int64)


@exactness_oracle("EXACTNESS.SAMPLED_LAW", "exactness.tokens")
def sampled_law(trace: Trace) -> Iterator[Finding]:
    """Clause X10, against the law that the mode has; at most one finding."""
    shown = (name for name in ("tokens", "other") if trace.has(f"exactness.{name}"))
    found = chain.from_iterable(_frequencies(tokens_of(trace, name), trace) for name in shown)
    yield from islice(found, 1)


def _frequencies(tokens: IntArray, trace: Trace) -> Iterator[Finding]:
    given, expected = given_to(trace), derived(given_to(trace)).law
    digits = given.vocabulary ** np.arange(given.length)[::-1]
    counts = np.bincount(tokens @ digits, minlength=given.vocabulary**given.length)
    code, chance = "EXACTNESS.SAMPLED_LAW", f"where {FALSE_ALARM:g} is allowed for all sequences"
    unlikely = derive_unlikely(counts, expected)
    if unlikely is not None:
        place, tail = unlikely
        drawn, share = int(counts[place]), float(expected[place])
        message = f"{sequence(place, given)} was drawn {drawn} times of {len(tokens)}"
        if share == 0:
            message += ", and is impossible"
        else:
            message += f": so far from {share:.6g} of them by a chance of {tail:.2g}, {chance}"
        yield Finding(code, message, {"sequence": place}, share * len(tokens), drawn)
    even = len(tokens) // 2 * 2
    yield from _alike(code, "neighbours of a sample", tokens[:even:2], tokens[1:even:2], trace)


def _alike(
    code: str, what: str, ours: IntArray, theirs: IntArray, trace: Trace
) -> Iterator[Finding]:
    """Pairs of independent draws that are equal too often, or too seldom."""
    same = float((derived(given_to(trace)).law ** 2).sum())
    pairs, equals = len(ours), int((ours == theirs).all(1).sum())
    # Of a law of one sequence all draws are equal.
    if not pairs or same > 1 - COINCIDENCE:
        return
    tail = derive_tail(equals, pairs, same)
    if tail < FALSE_ALARM / PAIRINGS:
        message = f"{what} are equal in {equals} of {pairs} pairs, by a chance of {tail:.2g}"
        yield Finding(code, message, {}, same * pairs, equals)


def tells_seeds(trace: Trace) -> bool:
    """Whether two seeds would hardly ever give the same sequences."""
    law = derived(given_to(trace)).law
    same = float((law**2).sum()) ** len(trace["exactness.tokens"])
    return same < COINCIDENCE


@exactness_oracle(
    "EXACTNESS.SEEDED",
    "exactness.tokens",
    "exactness.again",
    "exactness.other",
    proves=tells_seeds,
)
def seeded(trace: Trace) -> Iterator[Finding]:
    """Clause X11; at most one finding of two seeds."""
    code, axes = "EXACTNESS.SEEDED", ("sequence", "place")
    tokens, again, other = (tokens_of(trace, name) for name in ("tokens", "again", "other"))
    yield from equal(code, "one seed gave two answers", tokens, again, axes)
    if np.array_equal(tokens, other) and tells_seeds(trace):
        yield Finding(code, "two seeds gave the same answer", {})
        return
    # A seed that was added to the place of a sequence shows one place further on.
    found = chain(
        _alike(code, "sequences of two seeds", tokens, other, trace),
        _alike(code, "sequences of two seeds, one place apart,", tokens[1:], other[:-1], trace),
    )
    yield from islice(found, 1)
