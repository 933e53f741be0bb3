"""What stands in the files of a checkpoint: a config, and tensors as they are stored."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize

from medusa_spec.arrays import FloatArray
from medusa_spec.documents import parse_json
from medusa_spec.errors import InputError

ABSENT = object()
"""For a field that is to be left out: `None` is a value of JSON."""

_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


class Stored(NamedTuple):
    """One tensor of a file, its bytes as they are there."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: bytes

    def numbers(self) -> FloatArray | None:
        """Its values, `None` for what holds no floats."""
        if self.dtype == "BF16":
            # A bfloat16 is the upper half of a float32.
            halves = np.frombuffer(self.raw, "<u2").astype("<u4") << 16
            return halves.view("<f4").astype(np.float64).reshape(self.shape)
        if self.dtype not in _NUMPY:
            return None
        return np.frombuffer(self.raw, _NUMPY[self.dtype]).astype(np.float64).reshape(self.shape)

    def cast(self) -> Stored:
        """The same values in another dtype: float32, or float64 where it is that already."""
        numbers = self.numbers()
        assert numbers is not None
        name = "F64" if self.dtype == "F32" else "F32"
        return Stored(self.name, name, self.shape, numbers.astype(_NUMPY[name]).tobytes())


def read_tensors(file: Path) -> list[Stored] | None:
    """The tensors of a safetensors file, by name; `None` where it is none."""
    try:
        found = deserialize(file.read_bytes())  # type: ignore[no-untyped-call]
    except (SafetensorError, OSError):
        return None
    read = (Stored(name, t["dtype"], tuple(t["shape"]), bytes(t["data"])) for name, t in found)
    return sorted(read)


def write_tensors(file: Path, tensors: Iterable[Stored]) -> None:
    """A safetensors file of just these; the library's own writer takes no raw bytes of bfloat16."""
    header: dict[str, Any] = {}
    data = b""
    for name, dtype, shape, raw in tensors:
        ends = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": ends}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def listed(folder: Path) -> list[dict[str, Any]]:
    """Every tensor of a folder's safetensors files: where it is, its form, its bytes' SHA-256."""
    return [
        {
            "file": file.relative_to(folder).as_posix(),
            "tensor": stored.name,
            "dtype": stored.dtype,
            "shape": list(stored.shape),
            "sha256": hashlib.sha256(stored.raw).hexdigest(),
        }
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        for stored in read_tensors(file) or ()
    ]


def read_config(file: Path) -> Any:
    """The JSON of a config, `None` where there is none or it is no JSON."""
    try:
        return parse_json(file.read_text("utf-8"), file.name)
    except (InputError, OSError, UnicodeDecodeError):
        return None


def with_field(config: Any, key: str, value: Any) -> Any:
    """The config with another value there; without the field at all for `ABSENT`."""
    first, _, rest = key.partition(".")
    inside = with_field(config[first], rest, value) if rest else value
    kept = {name: item for name, item in config.items() if name != first}
    return kept if inside is ABSENT else kept | {first: inside}
