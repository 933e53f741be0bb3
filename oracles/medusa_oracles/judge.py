"""The frame every oracle stands in: registration, comparison, and judging one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from medusa_spec.arrays import Array, BoolArray
from medusa_spec.findings import Difference, Finding
from medusa_spec.registry import invariants
from medusa_spec.trace import Tolerance, Trace

Check: TypeAlias = Callable[[Trace], Iterator[Finding]]

FAINT = 8
"""Logits, keys or values that spread over less than so many tolerances are not told apart."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """One invariant's check, the names it needs in a trace, and when it has something to say.

    `instead` are the names that do as well, for an engine that shows less of how it decided.
    `proves` says whether silence means anything: a breach is one in any case, and where a fault
    could not have been heard the rule was not executed.
    """

    code: str
    needs: tuple[str, ...]
    instead: tuple[str, ...]
    applies: Callable[[Trace], bool]
    proves: Callable[[Trace], bool] | None
    check: Check

    def runs_on(self, trace: Trace) -> bool:
        """Whether the trace holds what the check reads."""
        return self.reads(trace.names)

    def reads(self, names: frozenset[str]) -> bool:
        """Whether these are names enough for the check."""
        return names.issuperset(self.needs) or bool(self.instead and names.issuperset(self.instead))


_ORACLES: dict[str, Oracle] = {}


def oracle(
    code: str,
    *needs: str,
    instead: tuple[str, ...] = (),
    applies: Callable[[Trace], bool] = lambda _: True,
    proves: Callable[[Trace], bool] | None = None,
) -> Callable[[Check], Check]:
    """Register the check of `code`; it runs on traces that hold all of `needs`, or of `instead`."""
    if code not in invariants():
        raise KeyError(f"{code} is not in the invariant registry")
    if code in _ORACLES:
        raise KeyError(f"{code} has an oracle already")

    def register(check: Check) -> Check:
        _ORACLES[code] = Oracle(code, needs, instead, applies, proves, check)
        _readers.cache_clear()
        return check

    return register


def oracle_beside(
    part: str,
    code: str,
    *needs: str,
    instead: tuple[str, ...] = (),
    applies: Callable[[Trace], bool] = lambda _: True,
    proves: Callable[[Trace], bool] | None = None,
) -> Callable[[Check], Check]:
    """Register a check of what a coordinate plans beside its round; it applies where it does."""

    def planned(trace: Trace) -> bool:
        return getattr(trace.coordinate, part) is not None and applies(trace)

    return oracle(code, *needs, instead=instead, applies=planned, proves=proves)


def oracles() -> Mapping[str, Oracle]:
    """Every registered oracle, in registry order."""
    return {code: _ORACLES[code] for code in invariants() if code in _ORACLES}


# Thousands of traces hold the same few sets of names.
@lru_cache(maxsize=1024)
def _readers(names: frozenset[str]) -> tuple[Oracle, ...]:
    """The oracles that can read a trace of these names, in registry order."""
    return tuple(entry for entry in oracles().values() if entry.reads(names))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was executed on a trace, and what was found."""

    executed: tuple[str, ...]
    findings: tuple[Finding, ...]


def judge(trace: Trace, contracts: frozenset[str] | None = None) -> Judgement:
    """Run every oracle (of `contracts`) whose needs the trace meets, in registry order."""
    executed: list[str] = []
    findings: list[Finding] = []
    for entry in _readers(trace.names):
        code = entry.code
        if contracts is not None and invariants()[code].contract not in contracts:
            continue
        try:
            if not entry.applies(trace):
                continue
            found = list(entry.check(trace))
            if not found and entry.proves is not None and not entry.proves(trace):
                continue
        except Exception as error:
            # An engine may answer with anything; what no formula can read is not what was owed.
            message = f"what was observed is of no form that can be judged: {error!r}"
            found = [Finding(code, message)]
        executed.append(code)
        findings.extend(found)
    return Judgement(tuple(executed), tuple(findings))


def equal(
    code: str,
    message: str,
    expected: Array,
    observed: Array,
    axes: tuple[str, ...],
    where: Mapping[str, int] | None = None,
) -> Iterator[Finding]:
    """At most one finding: the first entry at which two arrays differ, and how far they do."""
    if expected.shape != observed.shape:
        yield Finding(
            code,
            f"{message}; the shape differs",
            where or {},
            list(expected.shape),
            list(observed.shape),
        )
        return
    if same(expected, observed):
        return
    different = np.argwhere(_unequal(expected, observed))
    if len(different):
        first = tuple(different[0])
        place = dict(where or {}) | _where(axes, first)
        apart = difference(expected, observed, axes)
        sides = expected[first].item(), observed[first].item()
        yield Finding(code, message, place, *sides, apart)


def close(
    code: str,
    message: str,
    expected: Array,
    observed: Array,
    axes: tuple[str, ...],
    tolerance: Tolerance,
) -> Iterator[Finding]:
    """At most one finding: the difference furthest beyond the tolerance, and where."""
    if expected.shape != observed.shape:
        shapes = list(expected.shape), list(observed.shape)
        yield Finding(code, f"{message}; the shape differs", {}, *shapes)
        return
    apart = difference(expected, observed, axes, tolerance)
    if apart is not None:
        worst = tuple(apart.where.values())
        sides = float(expected[worst]), float(observed[worst])
        yield Finding(code, message, apart.where, *sides, apart)


def difference(
    expected: Array,
    observed: Array,
    axes: tuple[str, ...],
    tolerance: Tolerance | None = None,
) -> Difference | None:
    """How two arrays of one shape differ beyond `tolerance`, or at all; `None` where they do not.

    The greatest difference is the one furthest beyond what is allowed.
    """
    if tolerance is None:
        far = _unequal(expected, observed)
    else:
        far = ~np.isclose(observed, expected, rtol=tolerance.rtol, atol=tolerance.atol)
    entries = int(np.count_nonzero(far))
    if not entries:
        return None
    if expected.dtype.kind == observed.dtype.kind == "b":
        first = _where(axes, np.argwhere(far)[0])
        return Difference(None, first, None, entries, expected.size)
    ours, theirs = expected.astype(np.float64), observed.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours - theirs)
        allowed = np.zeros_like(apart)
        if tolerance is not None:
            allowed = tolerance.atol + tolerance.rtol * np.abs(ours)
        excess = apart - allowed
    # A NaN compares with nothing, so it would hide every other difference from argmax.
    excess = np.where(far, np.where(np.isnan(excess), np.inf, excess), -np.inf)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    greatest = float(apart[worst]) if np.isfinite(apart[worst]) else np.inf
    bound = None if tolerance is None else float(allowed[worst])
    return Difference(greatest, _where(axes, worst), bound, entries, expected.size)


def beyond(expected: Array, observed: Array, tolerance: Tolerance) -> bool:
    """Whether two float arrays differ in shape, or anywhere by more than the tolerance."""
    return expected.shape != observed.shape or not np.allclose(
        observed, expected, rtol=tolerance.rtol, atol=tolerance.atol
    )


def telling(expected: Array, tolerance: Tolerance) -> bool:
    """Whether entries along the last axis lie so far apart that one cannot pass for another."""
    if not expected.size:
        return False
    allowed = tolerance.atol + tolerance.rtol * np.abs(expected).max(-1)
    return bool((np.ptp(expected, axis=-1) > FAINT * allowed).any())


def same(expected: Array, observed: Array) -> bool:
    """Whether two arrays are equal to the bit; a cache row that nobody wrote may hold NaN twice."""
    return np.array_equal(expected, observed, equal_nan=True)


def _unequal(expected: Array, observed: Array) -> BoolArray:
    """The entries at which two arrays are not the same; NaN is the same as NaN."""
    unequal: BoolArray = (expected != observed) & ~(_nan(expected) & _nan(observed))
    return unequal


def _nan(array: Array) -> BoolArray:
    # NaN alone is not itself, and integers and booleans have none.
    itself: BoolArray = array == array
    return ~itself


def _where(axes: tuple[str, ...], index: Any) -> dict[str, int]:
    return {axis: int(i) for axis, i in zip(axes, index, strict=False)}
