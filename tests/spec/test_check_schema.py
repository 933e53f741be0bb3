"""The document of `check`, and how one schema refers to another."""

from __future__ import annotations

from typing import Any

import pytest

from medusa_spec import documents
from medusa_spec.documents import schema, schema_errors
from medusa_spec.registry import CONTRACTS
from medusa_spec.stages import STAGES

EMPTY: dict[str, Any] = {
    "command": "check",
    "verdict": "inconclusive",
    "target": {
        "kind": "trace",
        "text": "traces",
        "name": "a server",
        "version": None,
        "language": "C++",
    },
    "dialect": {},
    "spec_version": "0.2.0",
    "suite_version": "0.2.0",
    "commit": None,
    "seed": 0,
    "max_examples": 60,
    "dtype": "bfloat16",
    "device": "cpu",
    "coordinates": 0,
    "capabilities": [],
    "contracts": [],
    "invariants": [],
    "findings": [],
    "incidents": [],
    "expected_failures": [],
    "seconds": 0.5,
    "versions": {"python": "3.12.1"},
}


def test_a_document_of_nothing_keeps_the_schema() -> None:
    assert schema_errors(EMPTY, "check") == []


@pytest.mark.parametrize("field", EMPTY)
def test_every_field_is_needed(field: str) -> None:
    document = {name: value for name, value in EMPTY.items() if name != field}
    assert schema_errors(document, "check") == [("", f"'{field}' is a required property")]


def test_no_other_field_is_allowed() -> None:
    ((field, rule),) = schema_errors(EMPTY | {"note": ""}, "check")
    assert field == ""
    assert "'note' was unexpected" in rule


def test_every_contract_may_be_named() -> None:
    assert schema("check")["$defs"]["contract"]["enum"] == list(CONTRACTS)
    counts = ("planned", "executed", "failed", "not_exercised", "incompetent", "expected_to_fail")
    rows = [{"contract": name} | dict.fromkeys(counts, 0) for name in CONTRACTS]
    assert schema_errors(EMPTY | {"contracts": rows}, "check") == []
    stages = [
        {
            "stage": name,
            "present": True,
            "calls": 1,
            "unsupported": 0,
            "reasons": [],
            "incidents": 0,
        }
        for name in STAGES
    ]
    assert schema_errors(EMPTY | {"capabilities": stages}, "check") == []


@pytest.mark.parametrize(("value", "errors"), [(3, 0), (3.0, 1), (True, 1), (float("nan"), 1)])
def test_a_schema_that_is_referred_to_has_the_same_numbers(
    value: Any, errors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON Schema alone takes 3.0 for an integer, whichever file says `integer`."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    folder = {
        "outer": {"$schema": draft, "items": {"$ref": "inner.schema.json"}},
        "inner": {"$schema": draft, "type": "integer"},
    }
    monkeypatch.setattr(documents, "schema", folder.__getitem__)
    monkeypatch.setattr(documents, "_validator", documents._validator.__wrapped__)
    assert len(list(documents._errors([value], "outer"))) == errors
