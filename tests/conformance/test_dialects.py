"""Every dialect, spoken by the reference engine and by mutants of it: a form, never an excuse."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import medusa_manifests
from medusa_conformance.runner import Tally
from medusa_mutations import Mutation, mutations
from medusa_spec.dialect import CANONICAL, Dialect, dialect_from
from medusa_spec.documents import schema
from medusa_spec.errors import InputError

SHOWN = ("six-node", "rank-gaps", "end-of-sequence", "posterior-fast-typical", "depth-one")
"""Coordinates with siblings, padding, ends, both policies and a rest of a cache."""

BATCHES = ("padded-batch", "empty-head")
"""Coordinates that train, one of which has heads without labels."""

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
    "empty-heads-reject": {"empty_heads": "reject"},
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


def judged(
    engines: Any, spoken: Dialect, declared: Dialect, mutation: Mutation | None = None
) -> Tally:
    more = () if spoken.empty_heads == "skip" else BATCHES
    shown = map(medusa_manifests.load, (*SHOWN, *more))
    found: Tally = engines.judged(engines.speaker(spoken, mutation), declared, shown)
    return found


@pytest.fixture(scope="module")
def plain(engines: Any) -> Tally:
    return judged(engines, CANONICAL, CANONICAL)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_declared_is_no_finding_and_hides_no_rule(
    name: str, engines: Any, plain: Tally
) -> None:
    spoken = engines.dialect(FORMS[name])
    tally = judged(engines, spoken, spoken)
    assert [(found.finding.code, str(found.finding)) for found in tally.findings] == []
    assert tally.crashes == []
    assert set(plain.executed) - set(tally.executed) == SILENT.get(name, set())


@pytest.mark.parametrize("name", [name for name in FORMS if name not in UNSEEN])
def test_what_is_not_declared_is_noticed(name: str, engines: Any) -> None:
    tally = judged(engines, engines.dialect(FORMS[name]), CANONICAL)
    assert tally.failed or tally.crashes


@pytest.mark.parametrize("mutant", WRONG)
@pytest.mark.parametrize("name", FORMS)
def test_a_dialect_is_no_excuse(name: str, mutant: str, engines: Any) -> None:
    mutation, spoken = mutations()[mutant], engines.dialect(FORMS[name])
    tally = judged(engines, spoken, spoken, mutation)
    if mutation.killer in SILENT.get(name, set()):
        assert not tally.executed[mutation.killer]
    else:
        assert tally.failed[mutation.killer]


def test_every_form_of_every_field_is_spoken_here() -> None:
    spoken = {field for document in FORMS.values() for field in document}
    assert spoken == {f.name for f in fields(Dialect)} - {"dtype", "reasons"}


@pytest.mark.parametrize("name", [name for name in FORMS if Dialect(**FORMS[name]).tolerated])
def test_what_is_tolerated_needs_a_reason(name: str) -> None:
    with pytest.raises(InputError, match=r"so reasons needs a sentence under \w+$"):
        dialect_from(FORMS[name], "test")


CHAPTER = (Path(__file__).parents[2] / "spec" / "dialects.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| .* \|$", CHAPTER, re.MULTILINE))
UNJUDGED = dict(
    re.findall(r"^\| `(\w+)(?:: [\w-]+)?` \| ((?!.*\|.*\|).*) \|$", CHAPTER, re.MULTILINE)
)


def test_the_chapter_has_every_field_and_every_value() -> None:
    properties = schema("dialect")["properties"]
    assert list(ROWS) == [f.name for f in fields(Dialect)] == list(properties)
    for name, entry in properties.items():
        choices = entry.get("enum") or [
            c for o in entry.get("oneOf", ()) for c in o.get("enum", ())
        ]
        listed = re.findall(r"`([\w-]+)`", ROWS[name])
        assert set(choices) <= set(listed), name
        # The canonical value comes first.
        default = getattr(CANONICAL, name)
        assert not choices or listed[0] == default
    assert set(re.findall(r"`(\w+)`", ROWS["policy"])) == set(properties["policy"]["properties"])


def test_the_chapter_says_what_stays_unjudged() -> None:
    loose = {f for form in FORMS.values() for f in Dialect(**form).tolerated}
    assert UNJUDGED.keys() == loose
    for name in loose:
        assert "*tolerated*" in re.findall(rf"^\| `{name}` .*$", CHAPTER, re.MULTILINE)[0]
    for form, codes in SILENT.items():
        (name,) = Dialect(**FORMS[form]).tolerated
        assert codes == set(re.findall(r"`([A-Z]+\.[A-Z_]+)`", UNJUDGED[name].partition(";")[0]))


def test_the_examples_of_the_chapter_are_dialects() -> None:
    examples = re.findall(r"^```python\ndialect = (.*?)^```", CHAPTER, re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        assert dialect_from(ast.literal_eval(example), "spec/dialects.md") != CANONICAL


def test_a_loop_that_ends_is_not_compared_with_rounds_that_do_not(
    engines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = engines.dialect(FORMS["end-of-sequence-loop"])
    for coordinate, compared in (("end-of-sequence", 0), ("six-node", 1)):
        monkeypatch.setitem(globals(), "SHOWN", (coordinate,))
        tally = judged(engines, spoken, spoken)
        assert tally.executed["ROUND.GENERATION_IS_ROUNDS"] == compared
    assert "`ROUND.GENERATION_IS_ROUNDS`" in UNJUDGED["end_of_sequence"]
