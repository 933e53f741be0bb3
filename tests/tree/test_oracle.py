"""Each oracle of the tree contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.registry import of_contract

# Rows: root, (0) (1) (2), (0,0) (0,1) (1,0), (1,0,2); retrieval ends at rows 3, 4, 5 and 7.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))


def _at(array: Any, index: tuple[int, ...], value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # Rows 2 and 3 exchanged.
    "TREE.ROW_ORDER": lambda t: {
        "tree.paths": (*t["tree.paths"][:2], (2,), (1,), *t["tree.paths"][4:])
    },
    # Rank 2 of head 1 named as a slot of head 0.
    "TREE.SLOT": lambda t: {"tree.slots": _at(t["tree.slots"], (5,), 2)},
    # (0,1) sees its sibling (0,0).
    "TREE.MASK_IS_ANCESTRY": lambda t: {"tree.mask": _at(t["tree.mask"], (5, 4), True)},
    "TREE.POSITION_IS_DEPTH": lambda t: {"tree.depths": np.arange(8)},
    "TREE.RETRIEVAL_MAXIMAL": lambda t: {"tree.retrieval": t["tree.retrieval"][1:]},
    # The path to (0,1) leads through (1).
    "TREE.RETRIEVAL_CHAIN": lambda t: {"tree.retrieval": _at(t["tree.retrieval"], (2, 1), 2)},
    "TREE.SENTINEL": lambda t: {"tree.retrieval": _at(t["tree.retrieval"], (0, 2), 0)},
    # Two rows exchanged in the slots alone: every shape agrees, no token does.
    "TREE.INVERSE": lambda t: {"tree.slots": t["tree.slots"][[0, 2, 1, 3, 4, 5, 6, 7]]},
    # (1,0) answers for (0,0), which carries the same token.
    "TREE.DUPLICATE_TOKENS": lambda t: {"tree.retrieval": _at(t["tree.retrieval"], (1, 2), 6)},
    # 3 + 6 + 12, and not 3 * 2 * 2.
    "TREE.NODE_COUNT": lambda t: {"tree.node_count": np.array(12)},
}


@pytest.fixture(scope="module")
def trace(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    lawful: Trace = lawful_trace(coordinate(PATHS, branching=(3, 2, 2)), literal)
    return Trace(
        lawful.coordinate,
        lawful.tolerance,
        lawful.policy_tolerance,
        {**lawful.arrays, "tree.node_count": np.array(21)},
        lawful.documents,
    )


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("tree")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


def test_retrieval_without_its_root_is_no_chain(trace: Trace, fired: Any) -> None:
    # Ends, order and number of padded entries all stay as they were.
    rootless = trace["tree.retrieval"][:, 1:]
    assert "TREE.RETRIEVAL_CHAIN" in fired(trace, {"tree.retrieval": rootless})


def test_a_child_that_does_not_see_its_parent_breaks_the_chain(trace: Trace, fired: Any) -> None:
    blind = _at(trace["tree.mask"], (7, 6), False)
    assert "TREE.RETRIEVAL_CHAIN" in fired(trace, {"tree.mask": blind})


def test_a_row_less_is_a_merged_row(trace: Trace, fired: Any) -> None:
    assert "TREE.DUPLICATE_TOKENS" in fired(trace, {"tree.slots": trace["tree.slots"][:-1]})


def test_a_retrieval_row_of_another_end_is_named(trace: Trace) -> None:
    retrieval = trace["tree.retrieval"]
    assert [int(row[row >= 0][-1]) for row in retrieval] == [3, 4, 5, 7]
    empty = np.full_like(retrieval[0], -1)
    for other, said, numbers in (
        (
            retrieval[[1, 0, 2, 3]],
            "retrieval row 0 ends at packed row 4, and must end at row 3",
            (3, 4),
        ),
        (
            _at(retrieval, (1,), empty),
            "retrieval row 1 holds no packed row, and must end at row 4",
            (4, -1),
        ),
        (retrieval[:3], "3 retrieval rows, and 4 maximal paths", (4, 3)),
    ):
        changed = replace(trace, arrays={**trace.arrays, "tree.retrieval": other})
        found = {finding.code: finding for finding in judge(changed).findings}
        finding = found["TREE.RETRIEVAL_MAXIMAL"]
        assert finding.message == said
        assert (finding.expected, finding.observed) == numbers


@pytest.mark.parametrize("order", ["canonical", "pinned"])
def test_the_declared_order_decides(
    order: str, coordinate: Any, lawful_trace: Any, literal: Any, fired: Any
) -> None:
    other = {"canonical": "pinned", "pinned": "canonical"}[order]
    lawful = lawful_trace(coordinate(PATHS, retrieval_order=order), literal)
    reversed_rows = lawful_trace(coordinate(PATHS, retrieval_order=other), literal)
    assert fired(lawful, {}) == set()
    swapped = {"tree.retrieval": reversed_rows["tree.retrieval"]}
    assert "TREE.RETRIEVAL_MAXIMAL" in fired(lawful, swapped)


def test_a_sentinel_is_never_an_index(coordinate: Any, lawful_trace: Any, literal: Any) -> None:
    # -1 reads the last row and -1000 reads none at all: neither may happen.
    for sentinel in (-1, -1000):
        assert judge(lawful_trace(coordinate(PATHS, sentinel=sentinel), literal)).findings == ()
