"""A result as JUnit XML, the form that build servers read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from medusa_conformance.finding_text import finding_lines
from medusa_conformance.outcome import counted, incident_text, listed, outcome, summary
from medusa_conformance.verdicts import unasked

Case = ElementTree.Element

OUTCOMES = {
    "unknown-code": "there is no such code",
    "expired": "the entry has expired",
    "other-code": "fails, but by another code",
}
"""Fates of an expected failure that fail a run and that no invariant's own case shows."""


VERDICT = "VERDICT"
"""The case behind all others."""


def junit(document: Mapping[str, Any]) -> str:
    """A suite per contract, a case per invariant; a suite each of what else can fail a run.

    Takes what `check` or `verify` prints. Every suite carries the run's properties. The last case
    is the verdict, so that a run which is no pass is never green.
    """
    found = outcome(document)
    root = ElementTree.Element("testsuites", name="medusa-oracles", time=f"{found['seconds']:.3f}")
    for contract in found["contracts"]:
        name = contract["contract"]
        rows = [row for row in found["invariants"] if row["contract"] == name]
        _suite(root, found, name, [_invariant(row, found) for row in rows])
    _suite(root, found, "mutants", [_mutant(mutant) for mutant in found["mutants"]])
    _suite(root, found, "crashes", [_crash(incident) for incident in found["incidents"]])
    _suite(root, found, "checkout", list(_checkout(found)))
    _suite(root, found, "expected failures", list(_expected(found)))
    _suite(root, found, "verdict", [_verdict(found)])
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.attrib[total]) for suite in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(
    root: ElementTree.Element, found: Mapping[str, Any], name: str, cases: Sequence[Case]
) -> None:
    if not cases:
        return
    suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(tag) is not None for case in cases)))
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in _properties(found):
        ElementTree.SubElement(properties, "property", name=key, value=value)
    suite.extend(cases)


def _properties(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "verdict", found["verdict"]
    yield "adapter", found["target"]["text"]
    for name in ("spec_version", "suite_version", "commit", "seed", "dtype", "device"):
        if found[name] is not None:
            yield name, str(found[name])


def _case(suite: str, name: str, tag: str = "", kind: str = "", message: str = "") -> Case:
    case = ElementTree.Element("testcase", classname=f"medusa.{suite}", name=name)
    if tag:
        ElementTree.SubElement(case, tag, type=kind, message=message)
    return case


def _invariant(row: Mapping[str, Any], found: Mapping[str, Any]) -> Case:
    contract, code, status = row["contract"], row["code"], row["status"]
    reason = row["reason"] or "no reason is given"
    if status == "pass":
        return _case(contract, code)
    if status == "fail":
        own = [finding for finding in found["findings"] if finding["code"] == code]
        message = own[0]["message"] if own else _cause(row, found["findings"])
        case = _case(contract, code, "failure", code, message)
        case[0].text = "\n\n".join("\n".join(finding_lines(entry)) for entry in own)
        return case
    if status == "unexpected-pass":
        message = f"passes, though it is expected to fail: {reason}"
        return _case(contract, code, "failure", status, message)
    if status == "incompetent":
        return _case(contract, code, "error", status, reason)
    message = f"expected to fail: {reason}" if status == "expected-failure" else reason
    return _case(contract, code, "skipped", status, message)


def _cause(row: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> str:
    """What an invariant failed by that has no finding of its own: it is folded under its cause."""
    code = row["code"]
    causes = [f["code"] for f in findings if any(code == each["code"] for each in f["follows"])]
    on = f"failed on {counted(row['failed'], 'coordinate')}"
    return f"{on}; follows from {listed(causes)}" if causes else on


def _mutant(mutant: Mapping[str, Any]) -> Case:
    name, status = mutant["id"], mutant["status"]
    if mutant["killed"]:
        return _case("mutants", name)
    if status == "incompetent":
        return _case("mutants", name, "error", status, mutant["crash"] or status)
    fired = ", ".join(mutant["fired"]) or "nothing"
    message = f"survived {mutant['killer']}; what fired: {fired}"
    return _case("mutants", name, "failure", status, message)


def _crash(incident: Mapping[str, Any]) -> Case:
    name = f"{incident['stage']} on {incident['coordinate']}"
    case = _case("crashes", name, "error", incident["kind"], incident["text"])
    case[0].text = incident_text(incident)
    return case


def _verdict(found: Mapping[str, Any]) -> Case:
    """The verdict, and each finding of a rule that has no case here."""
    word = found["verdict"]
    if word == "pass":
        return _case("verdict", VERDICT)
    tag = "failure" if word == "fail" else "error"
    message = f"{word.upper()}  {summary(found, 'each skipped with its reason')}"
    case = _case("verdict", VERDICT, tag, word, message)
    others = unasked((entry["code"] for entry in found["findings"]), found["invariants"])
    own = [entry for entry in found["findings"] if entry["code"] in others]
    case[0].text = "\n\n".join("\n".join(finding_lines(entry)) for entry in own)
    return case


def _checkout(found: Mapping[str, Any]) -> Iterator[Case]:
    for name, state in (found["checkout"] or {}).items():
        if state == "matches":
            yield _case("checkout", name)
        else:
            yield _case("checkout", name, "failure", state, f"{state}: not the pinned file")


def _expected(found: Mapping[str, Any]) -> Iterator[Case]:
    for entry in found["expected_failures"]:
        if entry["outcome"] in OUTCOMES:
            message = f"{OUTCOMES[entry['outcome']]}: {entry['reason']}"
            yield _case("expected", entry["code"], "failure", entry["outcome"], message)
