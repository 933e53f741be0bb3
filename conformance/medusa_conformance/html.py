"""A result as one HTML page that needs no network, no server and no script to be read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from medusa_conformance import runner
from medusa_conformance.drawing import Drawings
from medusa_conformance.expected import LAWFUL
from medusa_conformance.finding_text import difference_text, trace_file
from medusa_conformance.outcome import counted, outcome, place_of, summary
from medusa_conformance.picture import STYLE
from medusa_conformance.values import cut, shown, sides
from medusa_spec.registry import CONTRACTS, invariants

SIGNS = {
    "pass": "✓",
    "fail": "✗",
    "inconclusive": "?",
    "expected-failure": "≈",
    "unexpected-pass": "!",
    "not-exercised": "–",
    "incompetent": "⚠",
    "killed": "✓",
    "survived": "✗",
    "present": "✓",
    "absent": "–",
    "crash": "⚠",
    "hang": "⚠",
    "rubbish": "⚠",
    "endless": "⚠",
    "exit": "⚠",
    "as-expected": "✓",
    "unknown-code": "✗",
    "expired": "✗",
    "other-code": "✗",
    "matches": "✓",
    "differs": "✗",
    "missing": "✗",
}
"""What says a status without its colour."""

STATUSES = (
    "fail",
    "unexpected-pass",
    "incompetent",
    "expected-failure",
    "not-exercised",
    "pass",
)
"""Of an invariant; what needs looking at first."""

COLUMNS = (
    ("planned", "planned", ""),
    ("executed", "executed", ""),
    ("failed", "failed", "bad"),
    ("not exercised", "not_exercised", ""),
    ("incompetent", "incompetent", "warned"),
    ("expected to fail", "expected_to_fail", ""),
)
"""Columns of the table of contracts: title, field, and the mark of a number that is no good news.
"""

RARE = ("incompetent", "expected_to_fail")
"""Columns that are left out where every contract has 0."""


def html(document: Mapping[str, Any]) -> str:
    """The page of what `check` or `verify` prints.

    Every text of the document is escaped: an engine chose much of it.
    """
    found = outcome(document)
    return _template().render(
        found=found,
        summary=summary(found, "each with its reason below"),
        signs=SIGNS,
        facts=list(_facts(found)),
        sections=list(_sections(found)),
        known={row["code"] for row in found["invariants"]},
        findings=list(_findings(found)),
        columns=list(_columns(found)),
        bars={name: list(_bar(rows)) for name, rows in _by_contract(found["invariants"])},
        invariants=list(_invariants(found)),
        statuses=list(_statuses(found["invariants"])),
        matrix=[name for name in CONTRACTS if found["mutants"]],
        mutants=list(_mutants(found)),
        dialect=list(_dialect(found["dialect"])),
        style=Markup(_style()),
        script=Markup(_script()),
        policy=_policy(),
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cut"] = cut
    environment.filters["breakable"] = breakable
    environment.tests["commit"] = re.compile(r"[0-9a-f]{40}").fullmatch
    # Another scheme, such as javascript:, would make a link into a program.
    environment.tests["webaddress"] = lambda link: (
        bool(link) and link.startswith(("https://", "http://"))
    )
    return environment.from_string(_file("report.html"))


def breakable(text: str) -> Markup:
    """A name that a narrow page breaks behind its punctuation, and nowhere else while that does."""
    return Markup("<wbr>").join(re.split(r"(?<=[:._/])(?=[^\W\d])", text))


def _file(name: str) -> str:
    return resources.files("medusa_conformance").joinpath(name).read_text("utf-8")


@cache
def _style() -> str:
    return _file("report.css") + STYLE


@cache
def _script() -> str:
    return _file("report.js")


@cache
def _policy() -> str:
    """What the page may do: nothing but its own style and its own script, known by their hash."""
    style, script = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (_style(), _script())
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style}';"
        f" script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
    )


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    target = found["target"]
    yield {"module": "adapter"}.get(target["kind"], target["kind"]), target["text"]
    if target["language"] != "unknown":
        yield "language", target["language"]
    yield "spec version", found["spec_version"] or "unknown"
    yield "suite version", found["suite_version"] or "unknown"
    yield "coordinates", str(found["coordinates"])
    yield "commit of the suite", found["commit"] or "not from a checkout"
    yield "numbers", f"{found['dtype']} on {found['device']}"
    yield "seed", str(found["seed"])
    yield "examples at most", str(found["max_examples"])
    yield "seconds", f"{found['seconds']:.1f}"


def _sections(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the page has, in its order; what is empty is left out."""
    listed = (
        ("findings", "Findings", found["findings"]),
        ("incidents", "Incidents", found["incidents"]),
        ("contracts", "Contracts", found["contracts"]),
        ("mutants", "Kill matrix", found["mutants"]),
        ("invariants", "Invariants", found["invariants"]),
        ("capabilities", "Capabilities", found["capabilities"]),
        ("expected-failures", "Expected failures", found["expected_failures"]),
        ("dialect", "Dialect", list(_dialect(found["dialect"]))),
        ("checkout", "Checkout", found["checkout"]),
    )
    for name, title, entries in listed:
        if entries or name in ("contracts", "invariants"):
            yield {"id": name, "title": title, "count": len(entries)}


def _findings(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    drawings = Drawings()
    lawful = {e["code"] for e in found["expected_failures"] if e["outcome"] in LAWFUL}
    for number, finding in enumerate(found["findings"], 1):
        invariant = invariants().get(finding["code"])
        expected, observed = sides(finding["expected"], finding["observed"])
        svg, caption = drawings.of(finding)
        follows = finding["follows"]
        yield {
            **finding,
            "number": number,
            "lawful": finding["code"] in lawful,
            "message": cut(finding["message"]),
            "statement": invariant.statement if invariant else "",
            "place": [(axis.replace("_", " "), index) for axis, index in _place(finding)],
            "expected": expected,
            "observed": observed,
            "difference": difference_text(finding) if finding["difference"] else "",
            "svg": svg,
            "caption": caption,
            "tree": cut(finding["tree"] or ""),
            "follows": [
                {"code": each["code"], "words": counted(each["findings"], "finding")}
                for each in follows
            ],
            "follows_words": f"{counted(len(follows), 'invariant')} that followed from it",
            "name": finding["coordinate"]["name"],
            "coordinate": cut(shown(finding["coordinate"])),
        }


def _place(finding: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "coordinate", finding["coordinate"]["name"]
    yield from place_of(finding).items()
    file = trace_file(finding["target"])
    if file:
        yield "file", file
    yield "found on", counted(finding["found_on"], "coordinate")
    if finding.get("reproduced") is False:
        yield "seen again", "no: a second run of the same coordinate did not show it"


def _columns(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for title, field, mark in COLUMNS:
        if field not in RARE or any(contract[field] for contract in found["contracts"]):
            yield {"title": title, "field": field, "mark": mark}


def _statuses(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """The statuses that there are, what needs looking at first, and how many have each."""
    many = Counter(row["status"] for row in rows)
    return ((status, many[status]) for status in STATUSES if many[status])


def _by_contract(
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for name, own in groupby(rows, key=lambda row: row["contract"]):
        yield name, list(own)


def _bar(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """How the invariants of a contract fared, as lengths."""
    start = 0
    for status, many in reversed(list(_statuses(rows))):
        yield {"status": status, "start": start, "many": many}
        start += many


def _invariants(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    findings = list(enumerate(found["findings"], 1))
    for contract, rows in _by_contract(found["invariants"]):
        group = []
        for row in rows:
            code = row["code"]
            known = invariants().get(code)
            own = [number for number, finding in findings if finding["code"] == code]
            causes = [
                number
                for number, finding in findings
                if any(each["code"] == code for each in finding["follows"])
            ]
            group.append(
                {
                    **row,
                    "statement": known.statement if known else "",
                    "note": cut(row["reason"] or ""),
                    "own": own,
                    "causes": [] if own else causes,
                }
            )
        yield {"contract": contract, "rows": group}


def _mutants(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for contract, rows in _by_contract(found["mutants"]):
        killed = sum(row["killed"] for row in rows)
        yield {"contract": contract, "killed": killed, "rows": [_mutant(row) for row in rows]}


def _mutant(row: Mapping[str, Any]) -> dict[str, Any]:
    fired = Counter(_contract_of(code) for code in row["fired"])
    others = [code for code in row["fired"] if code != row["killer"]]
    home, known = _contract_of(row["killer"]), runner.mutations().get(row["id"])
    return {
        **row,
        "sentence": known.sentence if known else "",
        "cells": [{"many": fired[name], "killer": name == home} for name in CONTRACTS],
        "others": others,
        "others_words": f"{counted(len(others), 'other rule')} noticed",
    }


def _contract_of(code: str) -> str:
    return code.partition(".")[0].lower()


def _dialect(dialect: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Each declared difference; only one that leaves something unjudged needs a reason."""
    reasons = dialect.get("reasons", {})
    for name, value in dialect.items():
        if name != "reasons":
            yield {"name": name, "value": cut(shown(value)), "reason": cut(reasons.get(name, ""))}
