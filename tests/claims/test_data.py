"""The data of the claims: facts that may be frozen, and the tables that every publication holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import yaml

import medusa_manifests
from medusa_spec import InputError, coordinate_from
from medusa_spec.claims import CONTRACT_WORDS, lineage, scope
from medusa_spec.documents import schema_errors

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(medusa_manifests.path("typed-run").read_text("utf-8"))
    del found["note"], found["expected"]
    return found


def put(figure: int, **changes: Any) -> Change:
    return lambda document: document["claims"]["figures"][figure].update(changes)


def of(figure: int, **changes: Any) -> Change:
    return lambda document: document["claims"]["figures"][figure]["origin"].update(changes)


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        (put(1, name="plain-step"), "claims.figures[1].name", "plain-step is there already"),
        (of(3, inputs=["overhead"]), "claims.figures[3].origin.inputs", "no figure before"),
        (of(3, inputs=["speedup"]), "claims.figures[3].origin.inputs", "no figure before"),
        (of(3, inputs=["nobody"]), "claims.figures[3].origin.inputs", "no figure before"),
        (put(0, quantity="speed"), "claims.figures[0].quantity", "not one of"),
        (put(0, value="fast"), "claims.figures[0].value", "not of type"),
        (put(0, value=float("nan")), "claims.figures[0].value", "not of type"),
        (put(0, name="Two Words"), "claims.figures[0].name", "does not match"),
        (put(0, origin={"kind": "run"}), "claims.figures[0].origin", ""),
        (of(0, sample={"size": 0, "of": "rounds"}), "claims.figures[0].origin", ""),
        (of(0, formula="a / b"), "claims.figures[0].origin", ""),
        (of(0, kind="guessed"), "claims.figures[0].origin", ""),
        (
            lambda document: document["claims"]["policies"][1].update(mode="rejection"),
            *("claims.policies[2].mode", "rejection is there already"),
        ),
        (
            lambda document: document["claims"]["policies"][0].update(distance=1.5),
            *("claims.policies[0].distance", ""),
        ),
        (lambda document: document["claims"].update(batch=8), "claims", "batch"),
    ],
)
def test_facts_that_cannot_be_frozen(
    document: dict[str, Any], change: Change, field: str, rule: str
) -> None:
    coordinate_from(document, "here")
    change(document)
    with pytest.raises(InputError) as caught:
        coordinate_from(document, "here")
    assert str(caught.value).startswith(f"here: {field}")
    assert rule in str(caught.value)


@pytest.mark.parametrize("name", ["typed-edges", "typed-sources", "typed-run"])
def test_facts_come_back_as_they_were_written(name: str) -> None:
    written = yaml.safe_load(medusa_manifests.path(name).read_text("utf-8"))
    coordinate = medusa_manifests.load(name)
    assert coordinate.document()["claims"] == written["claims"]
    assert coordinate_from(coordinate.document(), "again") == coordinate


def test_the_methods_are_those_that_were_told_by_hand(by: ModuleType) -> None:
    told = {m["method"]: tuple(m[key] for key in CONTRACT_WORDS) for m in lineage()["methods"]}
    assert told == by.METHODS


def test_no_two_methods_have_the_same_contracts() -> None:
    told = Counter(tuple(m[key] for key in CONTRACT_WORDS) for m in lineage()["methods"])
    assert set(told.values()) == {1}


def test_each_step_of_the_lineage_changes_what_it_is_said_to_change(by: ModuleType) -> None:
    def changed(one: str, other: str) -> set[str]:
        pairs = zip(CONTRACT_WORDS, by.METHODS[one], by.METHODS[other], strict=True)
        return {word for word, before, after in pairs if before != after}

    # Medusa takes its proposals from the one and verifies a tree as the other; neither's proof.
    assert "proposal" not in changed("blockwise-parallel-decoding", "medusa-1")
    assert changed("specinfer", "medusa-1") == set(CONTRACT_WORDS)
    assert changed("medusa-1", "medusa-2") == {"training", "publication"}


def test_every_word_is_explained_and_used() -> None:
    words = lineage()["words"]
    for contract in CONTRACT_WORDS:
        assert {method[contract] for method in lineage()["methods"]} == set(words[contract])


def test_the_works_are_named_with_their_years() -> None:
    dated = {m["method"]: (m["year"], m["source"]) for m in lineage()["methods"]}
    assert dated["blockwise-parallel-decoding"] == (2018, "https://arxiv.org/abs/1811.03115")
    assert dated["specinfer"] == (2023, "https://arxiv.org/abs/2305.09781")
    assert dated["medusa-1"] == dated["medusa-2"] == (2024, "https://arxiv.org/abs/2401.10774")


def test_no_figure_stands_in_the_tables() -> None:
    # The comparison is by contract, and deliberately not by reported speed.
    prose = [text for words in lineage()["words"].values() for text in words.values()]
    prose += [entry["what"] for entry in scope()]
    assert not any(character.isdigit() for text in prose for character in text)


def test_the_topics_are_those_that_were_told_by_hand(by: ModuleType) -> None:
    assert {entry["topic"]: entry["owner"] for entry in scope()} == by.TOPICS
    assert len(scope()) == len(by.TOPICS)


def test_a_document_of_claims_keeps_its_schema(by: ModuleType) -> None:
    assert schema_errors(by.document(), "claims") == []


@pytest.mark.parametrize(
    ("figure", "without"),
    [(0, "machine"), (0, "command"), (0, "sample"), (1, "purpose"), (2, "sources"), (4, "formula")],
)
def test_a_document_carries_what_each_evidence_needs(
    by: ModuleType, figure: int, without: str
) -> None:
    document = by.document()
    del document["figures"][figure][without]
    assert schema_errors(document, "claims")


def test_a_document_claims_no_batch_and_covers_nobody_elses(by: ModuleType) -> None:
    document = by.document()
    assert schema_errors(document | {"batch": 8}, "claims")
    document["scope"][0]["covered"] = True
    assert schema_errors(document, "claims")
    document["figures"][2]["sources"] = []
    assert len(schema_errors(document, "claims")) == 2
