"""`spec/traces.md`: its examples run, and its tables are those of the oracles and of the reader."""

from __future__ import annotations

import json
import re
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge, oracles
from medusa_spec import Tolerance, Trace, invariants
from medusa_spec.documents import schema
from medusa_spec.stages import STAGES, arrays_of
from medusa_spec.trace_names import ARRAYS, documents
from medusa_spec.tracefile import read_trace, trace_files

SPEC = Path(__file__).parents[2] / "spec"
TEXT = (SPEC / "traces.md").read_text("utf-8")
README = (SPEC / "README.md").read_text("utf-8")
EXACT = Tolerance(1e-9, 1e-9, "one dtype, one order of summation")

SIZES = {
    **{"N": 64, "K": 4, "TOPK": 10, "R": 42, "W": 5, "G": 3, "P": 1000, "C": 1064},
    **{"V": 32000, "L": 32, "H_kv": 32, "d_h": 128},
}
"""The example of the table of sizes; floats take 2 bytes, booleans 1, and other numbers 4."""

FLOATS = re.compile(r"logits|frontier|kv|plain|cache\.(before|after)|probability|entropy|threshold")
BOOLEANS = re.compile(r"mask|passes")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def table(heading: str, text: str = TEXT) -> list[list[str]]:
    """The cells of the first table under a heading, without its two head lines."""
    section = re.split(rf"^#+ {heading}$", text, flags=re.MULTILINE)[1]
    lines = re.search(r"^\|.*(?:\n\|.*)*", section, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].split("\n")][
        2:
    ]


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_.]+)`", cell)


def clauses(cell: str) -> list[str]:
    """The clauses of a cell such as `T1-T3, M2`."""
    found = []
    for span in filter(None, cell.split(", ")):
        first, _, last = span.partition("-")
        letter, begin = first[0], int(first[1:])
        end = int(last.removeprefix(letter)) if last else begin
        found += [f"{letter}{number}" for number in range(begin, end + 1)]
    return found


def judgeable(seen: set[str]) -> set[str]:
    """The clauses whose oracles run on a trace that holds no more than these names."""
    names = frozenset(seen)
    return {invariants()[code].clause for code, entry in oracles().items() if entry.reads(names)}


def size(name: str) -> int:
    """Bytes of an array in the example, of a document's numbers as JSON text would have them."""
    if name not in ARRAYS:
        # A token and a path of the tree take about six characters and a comma.
        return {"round.tokens": 7 * SIZES["P"], "tree.paths": 14 * SIZES["N"]}.get(name, 0)
    axes = re.sub(r"[A-Za-z_]+", lambda symbol: str(SIZES[symbol[0]]), ARRAYS[name])
    numbers = prod(_sum(axis) for axis in axes.split(", ")) if axes else 1
    return numbers * (1 if BOOLEANS.search(name) else 2 if FLOATS.search(name) else 4)


def _sum(text: str) -> int:
    """The value of an axis such as `1 + 4*10` or `5 - 1`."""
    first, *rest = text.split()
    total = prod(map(int, first.split("*")))
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        total += int(f"{sign}1") * prod(map(int, term.split("*")))
    return total


def written_size(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def test_the_names_and_axes_are_those_of_the_table() -> None:
    listed: dict[str, str | None] = {}
    for prefix, handed, observed in table("The arrays of a trace", README):
        for field, shape in re.findall(r"`([a-z_.]+)(?: \[([^\]]*)\])?`", handed + observed):
            bracketed = f"`{field} [" in handed + observed
            listed[f"{prefix.strip('`')}.{field}"] = shape if bracketed else None
    unread = ARRAYS.keys() - listed.keys()
    assert {name: ARRAYS.get(name) for name in listed} == listed
    assert {name for name, shape in listed.items() if shape is None} == documents()
    # What no oracle reads is in an answer all the same.
    fields = {field for stage in STAGES.values() for field in _fields(stage.answer)}
    # Given heads have a field for the base model's own, which nobody saves.
    assert unread - fields_of(unread, fields) == {"checkpoint.held.lm_head"}


def fields_of(names: set[str], fields: set[str]) -> set[str]:
    """Those of the names that a field of an answer has, behind what its trace begins with."""
    return {n for n in names if re.sub(r"^(heads|chain|fresh|training)\.", "", n) in fields}


def _fields(kind: type) -> set[str]:
    own = set(getattr(kind, "__slots__", ()))
    held = ("weight", "bias", "lm_head", "projection")
    return own | {f"{of}.{name}" for of in ("state", "gradient") for name in held}


def test_the_header_fields_are_those_of_the_schema() -> None:
    known = schema("trace_header")
    rows = table("The header")
    assert [row[0].strip("`") for row in rows] == list(known["properties"])
    required = {row[0].strip("`") for row in rows if row[1] == "required"}
    assert required == set(known["required"])
    described = re.split(r"^\| document ", TEXT, flags=re.MULTILINE)[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in described.split("\n")[2:]]
    assert {name for cell in first for name in names(cell)} == documents()


def test_the_table_says_what_makes_which_rules_judgeable() -> None:
    seen: set[str] = set()
    known: set[str] = set()
    rows = table("What makes which rules judgeable")
    for cell, rules, price in rows:
        added = names(cell)
        assert not seen & set(added)
        seen |= set(added)
        assert judgeable(seen) - known == set(clauses(rules)), cell
        known |= set(clauses(rules))
        if price:
            assert sum(map(size, added)) == pytest.approx(written_size(price), rel=0.1), cell
    of_a_bench = {
        entry.clause
        for entry in invariants().values()
        if entry.contract in ("coordinate", "heads") or entry.clause == "T10"
    }
    assert {entry.clause for entry in invariants().values()} - known == of_a_bench
    assert sum(size(name) for cell, _, _ in rows[:3] for name in names(cell)) < 100e3
    cheap = [clauses(rules) for _, rules, _ in rows[:3]]
    assert sum(map(len, cheap)) > sum(len(clauses(rules)) for _, rules, _ in rows[:8]) / 2


def test_a_cut_of_the_caches_has_the_size_that_is_named() -> None:
    written = re.search(r"with two layers and one head take\s+([0-9.]+ .B)", TEXT)
    assert written is not None
    part = 2 * size("cache.before") * 2 / SIZES["L"] / SIZES["H_kv"]
    assert part == pytest.approx(written_size(written[1]), rel=0.1)


@pytest.fixture
def lawful(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    trace: Trace = lawful_trace(coordinate(), literal, ((0, 2), (2, 6)))
    return trace


def test_a_round_is_dumped_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lawful: Trace
) -> None:
    monkeypatch.chdir(tmp_path)
    shown: dict[str, Any] = {}
    exec(blocks("python")[0], shown)
    state = SimpleNamespace(
        root_logits=lawful["frontier.target"],
        head_logits=lawful["frontier.heads"],
        tree_tokens=lawful["proposal.packed"],
        candidates=lawful["proposal.candidates"],
        mask=lawful["verification.mask"],
        positions=lawful["verification.positions"],
        best=lawful["selection.path"],
        accepted=lawful["selection.accepted"],
        path_logits=lawful["selection.path_logits"],
        new_tokens=lawful["commit.tokens"],
        kept_rows=lawful["commit.source"],
        length=lawful["commit.length"],
    )
    shown["dump"](7, lawful.coordinate.prefix, state)
    (file,) = trace_files("traces")
    assert file == Path("traces/000007.safetensors")
    found = read_trace(file)
    judgement = judge(found.trace(EXACT, EXACT))
    assert judgement.findings == ()
    executed = {invariants()[code].clause for code in judgement.executed}
    assert executed >= {"Q1", "Q2", "Q3", "V1", "V2", "P1", "P2", "M1", "M2", "M8"}
    # A server with another winner is found out.
    state.best = (state.best + 1) % len(lawful["proposal.candidates"])
    shown["dump"](8, lawful.coordinate.prefix, state)
    assert judge(read_trace("traces/000008.safetensors").trace(EXACT, EXACT)).findings


def test_a_file_is_written_without_this_library_as_shown(tmp_path: Path, lawful: Trace) -> None:
    shown: dict[str, Any] = {}
    exec(blocks("python")[1], shown)
    header = json.loads(blocks("json")[0])
    slots = np.array([0, 1, 2, 3], "<i4")
    arrays = {"tree.slots": ("I32", slots.shape, slots.tobytes())}
    file = tmp_path / "1.safetensors"
    shown["dump_bare"](file, header, arrays)
    found = read_trace(file)
    assert found.coordinate.document() == header["coordinate"]
    assert (found.generation, found.round, found.engine) == (12, 3, header["engine"])
    assert found.documents == {"round.tokens": list(found.coordinate.prefix)}
    # Two ranks a head: slots 1 and 2 are the first head's, slot 3 the second's best.
    assert judge(found.trace(EXACT, EXACT)).findings == ()
    assert judge(found.trace(EXACT, EXACT)).executed == ("TREE.SLOT",)


def test_an_npz_of_numpy_is_read_as_shown(tmp_path: Path) -> None:
    (call,) = re.findall(r"`(np\.savez\([^`]*\))`", TEXT)
    path, text = tmp_path / "1.npz", blocks("json")[0].encode()
    exec(call, {"np": np, "path": path, "text": text, "arrays": {"commit.length": 7}})
    assert read_trace(path).arrays["commit.length"] == 7


def test_a_whole_answer_has_the_names_of_a_trace(lawful: Trace) -> None:
    kinds = {"tree": "compile_tree", "frontier": "prefill", "proposal": "propose"}
    kinds |= {"verification": "verify", "selection": "select", "commit": "commit"}
    for prefix, stage in kinds.items():
        given = STAGES[stage].answer
        assert {f"{prefix}.{name}" for name in given.__slots__ if name != "frontier"} <= (
            ARRAYS.keys() | documents()
        )
    assert arrays_of("frontier", STAGES["prefill"].answer(1.0, 2.0)).keys() <= ARRAYS.keys()
