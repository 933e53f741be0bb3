"""What is of another form on a line is one error that names its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from medusa_spec import InputError
from medusa_spec.wire import (
    read_answer,
    read_capabilities,
    read_reply,
    read_request,
    write_arguments,
)
from medusa_spec.wire_array import Place, read_array, write_array

HERE = Place("reply", "answer")

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
