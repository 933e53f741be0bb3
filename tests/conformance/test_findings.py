"""What is said of a finding, for every code there is: as a document, and as a person reads it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from medusa_conformance.finding_file import (
    LONGEST,
    file_name,
    finding_document,
    finding_documents,
    plain,
)
from medusa_conformance.finding_text import LABEL, SHOWN, WIDTH, finding_lines
from medusa_conformance.folding import Cause, fold
from medusa_conformance.runner import (
    Located,
    Setting,
    judge_coordinates,
    reference_factory,
)
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_oracles.judge import difference
from medusa_spec.documents import schema_errors
from medusa_spec.findings import AXES, Difference, Finding
from medusa_spec.registry import invariants
from medusa_spec.trace import Tolerance

SETTING = Setting("cpu", "float64")
FIELD = re.compile(r"  (?P<label>[a-z]+(?: on)?) +")
LABELS = ("at", "expected", "observed", "difference", "tree", "usually", "found on", "follows")


def found(code: str) -> Cause:
    """What the rule of a code says of the first mutant that it kills."""
    mutation = next(m for m in mutations().values() if m.killer == code)
    factory = reference_factory(SETTING, mutation)
    tally = judge_coordinates(factory, [load(mutation.exposed_by)], SETTING)
    located = next(f for f in tally.findings if f.finding.code == code)
    follows = {f.finding.code: 1 for f in tally.findings if f.finding.code != code}
    return Cause(located, tally.failed[code], follows)


def document_of(cause: Cause) -> dict[str, Any]:
    return finding_document(cause, 7, {"kind": "mutant", "id": "some"}, SETTING, 3)


def parsed(lines: list[str]) -> dict[str, str]:
    """Every labelled field of a finding, its lines joined; the tree keeps its own."""
    read: dict[str, list[str]] = {"head": [lines[0]], "message": []}
    label = "message"
    for line in lines[1:]:
        field = FIELD.match(line[: LABEL + 2])
        if field is not None and field["label"] in (*LABELS, "replay"):
            label = field["label"]
            read[label] = [line[LABEL + 2 :]]
        else:
            read[label].append(line[2:] if label == "message" else line[LABEL + 2 :])
    joined = {name: " ".join(texts) for name, texts in read.items()}
    return joined | ({"tree": "\n".join(read["tree"])} if "tree" in read else {})


@pytest.mark.parametrize("code", invariants())
def test_every_field_of_every_code_can_be_read(code: str) -> None:
    cause, rule = found(code), invariants()[code]
    finding = cause.located.finding
    document = document_of(cause)
    assert schema_errors(document, "finding") == []
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    lines = finding_lines(document)
    assert all(len(line) <= WIDTH and line == line.rstrip() for line in lines)
    said = parsed(lines)

    head = f"{code}  {rule.clause} of spec/{rule.contract}.md, section {rule.section}"
    assert said["head"] == head
    assert said["message"] == finding.message == document["message"]
    assert set(finding.where) <= set(AXES)
    for axis, index in finding.where.items():
        assert re.search(rf"\b{axis} {index}\b", said["at"])
    place = cause.located
    assert f"coordinate {place.coordinate.name}, generation {place.generation}, round" in said["at"]
    for side, value in (("expected", finding.expected), ("observed", finding.observed)):
        text = "-" if value is None else str(value)
        assert said[side] == (text if len(text) <= SHOWN else said[side])
        assert said[side].startswith(text[:SHOWN])
    assert said["usually"] == rule.cause == document["usual_cause"]
    assert said["found on"] == "1 coordinate"
    assert said.get("tree", None) == document["tree"]
    assert re.findall(r"1 of ([A-Z0-9_.]+)", said.get("follows", "")) == list(cause.follows)
    assert said["replay"] == f"medusa-oracles replay findings/07-{code}.json"
    assert ("difference" in said) == (finding.difference is not None)
    if finding.difference is not None:
        numbers = f"{finding.difference.entries} of {finding.difference.of} entr"
        assert said["difference"].startswith(numbers)
        # Tokens, slots and rows are names: none of them is near another.
        amounts = np.asarray(finding.expected).dtype.kind == "f"
        assert ("by up to" in said["difference"]) == amounts


def test_a_document_is_what_replays_a_finding() -> None:
    cause = found("TREE.SLOT")
    document = document_of(cause)
    assert document["coordinate"] == cause.located.coordinate.document()
    assert (document["target"], document["seed"]) == ({"kind": "mutant", "id": "some"}, 3)
    assert (document["dtype"], document["device"]) == ("float64", "cpu")
    assert {"python", "medusa-oracles", "numpy"} <= document["versions"].keys()


def test_documents_are_numbered_as_their_files() -> None:
    factory = reference_factory(SETTING, mutations()["sibling-visible"])
    tally = judge_coordinates(factory, [load("depth-one")], SETTING)
    causes = fold(tally.findings)
    (document,) = finding_documents(causes, {"kind": "reference"}, SETTING, 0)
    assert document["replay"].endswith(f"/{file_name(1, 'TREE.MASK_IS_ANCESTRY')}")
    assert document["follows"]
    assert document["difference"] == {
        "greatest": None,
        # Three siblings, each of which sees the two others: row 1 sees row 2 first.
        "where": {"row": 1, "key": 2},
        "allowed": None,
        "entries": 6,
        "of": 16,
    }


def test_nothing_of_a_foreign_document_reaches_the_terminal_as_a_code() -> None:
    document = document_of(found("TREE.MASK_IS_ANCESTRY"))
    evil = "a\x1b[31mb\r\nc\u202ed\ud800"
    foreign = document | {
        "message": evil,
        "expected": evil,
        "observed": [evil],
        "usual_cause": evil,
        "tree": f"{evil}\n{evil}",
        "replay": evil,
        "coordinate": {"name": evil},
        "where": {evil: 1},
        "follows": [{"code": evil, "findings": 1}],
    }
    for line in finding_lines(foreign):
        assert line.isprintable()


def test_long_values_are_cut_and_counted() -> None:
    document = document_of(found("TREE.SLOT")) | {"observed": list(range(1000))}
    said = parsed(finding_lines(document))
    whole = str(list(range(1000)))
    assert said["observed"] == f"{whole[:SHOWN]}… ({len(whole)} characters)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (float("nan"), "nan"),
        ({"a": (1, float("-inf"))}, {"a": [1, "-inf"]}),
        ({3: True}, {"3": True}),
        (b"\x00", "b'\\x00'"),
        ("half \ud800", "half \\ud800"),
        (2**70, 2**70),
    ],
)
def test_whatever_an_engine_answers_is_a_value_of_json(given: Any, expected: Any) -> None:
    assert plain(given) == expected
    json.dumps(plain(given), allow_nan=False)


def test_a_long_text_of_an_engine_is_cut() -> None:
    assert plain("x" * 10**6) == "x" * LONGEST
    wordy = Finding("ROUND.LAWFUL_NEVER_REFUSED", "m" * 10**6, {}, "a round", "o" * 10**6)
    document = document_of(Cause(Located(wordy, load("six-node"), 1, 0), 1, {}))
    assert {len(document[side]) for side in ("message", "observed")} == {LONGEST}


def test_how_far_arrays_lie_apart() -> None:
    ours, theirs = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 2, 5], [4, 9, 6]])
    found = difference(ours, theirs, ("row", "key"))
    assert found == Difference(4.0, {"row": 1, "key": 1}, None, 2, 6)
    assert str(found) == "2 of 6 entries differ, by up to 4"
    assert difference(ours, ours, ("row", "key")) is None


def test_truth_values_differ_by_no_number() -> None:
    found = difference(np.array([True, False]), np.array([True, True]), ("row",))
    assert found == Difference(None, {"row": 1}, None, 1, 2)
    assert str(found) == "1 of 2 entries differs"


WITHIN = Tolerance(0.5, 0.1, "made up")


def test_the_greatest_difference_is_the_one_furthest_beyond_what_is_allowed() -> None:
    ours, theirs = np.array([100.0, 1.0, 2.0]), np.array([111.0, 4.0, 2.1])
    found = difference(ours, theirs, ("token",), WITHIN)
    # Allowed are 10.5 of 11 and 0.6 of 3; the last entry is within.
    assert found == Difference(3.0, {"token": 1}, 0.6, 2, 3)
    assert str(found) == "2 of 3 entries differ, by up to 3, 0.6 allowed"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_lies_furthest_apart(value: float) -> None:
    ours, theirs = np.array([0.0, 0.0, 1.0]), np.array([1e300, value, 1.0])
    for within in (WITHIN, None):
        found = difference(ours, theirs, ("token",), within)
        assert found is not None
        assert (found.greatest, found.where, found.entries) == (np.inf, {"token": 1}, 2)
    finding = Finding("VERIFICATION.PATH_LOGITS", "apart", {}, 0.0, float(value), found)
    document = document_of(Cause(Located(finding, load("six-node"), 1, 0), 1, {}))
    assert document["difference"]["greatest"] == "inf"
    assert "by up to inf at token 1" in "\n".join(finding_lines(document))


def test_equal_infinities_and_two_nans_do_not_differ() -> None:
    both = np.array([np.nan, np.inf, -np.inf])
    assert difference(both, both.copy(), ("token",)) is None
