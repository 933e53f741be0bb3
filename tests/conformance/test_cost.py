"""`cost`: exact figures, their units and formulas, exact errors, and no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import medusa_manifests
from medusa_conformance import render_cost
from medusa_conformance.ledger import LINES, ledger_document
from medusa_conformance.render_cost import BINARY, DECIMAL, many, scaled
from medusa_oracles.claims_text import audit
from medusa_spec.cost import COUNTS
from medusa_spec.documents import schema_errors
from medusa_spec.registry import invariants

Call = Callable[..., Any]
Refuse = Callable[..., str]

FROZEN = [name for name in medusa_manifests.names() if medusa_manifests.load(name).cost]


def ledger(call: Call, manifest: str | Path) -> Any:
    answer = call("cost", "--json", manifest)
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert schema_errors(document, "cost") == []
    return document


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A manifest of nine rows in a file, with some fields of its workload changed."""

    def write(**changes: Any) -> Path:
        document = medusa_manifests.load("cost-nine-row").document()
        document["cost"] |= changes
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(document | {"name": "mine"}), "utf-8")
        return file

    return write


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_workload_is_told_by_its_name_and_by_its_file(call: Call, name: str) -> None:
    document = ledger(call, name)
    assert ledger(call, medusa_manifests.path(name)) == document
    frozen = medusa_manifests.load(name).expected["ledger"]
    assert {entry["name"]: entry["value"] for entry in document["entries"]} == {
        count: frozen[count] for count in COUNTS
    }
    assert document["name"] == name
    rates = document["rates"]
    assert (rates is None) == ("speedup" not in frozen)
    if rates is not None:
        assert rates.pop("expected_published") == rates["speedup"] * rates["overhead"]
        assert rates == {name: frozen[name] for name in ("overhead", "speedup", "breaks_even")}


@pytest.mark.parametrize("name", FROZEN)
def test_each_formula_gives_its_figure(call: Call, name: str) -> None:
    """They are read as they are printed, with the sizes that are printed beside them."""
    document = ledger(call, name)
    workload, sizes = document["workload"], document["sizes"]
    values = {entry["name"]: entry["value"] for entry in document["entries"]}
    symbols = {
        "P": workload["prefix"],
        "K": workload["heads"],
        "d": workload["hidden"],
        "V": workload["vocabulary"],
        "R_h": workload["head_blocks"],
        "b": workload["scalar_bytes"],
        "G": workload["published"],
        "N": sizes["rows"],
        "M": sizes["visible"],
        "R": sizes["paths"],
        "D": sizes["width"],
        "T_h": sizes["head_rows"],
        "B": sizes["node_bytes"],
        "head_parameters": values["head_parameters"],
    }
    for entry in document["entries"]:
        assert re.fullmatch(r"[A-Za-z_0-9*+() ]+", entry["formula"])
        value = eval(entry["formula"], {"__builtins__": {}}, symbols)
        assert value == entry["value"], entry["name"]


def test_every_count_has_a_line_of_its_own_rule() -> None:
    assert tuple(LINES) == COUNTS
    counted = {line.code for line in LINES.values()}
    of_rates = {"SPEEDUP", "BREAK_EVEN", "PROFILE_EVIDENCE", "BATCH_ONE"}
    own = {code for code, rule in invariants().items() if rule.contract == "cost"}
    assert own - counted == {f"COST.{name}" for name in of_rates}


def test_a_person_reads_units_formulas_and_what_is_left_out(call: Call) -> None:
    answer = call("cost", "cost-nine-row")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "cost-nine-row  one round, heads on every packed row"
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    for row in (
        ["prefix", "P 2,048"],
        ["tree", "N 9 rows, M 23 pairs of them; R 6 paths of D 3 entries"],
        ["B 131,072 bytes a row, 128 KiB; 1 MiB without the root"],
        *(["quantity", "formula", "count", "unit", "clause"],),
        ["head projections", "2*K*T_h*d*V", "9,437,184,000", "9.437 billion", "FLOPs", "F3"],
        ["pairs that the mask leaves", "N*P + M", "18,455", "pairs", "F6"],
        ["bytes of heads", "b * head_parameters", "1,182,826,496", "1.102 GiB", "bytes", "F1"],
        ["E[G]", "10 tokens / 4 rounds = 2.5"],
        ["overhead", "2 / 1 = 2 baseline steps a round (baseline steps, made up)"],
        ["break-even", "E[G] > overhead: the round pays"],
        ["1.25 speedup, E[G] / overhead, of a profile that is synthetic"],
        ["One multiply-add is two FLOPs."],
    ):
        assert row in rows


def test_the_payload_of_21_nodes_and_of_their_root(call: Call) -> None:
    answer = call("cost", "cost-regular-3-2-2")
    assert "B 131,072 bytes a row, 128 KiB; 2.625 MiB without the root" in answer.out
    assert re.search(r"staged keys and values +N\*B +2,883,584 +2\.75 MiB", answer.out)
    assert "No profile: what a round pays is not told." in answer.out
    assert "speedup" not in answer.out


def test_a_shared_projection_is_no_parameter_and_the_same_arithmetic(call: Call) -> None:
    out = call("cost", "cost-shared-heads").out
    assert re.search(r"K\*R_h\*\(d\*d \+ d\) +67,125,248 ", out)
    assert re.search(r"b \* head_parameters +134,250,496 +128\.031 MiB", out)
    assert re.search(r"2\*K\*T_h\*d\*V +5,242,880,000 ", out)
    assert "E[G] = overhead: the round does not pay" in out


def test_heads_on_the_terminal_row_are_said_to_be(call: Call) -> None:
    out = call("cost", "cost-nine-row-terminal").out
    assert out.startswith("cost-nine-row-terminal  one round, heads on the terminal row\n")
    assert re.search(r"rows of heads, T_h +1 +1 +rows", out)
    assert "independent projections; T_h 1 row\n" in out


@pytest.mark.parametrize("width", [30, 50, 80, 120])
@pytest.mark.parametrize("name", FROZEN)
def test_no_digit_is_left_out_where_there_is_little_room(name: str, width: int) -> None:
    coordinate = medusa_manifests.load(name)
    assert coordinate.cost is not None
    document = ledger_document(coordinate, coordinate.cost)
    console = Console(width=width, record=True, file=StringIO())
    console.print(render_cost.cost(document))
    told = console.export_text()
    assert max(map(len, told.splitlines())) <= width
    # Formulas are folded, and numbers are not.
    words = told.split()
    assert "…" not in told
    for entry in document["entries"]:
        assert f"{entry['value']:,}" in words


@pytest.mark.parametrize("name", FROZEN)
def test_every_figure_is_said_to_be_derived(call: Call, name: str) -> None:
    assert audit(call("cost", name).out) == []


@pytest.mark.parametrize(
    ("number", "word", "told"),
    [
        (1, "row", "1 row"),
        (0, "path", "0 paths"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
    ],
)
def test_one_is_singular(number: int, word: str, told: str) -> None:
    assert many(number, word) == told


def test_a_round_that_loses_is_said_to(call: Call, written: Callable[..., Path]) -> None:
    profile = {
        **medusa_manifests.load("cost-nine-row").document()["cost"]["profile"],
        "round": 4.0,
        "unit": "ms\u001b[31m",
        "evidence": "measured",
    }
    answer = call("cost", written(profile=profile))
    assert "E[G] < overhead: the round does not pay" in answer.out
    assert "0.625 speedup, E[G] / overhead, of a profile that is measured" in answer.out
    assert "\u001b" not in answer.out


def test_a_manifest_without_a_workload_is_told_what_is_missing(refuse: Refuse) -> None:
    rule = "is not there; a ledger is of the sizes that it declares"
    assert refuse("cost", "six-node") == f"six-node: cost: {rule}"
    path = medusa_manifests.path("six-node")
    assert refuse("cost", path) == f"{path}: cost: {rule}"


def test_what_is_neither_a_file_nor_a_manifest_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    assert refuse("cost", "nine").startswith("nine: no such manifest; there are a31-nine-")
    absent = tmp_path / "nine.yaml"
    assert refuse("cost", absent) == f"{absent}: no such file"


def test_an_unlawful_workload_is_one_line(refuse: Refuse, written: Callable[..., Path]) -> None:
    file = written(kv_heads=5)
    rule = "is 5, which does not divide the 32 attention heads"
    assert refuse("cost", file) == f"{file}: cost.kv_heads: {rule}"
    assert "cost.batch: 1 was expected" in refuse("cost", written(batch=8))


def test_a_file_goes_before_a_frozen_manifest_of_its_name(
    call: Call, written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written()
    file.rename(file.with_name("cost-nine-row"))
    monkeypatch.chdir(file.parent)
    assert ledger(call, "cost-nine-row")["name"] == "mine"


@pytest.mark.parametrize(
    ("value", "names", "short"),
    [
        (0, BINARY, "0 bytes"),
        (1023, BINARY, "1,023 bytes"),
        (1024, BINARY, "1 KiB"),
        (1536, BINARY, "1.5 KiB"),
        (21 * 131_072, BINARY, "2.625 MiB"),
        (1_500_000, DECIMAL, "1.5 million"),
        (5 * 10**24, DECIMAL, "5,000,000 quintillion"),
    ],
)
def test_a_figure_in_short(value: int, names: tuple[str, ...], short: str) -> None:
    assert scaled(value, names) == short


def test_nothing_of_torch_is_loaded(python: Call) -> None:
    program = (
        "import sys; from medusa_conformance import cli; sys.argv[1:] = ['cost', 'cost-nine-row']\n"
        "try:\n    cli.main()\nfinally:\n    assert 'torch' not in sys.modules\n"
    )
    found = python("-c", program)
    assert (found.returncode, found.stderr) == (0, "")
