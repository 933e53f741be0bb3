"""Each oracle of the verification contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Tolerance, Trace
from medusa_spec.registry import of_contract

# Retrieval: (2), (0,0), (0,1) and (1,0,2), so the first three rows are padded.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))


def _at(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # One prompt key hidden from one row.
    "VERIFICATION.RECTANGULAR_MASK": lambda t: {
        "verification.mask": _at(t["verification.mask"], (6, 4), False)
    },
    # Rows for depths.
    "VERIFICATION.POSITION": lambda t: {"verification.positions": t["verification.rows"]},
    # Two rows share one slot of the cache.
    "VERIFICATION.STAGED_ROW": lambda t: {
        "verification.rows": _at(t["verification.rows"], 2, t["verification.rows"][1])
    },
    "VERIFICATION.PATH_LOGITS": lambda t: {"verification.logits": t["verification.logits"] + 1e-6},
    # Values of the last layer only.
    "VERIFICATION.PATH_KV": lambda t: {"verification.kv": _at(t["verification.kv"], (-1, 1), 0.0)},
    # Every row carries the root's head logits.
    "VERIFICATION.HEAD_LOGITS": lambda t: {
        "verification.head_logits": np.repeat(
            t["verification.head_logits"][:, :1], len(t["verification.rows"]), axis=1
        )
    },
    # Path logits one place late: every token judged by its own row.
    "VERIFICATION.SHIFT": lambda t: {
        "verification.path_logits": np.roll(t["verification.path_logits"], -1, axis=1)
    },
    # Two retrieval rows exchanged.
    "VERIFICATION.GATHER": lambda t: {
        "verification.path_logits": t["verification.path_logits"][[0, 2, 1, 3]]
    },
}


@pytest.fixture(scope="module")
def trace(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    lawful: Trace = lawful_trace(coordinate(PATHS), literal)
    return lawful


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("verification")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


@pytest.mark.parametrize(("row", "key"), [(2, 5 + 1), (1, 5 + 4), (3, 5 + 7)])
def test_a_leak_beside_the_prefix_is_heard(row: int, key: int, trace: Trace, fired: Any) -> None:
    leak = _at(trace["verification.mask"], (row, key), True)
    assert fired(trace, {"verification.mask": leak}) == {"VERIFICATION.RECTANGULAR_MASK"}


def test_what_stands_at_padding_is_nobodys_business(trace: Trace, fired: Any) -> None:
    padding = trace["tree.retrieval"] < 0
    noise = np.where(padding[..., None], 123.0, trace["verification.path_logits"])
    assert fired(trace, {"verification.path_logits": noise}) == set()


def test_logits_without_a_number_are_heard(trace: Trace, fired: Any) -> None:
    spoiled = _at(trace["verification.logits"], (3, 2), np.nan)
    assert "VERIFICATION.PATH_LOGITS" in fired(trace, {"verification.logits": spoiled})


COMPARED = ("PATH_LOGITS", "PATH_KV", "HEAD_LOGITS")
"""The rules that compare floats with a plain pass."""

OWN = frozenset({"verification"})


def _scaled(trace: Trace, factor: float) -> Trace:
    """The same trace of a half type, with weights so small that all it computes is."""
    half = Tolerance(0.12, 0.05, "eight significant bits")
    floats = ("logits", "head_logits", "path_logits", "kv")
    parts = (*(f"verification.{name}" for name in floats), "plain.")
    arrays = {
        name: array * factor if name.startswith(parts) else array
        for name, array in trace.arrays.items()
    }
    return replace(trace, arrays=arrays, tolerance=half)


def _compared(trace: Trace) -> set[str]:
    return {f"VERIFICATION.{name}" for name in COMPARED} & set(judge(trace).executed)


def test_what_any_row_agrees_with_proves_nothing(trace: Trace) -> None:
    every = {f"VERIFICATION.{name}" for name in COMPARED}
    # Normal logits spread over about four; eight tolerances are one at least.
    assert _compared(_scaled(trace, 5.0)) == every
    faint = _scaled(trace, 0.05)
    assert _compared(faint) == set()
    assert judge(faint, OWN).findings == ()
    # Doubles of the same size are told apart: their tolerance is as small as their rounding.
    assert _compared(replace(faint, tolerance=trace.tolerance)) == every


@pytest.mark.parametrize("name", ["logits", "kv", "head_logits"])
def test_what_is_broken_even_so_is_heard(name: str, trace: Trace, fired: Any) -> None:
    faint = _scaled(trace, 0.05)
    broken = {f"verification.{name}": faint[f"verification.{name}"] + 0.3}
    code = {"logits": "PATH_LOGITS", "kv": "PATH_KV", "head_logits": "HEAD_LOGITS"}[name]
    assert f"VERIFICATION.{code}" in fired(faint, broken)


@pytest.mark.parametrize(("heads", "told"), [((0, 1, 2), True), ((0, 1, 0), False), ((0,), False)])
def test_heads_that_cannot_be_told_apart_prove_nothing(
    heads: tuple[int, ...], told: bool, trace: Trace
) -> None:
    names = ("verification.head_logits", "plain.head_logits")
    arrays = {**trace.arrays, **{name: trace[name][list(heads)] for name in names}}
    judgement = judge(replace(trace, arrays=arrays), OWN)
    assert ("VERIFICATION.HEAD_LOGITS" in judgement.executed) == told
    assert judgement.findings == ()
