"""Each oracle of the commit contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from medusa_spec import Trace
from medusa_spec.registry import of_contract

# Rows: root, (0) (1) (2), (0,0) (0,1) (1,0), (1,0,2). The winner publishes rows 0, 2 and 6, which
# move from 5, 7, 11 to 5, 6, 7; its fourth row is not accepted.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))
PLAUSIBLE = ((0, 2), (2, 6))


def _at(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


def _in_place(trace: Trace) -> dict[str, Any]:
    """Rows copied one by one, the last first, within one buffer."""
    cache = trace["cache.before"].copy()
    for source, destination in ((11, 7), (7, 6), (5, 5)):
        cache[:, :, :, destination] = cache[:, :, :, source]
    return {"cache.after": cache}


def _keys_alone(trace: Trace) -> dict[str, Any]:
    return {"cache.after": _at(trace["cache.after"], (0, 1), trace["cache.before"][0, 1])}


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # a tokens instead of a + 1.
    "COMMIT.PUBLISHED_COUNT": lambda t: {"commit.tokens": t["commit.tokens"][:-1]},
    # The rows that happen to be next to each other.
    "COMMIT.SOURCE_ROWS": lambda t: {"commit.source": np.array([5, 6, 7])},
    "COMMIT.DESTINATION_ROWS": lambda t: {"commit.destination": np.array([6, 7, 8])},
    "COMMIT.ALL_LAYERS": _keys_alone,
    "COMMIT.SNAPSHOT": _in_place,
    # The tokens of path 3 with the cache rows of path 2.
    "COMMIT.ONE_PATH": lambda t: {"commit.source": np.array([5, 6, 10])},
    # The row before the terminal one.
    "COMMIT.FRONTIER": lambda t: {"commit.frontier.target": t["verification.logits"][2]},
    "COMMIT.LENGTH": lambda t: {"commit.length": t["commit.length"] - 1},
    "COMMIT.PREFIX_UNTOUCHED": lambda t: {"cache.after": _at(t["cache.after"], (..., 4, 0), 0.0)},
    "COMMIT.VALIDATED_FIRST": lambda t: {
        "refusal.after": _at(t["refusal.before"], (1, 0, 0, 6, 2), 9.0)
    },
    "COMMIT.REJECTED_UNREACHABLE": lambda t: {"cache.length": t["cache.length"] + 5},
    # Publication goes on behind token 0.
    "COMMIT.END_OF_SEQUENCE": lambda t: {
        "commit.tokens": np.array([*t["commit.tokens"], t["proposal.packed"][6]])
    },
}


@pytest.fixture(scope="module")
def trace(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    return _with_refusal(lawful_trace(coordinate(PATHS), literal, PLAUSIBLE))


@pytest.fixture(scope="module")
def ended(coordinate: Any, lawful_trace: Any, literal: Any, trace: Trace) -> Trace:
    """The same round where the second published token ends the sequence."""
    end = int(trace["commit.tokens"][1])
    return _with_refusal(lawful_trace(coordinate(PATHS, end_of_sequence=end), literal, PLAUSIBLE))


def _with_refusal(lawful: Trace) -> Trace:
    before = lawful["cache.before"]
    arrays = {"refusal.before": before, "refusal.after": before.copy()}
    lengths = {f"refusal.length_{when}": np.array(5) for when in ("before", "after")}
    documents = {"refusal.asked": "a commit of path 9", "refusal.refused": "no such path"}
    return Trace(
        lawful.coordinate,
        lawful.tolerance,
        lawful.policy_tolerance,
        {**lawful.arrays, **arrays, **lengths},
        {**lawful.documents, **documents},
    )


def test_the_round_is_the_one_it_is_taken_for(trace: Trace, ended: Trace) -> None:
    assert trace["commit.source"].tolist() == [5, 7, 11]
    assert trace["commit.destination"].tolist() == [5, 6, 7]
    assert int(trace["commit.length"]) == 8
    assert len(ended["commit.tokens"]) == 2


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("commit")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, ended: Trace, prove: Any) -> None:
    lawful = ended if code == "COMMIT.END_OF_SEQUENCE" else trace
    prove(code, lawful, CASES[code](lawful))


def test_an_ended_round_publishes_less(ended: Trace, fired: Any) -> None:
    assert fired(ended, {}) == set()


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("commit.tokens", lambda t: t["proposal.packed"][[0, 1, 4]]),
        ("commit.frontier.target", lambda t: t["verification.logits"][4]),
        ("commit.frontier.heads", lambda t: t["verification.head_logits"][:, 4]),
    ],
)
def test_any_part_may_stray_to_another_path(
    part: str, rows: Callable[[Trace], Any], trace: Trace, fired: Any
) -> None:
    assert "COMMIT.ONE_PATH" in fired(trace, {part: rows(trace)})


def test_head_logits_of_the_root_are_no_frontier(trace: Trace, fired: Any) -> None:
    root = trace["verification.head_logits"][:, 0]
    assert fired(trace, {"commit.frontier.heads": root}) == {"COMMIT.FRONTIER"}


def test_a_cache_that_shows_too_little_is_heard(trace: Trace, fired: Any) -> None:
    assert "COMMIT.LENGTH" in fired(trace, {"cache.length": trace["cache.length"] - 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"refusal.refused": None},
        {"refusal.length_after": np.array(9)},
    ],
)
def test_success_and_growth_are_no_refusal(
    changes: dict[str, Any], trace: Trace, fired: Any
) -> None:
    assert fired(trace, changes) == {"COMMIT.VALIDATED_FIRST"}


def test_rows_that_nobody_wrote_may_hold_nan(trace: Trace, fired: Any) -> None:
    # A backing that was allocated without being filled.
    unwritten = {
        name: _at(trace[name], (..., slice(20, None), slice(None)), np.nan)
        for name in ("cache.before", "cache.after", "refusal.before", "refusal.after")
    }
    assert fired(trace, unwritten) == set()
