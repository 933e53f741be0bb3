"""The line protocol: requests and replies as JSON lines (`spec/line-protocol.md`).

A message's envelope is held to its schema. What grows with a model, the lists and the arrays, is
read by hand, so that looking at a message costs no more than reading it. Every fault is an
`InputError` that names the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medusa_spec.claims import facts_from
from medusa_spec.coordinate import Policy, Release
from medusa_spec.documents import parse_json, validate
from medusa_spec.errors import InputError, one_line
from medusa_spec.loading import (
    calibration_from,
    exactness_from,
    training_from,
    workload_from,
)
from medusa_spec.stages import STAGES, Frontier, HeadState, TreeBuffers, answer_of
from medusa_spec.wire_array import LINE_LIMIT, Arrays, Place, read_array, shown, write_array

PROTOCOL = 1

TEXT_LIMIT = 500
"""Characters of a text that are told, or shown to a schema, which bounds it to fewer."""


class Form(NamedTuple):
    """How one kind of value is written on a line, and read from one."""

    write: Callable[[Any, Place], Any]
    read: Callable[[Any, Place], Any]


def write_line(message: Mapping[str, Any], source: str) -> bytes:
    """One message, its line break included. `source` is "request" or "reply"."""
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    if len(line) > LINE_LIMIT:
        raise InputError(source, "", f"takes {len(line):,} bytes; a line has {LINE_LIMIT:,}")
    return line


def read_request(line: bytes) -> dict[str, Any]:
    """A request whose envelope keeps `line_request.schema.json`; arguments are still written."""
    message = _parse(line, "request")
    validate(_hollow("", message), "line_request", "request")
    request: dict[str, Any] = message
    return request


def read_reply(line: bytes) -> dict[str, Any]:
    """A reply whose envelope keeps `line_reply.schema.json`; its answer is still written."""
    message = _parse(line, "reply")
    envelope = message
    if isinstance(message, dict):
        # What an answer has to be depends on what was asked: `read_answer` looks at it.
        envelope = {key: _hollow(key, item) for key, item in message.items() if key != "answer"}
        envelope |= {"answer": None} if "answer" in message else {}
    validate(envelope, "line_reply", "reply")
    reply: dict[str, Any] = message
    return reply


def read_capabilities(answer: Any) -> dict[str, Any]:
    """The answer to `capabilities`, which keeps `line_capabilities.schema.json`."""
    validate(answer, "line_capabilities", "reply")
    capabilities: dict[str, Any] = answer
    return capabilities


def write_arguments(stage: str, given: Sequence[Any], arrays: Arrays) -> dict[str, Any]:
    """The arguments of a stage by name, from values in the order of `STAGES`."""
    place = Place("request", "arguments", arrays)
    return {
        name: form.write(value, place.at(name))
        for (name, form), value in zip(ARGUMENTS[stage].items(), given, strict=True)
    }


def read_arguments(stage: str, written: Mapping[str, Any]) -> list[Any]:
    """The arguments of a stage as Python values, in the order of `STAGES`."""
    place = Place("request", "arguments")
    return [form.read(written[name], place.at(name)) for name, form in ARGUMENTS[stage].items()]


def write_answer(stage: str, answer: Any, arrays: Arrays) -> Any:
    """What a stage answered, any object or mapping with the fields of its answer, written down.

    `TypeError`, `ValueError` or `InputError` where it has none of them or one of another form.
    """
    kind = STAGES[stage].answer
    return ANSWERS[stage].write(answer_of(kind, answer), Place("reply", "answer", arrays))


def read_answer(stage: str, written: Any) -> Any:
    """A stage's answer: a number, a document, or a mapping of its fields, absent ones `None`."""
    return ANSWERS[stage].read(written, Place("reply", "answer"))


def plain(value: Any, place: Place) -> Any:
    """A document of JSON's own values; numbers of numpy become plain ones."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, place.at(str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, place.at(f"[{index}]")) for index, item in enumerate(value)]
    raise place.error(f"{shown(value)} is no JSON value")


def short(text: str) -> str:
    """A text in one line, cut where it is long: whoever failed may have quoted a whole array."""
    line = one_line(text[: TEXT_LIMIT + 1])
    return line if len(line) <= TEXT_LIMIT else f"{line[:TEXT_LIMIT]}…"


def _parse(line: bytes, source: str) -> Any:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(source, "", f"is not UTF-8 at byte {error.start}") from None
    return parse_json(text, source)


_DOCUMENTS = (
    *("coordinate", "document", "calibration", "exactness", "training", "release"),
    *("workload", "facts"),
)
_COUNTERS = ("id", "session", "capacity")


def _hollow(key: str, value: Any) -> Any:
    """A message without what is read by hand, and so nearly the same for every call of a stage.

    jsonschema would visit each of a million numbers; this much it is shown once, and remembers.
    """
    if isinstance(value, dict):
        return {} if key in _DOCUMENTS else {name: _hollow(name, v) for name, v in value.items()}
    if isinstance(value, list):
        return []
    if isinstance(value, str):
        return "" if key == "base64" else value[:TEXT_LIMIT]
    if key in _COUNTERS and type(value) is int and value >= 0:
        return 0
    return value


def _write_integer(value: Any, place: Place) -> int:
    try:
        return int(answer_of(int, value))
    except (TypeError, ValueError):
        raise place.error(f"{shown(value)} is no integer") from None


def _read_integer(value: Any, place: Place) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise place.error(f"{shown(value)} is no integer of 64 bits")
    return value


def _write_integers(value: Any, place: Place) -> list[int]:
    if isinstance(value, list | tuple) and set(map(type, value)) <= {int}:
        return list(value)
    return [_write_integer(item, place.at(f"[{index}]")) for index, item in _entries(value, place)]


def _read_integers(value: Any, place: Place) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise place.error("is no list of integers")
    if set(map(type, value)) <= {int} and (
        not value or (min(value) >= -(2**63) and max(value) < 2**63)
    ):
        return tuple(value)
    return tuple(_read_integer(item, place.at(f"[{index}]")) for index, item in enumerate(value))


def _write_paths(value: Any, place: Place) -> list[list[int]]:
    return [_write_integers(path, place.at(f"[{index}]")) for index, path in _entries(value, place)]


def _entries(value: Any, place: Place) -> Iterator[tuple[int, Any]]:
    try:
        return enumerate(value)
    except TypeError:
        raise place.error(f"{shown(value)} is no list") from None


def _read_paths(value: Any, place: Place) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list):
        raise place.error("is no list of paths")
    return tuple(_read_integers(path, place.at(f"[{index}]")) for index, path in enumerate(value))


def _write_choices(value: Any, place: Place) -> list[Any]:
    # An engine whose dialect says so is given the branching factors of a regular tree.
    branching = isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], int)
    return _write_integers(value, place) if branching else _write_paths(value, place)


def _read_choices(value: Any, place: Place) -> tuple[Any, ...]:
    branching = isinstance(value, list) and len(value) > 0 and isinstance(value[0], int)
    return _read_integers(value, place) if branching else _read_paths(value, place)


def _read_number(value: Any, place: Place) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise place.error(f"{shown(value)} is no number")
    return value


def _part(name: str, make: Callable[[Any], Any]) -> Form:
    """A part of a coordinate, as its document has it."""

    def read(value: Any, place: Place) -> Any:
        try:
            return make(value)
        except (KeyError, TypeError, ValueError):
            raise place.error(f"is no {name} of a coordinate") from None

    return Form(lambda value, place: plain(asdict(value), place), read)


def _write_folder(value: Any, place: Place) -> Any:
    return plain(str(value), place)


def _read_text(value: Any, place: Place) -> str:
    if not isinstance(value, str):
        raise place.error(f"{shown(value)} is no string")
    return value


def _nullable(form: Form) -> Form:
    return Form(
        lambda value, place: None if value is None else form.write(value, place),
        lambda value, place: None if value is None else form.read(value, place),
    )


def _record(kind: type, make: Callable[..., Any], known: Callable[[Form], Form]) -> Form:
    """An object of the fields of a dataclass. `known` says of each form whether it may be null."""
    forms = {f.name: known(_form(str(f.type))) for f in fields(kind)}

    def write(value: Any, place: Place) -> dict[str, Any]:
        return {name: f.write(_field(value, name), place.at(name)) for name, f in forms.items()}

    def read(value: Any, place: Place) -> Any:
        if not isinstance(value, dict):
            raise place.error(f"is no object of {', '.join(forms)}")
        for name in value:
            if name not in forms:
                raise place.at(name).error(f"is no field; there are {', '.join(forms)}")
        return make(**{name: f.read(value.get(name), place.at(name)) for name, f in forms.items()})

    return Form(write, read)


def _form(declared: str) -> Form:
    return _TEXT if declared.startswith("Literal[") else _BY_TYPE[declared]


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _as_it_is(form: Form) -> Form:
    return form


_ARRAY = Form(write_array, read_array)
_INTEGER = Form(_write_integer, _read_integer)
_INTEGERS = Form(_write_integers, _read_integers)
_PATHS = Form(_write_paths, _read_paths)
_CHOICES = Form(_write_choices, _read_choices)
_NUMBER = Form(plain, _read_number)
_TEXT = Form(plain, _read_text)
_DOCUMENT = Form(plain, lambda value, _: value)

_BY_TYPE = {
    "IntArray": _ARRAY,
    "FloatArray": _ARRAY,
    "FloatArray | None": _ARRAY,
    "BoolArray": _ARRAY,
    "BoolArray | None": _ARRAY,
    "int": _INTEGER,
    "str": _TEXT,
    "float": _NUMBER,
    "Mode": _TEXT,
    "Variant": _TEXT,
    "RetrievalOrder": _TEXT,
    "tuple[int, ...]": _INTEGERS,
    "tuple[RankPath, ...]": _PATHS,
    "tuple[str, ...]": _DOCUMENT,
    "Mapping[str, str]": _DOCUMENT,
    "Mapping[str, Any]": _DOCUMENT,
    "tuple[Mapping[str, int | None], ...]": _DOCUMENT,
    "tuple[Mapping[str, Any], ...]": _DOCUMENT,
}
# Inside an answer they stay mappings, as the answer does.
_BY_TYPE["Frontier"] = _record(Frontier, dict, _nullable)
_BY_TYPE["HeadState"] = _record(HeadState, dict, _nullable)
_BY_TYPE["HeadState | None"] = _BY_TYPE["HeadState"]

_ARGUMENTS = {
    "document": _DOCUMENT,
    "state": _record(HeadState, HeadState, _nullable),
    "hidden": _ARRAY,
    "owned": _ARRAY,
    "heads": _INTEGER,
    "paths": _CHOICES,
    "topk": _INTEGER,
    "retrieval_order": _TEXT,
    "sentinel": _INTEGER,
    "branching": _INTEGERS,
    "tokens": _INTEGERS,
    "prefix": _INTEGERS,
    "tree": _record(TreeBuffers, TreeBuffers, _nullable),
    "frontier": _record(Frontier, Frontier, _nullable),
    "packed": _ARRAY,
    "candidates": _ARRAY,
    "path_logits": _ARRAY,
    "policy": _record(Policy, Policy, _as_it_is),
    "path": _INTEGER,
    "accepted": _INTEGER,
    "end_of_sequence": _nullable(_INTEGER),
    "how_many": _INTEGER,
    "calibration": _part("search", calibration_from),
    "exactness": _part("exactness", exactness_from),
    "seed": _INTEGER,
    "count": _INTEGER,
    "training": _part("training", training_from),
    "step": _INTEGER,
    "facts": _part("claims", facts_from),
    "folder": Form(_write_folder, lambda value, place: Path(_read_text(value, place))),
    "workload": _part("cost", workload_from),
    "release": _record(Release, Release, _as_it_is),
}

ARGUMENTS: Mapping[str, Mapping[str, Form]] = {
    name: {argument: _ARGUMENTS[argument] for argument in stage.arguments}
    for name, stage in STAGES.items()
} | {
    # A batch, where the other stages take one sequence.
    "align_heads": {"tokens": _ARRAY, "owned": _ARRAY, "heads": _INTEGER},
    # Without any, an engine saves the heads that it holds.
    "save_checkpoint": {
        "folder": _ARGUMENTS["folder"],
        "release": _ARGUMENTS["release"],
        "state": _nullable(_ARGUMENTS["state"]),
    },
}
"""The form of each argument of each stage, in order."""


def _answer(kind: type) -> Form:
    plain_kinds = {int: _INTEGER, object: _DOCUMENT}
    return plain_kinds.get(kind) or _record(kind, dict, _nullable)


ANSWERS: Mapping[str, Form] = {name: _answer(stage.answer) for name, stage in STAGES.items()}
"""The form of each stage's answer."""
