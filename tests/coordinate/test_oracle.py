"""Each oracle of the coordinate contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from medusa_oracles.coordinate import derive_violations
from medusa_spec import Tolerance, Trace, source_pin
from medusa_spec.registry import of_contract

# A document that breaks one rule: what is changed in a lawful one.
UNLAWFUL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "COORDINATE.SCHEMA": lambda d: d["policy"].update(epsilom=0.09),
    "COORDINATE.SOURCE_PIN": lambda d: d["source"].update(commit="0" * 40),
    "COORDINATE.PREFIX_LENGTH": lambda d: d.update(prefix_length=4),
    "COORDINATE.PATHS_DISTINCT": lambda d: d["paths"].append([1, 2]),
    "COORDINATE.PREFIX_CLOSED": lambda d: d["paths"].remove([1]),
    "COORDINATE.RANK_BELOW_TOPK": lambda d: d["paths"].append([3]),
    "COORDINATE.DEPTH_WITHIN_HEADS": lambda d: d["paths"].append([1, 2, 0]),
    # Five tokens and nine rows.
    "COORDINATE.CAPACITY": lambda d: d.update(capacity=13),
    "COORDINATE.TOKEN_DOMAIN": lambda d: d["prefix"].__setitem__(2, 48),
}
_REFUSED = {"coordinate.refused": "no"}
_ADMITTED = {"coordinate.refused": None}


def _renamed(row: int, name: str, value: Any) -> Callable[[Trace], dict[str, Any]]:
    """The admitted rows with one field of one row filled from elsewhere."""

    def corrupt(trace: Trace) -> dict[str, Any]:
        rows = deepcopy(list(trace["coordinate.rows"]))
        rows[row][name] = value
        return {"coordinate.rows": rows}

    return corrupt


def _admitted(field: str, **changes: Any) -> Callable[[Trace], dict[str, Any]]:
    """The admitted document with other values in one of its parts."""

    def corrupt(trace: Trace) -> dict[str, Any]:
        document = deepcopy(trace["coordinate.admitted"])
        document[field] |= changes
        return {"coordinate.admitted": document}

    return corrupt


LAWFUL: dict[str, Callable[[Trace], dict[str, Any]]] = {
    "COORDINATE.SOURCE_PIN": _admitted("source", variant="legacy"),
    "COORDINATE.PREFIX_LENGTH": _renamed(0, "position", 6),
    # Row 4 holds slot 5, and row 5 is not a slot.
    "COORDINATE.DOMAINS": _renamed(4, "slot", 4),
    "COORDINATE.POLICY_COMPLETE": _admitted("policy", epsilon=0.3, alpha=0.09),
    "COORDINATE.LAWFUL_ADMITTED": lambda _: _REFUSED,
}


@pytest.fixture(scope="module")
def trace(coordinate: Any) -> Trace:
    """A lawful document, admitted: nine rows behind five tokens, TOPK 3."""
    planned = coordinate()
    tree = [(), *planned.paths]
    rows = [
        {
            "row": row,
            "rank": path[-1] if path else None,
            "head": len(path) - 1 if path else None,
            "slot": 1 + (len(path) - 1) * 3 + path[-1] if path else 0,
            "depth": len(path),
            "position": 5 + len(path),
            "cache_row": 5 + row,
        }
        for row, path in enumerate(tree)
    ]
    documents = {
        "coordinate.given": planned.document(),
        "coordinate.admitted": planned.document(),
        "coordinate.rows": tuple(rows),
        "coordinate.refused": None,
    }
    exact = Tolerance(0.0, 0.0, "nothing here is a float")
    return Trace(planned, exact, exact, {}, documents)


def _unlawful(trace: Trace, code: str) -> Trace:
    document = deepcopy(trace["coordinate.given"])
    UNLAWFUL[code](document)
    seen = {"coordinate.given": document, "coordinate.refused": "no"}
    return replace(trace, documents=seen)


def test_every_invariant_has_a_case() -> None:
    assert set(UNLAWFUL) | set(LAWFUL) == {i.code for i in of_contract("coordinate")}


@pytest.mark.parametrize("code", LAWFUL)
def test_oracle_of_a_lawful_document(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, LAWFUL[code](trace))


@pytest.mark.parametrize("code", UNLAWFUL)
def test_oracle_of_an_unlawful_document(code: str, trace: Trace, prove: Any) -> None:
    prove(code, _unlawful(trace, code), _ADMITTED)


@pytest.mark.parametrize("code", UNLAWFUL)
def test_each_unlawful_document_breaks_one_rule(code: str, trace: Trace) -> None:
    assert derive_violations(_unlawful(trace, code)["coordinate.given"]) == {code}


@pytest.mark.parametrize("field", ["epsilon", "temperature", "sentinel", "comparison"])
def test_a_policy_that_leaves_a_field_out_is_outside_its_schema(field: str, trace: Trace) -> None:
    document = deepcopy(trace["coordinate.given"])
    del document["policy"][field]
    assert derive_violations(document) == {"COORDINATE.SCHEMA"}


def test_a_rank_out_of_range_hides_no_other_rule(trace: Trace) -> None:
    document = deepcopy(trace["coordinate.given"])
    document["paths"] += [[-1], [-1], [7, 0]]
    assert derive_violations(document) == {
        "COORDINATE.RANK_BELOW_TOPK",
        "COORDINATE.PATHS_DISTINCT",
        "COORDINATE.PREFIX_CLOSED",
    }


def test_the_tree_before_must_be_lawful_too(trace: Trace) -> None:
    document = deepcopy(trace["coordinate.given"])
    document["earlier"] = {"prefix": [1], "paths": [[0, 0]]}
    assert derive_violations(document) == {"COORDINATE.PREFIX_CLOSED"}


@pytest.mark.parametrize("variant", ["current", "legacy"])
def test_files_of_both_variants_are_never_mixed(variant: str, trace: Trace) -> None:
    files = source_pin()["files"]
    foreign = {"current": "medusa_model_legacy.py", "legacy": "medusa_model.py"}[variant]
    own = {"current": "medusa_model.py", "legacy": "medusa_model_legacy.py"}[variant]
    for name, broken in ((own, set()), (foreign, {"COORDINATE.SOURCE_PIN"})):
        document = deepcopy(trace["coordinate.given"])
        path = f"medusa/model/{name}"
        document["source"] |= {"variant": variant, "files": {path: files[path]}}
        assert derive_violations(document) == broken


@pytest.mark.parametrize("count", [0, 8])
def test_rows_that_are_missing_are_heard(count: int, trace: Trace, fired: Any) -> None:
    fewer = trace["coordinate.rows"][:count]
    assert "COORDINATE.DOMAINS" in fired(trace, {"coordinate.rows": fewer})


def test_a_field_that_is_missing_is_heard(trace: Trace, fired: Any) -> None:
    rows = [{"row": row["row"]} for row in trace["coordinate.rows"]]
    heard = fired(trace, {"coordinate.rows": rows, "coordinate.admitted": {}})
    assert heard == {
        "COORDINATE.DOMAINS",
        "COORDINATE.PREFIX_LENGTH",
        "COORDINATE.SOURCE_PIN",
        "COORDINATE.POLICY_COMPLETE",
    }
