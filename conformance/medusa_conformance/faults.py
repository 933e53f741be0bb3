"""Checkpoints of which one thing is broken (chapter `checkpoint`): real files, edited in place."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from medusa_conformance.stored import (
    ABSENT,
    Stored,
    read_config,
    read_tensors,
    with_field,
    write_tensors,
)
from medusa_spec.documents import field_of
from medusa_spec.stages import HeadState, SavedCheckpoint

MARKER = "executed"
"""The folder beside a checkpoint that planted code would make."""

_DTYPES = ("float64", "float32", "float16", "bfloat16")
_VARIANTS = ("medusa-1", "medusa-2", "self-distilled")
_PROJECTIONS = ("independent", "shared")
_BREAKS = {"heads": "HEAD_COUNT", "projection": "REPRESENTATION"}


class Fault(NamedTuple):
    """How a copy of a checkpoint is broken, and the rule that it then breaks."""

    breaks: str
    what: str
    corrupt: Callable[[Path], None]
    plants: bool = False
    beside: bool = False
    """Whether nothing but what was planted is new, so that the rest may be loaded."""


@dataclass(frozen=True, slots=True)
class Written:
    """A lawful checkpoint: its folder, what its engine said of it, and the heads that it holds.

    `seed` says which of several tensors is broken. Where the backbone is not `changed`, nobody has
    to read what is there of it.
    """

    folder: Path
    answer: SavedCheckpoint
    held: HeadState | None
    seed: int
    changed: bool

    @property
    def config(self) -> Any:
        """The config as it stands on disk."""
        return read_config(self.folder / self.answer.config)

    @property
    def alone(self) -> list[str]:
        """The files of a changed backbone or its adapter that hold no heads."""
        return [name for name in self.backbone if name not in self.answer.heads]

    @property
    def backbone(self) -> tuple[str, ...]:
        """The files of a changed backbone or its adapter."""
        return self.answer.backbone if self.changed else ()

    def names(self, word: str) -> bool:
        """Whether the config on disk names a word of the identity."""
        key = self.answer.fields.get(word)
        return key is not None and field_of(self.config, key) is not None

    def tensors(self) -> Iterator[tuple[str, list[Stored]]]:
        """The files of the heads that can be looked into, with what they hold."""
        for name in self.answer.heads:
            found = read_tensors(self.folder / name)
            if found:
                yield name, found


def faults(written: Written) -> Iterator[Fault]:
    """Every fault of an honest hand that this checkpoint can have."""
    yield from _of_identity(written)
    yield from _of_files(written)
    for name, stored in written.tensors():
        yield from _of_tensors(written, name, stored)
        yield from _of_heads(written, name, stored)
    for name in written.alone:
        found = read_tensors(written.folder / name)
        if found:
            yield from _of_tensors(written, name, found)


def _of_identity(written: Written) -> Iterator[Fault]:
    """Each word of the identity, left out, and with another value."""
    config, fields = written.config, written.answer.fields
    for word, key in fields.items():
        value = field_of(config, key)
        if value is None:
            continue
        code = f"CHECKPOINT.{_BREAKS.get(word, 'IDENTITY')}"
        yield Fault(code, f"its config names no {word}", partial(_set, written, {word: ABSENT}))
        what = f"its config names null as {word}"
        yield Fault(code, what, partial(_set, written, {word: None}))
        for other in _others(word, value):
            what = f"its config names {json.dumps(other)} as {word}, not {json.dumps(value)}"
            yield Fault(code, what, partial(_set, written, {word: other}))


def _others(word: str, value: Any) -> tuple[Any, ...]:
    known = {"dtype": _DTYPES, "variant": _VARIANTS, "projection": _PROJECTIONS}.get(word)
    if known is not None:
        return tuple(other for other in known if other != str(value).removeprefix("torch."))
    if isinstance(value, int):
        return value - 1, value + 1
    # An abbreviation may name more than one revision, and an end more than one owner's model.
    return f"{value}-other", f"other-{value}", str(value)[: len(str(value)) // 2]


def _set(written: Written, values: dict[str, Any], folder: Path) -> None:
    config = written.config
    for word, value in values.items():
        config = with_field(config, written.answer.fields[word], value)
    (folder / written.answer.config).write_text(json.dumps(config), "utf-8")


def _of_files(written: Written) -> Iterator[Fault]:
    """Files that are not there, have another name, or end early."""
    answer, alone = written.answer, written.alone
    for code, names in (
        ("FILENAME_ABI", (answer.config, *answer.heads)),
        ("MEDUSA2_SHIPS_BACKBONE", alone),
    ):
        for name in names:
            yield Fault(f"CHECKPOINT.{code}", f"{name} is not there", partial(_remove, name))
    for name in answer.heads:
        what = f"{name} is called {_old(name).name}"
        yield Fault("CHECKPOINT.FILENAME_ABI", what, partial(_rename, name))
    for name in (answer.config, *answer.heads, *alone):
        for what, change in (("ends in its middle", _halve), ("holds other text", _scribble)):
            code = "CHECKPOINT.ALL_OR_NOTHING"
            yield Fault(code, f"{name} {what}", partial(change, name))


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _old(name: str) -> Path:
    return Path(name).with_name(f"old-{Path(name).name}")


def _rename(name: str, folder: Path) -> None:
    (folder / name).rename(folder / _old(name))


def _halve(name: str, folder: Path) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])


def _scribble(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"this is no checkpoint\n")


def _of_tensors(written: Written, name: str, stored: list[Stored]) -> Iterator[Fault]:
    """One tensor that is missing, superfluous, misnamed, misshapen, or of another dtype."""
    mine = _heads_in(written, stored)
    chosen = [tensor for tensor in stored if tensor.name in mine] or stored
    one = chosen[written.seed % len(chosen)]
    others = [tensor for tensor in stored if tensor is not one]
    extras = [one._replace(name=n) for n in ("no_head_of_these.weight", f"{one.name}_extra")]
    changes = [
        (f"{one.name} is not in {name}", others),
        *((f"{name} holds {extra.name}", [*stored, extra]) for extra in extras),
        (f"{one.name} is called old_{one.name}", [*others, one._replace(name=f"old_{one.name}")]),
    ]
    if one.raw and one.shape and one.shape[-1] > 1:
        *outer, last = one.shape
        size = len(one.raw) // int(np.prod(one.shape))
        short = np.frombuffer(one.raw, f"V{size}").reshape(one.shape)[..., :-1]
        cut = Stored(one.name, one.dtype, (*outer, last - 1), short.tobytes())
        changes.append((f"{one.name} is one column short", [*others, cut]))
    if len(one.shape) > 1:
        flat = one._replace(shape=(int(np.prod(one.shape)),))
        changes.append((f"{one.name} has one axis", [*others, flat]))
    if one.numbers() is not None:
        changes.append((f"{one.name} has another dtype than the others", [*others, one.cast()]))
        every = [t if t.numbers() is None else t.cast() for t in stored]
        changes.append((f"every tensor of {name} has another dtype", every))
    for what, tensors in changes:
        yield Fault("CHECKPOINT.STRICT_KEYS", what, partial(_rewrite, name, tensors))


def _of_heads(written: Written, name: str, stored: list[Stored]) -> Iterator[Fault]:
    """What belongs together is left out together, as far as it is told by its values."""
    mine = _heads_in(written, stored)
    if not mine:
        return
    count = 1 + max(head for head, _ in mine.values())
    fewer = [t for t in stored if t.name not in mine or mine[t.name][0] < count - 1]
    if len(fewer) < len(stored):
        what = f"no tensor of head {count - 1} is in {name}"
        code = "CHECKPOINT.HEAD_COUNT"
        yield Fault(code, what, partial(_rewrite, name, fewer))
        if written.names("heads"):
            what += f", and its config names {count - 1} heads"
            set_too = partial(_set, written, {"heads": count - 1})
            yield Fault(code, what, partial(_both, partial(_rewrite, name, fewer), set_too))
    bare = [t for t in stored if t.name not in mine or mine[t.name][1] != "projection"]
    if len(bare) < len(stored):
        what = f"no projection of a head is in {name}"
        code = "CHECKPOINT.REPRESENTATION"
        yield Fault(code, what, partial(_rewrite, name, bare))
        if written.names("projection"):
            what += ", and its config names the shared one"
            set_too = partial(_set, written, {"projection": "shared"})
            yield Fault(code, what, partial(_both, partial(_rewrite, name, bare), set_too))
    rest = [t for t in stored if t.name in mine]
    if name in written.backbone and len(rest) < len(stored):
        what = f"nothing but heads is in {name}"
        yield Fault("CHECKPOINT.MEDUSA2_SHIPS_BACKBONE", what, partial(_rewrite, name, rest))


def _heads_in(written: Written, stored: Iterable[Stored]) -> dict[str, tuple[int, str]]:
    """The tensors that hold a head's parameter, told by their values: which head's, and which."""
    if written.held is None:
        return {}
    known = {}
    for part in ("weight", "bias", "projection"):
        array = getattr(written.held, part)
        for head, own in enumerate(() if array is None else array):
            for piece in (own,) if part == "projection" else own:
                known[piece.shape, np.ascontiguousarray(piece, np.float64).tobytes()] = head, part
    found = {}
    for tensor in stored:
        numbers = tensor.numbers()
        if numbers is not None and (key := (tensor.shape, numbers.tobytes())) in known:
            found[tensor.name] = known[key]
    return found


def _rewrite(name: str, tensors: list[Stored], folder: Path) -> None:
    write_tensors(folder / name, tensors)


def _both(first: Callable[[Path], None], second: Callable[[Path], None], folder: Path) -> None:
    first(folder)
    second(folder)


class _Bomb:
    """A pickle of it makes a folder where it is loaded."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self._marker),)


def planted(written: Written) -> Iterator[Fault]:
    """A pickle in the place of a file, or beside all, under the names that pickles have."""
    code = "CHECKPOINT.RUNS_NO_CODE"
    for other in _BESIDE:
        if not (written.folder / other).exists():
            what = f"a pickle called {other} is beside its files"
            yield Fault(code, what, partial(_plant, None, other, False), plants=True, beside=True)
    for name in (*written.answer.heads, *written.alone):
        stem = Path(name).stem
        usual = _USUAL if name in written.answer.heads else ()
        for other in dict.fromkeys((Path(name).name, f"{stem}.pt", f"{stem}.bin", *usual)):
            what = f"a pickle called {other} is in the place of {name}"
            yield Fault(code, what, partial(_plant, name, other, False), plants=True)
        other = f"{stem}.pt"
        what = f"an archive with a pickle, called {other}, is in the place of {name}"
        yield Fault(code, what, partial(_plant, name, other, True), plants=True)


_USUAL = ("medusa_lm_head.pt", "pytorch_model.bin")
"""Names that loaders of heads have been seen to fall back to."""

_BESIDE = (*_USUAL, "training_args.bin")


def _plant(name: str | None, other: str, archived: bool, folder: Path) -> None:
    place = folder / other
    if name is not None:
        (folder / name).unlink()
        place = (folder / name).with_name(other)
    bomb = _Bomb(folder.with_name(f"{folder.name}-{MARKER}"))
    # Of the protocol that torch writes, so that no loader has that to complain of.
    pickled = pickle.dumps(bomb, 2)
    content = _zipped(pickled) if archived else pickled
    place.write_bytes(content)


def _zipped(pickled: bytes) -> bytes:
    """As torch writes since its release 1.6."""
    stream = BytesIO()
    with ZipFile(stream, "w") as archive:
        for name, content in (("data.pkl", pickled), ("version", b"3\n"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", content)
    return stream.getvalue()


def executed(folder: Path) -> bool:
    """Whether what was planted in a folder has run."""
    return folder.with_name(f"{folder.name}-{MARKER}").exists()
