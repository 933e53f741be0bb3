"""The frame every oracle stands in: registration, comparison, and judging one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from medusa_spec.arrays import Array, BoolArray
from medusa_spec.findings import Finding
from medusa_spec.registry import invariants
from medusa_spec.trace import Tolerance, Trace

Check: TypeAlias = Callable[[Trace], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Oracle:
    """One invariant's check, the names it needs in a trace, and when it has something to say."""

    code: str
    needs: tuple[str, ...]
    applies: Callable[[Trace], bool]
    check: Check


_ORACLES: dict[str, Oracle] = {}


def oracle(
    code: str, *needs: str, applies: Callable[[Trace], bool] = lambda _: True
) -> Callable[[Check], Check]:
    """Register the check of `code`; it runs on traces that hold every name in `needs`."""
    if code not in invariants():
        raise KeyError(f"{code} is not in the invariant registry")
    if code in _ORACLES:
        raise KeyError(f"{code} has an oracle already")

    def register(check: Check) -> Check:
        _ORACLES[code] = Oracle(code, needs, applies, check)
        return check

    return register


def oracles() -> Mapping[str, Oracle]:
    """Every registered oracle, in registry order."""
    return {code: _ORACLES[code] for code in invariants() if code in _ORACLES}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was executed on a trace, and what was found."""

    executed: tuple[str, ...]
    findings: tuple[Finding, ...]


def judge(trace: Trace, contracts: frozenset[str] | None = None) -> Judgement:
    """Run every oracle (of `contracts`) whose needs the trace meets, in registry order."""
    executed: list[str] = []
    findings: list[Finding] = []
    for code, entry in oracles().items():
        if contracts is not None and invariants()[code].contract not in contracts:
            continue
        if not trace.has(*entry.needs):
            continue
        try:
            if not entry.applies(trace):
                continue
            found = list(entry.check(trace))
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
    """At most one finding: the first entry at which two arrays differ, and how many do."""
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
    different = np.argwhere((expected != observed) & ~(_nan(expected) & _nan(observed)))
    if len(different):
        first = tuple(different[0])
        place = dict(where or {}) | _where(axes, first)
        count = f" ({len(different)} of {expected.size} entries differ)"
        yield Finding(code, message + count, place, expected[first].item(), observed[first].item())


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
    far = ~np.isclose(observed, expected, rtol=tolerance.rtol, atol=tolerance.atol)
    if far.any():
        with np.errstate(invalid="ignore"):
            difference = np.abs(expected - observed)
            allowed = tolerance.atol + tolerance.rtol * np.abs(expected)
            excess = difference - allowed
        # A NaN compares with nothing, so it would hide every other difference from argmax.
        excess = np.where(far, np.where(np.isnan(excess), np.inf, excess), -np.inf)
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        note = f"difference {difference[worst]:.3g}, {allowed[worst]:.3g} allowed"
        values = float(expected[worst]), float(observed[worst])
        yield Finding(code, f"{message}; {note}", _where(axes, worst), *values)


def beyond(expected: Array, observed: Array, tolerance: Tolerance) -> bool:
    """Whether two float arrays differ in shape, or anywhere by more than the tolerance."""
    return expected.shape != observed.shape or not np.allclose(
        observed, expected, rtol=tolerance.rtol, atol=tolerance.atol
    )


def same(expected: Array, observed: Array) -> bool:
    """Whether two arrays are equal to the bit; a cache row that nobody wrote may hold NaN twice."""
    return np.array_equal(expected, observed, equal_nan=True)


def _nan(array: Array) -> BoolArray:
    # NaN alone is not itself, and integers and booleans have none.
    itself: BoolArray = array == array
    return ~itself


def _where(axes: tuple[str, ...], index: Any) -> dict[str, int]:
    return {axis: int(i) for axis, i in zip(axes, index, strict=False)}
