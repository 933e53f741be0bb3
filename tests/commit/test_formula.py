"""The commit a second time: token by token, row by row, from any path and any accepted length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles import judge
from medusa_oracles.commit import derive_commit

PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))
LEAVES = ((2,), (0, 0), (0, 1), (1, 0, 2))


@st.composite
def selections(draw: st.DrawFn) -> tuple[int, int]:
    """A path and no more accepted edges than it has."""
    path = draw(st.integers(0, len(LEAVES) - 1))
    return path, draw(st.integers(0, len(LEAVES[path])))


@settings(max_examples=60, deadline=None)
@given(selections(), st.sampled_from([None, 0, 1, 2, 3]))
def test_plan(
    coordinate: Any,
    lawful_trace: Any,
    literal: Any,
    selection: tuple[int, int],
    ends_at: int | None,
) -> None:
    path, accepted = selection
    base = lawful_trace(coordinate(PATHS), literal)
    tokens, rows = base["proposal.candidates"].tolist(), base["tree.retrieval"].tolist()
    end = None if ends_at is None or tokens[path][ends_at] < 0 else tokens[path][ends_at]
    trace = replace(
        base,
        coordinate=coordinate(PATHS, end_of_sequence=end),
        arrays=base.arrays
        | {"selection.path": np.array(path), "selection.accepted": np.array(accepted)},
    )
    plan, expected = (
        derive_commit(trace),
        literal.commit(5, rows[path], tokens[path], accepted, end),
    )
    assert plan.tokens.tolist() == expected["tokens"]
    assert plan.source.tolist() == expected["source"]
    assert plan.destination.tolist() == expected["destination"]
    assert plan.length == expected["length"]
    assert plan.terminal == expected["frontier_row"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([(0, 2), (2, 6), (6, 7), (0, 1), (1, 5)]), max_size=3))
def test_a_round_of_the_literal_formulas_breaks_no_rule(
    coordinate: Any, lawful_trace: Any, literal: Any, plausible: list[tuple[int, int]]
) -> None:
    judgement = judge(lawful_trace(coordinate(PATHS), literal, plausible))
    assert judgement.findings == ()
    assert "COMMIT.ALL_LAYERS" in judgement.executed


def test_rows_of_a_path_never_stand_before_their_place(literal: Any) -> None:
    """Why copying in ascending order happens to be safe: `u_j >= j` for every path."""
    for row in literal.tree(PATHS, 3, "canonical", -1)["retrieve_indices"]:
        assert all(entry >= place for place, entry in enumerate(row) if entry >= 0)
