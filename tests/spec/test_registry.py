"""Chapters, registry and oracles hold the same invariants: none missing, none extra."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from medusa_oracles import oracles
from medusa_spec.dialect import dialect_from
from medusa_spec.registry import CONTRACTS, SIGHTS, invariants, of_contract, sources_of

SPEC = Path(__file__).parents[2] / "spec"
HEAD = re.compile(
    r"^\*\*(?P<clause>[A-Z]\d+) `(?P<code>[A-Z0-9._]+)`\*\* \((?P<section>0x\w+)\)\. "
)


class Clause(NamedTuple):
    clause: str
    code: str
    section: str
    text: str


def clauses(contract: str) -> list[Clause]:
    """The clauses of a chapter, in its order."""
    found = []
    for paragraph in (SPEC / f"{contract}.md").read_text("utf-8").split("\n\n"):
        head = HEAD.match(paragraph)
        if head:
            found.append(Clause(**head.groupdict(), text=paragraph[head.end() :]))
    return found


@pytest.mark.parametrize("contract", CONTRACTS)
def test_chapter_and_registry_say_the_same(contract: str) -> None:
    said = [(c.clause, c.code, c.section) for c in clauses(contract)]
    registered = [(i.clause, i.code, i.section) for i in of_contract(contract)]
    assert said == registered


@pytest.mark.parametrize("contract", CONTRACTS)
def test_clauses_are_numbered_without_a_gap(contract: str) -> None:
    numbers = [clause.clause for clause in clauses(contract)]
    letter = numbers[0][0]
    assert numbers == [f"{letter}{number}" for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_clause_has_a_rule_a_formula_and_a_consequence(contract: str) -> None:
    for clause in clauses(contract):
        rule, *consequences = clause.text.split("*Broken:* ")
        assert len(consequences) == 1, clause.clause
        assert re.search(r"`[^`]+`", rule), clause.clause
        assert len(rule.split()) > 5, clause.clause
        assert len(consequences[0].split()) > 5, clause.clause


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_chapter_mentions_no_code_but_its_own(contract: str) -> None:
    text = (SPEC / f"{contract}.md").read_text("utf-8")
    named = set(re.findall(rf"\b{contract.upper()}\.[A-Z0-9_]+\b", text))
    assert named == {invariant.code for invariant in of_contract(contract)}


def test_every_contract_has_its_own_letter() -> None:
    letters = [of_contract(contract)[0].clause[0] for contract in CONTRACTS]
    assert len(set(letters)) == len(CONTRACTS)


def test_codes_are_unique_and_belong_to_their_contract() -> None:
    # `invariants()` is keyed by code, so a code that is given twice would hide in it.
    text = (SPEC / "medusa_spec" / "invariants.yaml").read_text("utf-8")
    written = re.findall(r"^- code: (\S+)$", text, re.MULTILINE)
    assert written == list(invariants())
    for code, invariant in invariants().items():
        assert code.split(".")[0].lower() == invariant.contract
        assert invariant.sight in SIGHTS
    assert [*dict.fromkeys(i.contract for i in invariants().values())] == list(CONTRACTS)


def test_every_invariant_has_one_oracle() -> None:
    # Registering a second oracle for a code raises, so one is all that there can be.
    assert list(oracles()) == list(invariants())
    # A contract of many rules has a second module, named behind the first.
    modules = {
        code: entry.check.__module__.removesuffix("_update").removesuffix("_kept")
        for code, entry in oracles().items()
    }
    assert modules == {
        code: f"medusa_oracles.{invariant.contract}" for code, invariant in invariants().items()
    }


def test_a_cause_is_one_sentence_of_its_own() -> None:
    causes = [invariant.cause for invariant in invariants().values()]
    assert len(set(causes)) == len(causes)
    for invariant in invariants().values():
        assert len(invariant.cause) <= 140
        assert invariant.cause.endswith(".")
        assert invariant.cause != invariant.statement


def test_a_dialect_that_a_cause_names_is_one() -> None:
    named = {
        code: dict(re.findall(r"dialect (\w+): ([\w-]+)", invariant.cause))
        for code, invariant in invariants().items()
    }
    lawful = {
        "TREE.SLOT": "slots",
        "TREE.RETRIEVAL_MAXIMAL": "retrieval",
        "PROPOSAL.ROOT_FROM_TARGET": "topk_ties",
        "PROPOSAL.TOPK": "topk_ties",
        "POSTERIOR.SENTINEL": "accepted",
    }
    assert {code: next(iter(found)) for code, found in named.items() if found} == lawful
    for code, field in lawful.items():
        value = named[code][field]
        form = int(value) if value.isdigit() else value
        dialect = dialect_from({field: form, "reasons": {field: "it may"}}, code)
        assert dialect.document()[field] == form


def test_a_rule_follows_from_rules_and_contracts_that_there_are() -> None:
    for invariant in invariants().values():
        assert {*invariant.follows_from} <= {*invariants(), *CONTRACTS}
        assert invariant.code not in invariant.follows_from
        # A code that its own contract's name stands for already would say nothing.
        named = [name for name in invariant.follows_from if "." in name]
        assert not {name.split(".")[0].lower() for name in named} & {*invariant.follows_from}


def test_a_contract_stands_for_its_rules() -> None:
    chain = sources_of("ROUND.CHAIN_IS_CHAIN")
    assert "tree" in invariants()["ROUND.CHAIN_IS_CHAIN"].follows_from
    assert chain >= {invariant.code for invariant in of_contract("tree")}
    assert "ROUND.CHAIN_IS_CHAIN" not in chain
    assert all(name in invariants() for name in chain)
    assert sources_of("TREE.ROW_ORDER") == frozenset()
