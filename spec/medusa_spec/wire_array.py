"""An array as a JSON object: its dtype, its shape, and its numbers as a list or as base64.

Everything is bounded before anything is allocated: the shape by the size of a line, and the data by
the shape.
"""

from __future__ import annotations

import binascii
import json
from math import isfinite, prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from medusa_spec.arrays import Array
from medusa_spec.errors import InputError

Arrays: TypeAlias = Literal["list", "base64"]
"""The two forms that the numbers of an array may have on a line."""

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of a line; an array larger than that could not have come on one."""

QUOTED = 40
"""Characters of a wrong value that an error shows."""

DIMENSIONS = 8
DIMENSION_LIMIT = 2**31

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}
"""Every dtype that may be named, little-endian as base64 writes it."""

WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""What a list writes for the floats that JSON has no numbers for."""

_KINDS: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float, str}}


class Place(NamedTuple):
    """Where in a message one stands, for the error that is raised there."""

    source: str
    field: str
    arrays: Arrays = "base64"
    """How arrays are written there."""

    def at(self, name: str) -> Place:
        """The place of a field, or, for `[3]`, of an entry."""
        field = self.field + (name if name.startswith("[") else f".{name}")
        return Place(self.source, field, self.arrays)

    def error(self, rule: str) -> InputError:
        """The error of this place."""
        return InputError(self.source, self.field, rule)


def shown(value: Any) -> str:
    """A value as JSON writes it, no more of it than an error needs."""
    return json.dumps(value, default=repr)[:QUOTED]


def write_array(value: Any, place: Place) -> dict[str, Any]:
    """The object of anything that numpy takes for an array of numbers."""
    array = np.asarray(value)
    name = array.dtype.name
    if name not in DTYPES:
        raise place.error(f"has dtype {name}, which is none of {', '.join(DTYPES)}")
    written: dict[str, Any] = {"dtype": name, "shape": list(array.shape)}
    if place.arrays == "base64":
        content = array.astype(DTYPES[name], copy=False).tobytes()
        written["base64"] = binascii.b2a_base64(content, newline=False).decode("ascii")
        return written
    numbers = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        numbers = [number if isfinite(number) else _word(number) for number in numbers]
    written["data"] = numbers
    return written


def _word(number: float) -> str:
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def read_array(value: Any, place: Place) -> Array:
    """The array that an object describes; it owns its memory and may be written to."""
    keys = value.keys() if isinstance(value, dict) else ()
    listed = keys == {"dtype", "shape", "data"}
    if not listed and keys != {"dtype", "shape", "base64"}:
        raise place.error("is no array, which is an object of dtype, shape, and data or base64")
    name, shape = value["dtype"], value["shape"]
    if not isinstance(name, str) or name not in DTYPES:
        raise place.at("dtype").error(f"{shown(name)} is none of {', '.join(DTYPES)}")
    dtype = DTYPES[name]
    _check_shape(shape, dtype, place.at("shape"))
    if listed:
        array = _from_list(value["data"], dtype, shape, place.at("data"))
    else:
        array = _from_base64(value["base64"], dtype, shape, place.at("base64"))
    return array.reshape(shape)


def _check_shape(shape: Any, dtype: np.dtype[Any], place: Place) -> None:
    if not isinstance(shape, list) or len(shape) > DIMENSIONS:
        raise place.error(f"is no list of at most {DIMENSIONS} sizes")
    for index, size in enumerate(shape):
        if type(size) is not int or not 0 <= size < DIMENSION_LIMIT:
            raise place.at(f"[{index}]").error("is no integer of 0 to 2**31 - 1")
    # An empty dimension does not make the others harmless: numpy multiplies them, too.
    size = dtype.itemsize * prod(max(size, 1) for size in shape)
    if size > LINE_LIMIT:
        raise place.error(f"{shape} asks for {size:,} bytes; at most {LINE_LIMIT:,} are read")


def _from_list(data: Any, dtype: np.dtype[Any], shape: list[int], place: Place) -> Array:
    if not isinstance(data, list):
        raise place.error("is no flat list of numbers")
    if len(data) != prod(shape):
        raise place.error(f"holds {len(data)} entries; the shape {shape} has {prod(shape)}")
    allowed = _KINDS[dtype.kind]
    if not set(map(type, data)) <= allowed:
        odd = next(index for index, entry in enumerate(data) if type(entry) not in allowed)
        raise place.at(f"[{odd}]").error(f"{shown(data[odd])} is of no kind that {dtype.name} has")
    if dtype.kind == "f":
        return _floats(data, dtype, place)
    if dtype.kind in "iu" and data:
        bounds = np.iinfo(dtype)
        least, greatest = min(data), max(data)
        if least < bounds.min or greatest > bounds.max:
            raise place.error(f"holds an integer beyond {dtype.name}")
    return np.array(data, dtype)


def _floats(data: list[Any], dtype: np.dtype[Any], place: Place) -> Array:
    words = [index for index, entry in enumerate(data) if type(entry) is str]
    if words:
        data = list(data)
        for index in words:
            if data[index] not in WORDS:
                rule = f"{shown(data[index])} is none of {', '.join(WORDS)}"
                raise place.at(f"[{index}]").error(rule)
            data[index] = WORDS[data[index]]
    try:
        with np.errstate(over="ignore"):
            array = np.array(data, np.float64).astype(dtype)
    except OverflowError:
        array = np.full(1, np.inf)
    # JSON's 1e999 is read as an infinity, and none may stand where no word says so.
    if np.count_nonzero(~np.isfinite(array)) > len(words):
        raise place.error(f"holds a number beyond {dtype.name}")
    return array


def _from_base64(text: Any, dtype: np.dtype[Any], shape: list[int], place: Place) -> Array:
    if not isinstance(text, str):
        raise place.error("is no string")
    size = dtype.itemsize * prod(shape)
    if len(text) != 4 * -(-size // 3):
        raise place.error(f"has {len(text)} characters; {size} bytes take {4 * -(-size // 3)}")
    try:
        content = binascii.a2b_base64(text, strict_mode=True) if text else b""
    except ValueError as error:
        raise place.error(f"is no base64: {error}") from None
    if len(content) != size:
        raise place.error(f"holds {len(content)} bytes; {dtype.name} {shape} takes {size}")
    if dtype.kind == "b" and content.strip(b"\0\1"):
        raise place.error("holds a byte that is neither 0 nor 1")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))
