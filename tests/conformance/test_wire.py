"""What is written on a line is read from it; what is of another form is one error with a place."""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import medusa_manifests
from medusa_spec import InputError, Policy, wire
from medusa_spec.documents import schema, schema_errors
from medusa_spec.stages import STAGES, Frontier, HeadState, TreeBuffers
from medusa_spec.wire import (
    ANSWERS,
    ARGUMENTS,
    read_answer,
    read_arguments,
    read_capabilities,
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
    "tuple[Mapping[str, int | None], ...]": st.lists(mappings, max_size=2),
}


def records(kind: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass of the stages, some of whose fields were not observed."""

    def field(declared: str) -> st.SearchStrategy[Any]:
        if declared in ("Frontier", "HeadState"):
            return records({"Frontier": Frontier, "HeadState": HeadState}[declared])
        return st.none() | (arrays if "Array" in declared else BY_TYPE[declared])

    return st.fixed_dictionaries({f.name: field(str(f.type)) for f in fields(kind)}).map(
        lambda made: kind(**made)
    )


policies = st.sampled_from(
    [medusa_manifests.load(name).policy for name in ("six-node", "posterior-fast-typical")]
)
texts = st.sampled_from(["canonical", "pinned"])
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "document": mappings,
    "state": records(HeadState),
    "tree": records(TreeBuffers),
    "frontier": records(Frontier),
    "policy": policies,
    "paths": paths,
    "retrieval_order": texts,
    "end_of_sequence": st.none() | integers,
}
BY_NAME |= dict.fromkeys(("hidden", "owned", "packed", "candidates", "path_logits"), arrays)
BY_NAME |= dict.fromkeys(("branching", "tokens", "prefix"), sequences)
BY_NAME |= dict.fromkeys(("heads", "topk", "sentinel", "path", "accepted", "how_many"), integers)


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


# What is of another form is an error

FLOATS = {"dtype": "float64", "shape": [2]}
BAD_ARRAYS: dict[str, tuple[Any, str, str]] = {
    "bare list": ([1, 2], "", "is no array"),
    "null": (None, "", "is no array"),
    "both forms": ({**FLOATS, "data": [], "base64": ""}, "", "is no array"),
    "neither form": (FLOATS, "", "is no array"),
    "dtype": ({"dtype": "bfloat16", "shape": [], "data": [0]}, ".dtype", '"bfloat16" is none of'),
    "dtype list": ({"dtype": ["int8"], "shape": [], "data": [0]}, ".dtype", "is none of"),
    "object dtype": ({"dtype": "O", "shape": [], "data": [0]}, ".dtype", '"O" is none of'),
    "shape": ({**FLOATS, "shape": 2, "data": [1, 2]}, ".shape", "is no list"),
    "dimensions": ({**FLOATS, "shape": [1] * 9, "data": [1]}, ".shape", "at most 8"),
    "negative": ({**FLOATS, "shape": [2, -1], "data": []}, ".shape[1]", "is no integer"),
    "true": ({**FLOATS, "shape": [True], "data": [1]}, ".shape[0]", "is no integer"),
    "huge": ({**FLOATS, "shape": [2**20, 2**20], "data": []}, ".shape", "at most 67,108,864"),
    "hidden": ({**FLOATS, "shape": [0, 2**30, 2**30], "data": []}, ".shape", "at most"),
    "short": ({**FLOATS, "data": [1.0]}, ".data", "holds 1 entries; the shape [2] has 2"),
    "nested": ({**FLOATS, "data": [[1.0], [2.0]]}, ".data[0]", "is of no kind"),
    "word": ({**FLOATS, "data": [1.0, "nan"]}, ".data[1]", "is none of NaN"),
    "overflow": ({**FLOATS, "data": json.loads("[1, 1e999]")}, ".data", "beyond float64"),
    "digits": ({**FLOATS, "data": [1, 10**400]}, ".data", "beyond float64"),
    "float32": ({"dtype": "float32", "shape": [1], "data": [1e39]}, ".data", "beyond float32"),
    "boolean": ({"dtype": "bool", "shape": [1], "data": [1]}, ".data[0]", "1 is of no kind"),
    "integer": ({"dtype": "int64", "shape": [1], "data": [1.0]}, ".data[0]", "1.0 is of no kind"),
    "int8": ({"dtype": "int8", "shape": [1], "data": [128]}, ".data", "beyond int8"),
    "unsigned": ({"dtype": "uint64", "shape": [1], "data": [-1]}, ".data", "beyond uint64"),
    "base64 length": ({**FLOATS, "base64": "AAAA"}, ".base64", "16 bytes take 24"),
    "base64 text": ({**FLOATS, "base64": "*" * 24}, ".base64", "is no base64"),
    "base64 letters": ({**FLOATS, "base64": "é" * 24}, ".base64", "is no base64"),
    "base64 number": ({**FLOATS, "base64": 1}, ".base64", "is no string"),
    "base64 padding": (
        {"dtype": "int8", "shape": [2], "base64": base64.b64encode(b"abc").decode()},
        ".base64",
        "holds 3 bytes",
    ),
    "base64 boolean": (
        {"dtype": "bool", "shape": [3], "base64": base64.b64encode(b"\0\1\2").decode()},
        ".base64",
        "neither 0 nor 1",
    ),
}


@pytest.mark.parametrize(("value", "field", "rule"), BAD_ARRAYS.values(), ids=list(BAD_ARRAYS))
def test_no_array(value: Any, field: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_array(value, HERE)
    assert caught.value.field == f"answer{field}"
    assert rule in caught.value.rule


def test_what_numpy_has_no_number_for_is_not_written() -> None:
    for value in (np.array(["a"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8[Y]")):
        with pytest.raises(InputError, match="answer: has dtype"):
            write_array(value, HERE)


ARRAY = {"dtype": "int64", "shape": [1], "data": [0]}
BAD_ANSWERS: dict[str, tuple[str, Any, str, str]] = {
    "count": ("node_count", 2.0, "answer", "2.0 is no integer"),
    "count true": ("node_count", True, "answer", "true is no integer"),
    "count digits": ("node_count", 2**63, "answer", "is no integer of 64 bits"),
    "list": ("compile_tree", [1], "answer", "is no object of paths, slots"),
    "null": ("propose", None, "answer", "is no object of table"),
    "unknown": ("propose", {"tabel": ARRAY}, "answer.tabel", "there are table, packed"),
    "array": ("propose", {"table": [0, 1]}, "answer.table", "is no array"),
    "paths": ("compile_tree", {"paths": 3}, "answer.paths", "is no list of paths"),
    "path": ("compile_tree", {"paths": [[], 3]}, "answer.paths[1]", "is no list of integers"),
    "rank": ("compile_tree", {"paths": [[], [0.0]]}, "answer.paths[1][0]", "0.0 is no integer"),
    "nested": ("commit", {"frontier": {"target": 1}}, "answer.frontier.target", "is no array"),
    "tokens": ("generate", {"tokens": [1, None]}, "answer.tokens[1]", "null is no integer"),
}


@pytest.mark.parametrize(
    ("stage", "written", "field", "rule"), BAD_ANSWERS.values(), ids=list(BAD_ANSWERS)
)
def test_no_answer(stage: str, written: Any, field: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_answer(stage, written)
    assert (caught.value.source, caught.value.field) == ("reply", field)
    assert rule in caught.value.rule


def test_a_field_that_is_absent_was_not_observed() -> None:
    read = read_answer("propose", {"packed": ARRAY, "candidates": None})
    assert (read["table"], read["candidates"]) == (None, None)
    assert read["packed"].tolist() == [0]


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "text": (b"loading weights", "line 1 column 1: not JSON"),
    "bytes": (b'{"id": 1, "error": "\xff"}', "is not UTF-8 at byte 20"),
    "list": (b"[1]", "is not of type 'object'"),
    "nothing": (b"", "not JSON"),
    "nan": (b'{"id": 1, "answer": NaN}', "NaN is not a JSON value"),
    "twice": (b'{"id": 1, "id": 1, "answer": 0}', "id: is given twice"),
    "depth": (b"[" * 100_000, "is nested too deeply"),
    "digits": (b"1" * 5000, "too many digits"),
    "no id": (b'{"answer": 0}', "'id' is a required property"),
    "text id": (b'{"id": "1", "answer": 0}', "id: '1' is not of type"),
    "no answer": (b'{"id": 1}', "not have enough properties"),
    "two answers": (b'{"id": 1, "answer": 0, "error": "x"}', "too many properties"),
    "unknown": (b'{"id": 1, "result": 0}', "'result' was unexpected"),
    "no reason": (b'{"id": 1, "refused": true}', "refused: True is not of type 'string'"),
}


@pytest.mark.parametrize(("line", "rule"), BAD_LINES.values(), ids=list(BAD_LINES))
def test_no_reply(line: bytes, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_reply(line)
    assert str(caught.value).startswith("reply: ")
    assert rule in str(caught.value)


STAGE = {"id": 1, "command": "stage", "session": 1}
COUNT = {**STAGE, "stage": "node_count"}
BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "command": ({"id": 1, "command": "go"}, "command: 'go' is not one of"),
    "session": ({"id": 1, "command": "stage"}, "'session' is a required property"),
    "negative": ({**STAGE, "session": -1, "stage": "cache", "arguments": {}}, "session: -1"),
    "stage": ({**STAGE, "stage": "draft", "arguments": {}}, "stage: breaks the rule enum"),
    "missing": ({**COUNT, "arguments": {}}, "arguments: 'branching' is a required property"),
    "unknown": ({**COUNT, "arguments": {"branching": [], "x": 1}}, "'x' was unexpected"),
    "kind": ({**COUNT, "arguments": {"branching": 3}}, "arguments.branching: 3 is not of type"),
    "start": ({"id": 1, "command": "start", "session": 1}, "'coordinate' is a required"),
    "more": ({"id": 1, "command": "capabilities", "session": 1}, "too many properties"),
    "stop": ({"id": 1, "command": "stop", "stage": "cache"}, "'stage' was unexpected"),
}


@pytest.mark.parametrize(("message", "rule"), BAD_REQUESTS.values(), ids=list(BAD_REQUESTS))
def test_no_request(message: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_request(json.dumps(message).encode())
    assert rule in str(caught.value)


def test_arguments_of_another_form_are_the_judges_fault_and_are_named() -> None:
    for stage, values, field in (
        ("prefill", [[1, 2.5]], r"arguments.tokens\[1\]: 2.5 is no integer"),
        ("prefill", [None], "arguments.tokens: null is no list"),
        ("commit", [None, 0, None], "arguments.path: null is no integer"),
        ("label", [{"mode": float("nan")}], "arguments.policy.mode: NaN is no JSON value"),
    ):
        with pytest.raises(InputError, match=f"^request: {field}"):
            write_arguments(stage, values, "list")
    with pytest.raises(ValueError, match="argument"):
        write_arguments("cache", [1], "list")


CAPABILITIES: dict[str, Any] = {
    "protocol": 1,
    "name": "mine",
    "version": None,
    "language": "C++",
    "stages": ["verify"],
    "dialect": {},
    "arrays": "list",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protocol", 2),
        ("name", ""),
        ("version", 1),
        ("language", "x" * 201),
        ("stages", ["verify", "verify"]),
        ("stages", ["draft"]),
        ("dialect", []),
        ("arrays", "hex"),
    ],
)
def test_no_capabilities(field: str, value: Any) -> None:
    assert read_capabilities(CAPABILITIES) == CAPABILITIES
    with pytest.raises(InputError, match=f"^reply: {field}"):
        read_capabilities({**CAPABILITIES, field: value})
    with pytest.raises(InputError, match=f"'{field}' is a required property"):
        read_capabilities({k: v for k, v in CAPABILITIES.items() if k != field})


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
