"""Oracle of `spec/search.md`: what a search admitted, judged by a rescan of its frontier."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from medusa_oracles.judge import beyond, close, oracle_beside
from medusa_oracles.search_plan import (
    derive_best,
    derive_increments,
    derive_size,
    derive_weight,
    is_exhaustible,
)
from medusa_spec.arrays import FloatArray, RankPath
from medusa_spec.coordinate import Calibration
from medusa_spec.findings import Finding
from medusa_spec.trace import Trace

search_oracle = partial(oracle_beside, "search")
"""An oracle of traces that search, whose coordinates say for what."""


def given_to(trace: Trace) -> Calibration:
    """The calibration; every search oracle applies only where there is one."""
    calibration = trace.coordinate.search
    assert calibration is not None
    return calibration


def admitted(trace: Trace) -> tuple[RankPath, ...]:
    """The paths that were admitted, in their order."""
    return tuple(tuple(int(rank) for rank in path) for path in trace["search.paths"])


def increments_of(trace: Trace) -> FloatArray:
    """The increments that were observed, so that a fault in them is one; else what they must be."""
    expected = derive_increments(given_to(trace))
    if not trace.has("search.increments"):
        return expected
    observed: FloatArray = trace["search.increments"]
    if observed.shape != expected.shape:
        raise ValueError(f"increments are {observed.shape}; the table's are {expected.shape}")
    return observed


class Admission(NamedTuple):
    """One admission: which, of what, and the weights of all that stood in the frontier."""

    node: int
    path: RankPath
    frontier: dict[RankPath, float]


def admissions(trace: Trace, increments: FloatArray) -> Iterator[Admission]:
    """Every admission from a frontier; where a path did not stand there, the rest is S4's."""
    heads, ranks = increments.shape

    def children(path: RankPath) -> dict[RankPath, float]:
        below = ((*path, rank) for rank in range(ranks)) if len(path) < heads else ()
        return {child: derive_weight(child, increments) for child in below}

    frontier = children(())
    for node, path in enumerate(admitted(trace)):
        if path not in frontier:
            return
        yield Admission(node, path, frontier)
        del frontier[path]
        frontier |= children(path)


@search_oracle("SEARCH.INCREMENT", "search.increments")
def increment(trace: Trace) -> Iterator[Finding]:
    """Clause S1."""
    message = "a rank's mass is not what it adds to the ranks before it"
    expected, observed = derive_increments(given_to(trace)), trace["search.increments"]
    axes, within = ("head", "rank"), trace.policy_tolerance
    yield from close("SEARCH.INCREMENT", message, expected, observed, axes, within)


@search_oracle("SEARCH.PATH_WEIGHT", "search.paths", "search.weights")
def path_weight(trace: Trace) -> Iterator[Finding]:
    """Clause S2, from the increments that were observed."""
    increments, message = increments_of(trace), "a path does not weigh the product along it"
    expected = np.array([derive_weight(path, increments) for path in admitted(trace)])
    observed, within = trace["search.weights"], trace.policy_tolerance
    yield from close("SEARCH.PATH_WEIGHT", message, expected, observed, ("node",), within)


@search_oracle("SEARCH.OBJECTIVE", "search.paths", "search.objective")
def objective(trace: Trace) -> Iterator[Finding]:
    """Clause S3, from the weights that were observed."""
    if trace.has("search.weights"):
        expected = trace["search.weights"].sum()
    else:
        increments = increments_of(trace)
        expected = sum(derive_weight(path, increments) for path in admitted(trace))
    message = "the objective is not the sum over all paths"
    sides = np.asarray(float(expected)), trace["search.objective"]
    yield from close("SEARCH.OBJECTIVE", message, *sides, (), trace.policy_tolerance)


@search_oracle("SEARCH.PREFIX_CLOSED", "search.paths")
def prefix_closed(trace: Trace) -> Iterator[Finding]:
    """Clause S4."""
    code, calibration = "SEARCH.PREFIX_CLOSED", given_to(trace)
    heads, ranks = len(calibration.accuracy), calibration.max_rank
    known: set[RankPath] = {()}
    for node, path in enumerate(admitted(trace)):
        where, shown = {"node": node}, list(path)
        if path in known:
            what = f"{shown} is the root" if not path else f"{shown} was admitted before"
            yield Finding(code, what, where)
            return
        if len(path) > heads or not all(0 <= rank < ranks for rank in path):
            yield Finding(code, f"{shown} is no path of {heads} heads of {ranks} ranks", where)
            return
        if path[:-1] not in known:
            message = f"{shown} was admitted before its parent {shown[:-1]}"
            yield Finding(code, message, where)
            return
        known.add(path)


@search_oracle("SEARCH.FRONTIER_BEST", "search.paths")
def frontier_best(trace: Trace) -> Iterator[Finding]:
    """Clause S5: by weights of the judge's own, and by the engine's where it shows them."""
    code, increments = "SEARCH.FRONTIER_BEST", increments_of(trace)
    # A weight is as small as its path is deep, so nothing but its own size can measure it.
    share = 1 - trace.policy_tolerance.rtol
    for node, path, frontier in admissions(trace, increments):
        where, best = {"node": node}, max(frontier, key=lambda other: frontier[other])
        if frontier[path] < share * frontier[best]:
            message = f"{list(path)} of weight {frontier[path]:.6g} was admitted before a heavier"
            message += f" one, {list(best)} of {frontier[best]:.6g}"
            yield Finding(code, message, where, list(best), list(path))
            return
        first = min((p for p in frontier if alike(p, path, increments)), key=canonical)
        if first != path:
            message = "of paths that weigh the same, the first was not admitted first"
            yield Finding(code, message, where, list(first), list(path))
            return
    if trace.has("search.decisions"):
        yield from _of_own_weights(code, trace)


def canonical(path: RankPath) -> tuple[int, RankPath]:
    """The key of canonical order."""
    return len(path), path


def alike(one: RankPath, other: RankPath, increments: FloatArray) -> bool:
    """Whether two paths weigh the same however a product is rounded."""
    ours, theirs = ([increments[place] for place in enumerate(path)] for path in (one, other))
    return ours == theirs or (0 in ours and 0 in theirs)


def _of_own_weights(code: str, trace: Trace) -> Iterator[Finding]:
    """Where the engine's own weights are equal, or say that it left a heavier path."""
    for node, decision in enumerate(trace["search.decisions"]):
        left, theirs = decision.get("runner_up"), decision.get("runner_up_weight")
        if left is None or theirs is None:
            continue
        ours, path, other = decision["weight"], tuple(decision["path"]), tuple(left)
        if ours < theirs or (ours == theirs and canonical(other) < canonical(path)):
            message = "by the weights of the record another path was to be admitted"
            yield Finding(code, message, {"node": node}, list(other), list(path))
            return


@search_oracle("SEARCH.DECISIONS", "search.paths", "search.decisions")
def decisions(trace: Trace) -> Iterator[Finding]:
    """Clause S6, of admissions from a frontier."""
    code, record = "SEARCH.DECISIONS", trace["search.decisions"]
    paths, increments = admitted(trace), increments_of(trace)
    if len(record) != len(paths):
        yield Finding(code, "not every admission is recorded", {}, len(paths), len(record))
        return
    tolerance = trace.policy_tolerance
    for node, path, frontier in admissions(trace, increments):
        decision, where = record[node], {"node": node}
        if tuple(decision["path"]) != path:
            message = "another path is recorded than was admitted"
            yield Finding(code, message, where, list(path), list(decision["path"]))
            return
        if decision["frontier"] != len(frontier):
            message = "the frontier held another number of paths before this admission"
            yield Finding(code, message, where, len(frontier), decision["frontier"])
            return
        others = {other: weight for other, weight in frontier.items() if other != path}
        left = decision["runner_up"]
        best = max(others, key=lambda other: others[other], default=None)
        found = [] if left is None else [tuple(left)]
        kept = [others.get(other, -1.0) for other in found]
        near = best is None or (kept and kept[0] >= (1 - tolerance.rtol) * others[best])
        if len(found) != (best is not None) or not near:
            message = "what is recorded as left is not the heaviest that was left"
            yield Finding(code, message, where, None if best is None else list(best), left)
            return
        weights = [(frontier[path], decision["weight"])]
        weights += [(weight, decision["runner_up_weight"]) for weight in kept]
        message = f"a weight in the record of {list(path)} is not its path's"
        for expected, observed in weights:
            if beyond(np.asarray(expected), np.asarray(observed, np.float64), tolerance):
                yield Finding(code, message, where, expected, observed)
                return


@search_oracle("SEARCH.BUDGET", "search.paths")
def budget(trace: Trace) -> Iterator[Finding]:
    """Clause S7."""
    size, found = derive_size(given_to(trace)), len(trace["search.paths"])
    if found != size:
        few = "too many paths were admitted" if found > size else "too few paths were admitted"
        yield Finding("SEARCH.BUDGET", f"{few}; the root is none of them", {}, size, found)


@search_oracle(
    "SEARCH.OPTIMAL", "search.paths", applies=lambda trace: is_exhaustible(given_to(trace))
)
def optimal(trace: Trace) -> Iterator[Finding]:
    """Clause S8, by the increments of the table, whatever the engine made of them."""
    increments, best = derive_increments(given_to(trace)), derive_best(given_to(trace))
    found = sum(derive_weight(path, increments) for path in admitted(trace))
    tolerance = trace.policy_tolerance
    if found < best - (tolerance.atol + tolerance.rtol * best):
        message = "another prefix-closed set of as many paths is worth more"
        yield Finding("SEARCH.OPTIMAL", message, {}, best, found)


@search_oracle("SEARCH.VERSIONED", "search.identity")
def versioned(trace: Trace) -> Iterator[Finding]:
    """Clause S9; what else an identity holds is the engine's own."""
    calibration, identity = given_to(trace), trace["search.identity"]
    for word in ("model", "data_set", "prompts", "policy", "nodes"):
        expected, observed = getattr(calibration, word), identity.get(word)
        if observed != expected:
            message = f"the tree does not say for which {word} it was searched"
            yield Finding("SEARCH.VERSIONED", message, {}, expected, observed)
            return


@search_oracle("SEARCH.NOT_SPEED", "search.claim")
def not_speed(trace: Trace) -> Iterator[Finding]:
    """Clause S10: these three words, and no other."""
    expected = {
        "quantity": "accepted-edges-per-round",
        "assumption": "independent-heads",
        "evidence": given_to(trace).evidence,
    }
    if trace["search.claim"] != expected:
        message = "the objective is claimed to be something else than it is"
        yield Finding("SEARCH.NOT_SPEED", message, {}, expected, trace["search.claim"])
