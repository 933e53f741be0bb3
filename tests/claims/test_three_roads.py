"""What figures and policies are called: by formula, by oracle, by engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from types import ModuleType
from typing import Any

import hypothesis
import pytest

import medusa_manifests
from medusa_conformance.claims_strategies import all_facts
from medusa_oracles.claims import derive_claim, derive_typing
from medusa_reference_engine.claims import ClaimsStage
from medusa_spec.claims import Facts
from medusa_spec.documents import schema_errors

FROZEN = [name for name in medusa_manifests.names() if medusa_manifests.load(name).claims]


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_values(
    name: str, frozen_by_three_roads: Callable[[str, tuple[str, ...]], None]
) -> None:
    frozen_by_three_roads(name, ("typed", "local", "claimed"))


def test_the_engine_publishes_what_was_written_by_hand(by: ModuleType) -> None:
    assert plain(ClaimsStage().publish(by.FACTS)) == by.document()


def test_the_oracle_types_what_was_written_by_hand(by: ModuleType) -> None:
    typings = derive_typing(by.FACTS)
    for entry in by.figures():
        typing = typings[entry["name"]]
        assert typing.evidence == entry["evidence"]
        assert sorted(typing.rests_on) == entry["rests_on"]
        assert sorted(typing.sources) == entry["sources"]
        assert typing.local == entry["local"]
    assert [derive_claim(law) for law, _ in by.LAWS] == [claim for _, claim in by.LAWS]


@hypothesis.given(all_facts())
@hypothesis.settings(max_examples=80, derandomize=True, database=None, deadline=None)
def test_drawn_facts(literal: ModuleType, facts: Facts) -> None:
    by_hand = literal.claims(facts)
    typings = derive_typing(facts)
    claims = ClaimsStage().publish(facts)
    assert schema_errors(plain(claims), "claims") == []
    assert {n: t.evidence for n, t in typings.items()} == by_hand["typed"]
    assert {e["name"]: e["evidence"] for e in claims.figures} == by_hand["typed"]
    assert [n for n, t in typings.items() if t.local] == by_hand["local"]
    assert [e["name"] for e in claims.figures if e["local"]] == by_hand["local"]
    for entry in claims.figures:
        assert entry["rests_on"] == sorted(typings[entry["name"]].rests_on)
        assert entry["sources"] == sorted(typings[entry["name"]].sources)
    assert {e["mode"]: e["claim"] for e in claims.policies} == by_hand["claimed"]
    assert {law.mode: derive_claim(law) for law in facts.policies} == by_hand["claimed"]


def plain(claims: Any) -> Any:
    """As the document that it is in a file."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: listed(item) for key, item in value.items()}
        return [listed(item) for item in value] if isinstance(value, list | tuple) else value

    return listed(asdict(claims))
