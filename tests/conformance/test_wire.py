"""What is written on a line is read from it, and its schemas are those of the stages."""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import medusa_manifests
from medusa_conformance.exactness_strategies import exactnesses
from medusa_spec import InputError, Policy, wire
from medusa_spec.coordinate import Release
from medusa_spec.documents import schema, schema_errors
from medusa_spec.stages import STAGES, Frontier, HeadState, TreeBuffers
from medusa_spec.wire import (
    ANSWERS,
    ARGUMENTS,
    read_answer,
    read_arguments,
    read_reply,
    read_request,
    short,
    write_answer,
    write_arguments,
    write_line,
)
from medusa_spec.wire_array import DTYPES, LINE_LIMIT, Place, read_array, write_array

HERE = Place("reply", "answer")
FORMS = ("list", "base64")
COORDINATE = medusa_manifests.load("six-node")

# Values

dtypes = st.sampled_from(sorted(DTYPES)).map(np.dtype)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
integers = st.integers(-(2**63), 2**63 - 1)
sequences = st.lists(integers, max_size=5).map(tuple)
paths = st.lists(st.lists(integers, max_size=3).map(tuple), max_size=5).map(tuple)
numbers = st.floats(allow_nan=False, allow_infinity=False)
documents = st.recursive(
    st.none() | st.booleans() | integers | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
mappings = st.dictionaries(st.text(), documents, max_size=3)

BY_TYPE = {
    "int": integers,
    "float": numbers,
    "tuple[int, ...]": sequences,
    "tuple[RankPath, ...]": paths,
    "Mapping[str, Any]": mappings,
    "Mapping[str, str]": st.dictionaries(st.text(), st.text(), max_size=3),
    "str": st.text(),
    "tuple[str, ...]": st.lists(st.text(), max_size=3),
    "tuple[Mapping[str, Any], ...]": st.lists(mappings, max_size=2),
    "tuple[Mapping[str, int | None], ...]": st.lists(mappings, max_size=2),
}


def records(kind: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass of the stages, some of whose fields were not observed."""

    def field(declared: str) -> st.SearchStrategy[Any]:
        nested = {"Frontier": Frontier, "HeadState": HeadState}.get(
            declared.removesuffix(" | None")
        )
        if nested is not None:
            return records(nested)
        return st.none() | (arrays if "Array" in declared else BY_TYPE[declared])

    return st.fixed_dictionaries({f.name: field(str(f.type)) for f in fields(kind)}).map(
        lambda made: kind(**made)
    )


policies = st.sampled_from(
    [medusa_manifests.load(name).policy for name in ("six-node", "posterior-fast-typical")]
)
trainings = st.sampled_from(
    [medusa_manifests.load(name).training for name in ("labels-seven", "assistant-only-joint")]
)
calibrations = st.sampled_from(
    [medusa_manifests.load(name).search for name in ("two-heads", "ten-paths")]
)
workloads = st.sampled_from(
    [medusa_manifests.load(name).cost for name in ("cost-nine-row", "cost-regular-3-2-2")]
)
facts = st.sampled_from(
    [medusa_manifests.load(name).claims for name in ("typed-sources", "typed-run")]
)
texts = st.sampled_from(["canonical", "pinned"])
variants = st.sampled_from(["medusa-1", "medusa-2", "self-distilled"])
folders = st.text("abc. /é", min_size=1).map(Path)
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "document": mappings,
    "calibration": calibrations,
    "exactness": exactnesses(),
    "training": trainings,
    "workload": workloads,
    "state": records(HeadState),
    "tree": records(TreeBuffers),
    "frontier": records(Frontier),
    "policy": policies,
    "facts": facts,
    "paths": paths | sequences,
    "retrieval_order": texts,
    "end_of_sequence": st.none() | integers,
    "folder": folders,
    "release": st.builds(Release, *[st.text(min_size=1)] * 3, variants),
}
BY_NAME |= dict.fromkeys(("hidden", "owned", "packed", "candidates", "path_logits"), arrays)
BY_NAME |= dict.fromkeys(("branching", "tokens", "prefix"), sequences)
BY_NAME |= dict.fromkeys(("heads", "topk", "sentinel", "path", "accepted", "how_many"), integers)
BY_NAME |= dict.fromkeys(("step", "seed"), st.integers(0, 2**63 - 1))
BY_NAME["count"] = st.integers(1, 2**63 - 1)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value; arrays in dtype, shape and every number, sign of zero included."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
            and (left.dtype.kind != "f" or _signs(left) == _signs(right))
        )
    if is_dataclass(left) and not isinstance(left, type):
        left = {f.name: getattr(left, f.name) for f in fields(left)}
        if is_dataclass(right) and not isinstance(right, type):
            right = {f.name: getattr(right, f.name) for f in fields(right)}
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        pairs = len(left) == len(right) and zip(left, right, strict=True)
        return bool(pairs) and all(same(a, b) for a, b in pairs) if left else len(right) == 0
    return type(left) is type(right) and bool(left == right)


def _signs(array: Any) -> list[bool]:
    signs: list[bool] = (np.signbit(array) & ~np.isnan(array)).ravel().tolist()
    return signs


# What is written is read


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(array=arrays)
def test_arrays(form: Any, array: Any) -> None:
    text = json.dumps(write_array(array, HERE._replace(arrays=form)), allow_nan=False)
    read = read_array(json.loads(text), HERE)
    assert same(array, read)
    assert read.flags.writeable
    assert read.dtype.isnative


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), form=st.sampled_from(FORMS))
def test_arguments(stage: str, data: st.DataObject, form: Any) -> None:
    strategies = dict(BY_NAME)
    if stage == "align_heads":
        strategies["tokens"] = arrays
    if stage == "save_checkpoint":
        strategies["state"] = st.none() | records(HeadState)
    values = [data.draw(strategies[name], name) for name in STAGES[stage].arguments]
    message = {"command": "stage", "session": 1, "stage": stage}
    written = write_arguments(stage, values, form)
    line = write_line({"id": 7, **message, "arguments": written}, "request")
    request = read_request(line[:-1])
    # A request that is read also keeps the whole schema, its arrays and lists included.
    assert schema_errors(request, "line_request") == []
    read = read_arguments(stage, request["arguments"])
    assert all(same(a, b) for a, b in zip(values, read, strict=True))
    # A record comes as the value that a Python engine is called with.
    assert [type(a) for a in values] == [type(b) for b in read]


def answers(stage: str) -> st.SearchStrategy[Any]:
    """Answers of a stage of which anything was observed."""
    kind = STAGES[stage].answer
    if kind in (int, object):
        return integers if kind is int else mappings
    return records(kind).filter(
        lambda made: (
            any(getattr(made, f.name) is not None for f in fields(kind))
            and all(_observed(getattr(made, f.name)) for f in fields(kind))
        )
    )


def _observed(value: Any) -> bool:
    nested = is_dataclass(value) and not isinstance(value, type)
    return not nested or any(getattr(value, f.name) is not None for f in fields(value))


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), form=st.sampled_from(FORMS))
def test_answers(stage: str, data: st.DataObject, form: Any) -> None:
    value = data.draw(answers(stage))
    line = write_line({"id": 7, "answer": write_answer(stage, value, form)}, "reply")
    reply = read_reply(line[:-1])
    assert same(value, read_answer(stage, reply["answer"]))


def test_base64_is_little_endian() -> None:
    written = write_array(np.array([1.0, -2.0], ">f4"), HERE)
    assert base64.b64decode(written["base64"]) == bytes.fromhex("0000803f000000c0")
    assert written["dtype"] == "float32"


def test_a_list_names_what_json_has_no_number_for() -> None:
    written = write_array([np.nan, np.inf, -np.inf, 1.5], HERE._replace(arrays="list"))
    assert written["data"] == ["NaN", "Infinity", "-Infinity", 1.5]


def test_the_forms_are_those_of_the_stages() -> None:
    assert {name: tuple(forms) for name, forms in ARGUMENTS.items()} == {
        name: stage.arguments for name, stage in STAGES.items()
    }
    assert ANSWERS.keys() == STAGES.keys()


def test_the_schemas_name_the_stages() -> None:
    request = schema("line_request")
    assert request["properties"]["stage"]["enum"] == list(STAGES)
    capabilities = schema("line_capabilities")
    assert capabilities["properties"]["stages"]["items"]["enum"] == list(STAGES)
    named = {
        rule["if"]["properties"].get("stage", {}).get("const"): rule for rule in request["allOf"]
    }
    for name, stage in STAGES.items():
        arguments = named[name]["then"]["properties"]["arguments"]
        assert tuple(arguments["required"]) == stage.arguments
        assert tuple(arguments["properties"]) == stage.arguments
    for name, kind in (("tree", TreeBuffers), ("frontier", Frontier), ("policy", Policy)):
        assert request["$defs"][name]["required"] == [f.name for f in fields(kind)]
    assert request["$defs"]["state"]["required"] == [f.name for f in fields(HeadState)]
    assert request["$defs"]["array"]["properties"]["dtype"]["enum"] == list(DTYPES)


def test_no_schema_is_shown_what_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(wire, "validate", lambda document, *_: shown.append(document))
    many = list(range(100_000))
    array = {"dtype": "int64", "shape": [100_000], "data": many}
    packed = write_array(many, HERE)
    document = COORDINATE.document()
    for stage, arguments in (
        ("forward", {"tokens": many}),
        ("admit", {"document": document}),
        ("verify", {"tree": {"paths": [many], "slots": array, "mask": packed}, "packed": array}),
    ):
        message = {"id": 10**9, "command": "stage", "session": 10**9, "stage": stage}
        read_request(json.dumps({**message, "arguments": arguments}).encode())
    start = {"id": 1, "command": "start", "session": 1, "coordinate": document, "capacity": 9}
    read_request(json.dumps(start).encode())
    read_reply(json.dumps({"id": 1, "answer": {"slots": array}}).encode())
    read_reply(json.dumps({"id": 1, "error": "x" * 100_000}).encode())
    assert len(shown) == 6
    assert max(len(json.dumps(document)) for document in shown) < 600


def test_a_line_has_a_greatest_size() -> None:
    with pytest.raises(InputError, match=r"^reply: takes 67,10"):
        write_line({"id": 1, "error": "x" * LINE_LIMIT}, "reply")


def test_a_text_is_told_in_one_short_line() -> None:
    assert short("a\nb\x1b[0m") == "a\\nb\\x1b[0m"
    assert short("x" * 10_000) == "x" * 500 + "…"
