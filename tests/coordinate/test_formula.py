"""The rules of a coordinate a second time: path by path, with sets of tuples."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles.coordinate import derive_rows, derive_violations
from medusa_spec import source_pin
from medusa_spec.lawful import violations


def literal_violations(document: dict[str, Any]) -> set[str]:
    """Each rule as its clause has it; `source` is not looked at."""
    paths = [tuple(path) for path in document["paths"]]
    topk, vocabulary = document["topk"], document["model"]["vocabulary"]
    ranking = document.get("ranking", {"root": 0, "heads": []})
    rules = {
        "COORDINATE.PREFIX_LENGTH": document["prefix_length"] == len(document["prefix"]),
        "COORDINATE.PATHS_DISTINCT": all(
            one != other for i, one in enumerate(paths) for other in paths[:i]
        ),
        "COORDINATE.PREFIX_CLOSED": all(
            path[:depth] in paths for path in paths for depth in range(1, len(path))
        ),
        "COORDINATE.RANK_BELOW_TOPK": all(0 <= rank < topk for path in paths for rank in path),
        "COORDINATE.DEPTH_WITHIN_HEADS": all(len(path) <= document["heads"] for path in paths),
        "COORDINATE.CAPACITY": len(document["prefix"]) + len(paths) + 1 <= document["capacity"],
        "COORDINATE.TOKEN_DOMAIN": topk <= vocabulary
        and all(token < vocabulary for token in (*document["prefix"], ranking["root"]))
        and all(
            len(ranked) == topk == len(set(ranked)) and max(ranked) < vocabulary
            for ranked in ranking["heads"]
        )
        and ("ranking" not in document or len(ranking["heads"]) == document["heads"]),
    }
    return {code for code, kept in rules.items() if not kept}


RANKS = st.integers(-1, 3)
PATHS = st.lists(st.lists(RANKS, min_size=1, max_size=3), max_size=6)


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """Fields to put in place of lawful ones; each keeps the schema and may break a rule."""
    changed: dict[str, Any] = {}
    if draw(st.booleans()):
        changed["paths"] = draw(PATHS)
    if draw(st.booleans()):
        changed["prefix"] = draw(st.lists(st.sampled_from([0, 47, 48]), min_size=1, max_size=6))
    if draw(st.booleans()):
        changed["prefix_length"] = draw(st.integers(0, 6))
    if draw(st.booleans()):
        changed["topk"] = draw(st.sampled_from([1, 2, 3, 49]))
    if draw(st.booleans()):
        changed["heads"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        changed["capacity"] = draw(st.integers(1, 16))
    if draw(st.booleans()):
        ranked = st.lists(st.sampled_from([0, 1, 2, 48]), min_size=1, max_size=3)
        heads = draw(st.lists(ranked, min_size=1, max_size=3))
        changed["ranking"] = {"root": draw(st.sampled_from([0, 48])), "heads": heads}
    return changed


@settings(max_examples=150, deadline=None)
@given(changes())
def test_violations(coordinate: Any, changed: dict[str, Any]) -> None:
    document = deepcopy(coordinate().document()) | changed
    expected = literal_violations(document)
    assert derive_violations(document) == expected
    # The loader reports the same rules, each with the field that breaks it.
    assert {violation.code for violation in violations(document, source_pin())} == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=8))
def test_rows(coordinate: Any, literal: Any, drawn: list[list[int]]) -> None:
    closed = {tuple(path[:depth]) for path in drawn for depth in range(1, len(path) + 1)}
    planned = coordinate(tuple(closed))
    rows = derive_rows(planned)
    assert len(rows) == len(closed) + 1
    for index, path in enumerate(literal.rows(closed)):
        row = rows[index]
        assert (row.row, row.depth) == (index, len(path))
        assert (row.position, row.cache_row) == (5 + len(path), 5 + index)
        if path:
            assert (row.head, row.rank) == (len(path) - 1, path[-1])
            assert row.slot == 1 + row.head * 3 + row.rank
        else:
            assert (row.head, row.rank, row.slot) == (None, None, 0)
