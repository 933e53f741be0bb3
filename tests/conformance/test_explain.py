"""`explain` and `mutants`: every rule has an example, and every mutant is listed as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from medusa_conformance.cli import minimal_example
from medusa_conformance.reports import explanation_document
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_spec.documents import schema_errors
from medusa_spec.registry import CONTRACTS, invariants

Call = Callable[..., Any]
Refuse = Callable[..., str]


@pytest.mark.parametrize("code", invariants())
def test_every_rule_has_an_example(code: str, skip_broken_documents: Callable[[str], None]) -> None:
    skip_broken_documents(invariants()[code].contract)
    mutation = next(m for m in mutations().values() if m.killer == code)
    example = minimal_example(mutation)
    assert example["mutant"] == mutation.id
    assert load(example["coordinate"]).nodes == example["nodes"]
    assert example["finding"].startswith(code)
    # What `explain --json` prints; making it holds it to its schema.
    assert explanation_document(code, example)["example"] == example


def test_an_explanation(call: Call) -> None:
    answer = call("explain", "TREE.SLOT", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert schema_errors(document, "explain") == []
    example = document.pop("example")
    assert (example["coordinate"], example["nodes"]) == ("chain-three", 3)
    assert [m["id"] for m in document.pop("mutants")] == [
        "slot-without-root-offset",
        "slot-is-row",
        "slot-without-depth",
    ]
    assert document == {
        "code": "TREE.SLOT",
        "contract": "tree",
        "clause": "T2",
        "chapter": "spec/tree.md",
        "section": invariants()["TREE.SLOT"].section,
        "sight": "white-box",
        "statement": invariants()["TREE.SLOT"].statement,
        "oracle": "medusa_oracles.tree",
        "needs": ["tree.slots"],
    }


def test_a_person_reads_the_same(call: Call) -> None:
    answer = call("explain", "HEADS.OFFSET")
    assert (answer.code, answer.err) == (0, "")
    for text in ("HEADS.OFFSET", "spec/heads.md", "head-offset-one", "head-order-swapped"):
        assert text in answer.out


def test_a_code_may_be_typed_in_small_letters(call: Call) -> None:
    assert call("explain", "heads.offset") == call("explain", "HEADS.OFFSET")


def test_an_unknown_code_gets_a_hint(refuse: Refuse) -> None:
    for typed, meant in (("TREE.SLOTS", "TREE.SLOT"), ("heads.ofset", "HEADS.OFFSET")):
        line = refuse("explain", typed)
        assert line == f"CODE: {typed} is not an invariant; did you mean {meant}?"
    assert refuse("explain", "q") == "CODE: q is not an invariant"
    assert "Missing argument" in refuse("explain")


def test_the_catalog(call: Call) -> None:
    answer = call("mutants", "--json")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert schema_errors(document, "mutant_list") == []
    assert [m["id"] for m in document["mutants"]] == list(mutations())
    for entry in document["mutants"]:
        mutation = mutations()[entry["id"]]
        assert (entry["killer"], entry["sentence"]) == (mutation.killer, mutation.sentence)
        assert entry["stage"] == f"medusa_mutations.{entry['contract']}.{mutation.stage.__name__}"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_catalog_of_one_contract(call: Call, contract: str) -> None:
    document = json.loads(call("mutants", "--json", "--contract", contract).out)
    listed = [m.id for m in mutations().values() if m.contract == contract]
    assert [m["id"] for m in document["mutants"]] == listed


def test_a_person_reads_the_catalog(call: Call) -> None:
    answer = call("mutants")
    assert (answer.code, answer.err) == (0, "")
    for contract in CONTRACTS:
        assert contract in answer.out
    for name in ("rank-aliases-next-head", "causal-triangle-for-tree"):
        assert name in answer.out


def test_a_bare_call_gives_help(call: Call) -> None:
    bare, asked = call(), call("--help")
    assert (bare.code, bare.err, bare.out) == (0, "", asked.out)
    for command in ("verify", "derive", "explain", "mutants"):
        assert command in bare.out


def test_a_command_that_there_is_not(refuse: Refuse) -> None:
    assert "No such command 'judge'" in refuse("judge")
