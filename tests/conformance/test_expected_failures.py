"""Expected failures: what each entry comes to, and what that makes of the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.expected import LAWFUL, Expectation, load_expectations, outcomes
from medusa_spec.errors import InputError

TODAY = date(2026, 12, 1)
MASK, SLOT, NOBODY = "TREE.MASK_IS_ANCESTRY", "TREE.SLOT", "TREE.NOTHING"


def outcome(
    executed: dict[str, int],
    failed: dict[str, int],
    code: str = MASK,
    expires: date | None = None,
) -> str:
    entry = Expectation(code, "why", "https://example.org/1", expires)
    (found,) = outcomes((entry,), executed, failed, TODAY)
    assert (found["code"], found["reason"], found["link"]) == (code, "why", "https://example.org/1")
    assert found["expires"] == (None if expires is None else expires.isoformat())
    return str(found["outcome"])


def test_each_of_the_six_outcomes() -> None:
    assert outcome({MASK: 3}, {MASK: 1}) == "as-expected"
    assert outcome({MASK: 3}, {}) == "unexpected-pass"
    assert outcome({MASK: 3, SLOT: 3}, {SLOT: 1}) == "other-code"
    assert outcome({MASK: 3}, {MASK: 1}, code=NOBODY) == "unknown-code"
    assert outcome({SLOT: 3}, {}) == "not-exercised"
    assert outcome({MASK: 3}, {MASK: 1}, expires=date(2026, 11, 30)) == "expired"
    # The last day is one on which it may still fail.
    assert outcome({MASK: 3}, {MASK: 1}, expires=TODAY) == "as-expected"


def test_two_of_the_six_fail_nobody() -> None:
    assert set(LAWFUL) == {"as-expected", "not-exercised"}


def test_what_is_expected_of_another_rule_is_no_stranger() -> None:
    entries = tuple(Expectation(code, "why", "there", None) for code in (MASK, SLOT))
    found = outcomes(entries, {MASK: 1, SLOT: 1}, {SLOT: 1}, TODAY)
    assert [entry["outcome"] for entry in found] == ["unexpected-pass", "as-expected"]


# Files

ENTRY = "- invariant: TREE.SLOT\n  reason: r\n  link: l\n"


def load(tmp_path: Path, text: str, name: str = "known.yaml") -> tuple[Expectation, ...]:
    (tmp_path / name).write_text(text, "utf-8")
    return load_expectations(tmp_path / name)


@pytest.mark.parametrize("written", ["2027-01-31", '"2027-01-31"'])
def test_a_date_is_a_date_with_quotes_or_without(tmp_path: Path, written: str) -> None:
    (entry,) = load(tmp_path, f"{ENTRY}  expires: {written}\n")
    assert entry == Expectation(SLOT, "r", "l", date(2027, 1, 31))


def test_a_file_may_be_json_and_may_be_empty(tmp_path: Path) -> None:
    listed = [{"invariant": SLOT, "reason": "r", "link": "l"}]
    (entry,) = load(tmp_path, json.dumps(listed), "known.json")
    assert entry == Expectation(SLOT, "r", "l", None)
    assert load(tmp_path, "[]") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- invariant: TREE.SLOT\n  reason: r\n", "[0]: 'link' is a required property"),
        ("- invariant: TREE.SLOT\n  link: l\n", "[0]: 'reason' is a required property"),
        (f"{ENTRY}  because: b\n", "[0]: Additional properties are not allowed"),
        (f"{ENTRY}  expires: soon\n", "[0].expires: is no date of the form 2027-01-31"),
        (f"{ENTRY}  expires: 2027-02-30\n", "[0].expires: is no date of the form 2027-01-31"),
        (f"{ENTRY}  expires: 2027-01-31 12:00:00\n", "[0].expires: is no date of the form"),
        (f"{ENTRY}  expires: 2999-W01-1\n", "[0].expires: is no date of the form 2027-01-31"),
        (f"{ENTRY}  expires: '20270131'\n", "[0].expires: is no date of the form 2027-01-31"),
        (f"{ENTRY}  expires: 2027\n", "[0].expires: 2027 is not of type 'string'"),
        (ENTRY + ENTRY, "[1].invariant: TREE.SLOT is there twice"),
        ("invariant: TREE.SLOT\n", "is not of type 'array'"),
        ("- TREE.SLOT\n", "[0]: 'TREE.SLOT' is not of type 'object'"),
        ("", "None is not of type 'array'"),
        ("- [", "not plain YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'known.yaml'}: ")
    assert said in str(refused.value)


# Verdicts


@pytest.fixture
def expecting(check_here: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Check a miniature, whose rules of these codes are expected to fail."""

    def run(name: str, *codes: str, **more: str) -> dict[str, Any]:
        entries = [{"invariant": code, "reason": "r", "link": "l", **more} for code in codes]
        (tmp_path / "known.json").write_text(json.dumps(entries), "utf-8")
        options = ("--json", "--expected-failures", "known.json")
        answer = check_here(f"miniatures:{name}", *options)
        document: dict[str, Any] = json.loads(answer.out)
        assert answer.code == {"pass": 0, "fail": 1, "inconclusive": 2}[document["verdict"]]
        return document

    return run


def failing(document: dict[str, Any], status: str) -> set[str]:
    return {row["code"] for row in document["invariants"] if row["status"] == status}


def test_a_run_passes_where_all_that_fails_is_expected(expecting: Any) -> None:
    before = expecting("SeesSiblings")
    assert before["verdict"] == "fail"
    codes = failing(before, "fail")
    assert MASK in codes
    assert len(codes) > 1
    after = expecting("SeesSiblings", *codes)
    assert after["verdict"] == "pass"
    assert failing(after, "expected-failure") == codes
    assert {entry["outcome"] for entry in after["expected_failures"]} == {"as-expected"}
    (tree,) = (row for row in after["contracts"] if row["contract"] == "tree")
    assert (tree["failed"], tree["expected_to_fail"]) == (0, len(codes & {MASK, "TREE.INVERSE"}))


def test_a_cause_is_not_excused_by_what_follows_from_it(expecting: Any) -> None:
    document = expecting("SeesSiblings", "VERIFICATION.PATH_LOGITS")
    assert document["verdict"] == "fail"
    assert MASK in failing(document, "fail")


@pytest.mark.parametrize(
    ("name", "code", "more", "outcome", "verdict"),
    [
        ("Right", MASK, {}, "unexpected-pass", "fail"),
        ("Right", NOBODY, {}, "unknown-code", "fail"),
        ("Right", "HEADS.OFFSET", {}, "not-exercised", "pass"),
        ("Right", MASK, {"expires": "2020-01-31"}, "expired", "fail"),
        ("SeesSiblings", MASK, {"expires": "2020-01-31"}, "expired", "fail"),
        ("SeesSiblings", SLOT, {}, "other-code", "fail"),
    ],
)
def test_an_expectation_that_does_not_hold_fails(
    expecting: Any, name: str, code: str, more: dict[str, str], outcome: str, verdict: str
) -> None:
    document = expecting(name, code, **more)
    (entry,) = document["expected_failures"]
    assert (entry["outcome"], document["verdict"]) == (outcome, verdict)


def test_an_incident_is_excused_by_no_expectation(expecting: Any) -> None:
    document = expecting("CrashesInSelect", "POSTERIOR.GREEDY_MATCH")
    assert document["verdict"] == "inconclusive"
    assert document["expected_failures"][0]["outcome"] == "not-exercised"


def test_a_file_that_cannot_be_used_ends_the_run_before_it_begins(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    assert "nowhere.yaml: no such file" in refuse(
        "check", "miniatures:Right", "--expected-failures", "nowhere.yaml"
    )
