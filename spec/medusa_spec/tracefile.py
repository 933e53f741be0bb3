"""Trace files: one round in one file, as `spec/traces.md` describes.

A server writes some of its rounds while it decodes, and they are judged elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from medusa_spec.arrays import Array, DType, numpy_of
from medusa_spec.containers import (
    Room,
    read_npz,
    read_safetensors,
    write_npz,
    write_safetensors,
)
from medusa_spec.coordinate import Coordinate, ModelShape, Policy, Source, canonical_order
from medusa_spec.dialect import Dialect, dialect_from
from medusa_spec.documents import SIZE_LIMIT, parse_json, validate
from medusa_spec.errors import InputError
from medusa_spec.files import written_whole
from medusa_spec.lawful import LEGACY_ONLY
from medusa_spec.loading import coordinate_from, source_pin
from medusa_spec.trace import Tolerance, Trace
from medusa_spec.trace_names import documents, is_refusal, unknown_name

FORMAT = "medusa-trace/1"

REASON_LIMIT = 200
"""Characters of what a parser says of rubbish: it may quote all of it."""

_READERS: Mapping[str, Callable[[Path], tuple[str, dict[str, Array]]]] = {
    ".npz": read_npz,
    ".safetensors": read_safetensors,
}
SUFFIXES = tuple(_READERS)
"""What the name of a trace file ends in."""

_WRITERS = {".npz": write_npz, ".safetensors": write_safetensors}


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a trace file holds: one round, and who decoded it.

    Arrays are bool, int64 or float64, whatever was stored. `dtype` is that of the engine's forward
    pass; `engine` has a `name` and perhaps a `version`. Whatever the `dialect`, the arrays are in
    canonical form: whoever wrote them has normalised them, as far as that can be done.
    """

    path: Path
    coordinate: Coordinate
    dtype: DType
    generation: int
    round: int
    engine: Mapping[str, Any] | None
    dialect: Dialect
    arrays: Mapping[str, Array]
    documents: Mapping[str, Any]

    def trace(self, tolerance: Tolerance, policy_tolerance: Tolerance) -> Trace:
        """The round to judge, with the tolerance of `dtype` and that of a policy's arithmetic."""
        return Trace(
            self.coordinate,
            tolerance,
            policy_tolerance,
            self.arrays,
            self.documents,
            self.generation,
            self.round,
            self.dialect,
        )


def served_coordinate(
    tokens: Sequence[int],
    paths: Sequence[Sequence[int]],
    *,
    topk: int,
    heads: int,
    vocabulary: int,
    policy: Policy,
    end_of_sequence: int | None,
) -> Coordinate:
    """The coordinate of a round that somebody's server decoded behind `tokens`.

    All arguments decide what is expected of the round. The other fields do not: the cache is as
    large as the round needs, and the model as small as one can be. Whoever writes `heads.*` puts in
    the model's own shape with `dataclasses.replace`.
    """
    pin = source_pin()
    files = {name: digest for name, digest in pin["files"].items() if name not in LEGACY_ONLY}
    return Coordinate(
        name="served",
        source=Source(pin["repository"], pin["commit"], "current", files),
        prefix=tuple(map(int, tokens)),
        prefix_length=len(tokens),
        topk=topk,
        heads=heads,
        paths=canonical_order(paths),
        policy=policy,
        capacity=len(tokens) + len(paths) + 1,
        end_of_sequence=end_of_sequence,
        model=ModelShape(
            layers=1,
            hidden=2,
            attention_heads=1,
            kv_heads=1,
            intermediate=1,
            vocabulary=vocabulary,
            rope_theta=10000.0,
            rms_epsilon=1e-5,
            head_blocks=1,
            projection="independent",
            weight_seed=0,
        ),
    )


def write_trace(
    path: str | os.PathLike[str],
    coordinate: Coordinate,
    seen: Mapping[str, Any],
    *,
    dtype: DType,
    generation: int = 0,
    round: int = 0,
    engine: Mapping[str, Any] | None = None,
    dialect: Mapping[str, Any] | None = None,
) -> None:
    """Write what was seen of a round, `.npz` or `.safetensors` by the suffix, whole or not at all.

    `seen` has the names of a trace, arrays and documents alike. The first part of a name may stand
    for all that begin with it: `{"proposal": proposal}` for a dataclass or a mapping with `packed`,
    `table` and `candidates`, or some of them. What is `None` was not observed. Arrays are whatever
    numpy can read, and torch tensors on any device.

    Raises `InputError` for an unknown name, for an array with another number of axes, for a
    coordinate that breaks a rule, and where the file system says no.
    """
    target = Path(path)
    source = str(target)
    _reader(target)
    room = Room(source)
    arrays: dict[str, Array] = {}
    found: dict[str, Any] = {}
    for name, value in _named(seen):
        if name in documents():
            found[name] = value
        else:
            room.meet(name)
            array = _array(source, name, value)
            arrays[name] = array.reshape(room.admit(name, array.shape, array.dtype, array.nbytes))
    header = {
        "format": FORMAT,
        "coordinate": coordinate.document(),
        "dtype": dtype,
        "generation": generation,
        "round": round,
        "documents": found,
    }
    header |= {} if engine is None else {"engine": dict(engine)}
    header |= {} if dialect is None else {"dialect": dict(dialect)}
    text = _json(source, header)
    # What could not be read again is not written.
    _parsed(source, text)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(source, "", f"cannot be written: {error.strerror}") from None
    with written_whole(target) as stream:
        _WRITERS[target.suffix.lower()](stream, text, arrays)


def _named(seen: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every observed value under its whole name."""
    for part, value in seen.items():
        name = f"{above}{part}"
        if value is None and not is_refusal(name):
            continue
        if name in documents():
            yield name, value
        elif isinstance(value, Mapping):
            yield from _named(value, f"{name}.")
        elif is_dataclass(value):
            yield from _named({f.name: getattr(value, f.name) for f in fields(value)}, f"{name}.")
        else:
            yield name, value


def _array(source: str, name: str, value: Any) -> Array:
    try:
        array = numpy_of(value)
    except (TypeError, ValueError) as error:
        raise InputError(source, name, f"is no array: {error}") from None
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _json(source: str, header: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"{type(value).__name__} is no JSON value")

    try:
        return json.dumps(header, default=plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(source, "header", str(error)) from None


def read_trace(path: str | os.PathLike[str]) -> TraceFile:
    """The round in a file of any origin; `InputError` names the file, the field and the rule."""
    file = Path(path)
    source = str(file)
    read = _reader(file)
    _require_file(file)
    try:
        text, arrays = read(file)
    except OSError as error:
        raise InputError(source, "", f"cannot be read: {error.strerror or error}") from None
    except InputError:
        raise
    except Exception as error:
        # Rubbish makes a parser of a container raise anything.
        kind = file.suffix[1:].lower()
        why = f"{type(error).__name__}: {error}"[:REASON_LIMIT]
        raise InputError(source, "", f"not {kind}: {why}") from None
    header, coordinate, dialect = _parsed(source, text)
    return TraceFile(
        path=file,
        coordinate=coordinate,
        dtype=header["dtype"],
        generation=header.get("generation", 0),
        round=header.get("round", 0),
        engine=header.get("engine"),
        dialect=dialect,
        arrays=arrays,
        documents=header.get("documents", {}),
    )


def _reader(file: Path) -> Callable[[Path], tuple[str, dict[str, Array]]]:
    suffix = file.suffix.lower()
    if suffix not in _READERS:
        raise InputError(str(file), "", f"is no trace file; those end in {' or '.join(_READERS)}")
    return _READERS[suffix]


def _require_file(path: Path) -> None:
    # Whoever opens a pipe waits for one who writes to it.
    if os.path.lexists(path) and not path.is_file():
        raise InputError(str(path), "", "is no regular file")


def _parsed(source: str, text: str) -> tuple[dict[str, Any], Coordinate, Dialect]:
    """The document of a header, its coordinate, and its dialect."""
    if len(text) > SIZE_LIMIT:
        rule = f"is {len(text):,} characters; at most {SIZE_LIMIT:,} are read"
        raise InputError(source, "header", rule)
    with _within(source, "header"):
        header = parse_json(text, source)
        given = header.get("documents") if isinstance(header, dict) else None
        for name in given if isinstance(given, dict) else ():
            if name not in documents():
                raise unknown_name(source, name)
        validate(header, "trace_header", source)
    with _within(source, "header.coordinate"):
        coordinate = coordinate_from(header["coordinate"], source)
    with _within(source, "header.dialect"):
        declared = {"dtype": header["dtype"], **header.get("dialect", {})}
        dialect = dialect_from(declared, source)
        if dialect.dtype != header["dtype"]:
            rule = f"is {dialect.dtype}, and the header says {header['dtype']}"
            raise InputError(source, "dtype", rule)
    return header, coordinate, dialect


@contextmanager
def _within(source: str, part: str) -> Iterator[None]:
    """Let an error name the whole way to its field."""
    try:
        yield
    except InputError as error:
        field = f"{part}.{error.field}" if error.field else part
        raise InputError(source, field, error.rule, error.code) from None
    except RecursionError:
        raise InputError(source, part, "is nested too deeply") from None


def trace_files(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or a folder's trace files, `round-9` before `round-10`.

    Raises `InputError` where there is no such file, no trace in the folder, or something else by
    the name of one.
    """
    folder = Path(path)
    if not folder.is_dir():
        _require_file(folder)
        if not folder.exists():
            raise InputError(str(folder), "", "no such file or folder")
        _reader(folder)
        return [folder]
    try:
        found = [file for file in folder.iterdir() if file.suffix.lower() in _READERS]
    except OSError as error:
        raise InputError(str(folder), "", f"cannot be read: {error.strerror}") from None
    # A name that begins with a dot is a file in the making, or a system's own.
    found = [file for file in found if not file.name.startswith(".")]
    for file in found:
        # A trace that is left out would be one less that can fail.
        _require_file(file)
    if not found:
        raise InputError(str(folder), "", f"holds no trace: no {' and no '.join(_READERS)} file")
    return sorted(found, key=_natural)


def _natural(file: Path) -> tuple[list[int | str], str]:
    parts = re.split(r"([0-9]+)", file.name)
    # Between the numbers may stand digits of other scripts, which are no parts of these.
    return [int(part) if part.isascii() and part.isdecimal() else part for part in parts], file.name
