"""`search`: exact decisions, exact errors, output that other commands read, and no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import medusa_manifests
from medusa_conformance.cli_search import MOST_NODES
from medusa_oracles.claims_text import audit
from medusa_spec.documents import schema, schema_errors

Call = Callable[..., Any]
Refuse = Callable[..., str]

SAID = ("model", "data_set", "prompts", "policy", "evidence")

# Synthetic: two heads of two ranks. Paths by weight: 0 is .5, 1 is .3, and 0 0 is .5 * .6.
CUMULATIVE = "head,top1,top2\n0,0.5,0.8\n1,0.6,0.7\n"
INCREMENTAL = "head,rank0,rank1\n0,0.5,0.3\n1,0.6,0.1\n"
# Synthetic: two runs, a column that has nothing to do with it, and the columns in no order.
# As a training run writes it.
COUNTED = "head,top1,top2,rows\nordinary,0.9,0.95,70\n0,0.5,0.8,60\n1,0.6,0.7,50\n"
LOG = (
    '"Name","train/medusa1_top1","train/loss","train/medusa0_top2","train/medusa0_top1",'
    '"train/medusa1_top2","output_dir"\n'
    '"small","0.6","7.5","0.8","0.5","0.7","runs/made-up"\n'
    '"large","0.2","7.5","0.9","0.9","0.3",""\n'
)


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "table.csv") -> Path:
        file = tmp_path / name
        file.write_text(text, "utf-8")
        return file

    return write


def in_yaml(name: str) -> str:
    """The table of a manifest's calibration."""
    search = medusa_manifests.load(name).document()["search"]
    own = {key: value for key, value in search.items() if key not in ("nodes", "max_rank")}
    return yaml.safe_dump(own)


def searched(call: Call, *arguments: str | Path) -> Any:
    answer = call("search", "--json", *arguments)
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert schema_errors(document, "search") == []
    return document


def test_the_toy_of_the_chapter(call: Call, table: Call) -> None:
    file = table(in_yaml("ten-paths"), "toy.yaml")
    document = searched(call, file, "--nodes", "10")
    coordinate = medusa_manifests.load("ten-paths")
    assert document["paths"] == coordinate.expected["admitted"]
    assert document["objective"] == pytest.approx(1.7)
    calibration = coordinate.search
    assert calibration is not None
    said = {word: getattr(calibration, word) for word in SAID}
    assert document["claim"]["evidence"] == said.pop("evidence") == "synthetic"
    assert document["identity"] == said | {"nodes": 10}
    assert document["claim"]["quantity"] == "accepted-edges-per-round"
    fifth = document["decisions"][4]
    assert fifth.pop("weight") == pytest.approx(0.12375)
    assert fifth.pop("runner_up_weight") == pytest.approx(0.11)
    assert fifth == {"path": [0, 0, 0], "frontier": 16, "runner_up": [0, 1]}


@pytest.mark.parametrize("text", [CUMULATIVE, INCREMENTAL, "\ufeff" + CUMULATIVE, COUNTED, LOG])
def test_the_same_table_in_any_form_is_the_same_tree(call: Call, table: Call, text: str) -> None:
    run = ("--run", "small") if "Name" in text else ()
    document = searched(call, table(text), "--nodes", "3", *run)
    assert document["paths"] == [[0], [1], [0, 0]]
    assert document["objective"] == pytest.approx(1.1)
    assert [[round(m, 12) for m in row] for row in document["increments"]] == [
        [0.5, 0.3],
        [0.6, 0.1],
    ]
    assert (document["heads"], document["ranks"], document["max_rank"]) == (2, 2, 2)
    assert document["claim"]["evidence"] == "source-reported"
    model = document["identity"]["model"]
    assert model == ("run small, runs/made-up" if run else "not declared")


def test_json_is_a_table_too(call: Call, table: Call) -> None:
    document = searched(
        call, table(json.dumps(yaml.safe_load(in_yaml("two-heads"))), "t.json"), *THREE
    )
    assert document["paths"] == [[0], [0, 0], [1]] or document["paths"] == [[0], [1], [0, 0]]
    assert (document["ranks"], document["max_rank"]) == (3, 3)


THREE = ("--nodes", "3")


def test_fewer_ranks_are_searched_where_so_many_are_asked_for(call: Call, table: Call) -> None:
    document = searched(call, table(CUMULATIVE), "--nodes", "9", "--max-rank", "1")
    assert document["paths"] == [[0], [0, 0]]
    assert (document["max_rank"], document["increments"]) == (1, [[0.5], [0.6]])


def test_a_person_reads_every_decision_and_what_the_number_is(call: Call, table: Call) -> None:
    answer = call("search", table(CUMULATIVE), *THREE)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "table  2 heads, 2 of 2 ranks, cumulative"
    rows = [re.split(r" {2,}", line.strip()) for line in lines if re.match(r" +\d+  \d", line)]
    assert rows == [
        ["1", "0", "0.500000", "0.500000", "2", "1", "0.300000"],
        ["2", "1", "0.300000", "0.800000", "3", "0 0", "0.300000"],
        ["3", "0 0", "0.300000", "1.100000", "4", "1 0", "0.180000"],
    ]
    assert "[[0], [1], [0, 0]]" in lines
    assert (
        "1.1 expected accepted edges a round, derived from source-reported accuracies" in answer.out
    )
    assert "accepted edges are not tokens per second" in answer.out
    assert audit(answer.out) == []
    assert audit(answer.out.replace("derived from source-reported", "for")) != []


def test_a_budget_that_is_too_great_ends_the_tree_and_is_said(call: Call, table: Call) -> None:
    answer = call("search", table(CUMULATIVE), "--nodes", "20")
    assert "The frontier is empty: of 20 paths asked for there are 6." in answer.out
    nothing = searched(call, table(CUMULATIVE), "--nodes", "0")
    assert (nothing["paths"], nothing["decisions"], nothing["objective"]) == ([], [], 0)


def test_the_choices_are_what_derive_and_a_manifest_read(
    call: Call, table: Call, tmp_path: Path
) -> None:
    choices, picture = tmp_path / "choices.json", tmp_path / "tree.svg"
    file = table(in_yaml("ten-paths"), "toy.yaml")
    options = ("--choices", choices, "--picture", picture)
    document = searched(call, file, "--nodes", "10", *options)
    assert json.loads(choices.read_text("utf-8")) == document["paths"]
    derived = json.loads(call("derive", "--json", choices, "--topk", "4").out)
    assert derived["nodes"] == 11
    assert sorted(derived["paths"]) == sorted(document["paths"])
    titles = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("title")]
    assert "toy: the tree, its attention mask and its retrieval rows" in titles
    manifest = yaml.safe_load(medusa_manifests.path("ten-paths").read_text("utf-8"))
    manifest |= {"paths": document["paths"]}
    del manifest["expected"]
    written = table(yaml.safe_dump(manifest), "found.yaml")
    assert (
        json.loads(call("derive", "--json", written).out)["retrieve_indices"]
        == (derived["retrieve_indices"])
    )


def test_a_list_that_goes_through_a_pipe_is_derived(python: Call, table: Call) -> None:
    file = table(CUMULATIVE)
    program = "-m", "medusa_conformance.cli"
    found = python(*program, "search", file, *THREE)
    (line,) = (line for line in found.stdout.splitlines() if line.startswith("[["))
    choices = table(line, "choices.json")
    derived = python(*program, "derive", "--json", choices)
    assert (derived.returncode, json.loads(derived.stdout)["nodes"]) == (0, 4)


def test_a_great_tree_is_told_in_part_and_written_whole(call: Call, table: Call) -> None:
    rows = "".join(f"{head},{'0.1,' * 9}0.1\n" for head in range(4))
    file = table(f"head,{','.join(f'rank{n}' for n in range(10))}\n{rows}")
    answer = call("search", file, "--nodes", "2000")
    assert "… and 976 more, which --json has; --choices writes" in answer.out
    assert "paths" not in answer.out.splitlines()
    assert len(searched(call, file, "--nodes", "2000")["decisions"]) == 2000


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("", "line 1", "names no columns of a table, which are head, top1, top2, ...; "),
        ("rank,top1\n0,1\n", "line 1", "names no columns of a table"),
        ("head\n0\n", "line 1", "names no columns of a table"),
        ("head,top1,top3\n0,.1,.2\n", "line 1", "names no columns of a table"),
        ("head,top0,top1\n0,.1,.2\n", "line 1", "names no columns of a table"),
        ("head,rows\n0,1\n", "line 1", "names no columns of a table"),
        ("head,top1\n0,.1\nordinary,.2\n", "line 3 head", "is 'ordinary'; heads are counted"),
        ("head,top1\n", "", "holds no head behind its line of column names"),
        ("head,top1\n0,.5,.6\n", "line 2", "has 3 cells, and there are 2 columns"),
        ("head,top1\n1,.5\n", "line 2 head", "is '1'; heads are counted from 0, so this is 0"),
        ("head,top1\n0,half\n", "line 2 top1", "'half' is no number from 0 to 1"),
        ("head,top1\n0,nan\n", "line 2 top1", "'nan' is no number from 0 to 1"),
        ("head,top1\n0,-0.1\n", "line 2 top1", "'-0.1' is no number from 0 to 1"),
        ("head,top1\n\n0,55%\n", "line 3 top1", "'55%' is no number from 0 to 1"),
        ('head,top1\n0,"0.5\n', "line 2", "not CSV: unexpected end of data"),
        (
            "head,top1,top2\n0,.5,.7\n1,.7,.6\n",
            "accuracy[1][1]",
            "falls from 0.7 to 0.6; more ranks never match less often",
        ),
        (
            "head,rank0,rank1\n0,.7,.6\n",
            "accuracy[0]",
            "adds up to 1.3, and only one rank of a head can match",
        ),
        (
            "Name,train/medusa0_top1,train/medusa1_top2\na,.1,.2\n",
            "line 1",
            "does not name top-1 to top-2 of each of 2 heads, each of them once",
        ),
        (
            "Name,train/medusa0_top1,train/medusa0_top1\na,.1,.2\n",
            "line 1",
            "does not name top-1 to top-1 of each of 1 heads, each of them once",
        ),
        ("Name,train/medusa0_top1\n", "", "has no run"),
        ("Name,train/medusa0_top1\na,\n", "run a train/medusa0_top1", "'' is no number from"),
        ("Name,train/medusa0_top1\na,.1\na,.2\n", "line 3 Name", "a second run is called a"),
    ],
)
def test_a_csv_that_is_no_table(
    refuse: Refuse, table: Call, text: str, place: str, rule: str
) -> None:
    file = table(text)
    line = refuse("search", file, *THREE, "--picture", "tree.svg", "--choices", "choices.json")
    assert line.startswith(f"{file}: {place}: {rule}" if place else f"{file}: {rule}")


def test_a_table_in_capitals_is_a_table(call: Call, table: Call) -> None:
    assert searched(call, table(CUMULATIVE, "UP.CSV"), *THREE)["heads"] == 2


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("--choices", "table.csv"), "is what was read, and is not written over"),
        (("--picture", "taken.svg", "--choices", "no/c.json"), "cannot be written"),
        (("--picture", "taken.svg", "--choices", "./taken.svg"), "is named twice"),
    ],
)
def test_all_that_is_asked_for_is_written_or_nothing(
    refuse: Refuse, table: Call, tmp_path: Path, options: tuple[str, ...], rule: str
) -> None:
    file, taken = table(CUMULATIVE, "table.csv"), tmp_path / "taken.svg"
    taken.write_text("mine", "utf-8")
    places = [option if option[0] == "-" else str(tmp_path / option) for option in options]
    assert rule in refuse("search", file, *THREE, *places)
    assert taken.read_text("utf-8") == "mine"
    assert file.read_text("utf-8") == CUMULATIVE
    assert {entry.name for entry in tmp_path.iterdir()} == {"table.csv", "taken.svg"}


def without(field: str) -> str:
    return yaml.safe_dump(
        {k: v for k, v in yaml.safe_load(in_yaml("two-heads")).items() if k != field}
    )


@pytest.mark.parametrize("field", ["form", "accuracy", *SAID])
def test_a_yaml_table_declares_everything(refuse: Refuse, table: Call, field: str) -> None:
    file = table(without(field), "table.yaml")
    assert refuse("search", file, *THREE) == f"{file}: '{field}' is a required property"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("form", "top-k", "form: 'top-k' is not one of ['cumulative', 'incremental']"),
        ("evidence", "trusted", "evidence: 'trusted' is not one of"),
        ("accuracy", [[0.5, 0.6], [0.5]], "accuracy[1]: has 1 ranks, and the first head has 2"),
        ("accuracy", [[0.5, 1.5]], "accuracy[0][1]: 1.5 is greater than the maximum of 1"),
        ("accuracy", [], "accuracy: [] should be non-empty"),
        ("speedup", 2.3, "Additional properties are not allowed ('speedup' was unexpected)"),
    ],
)
def test_a_yaml_that_is_no_table(
    refuse: Refuse, table: Call, field: str, value: Any, rule: str
) -> None:
    document = yaml.safe_load(in_yaml("two-heads")) | {field: value}
    file = table(yaml.safe_dump(document), "table.yaml")
    assert refuse("search", file, *THREE).startswith(f"{file}: {rule}")


def test_a_log_has_runs_of_which_one_is_chosen(call: Call, refuse: Refuse, table: Call) -> None:
    file = table(LOG)
    line = refuse("search", file, *THREE)
    assert line == f"{file}: has several runs, of which --run chooses one: small, large"
    assert refuse("search", file, *THREE, "--run", "tiny") == (
        f"{file}: has no run tiny: small, large"
    )
    # Head 0 knows nothing but its first rank, and head 1 hardly anything.
    large = searched(call, file, *THREE, "--run", "large")
    assert large["paths"] == [[0], [0, 0], [0, 1]]
    assert large["identity"]["model"] == "run large"
    alone = table("\n".join(LOG.splitlines()[:2]))
    assert searched(call, alone, *THREE)["identity"]["model"] == "run small, runs/made-up"


@pytest.mark.parametrize(("text", "name"), [(CUMULATIVE, "t.csv"), (None, "t.yaml")])
def test_a_table_has_no_runs(refuse: Refuse, table: Call, text: str | None, name: str) -> None:
    file = table(text or in_yaml("two-heads"), name)
    assert refuse("search", file, *THREE, "--run", "a") == f"--run: {file} is no log of runs"


@pytest.mark.parametrize(("text", "run"), [(CUMULATIVE, ()), (LOG, ("--run", "small"))])
def test_more_ranks_than_a_table_has_are_not_invented(
    refuse: Refuse, table: Call, text: str, run: tuple[str, ...]
) -> None:
    file = table(text)
    line = refuse("search", file, *THREE, *run, "--max-rank", "10")
    assert line == f"--max-rank: is 10, and {file} has 2 ranks a head; more it does not support"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ((), "Missing option '--nodes'"),
        (("--nodes", "-1"), "-1 is not in the range"),
        (("--nodes", str(MOST_NODES + 1)), f"{MOST_NODES + 1} is not in the range"),
        ((*THREE, "--max-rank", "0"), "0 is not in the range"),
        ((*THREE, "--picture", "tree.png"), "tree.png: a picture is SVG"),
    ],
)
def test_an_option_that_cannot_be(
    refuse: Refuse, table: Call, options: tuple[str, ...], rule: str
) -> None:
    assert rule in refuse("search", table(CUMULATIVE), *options)


def test_a_picture_that_is_too_large_is_refused_before_anything_is_written(
    refuse: Refuse, table: Call, tmp_path: Path
) -> None:
    names = ",".join(f"rank{number}" for number in range(60))
    file = table(f"head,{names}\n0{',.01' * 60}\n1{',.01' * 60}\n")
    options = ("--picture", tmp_path / "p.svg", "--choices", tmp_path / "c.json")
    line = refuse("search", file, "--nodes", "300", *options)
    assert line.endswith("p.svg: 301 rows are too many to draw; 256 are the most")
    assert not (tmp_path / "c.json").exists()


def test_a_missing_file_a_folder_and_a_huge_one(refuse: Refuse, tmp_path: Path) -> None:
    assert refuse("search", "none.csv", *THREE) == "none.csv: no such file"
    assert refuse("search", tmp_path, *THREE) == f"{tmp_path}: is a directory; a file is needed"
    with (tmp_path / "huge.csv").open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert "is 104,857,600 bytes; at most" in refuse("search", tmp_path / "huge.csv", *THREE)


def test_a_terminal_obeys_no_table(call: Call, table: Call) -> None:
    file = table(LOG.replace("runs/made-up", "a\x1b[31mb"))
    answer = call("search", file, *THREE, "--run", "small")
    assert "\x1b" not in answer.out
    assert "run small, a\ufffd[31mb" in answer.out


def test_the_document_needs_each_field_and_takes_no_other(call: Call, table: Call) -> None:
    document = searched(call, table(CUMULATIVE), *THREE)
    assert set(schema("search")["properties"]) == set(document)
    for field in document:
        others = {key: value for key, value in document.items() if key != field}
        assert schema_errors(others, "search") == [("", f"'{field}' is a required property")]
    assert schema_errors(document | {"speedup": 2.3}, "search") != []
    claim = document["claim"] | {"quantity": "tokens-per-second"}
    assert schema_errors(document | {"claim": claim}, "search") != []


LIGHT = """
import sys
from medusa_conformance import cli
sys.argv = ["medusa-oracles", "search", "--json", sys.argv[1], "--nodes", "3"]
try:
    cli.main()
finally:
    print(*sorted({"torch", "hypothesis", "medusa_mutations"} & sys.modules.keys()))
"""


def test_search_imports_neither_torch_nor_hypothesis(python: Call, table: Call) -> None:
    answer = python("-c", LIGHT, table(CUMULATIVE))
    printed, loaded = answer.stdout.splitlines()
    assert (answer.returncode, loaded) == (0, "")
    assert len(json.loads(printed)["paths"]) == 3
