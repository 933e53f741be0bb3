"""JUnit XML: what a build server reads is what the document says, whatever an engine said."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa_conformance.junit import junit
from medusa_spec.registry import CONTRACTS, invariants

# The rules of junit-10.xsd, which Jenkins' xUnit plugin holds a file to: the attributes that an
# element must have and may have, and the elements that it may hold.
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "skipped": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "failure": (set(), {"type", "message"}, set()),
}
TIME = re.compile(r"[0-9]+(\.[0-9]*)?")


def parsed(document: Any) -> ElementTree.Element:
    """The root of a file that keeps the schema and counts rightly."""
    root = ElementTree.fromstring(junit(document))
    assert root.tag == "testsuites"
    for element in root.iter():
        must, may, holds = SCHEMA[element.tag]
        assert must <= element.attrib.keys() <= must | may
        assert {child.tag for child in element} <= holds
        assert "time" not in element.attrib or TIME.fullmatch(element.attrib["time"])
    for suite in root:
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert suite.get(total) == str(sum(case.find(tag) is not None for case in cases))
    for total in ("tests", "failures", "errors"):
        assert root.get(total) == str(sum(int(suite.attrib[total]) for suite in root))
    return root


def case(root: ElementTree.Element, suite: str, name: str) -> ElementTree.Element:
    found = root.findall(f"testsuite[@name='{suite}']/testcase[@name='{name}']")
    assert len(found) == 1
    return found[0]


def outcome(root: ElementTree.Element, suite: str, name: str) -> tuple[str, str, str]:
    """Tag, type and message of a case that did not simply pass."""
    (element,) = case(root, suite, name)
    return element.tag, element.attrib["type"], element.attrib["message"]


def test_a_case_for_each_invariant_in_the_suite_of_its_contract(
    report_documents: ModuleType,
) -> None:
    root = parsed(report_documents.passing())
    assert [suite.get("name") for suite in root] == [*CONTRACTS, "verdict"]
    cases = [(c.get("classname"), c.get("name")) for c in root.iter("testcase")]
    rules = [(f"medusa.{i.contract}", code) for code, i in invariants().items()]
    assert cases == [*rules, ("medusa.verdict", "VERDICT")]
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    assert all(len(element) == 0 for element in root.iter("testcase"))


def test_every_suite_says_what_was_judged_and_by_what(report_documents: ModuleType) -> None:
    root = parsed(report_documents.passing())
    for suite in root:
        told = {p.get("name"): p.get("value") for p in suite.iter("property")}
        assert told == {
            "verdict": "pass",
            "adapter": "my_engine:factory",
            "spec_version": "0.2.0",
            "suite_version": "0.2.0",
            "commit": "6f1c0de94b6a4f7f8f10a1f0c2b7f8d0e9a35b11",
            "seed": "0",
            "dtype": "float64",
            "device": "cpu",
        }


def test_a_failure_brings_its_finding(report_documents: ModuleType) -> None:
    root = parsed(report_documents.failing())
    code, message = "TREE.MASK_IS_ANCESTRY", "visibility is not ancestry"
    assert outcome(root, "tree", code) == ("failure", code, message)
    text = case(root, "tree", code)[0].text or ""
    sides = "expected   True", "observed   False"
    for part in ("row 4, key 1", *sides, "T3 of spec/tree.md", "<--"):
        assert part in text
    assert text.endswith("replay     medusa-oracles replay findings/01-TREE.MASK_IS_ANCESTRY.json")


def test_what_follows_from_a_finding_fails_and_says_so(report_documents: ModuleType) -> None:
    root = parsed(report_documents.failing())
    code = "VERIFICATION.RECTANGULAR_MASK"
    message = "failed on 7 coordinates; follows from TREE.MASK_IS_ANCESTRY"
    assert outcome(root, "verification", code) == ("failure", code, message)


def test_statuses_that_are_neither_pass_nor_failure(report_documents: ModuleType) -> None:
    root = parsed(report_documents.failing())
    ties = "ties go to the greater token"
    expected = ("skipped", "expected-failure", f"expected to fail: {ties}")
    assert outcome(root, "proposal", "PROPOSAL.TOPK") == expected
    passed = ("failure", "unexpected-pass", "passes, though it is expected to fail: old release")
    assert outcome(root, "heads", "HEADS.PROJECTION") == passed
    idle = ("skipped", "not-exercised", "the engine has no commit")
    assert outcome(root, "commit", "COMMIT.SOURCE_ROWS") == idle
    unknown = ("failure", "unknown-code", "there is no such code: misspelt")
    assert outcome(root, "expected failures", "TREE.NO_SUCH_RULE") == unknown
    # An entry whose invariant's own case tells its fate is told once.
    entries = root.findall("testsuite[@name='expected failures']/testcase")
    assert [entry.get("name") for entry in entries] == ["TREE.NO_SUCH_RULE"]


def test_an_engine_without_an_answer_is_an_error(report_documents: ModuleType) -> None:
    root = parsed(report_documents.inconclusive())
    code = "COMMIT.SOURCE_ROWS"
    assert outcome(root, "commit", code) == ("error", "incompetent", "verify hung")
    hang = "verify on a31-nine-row"
    assert outcome(root, "crashes", hang) == ("error", "hang", "no reply within 10 s")
    text = case(root, "crashes", hang)[0].text
    assert text == "hang in verify on a31-nine-row (57 times): no reply within 10 s"
    left = sum(i.contract in ("verification", "commit") for i in invariants().values())
    incidents = len(report_documents.inconclusive()["incidents"])
    assert (root.get("failures"), root.get("errors")) == ("0", str(left + incidents + 1))
    assert "commit" not in {p.get("name") for p in root.iter("property")}


def test_a_run_that_failed_by_what_nobody_asked_for_is_not_green(
    report_documents: ModuleType,
) -> None:
    code = "ROUND.LAWFUL_NEVER_REFUSED"
    refused = report_documents.finding(code, message="no room, it said")
    document = report_documents.check("fail", findings=[refused])
    document["contracts"] = [row for row in document["contracts"] if row["contract"] == "tree"]
    document["invariants"] = [row for row in document["invariants"] if row["contract"] == "tree"]
    root = parsed(document)
    assert (root.get("failures"), root.get("errors")) == ("1", "0")
    tag, kind, message = outcome(root, "verdict", "VERDICT")
    assert (tag, kind) == ("failure", "fail")
    assert message.startswith("FAIL  ")
    text = case(root, "verdict", "VERDICT")[0].text or ""
    assert code in text
    assert "no room, it said" in text


def test_a_run_without_a_verdict_is_not_green(report_documents: ModuleType) -> None:
    crash = report_documents.incident("crash", "compile_tree", "six-node", "RuntimeError: boom")
    root = parsed(report_documents.check("inconclusive", incidents=[crash]))
    boom = ("error", "crash", "RuntimeError: boom")
    assert outcome(root, "crashes", "compile_tree on six-node") == boom
    assert outcome(root, "verdict", "VERDICT")[:2] == ("error", "inconclusive")
    nothing = report_documents.check("inconclusive", dict.fromkeys(invariants(), "not-exercised"))
    root = parsed(nothing)
    assert (root.get("failures"), root.get("errors")) == ("0", "1")


def test_mutants_are_a_suite(report_documents: ModuleType) -> None:
    document = report_documents.at_large()
    root = parsed(document)
    survived, incompetent = document["mutants"][3], document["mutants"][5]
    words = f"survived {survived['killer']}; what fired: nothing"
    assert outcome(root, "mutants", survived["id"]) == ("failure", "survived", words)
    crash = ("error", "incompetent", "IndexError in commit")
    assert outcome(root, "mutants", incompetent["id"]) == crash
    (suite,) = root.findall("testsuite[@name='mutants']")
    found = (suite.get("tests"), suite.get("failures"), suite.get("errors"))
    assert found == (str(len(document["mutants"])), "1", "1")


def test_what_else_fails_the_main_job(report_documents: ModuleType) -> None:
    document = report_documents.at_large()
    root = parsed(document)
    code = document["invariants"][9]["code"]
    contract = invariants()[code].contract
    assert outcome(root, contract, code) == ("failure", code, "failed on 2 coordinates")
    crash = ("error", "crash", "ValueError: <b>no</b>")
    assert outcome(root, "crashes", "decoding on six-node") == crash
    differs = ("failure", "differs", "differs: not the pinned file")
    assert outcome(root, "checkout", "medusa/model/utils.py") == differs
    assert len(case(root, "checkout", "medusa/model/a.py")) == 0


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x9b", "\ud800", "\uffff", "\u202e"])
def test_characters_that_xml_does_not_have(report_documents: ModuleType, letter: str) -> None:
    document = report_documents.failing()
    document["findings"][0]["message"] = f"a{letter}b"
    assert outcome(parsed(document), "tree", "TREE.MASK_IS_ANCESTRY")[2] == "a\ufffdb"


@given(data=st.data())
def test_any_document(report_documents: ModuleType, data: st.DataObject) -> None:
    document = data.draw(report_documents.documents())
    root = parsed(document)
    more = len(document["incidents"]) + 1
    assert len(list(root.iter("testcase"))) == len(invariants()) + more
    bad = sum(row["status"] in ("fail", "unexpected-pass") for row in document["invariants"])
    assert root.get("failures") == str(bad + (document["verdict"] == "fail"))
