"""The page of a report: complete, closed to what an engine says, and small."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_conformance.derivation import derivation_of
from medusa_conformance.drawing import BUDGET, MAX_ROWS, SHRINKS
from medusa_conformance.html import html
from medusa_conformance.outcome import outcome, summary
from medusa_conformance.picture import Marks, picture
from medusa_conformance.values import TEXT_LIMIT, sides
from medusa_spec.coordinate import Coordinate
from medusa_spec.loading import coordinate_from
from medusa_spec.registry import AROUND, CONTRACTS, invariants

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr"}
RULES = len(invariants())
BUILDERS = ("passing", "failing", "inconclusive", "verification", "at_large")


class Page(HTMLParser):
    """The elements of a page, its texts, and what is wrong with how they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def text(self, tag: str = "") -> str:
        words = " ".join(data for inside, data in self.texts if not tag or inside == tag)
        return " ".join(words.split())


@pytest.mark.parametrize("name", BUILDERS)
def test_links_lead_somewhere_and_names_are_there_once(
    name: str, report_documents: ModuleType
) -> None:
    page = Page(html(getattr(report_documents, name)()))
    ids = Counter(attributes["id"] for _, attributes in page.elements if attributes.get("id"))
    assert max(ids.values()) == 1
    inside = [a["href"] or "" for a in page.tags("a") if (a["href"] or "").startswith("#")]
    assert len(inside) > 80
    assert {link[1:] for link in inside} <= ids.keys()
    assert set(invariants()) <= ids.keys()


@pytest.mark.parametrize("name", BUILDERS)
def test_headings_in_order_and_headers_of_tables(name: str, report_documents: ModuleType) -> None:
    page = Page(html(getattr(report_documents, name)()))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    headers = page.tags("th")
    assert headers
    assert all(header.get("scope") in ("col", "row", "rowgroup") for header in headers)


def test_nothing_comes_from_elsewhere(report_documents: ModuleType) -> None:
    text = html(report_documents.failing())
    page = Page(text)
    (policy,) = (m["content"] for m in page.tags("meta") if m.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
        assert "http" not in inside
        assert "@import" not in inside
        assert "url(" not in inside
    # The style of an element by itself is what the policy forbids.
    assert all("style" not in attributes for _, attributes in page.elements)
    assert all("src" not in attributes for _, attributes in page.elements)
    assert not any(k.startswith("on") for _, attributes in page.elements for k in attributes)


def test_identity(report_documents: ModuleType) -> None:
    document = report_documents.passing()
    document |= {"spec_version": "7.1.0", "suite_version": "8.2.0", "seed": 4711}
    page = Page(html(document).replace("<wbr>", ""))
    names, values = page.text("dt"), page.text("dd")
    for name in ("adapter", "spec version", "suite version", "commit", "seed", "numbers"):
        assert name in names
    commit = document["commit"]
    for value in ("my_engine:factory", "7.1.0", "8.2.0", commit[:12], "4711", "float64"):
        assert value in values
    # Forty digits would take two lines of a telephone.
    assert commit not in values
    assert [a["title"] for a in page.tags("dd") if "title" in a] == [commit]
    assert "PASS" in page.text("title")
    assert "numpy 2.4.6" in page.text()


def test_a_name_breaks_behind_its_punctuation(report_documents: ModuleType) -> None:
    document = report_documents.passing()
    document["target"] |= {"text": "a_bad.engine:New<b>", "name": "v1.2_x"}
    text = html(document)
    assert "<dd>a_<wbr>bad.<wbr>engine:<wbr>New&lt;b&gt;</dd>" in text
    assert '<span class="name">v1.2_<wbr>x' in text


def test_a_trace_is_named_and_says_nothing_that_is_not_known(report_documents: ModuleType) -> None:
    document = report_documents.failing()
    target = {"kind": "trace", "text": "traces", "name": "traces", "language": "unknown"}
    document["target"] |= target
    document["findings"][0]["target"] = {"kind": "trace", "path": "/of/a/server/000002.npz"}
    page = Page(html(document).replace("<wbr>", ""))
    assert "language" not in page.text("dt")
    assert "file" in page.text("dt")
    assert "/of/a/server/000002.npz" in page.text("dd")


def test_an_expected_finding_says_so(report_documents: ModuleType) -> None:
    document = report_documents.failing()
    document["findings"] += [report_documents.finding("PROPOSAL.TOPK")]
    heads = re.findall(r"<h3.*?</h3>", html(document), re.DOTALL)
    assert ["(expected)" in head for head in heads] == [False, False, False, True]


def test_a_finding_in_full(report_documents: ModuleType) -> None:
    text = html(report_documents.failing())
    (article,) = re.findall(r'<article class="finding" id="finding-1".*?</article>', text, re.S)
    page = Page(article)
    words = page.text()
    for part in (
        "visibility is not ancestry",
        "Clause T3 of spec/tree.md, section 0x03",
        "57 coordinates",
        "6 of 36 entries differ.",
        "The mask was built from each node's parent alone, or transposed.",
        "row 4 and key 1, where the engine differs, are framed",
        "2 invariants that followed from it",
        "31 findings",
        "medusa-oracles replay findings/01-TREE.MASK_IS_ANCESTRY.json",
    ):
        assert part in words
    assert page.text("pre").startswith("true false")
    assert "#VERIFICATION.PATH_LOGITS" in {a["href"] for a in page.tags("a")}
    # Two frames with a flag each, a row and a key of the six-node tree, and their cell.
    assert len([r for r in page.tags("rect") if r.get("class") == "mark cell"]) == 1
    frames = [r for r in page.tags("rect") if r.get("class") == "mark"]
    assert [(r["height"], r["width"]) for r in frames if r["height"] == r["width"]] == []
    assert len(frames) == 2
    assert len([p for p in page.tags("path") if p.get("class") == "flag"]) == 2


def test_a_row_leads_to_its_finding_or_to_the_one_it_follows_from(
    report_documents: ModuleType,
) -> None:
    text = html(report_documents.failing())

    def row(code: str) -> str:
        (found,) = re.findall(rf'<tr id="{re.escape(code)}".*?</tr>', text, re.DOTALL)
        return " ".join(found.split())

    assert '<a href="#finding-2">finding 2</a>' in row("TREE.RETRIEVAL_MAXIMAL")
    folded = row("VERIFICATION.PATH_LOGITS")
    assert 'follows from <a href="#finding-1">finding 1</a>' in folded
    assert "the engine has no commit" in row("COMMIT.SOURCE_ROWS")
    assert "finding" not in row("COMMIT.SOURCE_ROWS")


def test_sentences_that_a_verdict_rests_on(report_documents: ModuleType) -> None:
    def said(name: str) -> str:
        return summary(outcome(getattr(report_documents, name)()), "as said")

    rules, without = RULES, len(report_documents.idle(*report_documents.IDLE))
    passing = f"{rules} of {rules} invariants executed on 89 coordinates; none of them failed."
    assert said("passing") == passing
    assert said("failing") == (
        f"{rules - without} of {rules} invariants executed on 89 coordinates;"
        " 5 of them failed unexpectedly."
        " 1 failed as expected. 1 passed though expected to fail."
        " 1 entry of the expected failures does not hold."
        " compile_tree declined 3 of 1234 calls as unsupported."
        f" {without} not exercised, as said."
    )
    idle = len(report_documents.idle("round", "heads", *AROUND))
    assert said("inconclusive") == (
        f"{rules - idle - 20} of {rules} invariants executed on 89 coordinates;"
        " none of them failed."
        " 20 got no verdict, because the engine gave no usable answer."
        f" {idle} not exercised, as said."
    )
    mutants = len(report_documents.verification()["mutants"])
    assert said("verification").endswith(
        f" {mutants} of {mutants} mutants killed by the rule that they break."
    )
    assert said("at_large").endswith("The checkout is not the pinned release.")
    beside = report_documents.check("fail", findings=[report_documents.MASK])
    asked = [row for row in beside["invariants"] if row["contract"] != "tree"]
    told = summary(outcome({**beside, "invariants": asked}), "as said")
    assert told.endswith("TREE.MASK_IS_ANCESTRY, which was not asked for, failed.")
    nothing = report_documents.check("inconclusive", dict.fromkeys(invariants(), "not-exercised"))
    told = summary(outcome(nothing), "as said")
    assert told == f"None of {rules} invariants was executed. {rules} not exercised, as said."


def test_kill_matrix(report_documents: ModuleType) -> None:
    document = report_documents.at_large()
    text = html(document)
    page = Page(text)
    (table,) = re.findall(r'<table class="kills.*?</table>', text, re.DOTALL)
    for mutant in document["mutants"]:
        assert f">{mutant['id']}</span>" in table
    assert table.count('<span class="word">survived</span>') == 1
    assert table.count('<span class="word">incompetent</span>') == 1
    assert table.count('<span class="word">killed</span>') == len(document["mutants"]) - 2
    cells = [a["class"] or "" for a in page.tags("td") if (a.get("class") or "").startswith("cell")]
    assert len(cells) == len(CONTRACTS) * len(document["mutants"])
    assert sum("killer" in cell for cell in cells) == len(document["mutants"])
    assert 'id="mutants"' not in html(report_documents.passing())


def test_dialect_with_its_reasons(report_documents: ModuleType) -> None:
    text = html(report_documents.failing())
    (section,) = re.findall(r'<section id="dialect">.*?</section>', text, re.DOTALL)
    rows = [Page(row).text() for row in re.findall(r"<tr>.*?</tr>", section, re.DOTALL)][1:]
    assert rows[:2] == ["mask additive –", "slots own slots belong to a parent's group"]
    assert rows[2].endswith("it has no other")
    assert len(rows) == 3


HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m{{ 7*7 }}'


def test_an_engine_cannot_write_into_the_page(report_documents: ModuleType) -> None:
    clean = Page(html(report_documents.inconclusive()))
    document = report_documents.inconclusive()
    for incident in document["incidents"]:
        incident |= {"text": HOSTILE, "stage": HOSTILE, "coordinate": HOSTILE}
    document["target"] |= {"name": HOSTILE, "text": HOSTILE, "language": HOSTILE}
    text = html(document)
    page = Page(text)
    # Where a name may break depends on the name.
    tags, others = ([t for t, _ in each.elements if t != "wbr"] for each in (page, clean))
    assert tags == others
    assert "<script>alert(1)</script>" in page.text("pre")
    assert "{{ 7*7 }}" in page.text()
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_link_that_is_a_program_is_no_link(report_documents: ModuleType) -> None:
    page = Page(html(report_documents.failing()))
    links = [a["href"] or "" for a in page.tags("a")]
    assert "https://example.org/issues/7" in links
    assert all(link.startswith(("#", "https://")) for link in links)
    assert "javascript:alert(1)" in page.text()


@pytest.mark.parametrize(
    ("rows", "drawn"), [(MAX_ROWS, True), (MAX_ROWS + 1, False), (4095, False)]
)
def test_a_large_tree_is_not_drawn(rows: int, drawn: bool, report_documents: ModuleType) -> None:
    document = report_documents.failing()
    finding = document["findings"][0]
    # A chain of 31 under each of the root's children costs the mask the most.
    paths = [[rank] + [0] * depth for rank in range(rows // 31 + 1) for depth in range(31)]
    finding["coordinate"] |= {"paths": paths[: rows - 1], "topk": 140, "heads": 31}
    finding["coordinate"] |= {"capacity": rows + 64, "rounds": [None]}
    for unused in ("ranking", "posterior", "expected"):
        finding["coordinate"].pop(unused, None)
    finding["coordinate"]["model"] |= {"vocabulary": 4096}
    text = html(document)
    (article,) = re.findall(r'<article class="finding" id="finding-1".*?</article>', text, re.S)
    assert ("<svg" in article) is drawn
    assert ("rows are too many to draw" in article) is not drawn
    assert len(text) < 500_000


def test_a_finding_is_drawn_over_the_tree_that_it_is_of(report_documents: ModuleType) -> None:
    document = report_documents.failing()
    finding = document["findings"][0]
    finding["coordinate"]["earlier"] = {"prefix": [1, 2], "paths": [[0]]}
    # Key 3 of a verification is row 1 behind the two tokens of the earlier generation, and row 0
    # behind the three of this one.
    finding |= {"contract": "verification", "where": {"row": 0, "key": 3}}

    def page(generation: int) -> str:
        finding["generation"] = generation
        return html(document)

    whole = coordinate_from(finding["coordinate"], "finding")
    earlier = whole.before
    assert earlier is not None
    assert svg_of(earlier, Marks(row=0, key=1)) in page(0)
    assert "row 0 and key 1, where the engine differs" in page(0)
    assert svg_of(whole, Marks(row=0, key=0)) in page(1)


def svg_of(coordinate: Coordinate, marks: Marks) -> str:
    svg = picture(derivation_of(coordinate), marks)
    if int(svg.attrib["width"]) <= SHRINKS:
        svg.set("class", "small")
    return ElementTree.tostring(svg, encoding="unicode")


def test_drawings_and_texts_leave_the_page_small(report_documents: ModuleType) -> None:
    document = report_documents.failing()
    finding = document["findings"][0]
    finding |= {"expected": "e" * 10**6, "observed": list(range(10**5)), "message": "m" * 10**6}
    finding["tree"] = "t" * 10**6
    document["findings"] = [finding] * 60
    text = html(document)
    assert "Not drawn: the drawings above" in text
    assert sum(map(len, re.findall(r"<svg xmlns.*?</svg>", text, re.DOTALL))) <= BUDGET
    assert len(text) < 2_000_000
    assert "characters more in report.json" in text


def test_only_what_differs_is_marked() -> None:
    expected, observed = sides([[0, 1], [2, 3]], [[0, 1], [2, 4, 5]])

    def marked(lines: Any) -> list[list[str]]:
        return [[part.text for part in line if part.differs] for line in lines]

    def plain(lines: Any) -> list[str]:
        return ["".join(part.text for part in line) for line in lines]

    assert (marked(expected), marked(observed)) == ([[], ["3"]], [[], ["4", "5"]])
    assert (plain(expected), plain(observed)) == (["[0, 1]", "[2, 3]"], ["[0, 1]", "[2, 4, 5]"])
    ours, theirs = sides(True, None)
    assert (plain(ours), plain(theirs), marked(ours)) == (["true"], ["null"], [[]])
    longest, _ = sides("x" * (TEXT_LIMIT + 3), 0)
    assert plain(longest)[0].endswith(" … and 3 characters more in report.json")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_document(report_documents: ModuleType, data: st.DataObject) -> None:
    document = data.draw(report_documents.documents())
    text = html(document)
    page = Page(text)
    text.encode("utf-8")
    assert len(page.tags("script")) == 1
    assert len(page.tags("article")) == len(document["findings"])
    statuses = Counter(row["status"] for row in document["invariants"])
    shown = Counter(a["data-status"] for a in page.tags("tr") if "data-status" in a)
    assert shown == statuses
