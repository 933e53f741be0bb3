"""Each oracle of the proposal contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.dialect import CANONICAL, Dialect
from medusa_spec.registry import of_contract

# Retrieval: (2), (0,0), (0,1) and (1,0,2), so the first three rows are padded.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))


def _at(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


def _ascending(trace: Trace) -> dict[str, Any]:
    """Every head's ranks backwards: the same tokens, the same shape."""
    table, topk = trace["proposal.table"], trace.coordinate.topk
    ranks = table[1:].reshape(-1, topk)[:, ::-1]
    return {"proposal.table": np.concatenate([table[:1], ranks.reshape(-1)])}


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # The root of the first head's logits.
    "PROPOSAL.ROOT_FROM_TARGET": lambda t: {
        "proposal.table": _at(t["proposal.table"], 0, t["frontier.heads"][0].argmax())
    },
    "PROPOSAL.TOPK": _ascending,
    # Every packed token is its neighbour's.
    "PROPOSAL.GATHER": lambda t: {"proposal.packed": np.roll(t["proposal.packed"], 1)},
    # What -1 reads without a mask: the last packed token.
    "PROPOSAL.PADDING_MASKED": lambda t: {
        "proposal.candidates": _at(t["proposal.candidates"], (0, 3), t["proposal.packed"][-1])
    },
}


@pytest.fixture(scope="module")
def trace(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    lawful: Trace = lawful_trace(coordinate(PATHS), literal)
    return lawful


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("proposal")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


def test_a_stale_frontier_is_heard(trace: Trace, fired: Any) -> None:
    fresh = np.roll(trace["frontier.target"], 1), np.roll(trace["frontier.heads"], 1, axis=1)
    changes = {"frontier.target": fresh[0], "frontier.heads": fresh[1]}
    assert fired(trace, changes) == {"PROPOSAL.ROOT_FROM_TARGET", "PROPOSAL.TOPK"}


def test_heads_in_reverse_are_heard(trace: Trace, fired: Any) -> None:
    reversed_heads = {"frontier.heads": trace["frontier.heads"][::-1]}
    assert "PROPOSAL.TOPK" in fired(trace, reversed_heads)


def test_token_zero_is_a_token(trace: Trace, fired: Any) -> None:
    # A padded entry that was filled with zero names a token like any other.
    padded = _at(trace["proposal.candidates"], (0, 3), 0)
    assert "PROPOSAL.PADDING_MASKED" in fired(trace, {"proposal.candidates": padded})


def test_a_candidate_of_another_path_is_heard(trace: Trace, fired: Any) -> None:
    swapped = trace["proposal.candidates"][[0, 1, 2, 2]]
    assert "PROPOSAL.GATHER" in fired(trace, {"proposal.candidates": swapped})


@pytest.fixture(scope="module")
def tied(trace: Trace) -> Trace:
    """An engine that may order ties as it likes, where three tokens of head 0 tie for its ranks."""
    heads = trace["frontier.heads"].copy()
    tokens = trace["proposal.table"][1:4]
    heads[0, tokens] = heads[0].max()
    return replace(
        trace,
        arrays={**trace.arrays, "frontier.heads": heads},
        dialect=Dialect(topk_ties="any", reasons={"topk_ties": "a sort of no stable order"}),
    )


def _observed(table: Any, tied: Trace, *, whole: bool) -> dict[str, Any]:
    """A table of other tokens, or only the packed tokens that it gives."""
    slots = [1 + (len(path) - 1) * tied.coordinate.topk + path[-1] for path in PATHS]
    return {"proposal.table": table if whole else table[:2], "proposal.packed": table[[0, *slots]]}


@pytest.mark.parametrize("whole", [True, False])
def test_equal_logits_may_take_any_order(whole: bool, tied: Trace, fired: Any) -> None:
    table = tied["proposal.table"].copy()
    table[1:4] = table[[3, 1, 2]]
    assert "PROPOSAL.TOPK" not in fired(tied, _observed(table, tied, whole=whole))
    strict = replace(tied, dialect=CANONICAL)
    assert "PROPOSAL.TOPK" in fired(strict, _observed(table, tied, whole=True))


@pytest.mark.parametrize("whole", [True, False])
def test_the_later_of_equal_logits_is_called_so(whole: bool, tied: Trace) -> None:
    # The three tokens tie, so in canonical order their ids rise.
    table = tied["proposal.table"].copy()
    table[1:4] = np.sort(table[1:4])
    slots = [1 + (len(path) - 1) * tied.coordinate.topk + path[-1] for path in PATHS]
    lawful = {**tied.arrays, "proposal.table": table, "proposal.packed": table[[0, *slots]]}
    strict = replace(tied, arrays=lawful, dialect=CANONICAL)
    assert _said(strict, table, slots, whole=whole) == []
    for order, said in (
        ([1, 3, 2], "equal logits: the lower token ranks first, and another was taken"),
        ([1, 1, 2], "" if whole else "a node's token is not its head's token of its rank"),
    ):
        other = table.copy()
        other[1:4] = table[order]
        (message,) = _said(strict, other, slots, whole=whole)
        assert message == (
            said or "a head's ranks are not its tokens in descending order of logits"
        )


def _said(trace: Trace, table: Any, slots: list[int], *, whole: bool) -> list[str]:
    arrays = {**trace.arrays, "proposal.table": table, "proposal.packed": table[[0, *slots]]}
    if not whole:
        del arrays["proposal.table"]
    found = judge(replace(trace, arrays=arrays), frozenset({"proposal"})).findings
    return [finding.message for finding in found if finding.code == "PROPOSAL.TOPK"]


def test_the_later_of_equal_roots_is_called_so(tied: Trace) -> None:
    target = tied["frontier.target"].copy()
    root = int(target.argmax())
    target[root + 1 if root == 0 else 0] = target[root]
    arrays = {**tied.arrays, "frontier.target": target}
    arrays["proposal.table"] = _at(tied["proposal.table"], 0, max(root, 1))
    strict = replace(tied, arrays=arrays, dialect=CANONICAL)
    said = {f.code: f.message for f in judge(strict).findings}["PROPOSAL.ROOT_FROM_TARGET"]
    assert said == "equal logits: the lower token is the root, and proposal.table has another"


@pytest.mark.parametrize("whole", [True, False])
def test_of_equal_logits_no_token_comes_twice(whole: bool, tied: Trace, fired: Any) -> None:
    table = _at(tied["proposal.table"], 2, tied["proposal.table"][1])
    assert "PROPOSAL.TOPK" in fired(tied, _observed(table, tied, whole=whole))


def test_a_slot_without_a_node_is_judged_among_ties_too(tied: Trace, fired: Any) -> None:
    unused = len(tied["proposal.table"]) - 1
    least = int(tied["frontier.heads"][-1].argmin())
    table = _at(tied["proposal.table"], unused, least)
    assert "PROPOSAL.TOPK" in fired(tied, {"proposal.table": table})


def test_of_equal_roots_any_may_be_taken_where_ties_are_free(tied: Trace, fired: Any) -> None:
    target = tied["frontier.target"].copy()
    root = int(target.argmax())
    target[root - 1 if root else root + 1] = target[root]
    changes = {"frontier.target": target, "proposal.packed": tied["proposal.packed"]}
    other = _at(target, root, target[root] - 1.0)
    assert "PROPOSAL.ROOT_FROM_TARGET" not in fired(tied, changes)
    assert "PROPOSAL.ROOT_FROM_TARGET" in fired(tied, {"frontier.target": other})
