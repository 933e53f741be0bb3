"""Trace files: what was written is what is judged, and what is no trace is refused in one line."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import save_file

import medusa_manifests
from medusa_conformance.line import Line
from medusa_conformance.runner import Setting, reference_factory
from medusa_mutations import mutations
from medusa_oracles import judge, oracles
from medusa_spec import Coordinate, InputError, Trace
from medusa_spec.dialect import Dialect
from medusa_spec.documents import schema
from medusa_spec.stages import CommitPlan, Frontier, Selection
from medusa_spec.tracefile import (
    read_trace,
    served_coordinate,
    write_trace,
)

SUFFIXES = (".npz", ".safetensors")
MANIFESTS = ("six-node", "posterior-fast-typical", "end-of-sequence", "root-only")
MUTANTS = (
    "capacity-forgets-root",
    "activation-replaced",
    "root-invisible",
    "verify-position-from-row",
    "second-best-matches",
    "tokens-p-cache-q",
    "leaf-accepted-unverified",
)


def traces(manifest: str, mutant: str | None = None) -> Iterator[Trace]:
    """Every trace that the reference engine, or a mutant of it, leaves of a frozen coordinate."""
    factory = reference_factory(
        Setting("cpu", "float64"), None if mutant is None else mutations()[mutant]
    )
    within = medusa_manifests.tolerance("float64"), medusa_manifests.tolerance("policy")
    line = Line(medusa_manifests.load(manifest), factory, *within)
    yield from (seen for seen in line.run() if isinstance(seen, Trace))


def through(file: Path, trace: Trace) -> Trace:
    """The same trace, written and read again."""
    seen = {**trace.arrays, **trace.documents}
    numbers = {"generation": trace.generation, "round": trace.round}
    write_trace(file, trace.coordinate, seen, dtype="float64", **numbers)
    return read_trace(file).trace(trace.tolerance, trace.policy_tolerance)


@pytest.fixture(scope="module")
def lawful(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    trace: Trace = lawful_trace(coordinate(), literal, ((0, 2), (2, 6)))
    return trace


@pytest.fixture(params=SUFFIXES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"round{request.param}"


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_written_trace_is_judged_as_it_was(manifest: str, file: Path) -> None:
    executed: set[str] = set()
    for trace in traces(manifest):
        again = through(file, trace)
        assert (again.generation, again.round) == (trace.generation, trace.round)
        assert again.coordinate == trace.coordinate
        assert again.arrays.keys() == trace.arrays.keys()
        for name, array in trace.arrays.items():
            assert np.array_equal(again[name], array, equal_nan=array.dtype.kind == "f"), name
            assert again[name].dtype == array.dtype
        judgement = judge(again)
        assert judgement == judge(trace)
        executed |= set(judgement.executed)
    assert len(executed) > 50


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found_out_from_its_files(mutant: str, file: Path) -> None:
    mutation = mutations()[mutant]
    fired: set[str] = set()
    for trace in traces(mutation.exposed_by, mutant):
        found = judge(through(file, trace)).findings
        assert list(map(str, found)) == list(map(str, judge(trace).findings))
        fired |= {finding.code for finding in found}
    assert mutation.killer in fired


def test_a_partial_trace_is_judged_for_what_it_holds(file: Path) -> None:
    (whole,) = [t for t in traces("own-acceptance-typical") if "commit.tokens" in t.arrays][-1:]
    executed = judge(whole).executed
    blind: set[str] = set()
    for absent in (*whole.arrays, *whole.documents):
        part = replace(
            whole,
            arrays={name: array for name, array in whole.arrays.items() if name != absent},
            documents={name: given for name, given in whole.documents.items() if name != absent},
        )
        judgement = judge(through(file, part))
        entries = {code: oracles()[code] for code in executed}
        ran = [
            code for code, entry in entries.items() if entry.runs_on(part) and entry.applies(part)
        ]
        assert list(judgement.executed) == ran, absent
        assert judgement.findings == ()
        blind.update(set(executed) - set(ran))
    assert len(blind) > 25


def test_stage_values_and_mappings_are_written_field_by_field(file: Path, lawful: Trace) -> None:
    frontier = Frontier(lawful["commit.frontier.target"], lawful["commit.frontier.heads"])
    tokens, source = lawful["commit.tokens"], lawful["commit.source"]
    seen = {
        "commit": CommitPlan(tokens, source, lawful["commit.destination"], 8, frontier),
        "selection": Selection(
            1, 2, lawful["selection.passes"], lawful["selection.lengths"], None, None, None
        ),
        "proposal": {"packed": lawful["proposal.packed"], "table": None},
        "cache.length": 8,
        "round": {"tokens": np.array([41, 42]), "refused": None},
        "tree.paths": None,
        "verification": None,
    }
    write_trace(file, lawful.coordinate, seen, dtype="float32")
    found = read_trace(file)
    fields = ("tokens", "source", "destination", "length", "frontier.target", "frontier.heads")
    chosen = ("path", "accepted", "passes", "lengths")
    expected = {f"commit.{name}" for name in fields} | {f"selection.{name}" for name in chosen}
    assert found.arrays.keys() == expected | {"proposal.packed", "cache.length"}
    assert found.documents == {"round.tokens": [41, 42], "round.refused": None}
    assert found.arrays["commit.length"] == found.arrays["cache.length"] == 8
    assert np.array_equal(found.arrays["commit.frontier.heads"], frontier.heads)


@pytest.mark.parametrize(
    ("given", "expected", "dtype"),
    [
        (torch.tensor([0.1, float("nan")]).bfloat16(), [0.10009765625, np.nan], np.float64),
        (torch.tensor([0.5, -2.5], requires_grad=True), [0.5, -2.5], np.float64),
        (np.array([0.1, -np.inf], np.float16), [0.0999755859375, -np.inf], np.float64),
        (np.array([0.5, -2.5], ">f4"), [0.5, -2.5], np.float64),
        ([3, -1], [3, -1], np.int64),
        (np.array([2**32 - 1, 0], np.uint32), [4294967295, 0], np.int64),
        (np.array([True, False]), [True, False], np.bool_),
        (torch.arange(6)[::2], [0, 2, 4], np.int64),
        (np.zeros(0, np.float32), [], np.float64),
    ],
)
def test_numbers_are_read_in_the_widest_form_of_their_kind(
    given: Any, expected: list[Any], dtype: type, file: Path, lawful: Trace
) -> None:
    write_trace(file, lawful.coordinate, {"frontier.target": given}, dtype="bfloat16")
    array = read_trace(file).arrays["frontier.target"]
    assert array.dtype == dtype
    assert np.array_equal(array, expected, equal_nan=True)


def test_the_header_says_who_decoded_what(file: Path, lawful: Trace) -> None:
    engine = {"name": "a-server", "version": "1.4"}
    dialect = {"kv_move": "lazy", "reasons": {"kv_move": "rows move when they are next read"}}
    write_trace(
        file,
        lawful.coordinate,
        {},
        dtype="bfloat16",
        generation=3,
        round=np.int64(5),
        engine=engine,
        dialect=dialect,
    )
    found = read_trace(str(file))
    assert (found.path, found.dtype, found.generation, found.round) == (file, "bfloat16", 3, 5)
    assert found.engine == engine
    assert found.dialect == Dialect(dtype="bfloat16", **dialect)
    assert (found.arrays, found.documents) == ({}, {})
    write_trace(file, lawful.coordinate, {}, dtype="float32")
    found = read_trace(file)
    assert (found.generation, found.round, found.engine) == (0, 0, None)
    assert found.dialect == Dialect(dtype="float32")


@pytest.mark.parametrize(
    ("dialect", "field", "rule"),
    [
        ({"sentinal": -2}, "header.dialect", "Additional properties are not allowed"),
        (
            {"kv_move": "lazy"},
            "header.dialect.reasons",
            "kv_move leaves rules unjudged, so reasons needs",
        ),
        ({"dtype": "float64"}, "header.dialect.dtype", "is float64, and the header says float32"),
    ],
)
def test_a_dialect_that_nobody_speaks_is_not_written(
    dialect: dict[str, Any], field: str, rule: str, file: Path, lawful: Trace
) -> None:
    def write() -> None:
        write_trace(file, lawful.coordinate, {}, dtype="float32", dialect=dialect)

    found = refusal(write)
    assert found[0] == field
    assert found[1].startswith(rule)


def test_the_dtypes_are_those_that_have_a_tolerance() -> None:
    given = schema("trace_header")["properties"]["dtype"]["enum"]
    assert {*given, "policy"} == set(schema("tolerances")["properties"])


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value.field, caught.value.rule


@pytest.mark.parametrize(
    ("seen", "field", "rule"),
    [
        ({"tree.maks": [[True]]}, "tree.maks", "no such name in a trace; the nearest is tree.mask"),
        ({"rond": {"tokens": [1]}}, "rond.tokens", "the nearest is round.tokens"),
        ({"proposal": SimpleNamespace(packed=[1])}, "proposal", "no such name in a trace"),
        ({"tree.mask": [True]}, "tree.mask", "has 1 axes, [1]; expected are 2, [N, N]"),
        ({"frontier.target": [[[1.0]]]}, "frontier.target", "has 3 axes, [1, 1, 1]; expected"),
        ({"commit.length": [8, 9]}, "commit.length", "has 1 axes, [2]; expected are 0, []"),
        ({"tree.slots": ["a"]}, "tree.slots", "dtype <U1; needed are numbers of at most 8"),
        ({"tree.slots": [None]}, "tree.slots", "dtype object; needed are numbers"),
        ({"frontier.target": [1j]}, "frontier.target", "dtype complex128; needed are numbers"),
        ({"tree.mask": [[1], [1, 2]]}, "tree.mask", "is no array: "),
        ({"tree.slots": [1], "tree": {"slots": [1]}}, "tree.slots", "is given twice"),
        ({"round.tokens": {1, 2}}, "header", "set is no JSON value"),
        ({"round.tokens": [0.5]}, "header.documents.round.tokens[0]", "0.5 is not of type"),
        ({"selection.label": {"p": float("nan")}}, "header", "Out of range float values"),
    ],
)
def test_what_no_oracle_could_read_is_not_written(
    seen: dict[str, Any], field: str, rule: str, file: Path, lawful: Trace
) -> None:
    found = refusal(lambda: write_trace(file, lawful.coordinate, seen, dtype="float32"))
    assert found[0] == field
    assert found[1].startswith(rule) or rule in found[1]
    assert not any(file.parent.iterdir())


def test_a_coordinate_that_breaks_a_rule_is_not_written(file: Path, lawful: Trace) -> None:
    broken = replace(lawful.coordinate, topk=2)
    with pytest.raises(InputError) as caught:
        write_trace(file, broken, {}, dtype="float32")
    assert caught.value.code == "COORDINATE.RANK_BELOW_TOPK"
    assert caught.value.field == "header.coordinate.paths[4]"
    dtype: Any = "float8"
    field, _ = refusal(lambda: write_trace(file, lawful.coordinate, {}, dtype=dtype))
    assert field == "header.dtype"
    assert not any(file.parent.iterdir())


def test_a_failed_write_leaves_the_older_file(
    file: Path, lawful: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(file, lawful.coordinate, {"commit.length": 8}, dtype="float32")
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    seen = {"commit.length": 9}
    found = refusal(lambda: write_trace(file, lawful.coordinate, seen, dtype="float32"))
    assert found == ("", f"cannot be written: {os.strerror(28)}")
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == before


def test_folders_are_made_and_other_suffixes_refused(tmp_path: Path, lawful: Trace) -> None:
    deep = tmp_path / "traces" / "today" / "1.npz"
    write_trace(deep, lawful.coordinate, {}, dtype="float32")
    assert read_trace(deep).coordinate == lawful.coordinate
    other = tmp_path / "1.json"
    rule = "is no trace file; those end in .npz or .safetensors"
    assert refusal(lambda: write_trace(other, lawful.coordinate, {}, dtype="float32")) == ("", rule)
    assert refusal(lambda: read_trace(other)) == ("", rule)


def test_other_libraries_read_what_is_written(tmp_path: Path, lawful: Trace) -> None:
    seen = {"tree.mask": lawful["tree.mask"], "tree.slots": lawful["tree.slots"].astype(np.int32)}
    seen |= {"frontier.target": lawful["frontier.target"].astype(np.float16), "commit.length": 8}
    write_trace(tmp_path / "1.safetensors", lawful.coordinate, seen, dtype="float32")
    write_trace(tmp_path / "1.npz", lawful.coordinate, seen, dtype="float32")
    with safetensors.safe_open(tmp_path / "1.safetensors", "np") as opened:
        text = opened.metadata()["medusa"]
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    with np.load(tmp_path / "1.npz") as loaded:
        assert bytes(loaded["header"]).decode() == text
        members = {name: loaded[name] for name in loaded if name != "header"}
    assert json.loads(text)["coordinate"] == lawful.coordinate.document()
    assert members.keys() == tensors.keys() == seen.keys()
    for name, array in seen.items():
        for found in (members[name], tensors[name]):
            assert found.dtype == np.asarray(array).dtype
            assert np.array_equal(found, array)


def header(coordinate: Coordinate, **more: Any) -> str:
    plain = {"format": "medusa-trace/1", "dtype": "bfloat16", "coordinate": coordinate.document()}
    return json.dumps(plain | more)


def test_files_of_other_libraries_are_read(tmp_path: Path, lawful: Trace) -> None:
    text = header(lawful.coordinate)
    logits = torch.tensor([0.1, -3.0, float("inf")], dtype=torch.bfloat16)
    tensors = {"frontier.target": logits, "commit.length": torch.tensor([8])}
    file = tmp_path / "1.safetensors"
    save_file(tensors, file, {"medusa": text, "made by": "somebody"})
    found = read_trace(file).arrays
    assert found["frontier.target"].tolist() == logits.tolist()
    assert found["commit.length"].shape == ()
    file = tmp_path / "1.npz"
    mask = np.asfortranarray([[True, False], [True, True]])
    given = np.frombuffer(text.encode(), np.uint8)
    np.savez_compressed(file, **{"header": given, "tree.mask": mask, "tree.slots": [7]})
    found = read_trace(file).arrays
    assert found["tree.mask"].tolist() == mask.tolist()
    assert found["tree.slots"].tolist() == [7]


def test_a_boolean_of_any_bits_is_one(tmp_path: Path, lawful: Trace) -> None:
    file = tmp_path / "1.safetensors"
    entry = {"dtype": "BOOL", "shape": [1, 3], "data_offsets": [0, 3]}
    head = {"__metadata__": {"medusa": header(lawful.coordinate)}, "tree.mask": entry}
    encoded = json.dumps(head).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + b"\x00\x01\x02")
    mask = read_trace(file).arrays["tree.mask"]
    # To numpy, a boolean of another pattern is neither true nor false.
    assert mask.view(np.uint8).tolist() == [[0, 1, 1]]


def test_a_served_coordinate_is_lawful_and_says_what_decides(file: Path, lawful: Trace) -> None:
    policy = lawful.coordinate.policy
    tokens = torch.arange(5000) % 300
    given = served_coordinate(
        tokens,
        [[1], [0], [1, 2]],
        topk=3,
        heads=4,
        vocabulary=300,
        policy=policy,
        end_of_sequence=2,
    )
    write_trace(file, given, {}, dtype="float32")
    found = read_trace(file).coordinate
    assert found == given
    assert (found.prefix, found.prefix_length) == (tuple(tokens.tolist()), 5000)
    assert found.paths == ((0,), (1,), (1, 2))
    assert (found.topk, found.heads, found.end_of_sequence) == (3, 4, 2)
    assert (found.policy, found.model.vocabulary) == (policy, 300)
    unlawful = replace(given, prefix=(300,), prefix_length=1)
    field, rule = refusal(lambda: write_trace(file, unlawful, {}, dtype="float32"))
    assert (field, rule) == (
        "header.coordinate.prefix[0]",
        "token 300 is outside the vocabulary of 300",
    )
