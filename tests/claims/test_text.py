"""The audit of pages: what is found in a sentence, and that no page of this suite has any of it."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import yaml
from rich.console import Console

import medusa_manifests
from medusa_oracles.claims_text import KINDS, WORDS, audit, untyped_numbers
from medusa_spec.documents import schema

ROOT = Path(__file__).parents[2]
FOLDERS = ("spec", "docs", "benchmarks", "conformance", "manifests", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(p for name in FOLDERS for p in (ROOT / name).rglob("*.md"))])
IDS = [page.relative_to(ROOT).as_posix() for page in PAGES]

UNTYPED = [
    ("It is 2.3x faster.", "speedup", "2.3x"),
    ("It is 2.3 × faster.", "speedup", "2.3 ×"),
    ("Medusa is 2.2 times faster than plain decoding.", "speedup", "2.2 times faster"),
    ("It runs three times as fast.", "speedup", "three times as fast"),
    ("Trees make it twice as fast.", "speedup", "twice as fast"),
    ("It is an order of magnitude faster.", "speedup", "order of magnitude faster"),
    ("A speedup of 2.3 is reached.", "speedup", "speedup of 2.3"),
    ("It is 2.3-fold faster.", "speedup", "2.3-fold"),
    ("A twenty-fold gain.", "speedup", "twenty-fold"),
    ("| speedup over plain | 2.3 |", "speedup", "| speedup over plain | 2.3"),
    ("It reaches a 2.3 speedup.", "speedup", "a 2.3 speedup"),
    ("It is faster by a factor of 2.3.", "speedup", "by a factor of 2.3"),
    ("It has 2.3 times the speed of plain decoding.", "speedup", "2.3 times the speed"),
    ("It is ×2.3 faster.", "speedup", "×2.3 faster"),
    ("It is x2.3 as fast.", "speedup", "x2.3 as fast"),
    ("It is **2.3**x faster.", "speedup", "2.3x"),
    ("It is $2.3\\times$ faster.", "speedup", "2.3×"),
    ("A tree doubles throughput.", "speedup", "doubles throughput"),
    ("It more than doubles decoding speed.", "speedup", "doubles decoding speed"),
    ("Speedup up to 2.3.", "speedup", "Speedup up to 2.3"),
    ("Speedups between 2.3 and 3.6 were seen.", "speedup", "Speedups between 2.3"),
    ("The speedup reaches 2.3.", "speedup", "speedup reaches 2.3"),
    ("It decodes 92 tokens every second.", "rate", "92 tokens every second"),
    ("It halved the latency.", "speedup", "halved the latency"),
    ("It takes half the time.", "speedup", "half the time"),
    ("It decodes 92 tokens/sec.", "rate", "92 tokens/sec"),
    ("It takes 12.5 msec.", "time", "12.5 msec"),
    ("It accepts 1.7 edges a round.", "rate", "1.7 edges a round"),
    ("Of the tree, 1.7 expected accepted edges a round.", "rate", None),
    ("2.92 tokens per round are published.", "rate", "2.92 tokens per round"),
    ("It decodes 120 tokens/s.", "rate", "120 tokens/s"),
    ("89% of prompts agree.", "share", "89%"),
    ("89 per cent of prompts agree.", "share", "89 per cent"),
    ("It takes 47 s.", "time", "47 s"),
    ("It takes 1,047.5 ms.", "time", "1,047.5 ms"),
    ("It takes nine minutes.", "time", "nine minutes"),
    ("It ends at 1.6 nats.", "loss", "1.6 nats"),
    ("It is 2.625 MiB.", "size", "2.625 MiB"),
]

IDLE = [
    "Section 0x04E follows 0x02C.",
    "A tree of 10 x 10 rows, and of 21 nodes.",
    "Version 1.2.3 of the release.",
    "A reply has at most 30 seconds, and a line at most 64 MiB.",
    "The time limit is 30 seconds.",
    "A page may not exceed 16 MiB.",
    "A page has no more than 16 MiB.",
    "Everything is faster.",
    "Two layers, three heads, four tokens.",
    "```python\n>>> seconds = '47 s'\n```",
    "[a link](https://example.org/2.3x/47s)",
]


@pytest.mark.parametrize(("text", "kind", "figure"), UNTYPED)
def test_an_untyped_figure_is_found(text: str, kind: str, figure: str | None) -> None:
    (found,) = audit(f"# A page\n\nNothing here.\n\n{text}\n")
    assert (found.line, found.kind) == (5, kind)
    assert figure is None or found.figure == figure
    assert found.lacks == "one of the words derived, synthetic, measured, source-reported"


def test_every_kind_is_shown() -> None:
    assert {kind for _, kind, _ in UNTYPED} == {kind for kind, _ in KINDS}


@pytest.mark.parametrize("text", IDLE)
def test_what_is_no_figure(text: str) -> None:
    assert audit(text) == []


@pytest.mark.parametrize("text", [text for text, _, _ in UNTYPED])
@pytest.mark.parametrize(
    "typed",
    [
        "{} That is derived.",
        "Synthetic. {}",
        "## Derived, as above\n\n{}",
        "# Derived\n\n## More\n\n{}",
        "These are synthetic:\n\n{}",
        "- synthetic: {}",
        "Every figure of this page is derived.\n\n# Elsewhere\n\n{}",
        "{} It was measured on one core, by `bench`, over 100 rounds.",
        "# Measured\n\nOn one card, with `bench`, three runs.\n\n{}",
        "{} That is source-reported, by the Medusa paper.",
        "{} It was not measured but derived.",
        "{} That is not synthetic but measured, by `bench` on one core in three runs.",
        "# Source-reported\n\n[From here](https://example.org). {}",
    ],
)
def test_what_types_a_figure(text: str, typed: str) -> None:
    assert audit(typed.format(text)) == []


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("Measured: 2.3x.", "the machine and the command and the sample of what is measured"),
        ("Measured on one core: 2.3x.", "the command and the sample of what is measured"),
        ("Measured by `bench`: 2.3x.", "the machine and the sample of what is measured"),
        ("Measured by `bench` on one core: 2.3x.", "the sample of what is measured"),
        ("2.3x, in a hundred rounds on one core, measured.", "the command of what is measured"),
        ("Source-reported: 2.2x.", "the source of what is source-reported"),
        ("2.2x, which is not measured.", f"one of the words {', '.join(WORDS)}"),
        ("2.2x, which isn't derived.", f"one of the words {', '.join(WORDS)}"),
        ("2.2x, which wasn’t really measured.", f"one of the words {', '.join(WORDS)}"),
        ("2.2x, which nobody has measured.", f"one of the words {', '.join(WORDS)}"),
        ("An unmeasured 2.2x.", f"one of the words {', '.join(WORDS)}"),
        (
            "# Derived\n\n1.7 tokens a round.\n\n# Else\n\n2.2x",
            f"one of the words {', '.join(WORDS)}",
        ),
        ("Derived.\n\nNext.\n\n2.2x", f"one of the words {', '.join(WORDS)}"),
    ],
)
def test_what_does_not(text: str, lacks: str) -> None:
    (found,) = audit(text)
    assert found.lacks == lacks


def test_what_is_needed_may_stand_in_the_section_and_nowhere_else() -> None:
    section = "# Runs\n\nOn one core, three runs of `bench`.\n\nMeasured: 2.3x.\n"
    assert audit(section) == []
    assert audit(section.replace("Measured", "\n# Results\n\nMeasured")) != []


def test_fenced_blocks_are_typed_by_one_sentence() -> None:
    fence = "```console\n$ bench\n47 s\n```\n"
    said = "Times in quoted outputs were measured once, on one core.\n"
    assert [found.figure for found in audit(fence)] == ["47 s"]
    assert audit(f"{said}\n{fence}") == audit(f"{fence}\n{said}") == []
    # A sentence outside of a fence is no output.
    assert [found.figure for found in audit(f"{said}\n# More\n\nIt takes 47 s.")] == ["47 s"]


def test_a_table_is_typed_by_the_sentence_before_it() -> None:
    table = "| a | 3 ms |\n|---|---|\n| b | 4 ms |\n"
    assert [found.figure for found in audit(table)] == ["3 ms", "4 ms"]
    assert audit(f"Derived from shapes:\n\n{table}") == []
    assert len(audit(f"Derived from shapes:\n\nNext:\n\n{table}")) == 2


def test_a_block_that_never_ends_is_read() -> None:
    assert [found.figure for found in audit("```\n47 s\n")] == ["47 s"]
    assert audit("") == audit("\n\n") == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_figure_of_a_page_is_typed(page: Path) -> None:
    assert audit(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
@pytest.mark.parametrize(
    "planted",
    [
        "Medusa decodes 2.2x faster than plain greedy decoding.",
        "With trees it is 2.3x faster.",
        "Measured: 2.3x.",
        "The paper's 2.2x is ours, too.",
    ],
)
def test_a_planted_figure_is_found(page: Path, planted: str) -> None:
    text = page.read_text("utf-8")
    (found,) = audit(f"{text}\n# A section of its own\n\n{planted}\n")
    assert found.kind == "speedup"
    assert found.line == len(text.splitlines()) + 4


@pytest.mark.parametrize("name", medusa_manifests.names())
def test_every_figure_of_a_manifests_note_is_typed(name: str) -> None:
    document = yaml.safe_load(medusa_manifests.path(name).read_text("utf-8"))
    assert audit(document["note"]) == []


def test_the_tables_of_the_benchmarks_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for name, row in (
        ("tree_build", (63, "peer", 3, 2, 1.5, 3.0, 2.0, 1, True)),
        ("tree_search", (63, "a heap", 3, 1.5, 2.0)),
    ):
        bench = run_path(str(ROOT / "benchmarks" / f"{name}.py"))
        Console(width=160).print(bench["table"]([bench["Result"](*row)]))
        told = capsys.readouterr().out
        assert "2.0×" in told
        assert audit(told) == []
        assert [found.figure for found in audit(told.replace("measured", "taken"))] == [
            *("2.0×",),
            *(["1×"] if name == "tree_build" else []),
        ]


def test_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "spec/claims.md"} <= {*IDS}
    assert any(name.startswith("conformance/third_party/") for name in IDS)


@pytest.mark.parametrize("name", ["train", "check", "verify", "search"])
def test_every_number_of_a_report_is_typed(name: str) -> None:
    assert untyped_numbers(schema(name)) == []


def test_a_number_that_is_not_typed_is_found() -> None:
    loss: dict[str, Any] = {"type": "number"}
    report = {"properties": {"losses": {"type": "array", "items": loss}, "heads": "integer"}}
    assert untyped_numbers(report) == ["properties.losses.items"]
    for description in ("Measured.", "Given: a rate.", "Derived of the others."):
        loss["description"] = description
        assert untyped_numbers(report) == []
    for description in ("Not measured.", "A loss."):
        loss["description"] = description
        assert untyped_numbers(report) == ["properties.losses.items"]
    assert untyped_numbers({"anyOf": [{"type": "null"}, {"type": ["number", "null"]}]}) == [
        "anyOf[1]"
    ]
