"""`derive`: exact buffers, exact errors, and no torch in the process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import medusa_manifests
from medusa_conformance import checkout
from medusa_spec import source_pin
from medusa_spec.documents import schema_errors

Call = Callable[..., Any]
Refuse = Callable[..., str]

PINNED = [*source_pin()["files"]]

# By hand: rows (), (0), (1), (0,0); slots 1 + (depth-1)*2 + rank; leaves (1) and (0,0), of which
# the pinned order has the deeper one first.
THREE_PATHS = {
    "name": "choices",
    "topk": 2,
    "heads": 2,
    "nodes": 4,
    "sentinel": -1,
    "retrieval_order": "pinned",
    "paths": [[0], [1], [0, 0]],
    "parents": [-1, 0, 0, 1],
    "tree_indices": [0, 1, 2, 3],
    "attention_mask": [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]],
    "position_ids": [0, 1, 1, 2],
    "retrieve_indices": [[0, 1, 3], [0, 2, -1]],
}

BEHIND_THREE = {
    "prefix_length": 3,
    "positions": [3, 4, 4, 5, 5, 5],
    "staged_rows": [3, 4, 5, 6, 7, 8],
    "frozen": "matches",
}


@pytest.fixture
def choices(tmp_path: Path) -> Callable[..., Path]:
    """A file with a list of rank paths."""

    def write(*paths: list[int]) -> Path:
        file = tmp_path / "choices.json"
        file.write_text(json.dumps(paths), "utf-8")
        return file

    return write


def derived(call: Call, *arguments: str | Path) -> Any:
    answer = call("derive", "--json", *arguments)
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert schema_errors(document, "derive") == []
    return document


def test_a_choice_list(call: Call, choices: Call) -> None:
    file = choices([0], [1], [0, 0])
    given = ("--topk", "2", "--retrieval-order", "pinned")
    assert derived(call, file, *given) == THREE_PATHS


def test_a_choice_list_comes_in_any_order_and_needs_no_options(call: Call, choices: Call) -> None:
    # Ten ranks a head, as many heads as are needed, leaves from the first on.
    assert derived(call, choices([0, 0], [1], [0])) == THREE_PATHS | {
        "topk": 10,
        "tree_indices": [0, 1, 2, 11],
        "retrieval_order": "canonical",
        "retrieve_indices": [[0, 2, -1], [0, 1, 3]],
    }


def test_more_heads_than_the_tree_is_deep(call: Call, choices: Call) -> None:
    assert derived(call, choices([0]), "--heads", "4")["heads"] == 4


@pytest.mark.parametrize("order", ["canonical", "pinned"])
def test_an_empty_list_is_the_root_alone(call: Call, choices: Call, order: str) -> None:
    assert derived(call, choices(), "--retrieval-order", order) == {
        "name": "choices",
        "topk": 10,
        "heads": 0,
        "nodes": 1,
        "sentinel": -1,
        "retrieval_order": order,
        "paths": [],
        "parents": [-1],
        "tree_indices": [0],
        "attention_mask": [[1]],
        "position_ids": [0],
        "retrieve_indices": [[0]],
    }


def test_a_manifest(call: Call, six_node: dict[str, Any]) -> None:
    assert derived(call, medusa_manifests.path("six-node")) == six_node | BEHIND_THREE


@pytest.mark.parametrize("name", medusa_manifests.names())
def test_every_manifest_agrees_with_its_frozen_values(call: Call, name: str) -> None:
    document = derived(call, medusa_manifests.path(name))
    expected = medusa_manifests.load(name).expected
    assert document["frozen"] == "matches"
    shared = expected.keys() & document.keys()
    assert len(shared) == 7
    assert all(document[field] == expected[field] for field in shared)


def manifest(tmp_path: Path, field: str, value: Any) -> Path:
    """The six-node manifest with another value at a dotted place."""
    document = yaml.safe_load(medusa_manifests.path("six-node").read_text("utf-8"))
    *way, last = field.split(".")
    inner = document
    for part in way:
        inner = inner[part]
    inner[last] = value
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def test_frozen_values_that_differ_fail(
    call: Call, tmp_path: Path, six_node: dict[str, Any]
) -> None:
    file = manifest(tmp_path, "expected.position_ids", [0, 1, 1, 2, 2, 1])
    answer = call("derive", "--json", file)
    assert (answer.code, answer.err) == (1, "")
    assert json.loads(answer.out) == six_node | BEHIND_THREE | {"frozen": "differs"}


def test_a_person_reads_the_same_numbers(call: Call) -> None:
    answer = call("derive", medusa_manifests.path("six-node"))
    assert (answer.code, answer.err) == (0, "")
    for text in ("six-node", "canonical"):
        assert text in answer.out
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.out)


@pytest.mark.parametrize(
    ("paths", "options", "rule"),
    [
        ([[0], [1, 0]], (), "[1]: [1, 0] has no ancestor [1] (COORDINATE.PREFIX_CLOSED)"),
        ([[0], [0]], (), "[1]: [0] occurs twice (COORDINATE.PATHS_DISTINCT)"),
        (
            [[2]],
            ("--topk", "2"),
            "[0]: rank 2 of [2] is outside [0, TOPK=2) (COORDINATE.RANK_BELOW_TOPK)",
        ),
        ([[-1]], (), "[0]: rank -1 of [-1] is outside [0, TOPK=10) (COORDINATE.RANK_BELOW_TOPK)"),
        (
            [[0], [0, 0]],
            ("--heads", "1"),
            "[1]: [0, 0] has depth 2, and there are 1 heads (COORDINATE.DEPTH_WITHIN_HEADS)",
        ),
        ([[]], (), "[0]: [] should be non-empty"),
    ],
)
def test_a_choice_list_that_is_no_tree(
    refuse: Refuse, choices: Call, paths: Any, options: Any, rule: str
) -> None:
    file = choices(*paths)
    line = refuse("derive", "--json", file, *options, "--picture", "tree.svg")
    assert line == f"{file}: {rule}"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("paths", [[0], [1, 0]], "has no ancestor [1] (COORDINATE.PREFIX_CLOSED)"),
        ("paths", [[0], [0]], "occurs twice (COORDINATE.PATHS_DISTINCT)"),
        ("paths", [[2]], "is outside [0, TOPK=2) (COORDINATE.RANK_BELOW_TOPK)"),
        ("paths", [[-1]], "is outside [0, TOPK=2) (COORDINATE.RANK_BELOW_TOPK)"),
        ("heads", 1, "has depth 2, and there are 1 heads (COORDINATE.DEPTH_WITHIN_HEADS)"),
        ("epsilon", 0.09, "('epsilon' was unexpected) (COORDINATE.SCHEMA)"),
    ],
)
def test_a_manifest_that_breaks_a_rule(
    refuse: Refuse, tmp_path: Path, field: str, value: Any, rule: str
) -> None:
    file = manifest(tmp_path, field, value)
    line = refuse("derive", file, "--picture", "tree.svg")
    assert line.startswith(f"{file}: ")
    assert line.endswith(rule)


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("tag.yaml", "!!python/object/apply:os.getcwd []", "tags are not used here"),
        ("cut.json", "[[0], [1], [0,", "not JSON: Expecting value"),
        ("cut.yaml", "paths: [[0], [1", "not plain YAML"),
        ("word.json", '"choices"', "is not of type 'object'"),
        ("null.yaml", "", "None is not of type 'object'"),
    ],
)
def test_a_file_that_cannot_be_read(
    refuse: Refuse, tmp_path: Path, name: str, content: str, rule: str
) -> None:
    file = tmp_path / name
    file.write_text(content, "utf-8")
    line = refuse("derive", "--json", file)
    assert line.startswith(f"{file}: ")
    assert rule in line


def test_a_huge_manifest(refuse: Refuse, tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert "is 104,857,600 bytes; at most" in refuse("derive", file)


def test_a_missing_file_and_a_directory(refuse: Refuse, tmp_path: Path) -> None:
    assert refuse("derive", "none.yaml") == "none.yaml: no such file"
    assert refuse("derive", tmp_path) == f"{tmp_path}: is a directory; a file is needed"
    assert refuse("derive", "a\nb.yaml") == r"a\nb.yaml: no such file"
    assert refuse("derive", "x", "a\nb\x1b[31m").startswith(
        r"Got unexpected extra argument (a\nb\x1b[31m)"
    )


def test_a_terminal_never_obeys_a_files_name(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[31m\nb.json"
    file.write_text("[]", "utf-8")
    answer = call("derive", file)
    assert answer.out.splitlines()[0].startswith("a\ufffd[31m\ufffdb  1 row, ")
    assert derived(call, file)["name"] == "a\x1b[31m\nb"


@pytest.mark.parametrize(
    "option", [("--topk", "2"), ("--heads", "2"), ("--retrieval-order", "pinned")]
)
def test_a_manifest_declares_its_own(refuse: Refuse, option: tuple[str, str]) -> None:
    path = medusa_manifests.path("six-node")
    line = refuse("derive", path, *option)
    assert line == f"{option[0]}: {path} is a manifest, which declares its own"


def test_a_checkout_is_hashed_against_the_pin(
    call: Call, choices: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkout"
    file = choices([0])
    right, wrong, absent, *_ = PINNED
    for name, content in ((right, b"as pinned\n"), (wrong, b"as pinned, nearly\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / absent).mkdir()
    as_pinned = hashlib.sha256(b"as pinned\n").hexdigest()
    pin = source_pin() | {"files": dict.fromkeys(PINNED, as_pinned)}
    monkeypatch.setattr(checkout, "source_pin", lambda: pin)

    answer = call("derive", "--json", file, "--checkout", folder)
    found = dict.fromkeys(PINNED, "missing") | {right: "matches", wrong: "differs"}
    assert json.loads(answer.out)["checkout"] == found
    assert answer.code == 1

    for name in PINNED:
        if (folder / name).is_dir():
            (folder / name).rmdir()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"as pinned\n")
    answer = call("derive", "--json", file, "--checkout", folder)
    assert json.loads(answer.out)["checkout"] == dict.fromkeys(PINNED, "matches")
    assert answer.code == 0


def test_files_of_another_release_differ_from_the_real_pin(
    call: Call, choices: Call, tmp_path: Path
) -> None:
    for name in PINNED:
        (tmp_path / "other" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "other" / name).write_text("another release\n", "utf-8")
    answer = call("derive", "--json", choices([0]), "--checkout", tmp_path / "other")
    assert json.loads(answer.out)["checkout"] == dict.fromkeys(PINNED, "differs")
    assert answer.code == 1


def test_a_checkout_that_is_no_directory(refuse: Refuse, choices: Call) -> None:
    file = choices([0])
    for folder in ("nowhere", file):
        line = refuse("derive", file, "--checkout", folder)
        assert line == f"{folder}: is not a directory with a checkout"
    assert refuse("derive", file, "--checkout", ".").startswith(".: holds none of the pinned files")
    assert "xxx: cannot be read: " in refuse("derive", file, "--checkout", "x" * 5000)


LIGHT = """
import sys
from medusa_conformance import cli
sys.argv = ["medusa-oracles", "derive", "--json", sys.argv[1]]
try:
    cli.main()
finally:
    print(*sorted({"torch", "hypothesis", "medusa_mutations"} & sys.modules.keys()))
"""


def test_derive_imports_neither_torch_nor_hypothesis(python: Call, choices: Call) -> None:
    answer = python("-c", LIGHT, choices([0], [1], [0, 0]))
    printed, loaded = answer.stdout.splitlines()
    assert (answer.returncode, loaded) == (0, "")
    assert json.loads(printed)["nodes"] == 4


def test_oracles_import_neither_torch_nor_hypothesis(python: Call) -> None:
    answer = python(
        "-c",
        "import medusa_oracles, sys; print({'torch', 'hypothesis'} & sys.modules.keys())",
    )
    assert (answer.returncode, answer.stdout) == (0, "set()\n")


def test_another_process_says_the_same(python: Call, choices: Call, call: Call) -> None:
    file = choices([0], [1], [0, 0])
    arguments = ("derive", "--json", file, "--topk", "2", "--retrieval-order", "pinned")
    answer = python("-m", "medusa_conformance.cli", *arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout) == THREE_PATHS
    answer = python("-m", "medusa_conformance.cli", "derive", "none.json")
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr == "error: none.json: no such file\n"


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_output_that_has_no_room_is_one_error(
    python: Call, choices: Call, arguments: tuple[str, ...]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    script = (
        "import sys; sys.stdout = open('/dev/full', 'w');"
        "from medusa_conformance import cli; cli.main()"
    )
    answer = python("-c", script, "derive", choices([0]), *arguments)
    assert answer.stderr == "error: [Errno 28] No space left on device\n"
    assert answer.returncode == 3


def test_a_reader_that_went_away_is_no_error(python: Call, choices: Call) -> None:
    script = (
        "import os, sys; inlet, outlet = os.pipe(); os.close(inlet);"
        "sys.stdout = open(outlet, 'w'); from medusa_conformance import cli; cli.main()"
    )
    answer = python("-c", script, "derive", choices([0]))
    assert (answer.returncode, answer.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_closed_output_leaves_the_exit_code(
    python: Call, choices: Call, arguments: tuple[str, ...]
) -> None:
    script = "import sys; sys.stdout = None; from medusa_conformance import cli; cli.main()"
    answer = python("-c", script, "derive", choices([0]), *arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
