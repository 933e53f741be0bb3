"""`verify`: one document, its schema, its exit code, and the report that it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from medusa_conformance import runner
from medusa_mutations import mutations
from medusa_spec import source_pin
from medusa_spec.documents import schema_errors
from medusa_spec.registry import of_contract

Call = Callable[..., Any]
Refuse = Callable[..., str]

TREE = ("verify", "--json", "--contract", "tree", "--max-examples", "3")
PROPOSAL = ("verify", "--json", "--contract", "proposal", "--max-examples", "3")


def document_of(answer: Any) -> Any:
    document = json.loads(answer.out)
    assert answer.err == ""
    assert schema_errors(document, "verify") == []
    return document


def irregular_seed() -> int:
    """A seed of which three drawn trees are not regular; only of regular ones are nodes counted."""
    return next(
        seed
        for seed in range(9)
        if all(drawn.branching is None for drawn in runner.random_coordinates(3, seed))
    )


def test_a_run_over_one_contract(call: Call, shown: Call) -> None:
    shown("threshold-tie", "own-acceptance")
    answer = call(*PROPOSAL, "--seed", "7")
    document = document_of(answer)
    assert answer.code == 0
    assert document["verdict"] == "pass"
    assert document["engine"] == "reference"
    assert (document["device"], document["dtype"]) == ("cpu", "float64")
    assert (document["seed"], document["max_examples"]) == (7, 3)
    assert (document["contracts"], document["coordinates"]) == (["proposal"], 5)
    assert document["seconds"] > 0
    assert (document["findings"], document["crashes"], document["checkout"]) == ([], [], None)
    assert {"python", "numpy", "torch", "hypothesis"} <= document["versions"].keys()

    codes = [invariant.code for invariant in of_contract("proposal")]
    assert [entry["code"] for entry in document["invariants"]] == codes
    for entry in document["invariants"]:
        assert (entry["planned"], entry["failed"]) == (5, 0)
        assert 1 <= entry["executed"] <= 5
    # Every round has a root, and few trees have paths of unequal length.
    executed = {entry["code"]: entry["executed"] for entry in document["invariants"]}
    assert executed["PROPOSAL.ROOT_FROM_TARGET"] == 5

    listed = [(m.id, m.killer) for m in mutations().values() if m.contract == "proposal"]
    assert [(m["id"], m["killer"]) for m in document["mutants"]] == listed
    for mutant in document["mutants"]:
        assert (mutant["contract"], mutant["status"]) == ("proposal", "killed")
        assert mutant["killed"] is True
        assert mutant["killer"] in mutant["fired"]
        assert mutant["depth"] in ("black-box", "differential", "white-box")
        assert mutant["examples"] >= 1
        assert mutant["crash"] is None


def test_a_report_of_a_passing_run(call: Call, shown: Call, tmp_path: Path) -> None:
    shown("threshold-tie", "own-acceptance")
    document = document_of(call(*PROPOSAL, "--report", "report"))
    suites = ElementTree.parse(tmp_path / "report" / "junit.xml").getroot()
    assert [(suite.get("name"), suite.get("tests")) for suite in suites] == [
        ("proposal", str(len(document["invariants"]))),
        ("mutants", str(len(document["mutants"]))),
        ("verdict", "1"),
    ]
    assert (suites.get("failures"), suites.get("errors")) == ("0", "0")
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    killed = len(document["mutants"])
    words = f"{killed} of {killed} mutants killed by the rule that they break."
    assert f"{len(document['invariants'])} of {len(document['invariants'])} invariants" in page
    assert words in page


def test_the_same_seed_gives_the_same_document(call: Call, shown: Call) -> None:
    shown("six-node", "own-acceptance")
    one, two = (document_of(call(*PROPOSAL)) for _ in range(2))
    assert one | {"seconds": 0} == two | {"seconds": 0}


def test_contracts_come_in_their_order_and_once(
    call: Call, shown: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown("root-only")
    monkeypatch.setattr(runner, "mutations", dict)
    chosen = ("--contract", "proposal", "--contract", "coordinate", "--contract", "proposal")
    document = document_of(call("verify", "--json", *chosen, "--max-examples", "1"))
    assert document["contracts"] == ["coordinate", "proposal"]


def test_a_mutant_at_large_fails(call: Call, shown: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    shown("six-node")
    two = {name: mutations()[name] for name in ("slot-is-row", "cumulative-node-count")}
    monkeypatch.setattr(runner, "mutations", lambda: two)
    answer = call(*TREE, "--seed", irregular_seed())
    document = document_of(answer)
    assert (answer.code, document["verdict"]) == (1, "fail")
    at_large = [mutant for mutant in document["mutants"] if not mutant["killed"]]
    assert [(m["id"], m["status"], m["fired"]) for m in at_large] == [
        ("cumulative-node-count", "survived", [])
    ]


def test_an_idle_invariant_is_inconclusive(
    call: Call, shown: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown("six-node")
    monkeypatch.setattr(runner, "mutations", dict)
    answer = call(*TREE, "--seed", irregular_seed())
    document = document_of(answer)
    assert (answer.code, document["verdict"], document["mutants"]) == (2, "inconclusive", [])
    executed = {entry["code"]: entry["executed"] for entry in document["invariants"]}
    assert [code for code, count in executed.items() if not count] == ["TREE.NODE_COUNT"]


@pytest.fixture
def broken_engine(monkeypatch: pytest.MonkeyPatch, shown: Call) -> None:
    """A reference engine that is a mutant."""
    shown("six-node")
    original = runner.reference_factory
    monkeypatch.setattr(runner, "mutations", dict)
    broken = mutations()["slot-is-row"]
    monkeypatch.setattr(runner, "reference_factory", lambda setting: original(setting, broken))


@pytest.mark.usefixtures("broken_engine")
def test_a_report_holds_the_document_and_each_finding(call: Call, tmp_path: Path) -> None:
    answer = call(*TREE, "--report", "deep/report")
    document = document_of(answer)
    assert (answer.code, document["verdict"]) == (1, "fail")
    assert document["findings"]
    folder = tmp_path / "deep" / "report"
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    names = [f"findings/{n:02}-{f['code']}.json" for n, f in enumerate(document["findings"], 1)]
    assert files == {"report.json", "junit.xml", "report.html", *names}
    assert json.loads((folder / "report.json").read_text("utf-8")) == document
    for name, finding in zip(names, document["findings"], strict=True):
        assert json.loads((folder / name).read_text("utf-8")) == finding
    found = next(f for f in document["findings"] if f["code"] == "TREE.SLOT")
    # The least of the coordinates on which a row's number is not its slot.
    assert found["found_on"] >= 2
    assert len(found["coordinate"]["paths"]) <= 5
    row = found["where"]["row"]
    path = sorted(found["coordinate"]["paths"], key=lambda p: (len(p), p))[row - 1]
    slot = 1 + (len(path) - 1) * found["coordinate"]["topk"] + path[-1]
    assert (found["clause"], found["expected"]) == ("T2", slot)
    assert found["observed"] != slot
    assert f"> {row:>3}  " in found["tree"]
    assert {entry["code"] for entry in found["follows"]} == {"TREE.INVERSE"}


@pytest.mark.usefixtures("broken_engine")
def test_a_person_reads_what_is_broken(call: Call) -> None:
    answer = call("verify", "--contract", "tree", "--max-examples", "1")
    assert (answer.code, answer.err) == (1, "")
    assert "TREE.SLOT" in answer.out
    assert "fail" in answer.out.lower()


def test_a_checkout_that_is_not_the_pin_fails(call: Call, shown: Call, tmp_path: Path) -> None:
    shown("six-node", "own-acceptance")
    first, *others = source_pin()["files"]
    (tmp_path / first).parent.mkdir(parents=True)
    (tmp_path / first).write_text("another release\n", "utf-8")
    answer = call(*PROPOSAL, "--checkout", tmp_path, "--report", "report")
    # Said before the run, which takes its time.
    assert answer.err == "the checkout is not the pinned release; this run will fail\n"
    document = document_of(answer._replace(err=""))
    assert (answer.code, document["verdict"]) == (1, "fail")
    assert document["checkout"] == {first: "differs"} | dict.fromkeys(others, "missing")
    assert all(mutant["killed"] for mutant in document["mutants"])
    assert json.loads((tmp_path / "report" / "report.json").read_text("utf-8")) == document


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_no_cuda_device(refuse: Refuse) -> None:
    line = refuse("verify", "--device", "cuda", "--report", "report")
    assert line == "--device: cuda: no CUDA device"


def test_a_checkout_that_is_no_directory(refuse: Refuse) -> None:
    assert "is not a directory" in refuse("verify", "--checkout", "none", "--report", "report")
    assert "none of the pinned files" in refuse("verify", "--checkout", ".", "--report", "report")


def test_a_report_that_is_a_file(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine", "utf-8")
    assert "'report' is a file" in refuse("verify", "--report", "report")
    assert (tmp_path / "report").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--contract", "heights"), "'heights' is not one of 'coordinate'"),
        (("--dtype", "float16"), "'float16' is not one of 'float64'"),
        (("--device", "tpu"), "'tpu' is not one of 'cpu'"),
        (("--max-examples", "0"), "0 is not in the range"),
        (("--max-examples", "many"), "'many' is not a valid integer"),
        (("--seed", "-1"), "-1 is not in the range"),
        (("--speed", "1"), "No such option"),
        (("--speed",), "See medusa-oracles verify --help."),
        (("now",), "unexpected extra argument"),
    ],
)
def test_options_that_are_none(refuse: Refuse, arguments: tuple[str, ...], text: str) -> None:
    assert text in refuse("verify", *arguments)
