"""The two containers of a trace file, `.npz` and `.safetensors`: a text, and arrays by name.

Both are read without trust. Sizes are known before anything is allocated, a stored array is as
long as its shape says, and what is read is of a known form: bool, int64 or float64, of which the
last two hold every narrower number exactly.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from medusa_spec.arrays import Array
from medusa_spec.documents import SIZE_LIMIT, parse_json
from medusa_spec.errors import InputError
from medusa_spec.trace_names import ARRAYS, judged_shape, unknown_name

MEMORY_LIMIT = 2 * 1024**3
"""Bytes that the arrays of one trace may take once they are read."""

READ_LIMIT = 128 * 1024
"""Bytes read from a zip file at once, and so of its directory; a whole trace has one of 10 kB."""

_HEADER = "header"
_TEXT = "medusa"
_METADATA = "__metadata__"

# A bfloat16 is the upper half of a float32, and numpy has no name for it.
_STORED = {
    **{"BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4"},
    **{"I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": "<u2", "F32": "<f4"},
    "F64": "<f8",
}
_NAMED = {np.dtype(code): name for name, code in _STORED.items() if name != "BF16"}


@dataclass(slots=True)
class Room:
    """What the arrays of one file may be and take up, in the order in which they are met."""

    source: str
    names: set[str] = field(default_factory=set)
    left: int = MEMORY_LIMIT

    def meet(self, name: str) -> None:
        """Take note of a name; `InputError` where no oracle knows it, or it is there already."""
        if name not in ARRAYS:
            raise unknown_name(self.source, name)
        if name in self.names:
            raise InputError(self.source, name, "is given twice")
        self.names.add(name)

    def admit(self, name: str, shape: tuple[int, ...], dtype: Any, stored: int) -> tuple[int, ...]:
        """The shape to be judged, for an array that takes `stored` bytes of its file.

        Raises `InputError` for the first rule that it breaks.
        """
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            rule = f"dtype {str(dtype)[:40]}; needed are numbers of at most 8 bytes"
            raise InputError(self.source, name, rule)
        judged = judged_shape(self.source, name, shape)
        if any(size < 0 for size in shape):
            raise InputError(self.source, name, f"shape {list(shape)} has a negative size")
        numbers = math.prod(shape)
        if numbers * dtype.itemsize != stored:
            rule = f"shape {list(shape)} of {dtype} takes {numbers * dtype.itemsize:,} bytes"
            raise InputError(self.source, name, f"{rule}, and there are {stored:,}")
        self.left -= numbers * (1 if dtype.kind == "b" else 8)
        if self.left < 0:
            rule = f"with it, the arrays take more than {MEMORY_LIMIT:,} bytes of memory"
            raise InputError(self.source, name, rule)
        return judged


def write_npz(stream: IO[bytes], text: str, arrays: Mapping[str, Array]) -> None:
    """A zip file of one `.npy` member an array; the text is the bytes of the member `header`."""
    header = np.frombuffer(text.encode(), np.uint8)
    np.savez(stream, **{_HEADER: header}, **arrays)  # type: ignore[arg-type]


def read_npz(path: Path) -> tuple[str, dict[str, Array]]:
    """The text and the arrays of an npz file, compressed or not."""
    source = str(path)
    room, text, arrays = Room(source), None, dict[str, Array]()
    with _Bounded(path) as stream, zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name != _HEADER:
                room.meet(name)
            elif text is not None:
                raise InputError(source, name, "is given twice")
            # Others unpack without a bound, or need a password.
            plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not plain or info.flag_bits & 1:
                raise InputError(source, name, "is neither stored nor deflated")
            with archive.open(info) as member:
                if name == _HEADER:
                    text = _npy_text(source, member, info.file_size)
                else:
                    shape, fortran, dtype, stored = _npy_head(member, info.file_size)
                    judged = room.admit(name, shape, dtype, stored)
                    raw = _numbers(member.read(stored), dtype)
                    raw = raw.reshape(shape[::-1]).T if fortran else raw.reshape(shape)
                    arrays[name] = _widened(source, name, raw.reshape(judged))
    if text is None:
        raise InputError(source, _HEADER, "there is no such member")
    return text, arrays


class _Bounded(io.FileIO):
    """A file that gives little at a time: `zipfile` asks for a directory of any size in one go."""

    def read(self, size: int | None = -1, /) -> bytes:
        asked = READ_LIMIT if size is None or size < 0 else min(size, READ_LIMIT)
        return super().read(asked)


def _npy_head(member: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, Any, int]:
    """Shape, whether in Fortran's order, dtype, and the bytes behind the head of an `.npy`."""
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"version {version} of npy")
    return shape, fortran, dtype, size - member.tell()


def _npy_text(source: str, member: IO[bytes], size: int) -> str:
    if size > SIZE_LIMIT:
        rule = f"is {size:,} bytes; at most {SIZE_LIMIT:,} are read"
        raise InputError(source, _HEADER, rule)
    shape, _, dtype, stored = _npy_head(member, size)
    if dtype != np.uint8 or shape != (stored,):
        rule = f"is {dtype} of shape {list(shape)}; expected are the bytes of a text"
        raise InputError(source, _HEADER, rule)
    return member.read(stored).decode()


def write_safetensors(stream: IO[bytes], text: str, arrays: Mapping[str, Array]) -> None:
    """A length, a JSON head, and the numbers; the text is the metadata entry `medusa`."""
    head: dict[str, Any] = {_METADATA: {_TEXT: text}}
    end = 0
    # Widest first, so that each array is aligned to its numbers.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        dtype = _NAMED[array.dtype]
        head[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    encoded = json.dumps(head).encode()
    encoded += b" " * (-len(encoded) % 8)
    stream.write(struct.pack("<Q", len(encoded)) + encoded)
    for _, array in ordered:
        stream.write(array.tobytes())


def read_safetensors(path: Path) -> tuple[str, dict[str, Array]]:
    """The text and the arrays of a safetensors file."""
    source = str(path)
    room, arrays = Room(source), dict[str, Array]()
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size - 8
        (length,) = struct.unpack("<Q", stream.read(8))
        # The text is a JSON string in here, whose quotation marks are escaped once more.
        if length > 2 * SIZE_LIMIT:
            rule = f"the head is {length:,} bytes; at most {2 * SIZE_LIMIT:,} are read"
            raise InputError(source, "", rule)
        if length > size:
            rule = f"the head is {length:,} bytes, and the file ends after {size:,} of them"
            raise InputError(source, "", rule)
        head = parse_json(stream.read(length).decode(), source)
        text = head.pop(_METADATA, {}).get(_TEXT)
        if not isinstance(text, str):
            raise InputError(source, f"{_METADATA}.{_TEXT}", "there is no such text")
        end = 0
        for name, kind, shape, begin, stop in sorted(_entries(room, head), key=lambda e: e[3:]):
            if begin != end or stop < begin:
                rule = f"its numbers begin at {begin}, and those before it end at {end}"
                raise InputError(source, name, rule)
            end = stop
            dtype = np.dtype(_STORED[kind])
            judged = room.admit(name, shape, dtype, stop - begin)
            if stop > size - length:
                raise InputError(source, name, "the file ends within its numbers")
            raw = _numbers(stream.read(stop - begin), dtype)
            if kind == "BF16":
                raw = (raw.astype(np.uint32) << 16).view(np.float32)
            arrays[name] = _widened(source, name, raw.reshape(judged))
        if end != size - length:
            raise InputError(source, "", f"{size - length - end:,} bytes belong to no array")
    return text, arrays


def _entries(
    room: Room, head: Mapping[str, Any]
) -> Iterator[tuple[str, str, tuple[int, ...], int, int]]:
    for name, entry in head.items():
        room.meet(name)
        kind, shape, (begin, stop) = (entry[key] for key in ("dtype", "shape", "data_offsets"))
        if kind not in _STORED:
            rule = f"dtype {str(kind)[:40]}; read are {', '.join(_STORED)}"
            raise InputError(room.source, name, rule)
        if not all(type(number) is int for number in (*shape, begin, stop)):
            raise InputError(room.source, name, "a shape or an offset is no integer")
        yield name, kind, tuple(shape), begin, stop


def _numbers(data: bytes, dtype: Any) -> Array:
    """The numbers of some bytes. Of a boolean's 256 patterns numpy knows what to do with two."""
    return np.frombuffer(data, np.uint8) != 0 if dtype.kind == "b" else np.frombuffer(data, dtype)


def _widened(source: str, name: str, raw: Array) -> Array:
    """The same numbers in the widest form of their kind, in memory of their own."""
    if raw.dtype.kind == "u" and raw.size and raw.max() > np.iinfo(np.int64).max:
        raise InputError(source, name, f"{raw.max()} is beyond a signed 64-bit integer")
    wide = {"b": np.bool_, "f": np.float64}.get(raw.dtype.kind, np.int64)
    return raw.astype(wide)
