"""Every dialect, spoken by the reference engine and by mutants of it: a form, never an excuse."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import medusa_manifests
from medusa_conformance.line import Line
from medusa_conformance.runner import Tally, judge_line
from medusa_conformance.translation import fixed_policy
from medusa_mutations import Mutation, mutations
from medusa_spec.dialect import CANONICAL, Dialect, dialect_from
from medusa_spec.errors import InputError
from medusa_spec.registry import CONTRACTS

SHOWN = ("six-node", "rank-gaps", "end-of-sequence", "posterior-fast-typical", "depth-one")
"""Coordinates with siblings, padding, ends, both policies and a rest of a cache."""

FORMS: dict[str, dict[str, Any]] = {
    "choices-leaves": {"choices": "leaves"},
    "node-order-own": {"node_order": "own"},
    "mask-additive": {"mask": "additive"},
    "mask-packed8": {"mask": "packed8"},
    "mask-packed32": {"mask": "packed32"},
    "mask-packed64": {"mask": "packed64"},
    "mask-root-absent": {"mask_root": "absent"},
    "positions-relative": {"positions": "relative"},
    "slots-stride": {"slots": 10},
    "slots-own": {"slots": "own"},
    "retrieval-own": {"retrieval": "own"},
    "pad-token": {"pad_token": 0},
    "accepted-with-root": {"accepted": "with-root"},
    "accepted-with-bonus": {"accepted": "with-bonus"},
    "probabilities": {"posterior_input": "probabilities"},
    "topk-ties": {"topk_ties": "any"},
    "kv-move-lazy": {"kv_move": "lazy"},
    "labels-pre-shifted": {"labels": "pre-shifted"},
    "end-of-sequence-loop": {"end_of_sequence": "loop"},
    "refusals-any-error": {"refusals": "any-error"},
    "policy": {"policy": {"retrieval_order": "pinned", "sentinel": -7, "entropy_guard": 1e-3}},
}

SILENT = {
    "slots-own": {"TREE.SLOT", "TREE.INVERSE", "TREE.DUPLICATE_TOKENS"},
    "kv-move-lazy": {
        "COMMIT.ALL_LAYERS",
        "COMMIT.SNAPSHOT",
        "COMMIT.PREFIX_UNTOUCHED",
        "ROUND.CACHE_MATCHES_TOKENS",
    },
}
"""What a dialect leaves unjudged; `spec/dialects.md` says the same."""

WRONG = (
    "sibling-visible",
    "slot-is-row",
    "self-aligned-logits",
    "max-for-min",
    "aliased-copy",
    "heads-reversed",
)

UNSEEN = {"choices-leaves", "topk-ties", "policy"}
"""Forms of what an engine takes, or that the canonical form happens to have, too."""


@pytest.fixture(scope="module")
def engines() -> Any:
    spec = importlib.util.spec_from_file_location(
        "dialect_engines", Path(__file__).with_name("dialect_engines.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dialect_engines"] = module
    spec.loader.exec_module(module)
    return module


def dialect(document: dict[str, Any]) -> Dialect:
    reasons = dict.fromkeys(Dialect(**document).tolerated, "as the engine says")
    return dialect_from(document | {"reasons": reasons}, "test")


def judged(
    engines: Any, spoken: Dialect, declared: Dialect, mutation: Mutation | None = None
) -> Tally:
    tally = Tally()
    tolerances = medusa_manifests.tolerance(declared.dtype), medusa_manifests.tolerance("policy")
    for name in SHOWN:
        coordinate = fixed_policy(medusa_manifests.load(name), declared)
        line = Line(coordinate, engines.speaker(spoken, mutation), *tolerances, dialect=declared)
        judge_line(line, frozenset(CONTRACTS), tally)
    return tally


@pytest.fixture(scope="module")
def plain(engines: Any) -> Tally:
    return judged(engines, CANONICAL, CANONICAL)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_declared_is_no_finding_and_hides_no_rule(
    name: str, engines: Any, plain: Tally
) -> None:
    spoken = dialect(FORMS[name])
    tally = judged(engines, spoken, spoken)
    assert [(found.finding.code, str(found.finding)) for found in tally.findings] == []
    assert tally.crashes == []
    assert set(plain.executed) - set(tally.executed) == SILENT.get(name, set())


@pytest.mark.parametrize("name", [name for name in FORMS if name not in UNSEEN])
def test_what_is_not_declared_is_noticed(name: str, engines: Any) -> None:
    tally = judged(engines, dialect(FORMS[name]), CANONICAL)
    assert tally.failed or tally.crashes


@pytest.mark.parametrize("mutant", WRONG)
@pytest.mark.parametrize("name", FORMS)
def test_a_dialect_is_no_excuse(name: str, mutant: str, engines: Any) -> None:
    mutation, spoken = mutations()[mutant], dialect(FORMS[name])
    tally = judged(engines, spoken, spoken, mutation)
    if mutation.killer in SILENT.get(name, set()):
        assert not tally.executed[mutation.killer]
    else:
        assert tally.failed[mutation.killer]


def test_every_form_of_every_field_is_spoken_here() -> None:
    spoken = {field for document in FORMS.values() for field in document}
    assert spoken == {f.name for f in fields(Dialect)} - {"dtype", "reasons"}


@pytest.mark.parametrize("name", [name for name in FORMS if dialect(FORMS[name]).tolerated])
def test_what_is_tolerated_needs_a_reason(name: str) -> None:
    with pytest.raises(InputError, match="reasons must say why it is lawful"):
        dialect_from(FORMS[name], "test")


def test_the_chapter_says_what_stays_unjudged() -> None:
    chapter = (Path(__file__).parents[2] / "spec" / "dialects.md").read_text("utf-8")
    for f in fields(Dialect):
        assert f"`{f.name}`" in chapter
    for code in set().union(*SILENT.values()):
        assert f"`{code}`" in chapter
