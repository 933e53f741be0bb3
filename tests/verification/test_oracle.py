"""Each oracle of the verification contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from medusa_spec import Trace
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
