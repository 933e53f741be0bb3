"""Checkpoints of which one thing is broken (chapter `checkpoint`): real files, edited in place."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medusa_conformance.stored import (
    Stored,
    field_of,
    read_config,
    read_tensors,
    with_field,
    write_tensors,
)
from medusa_spec.stages import HeadState, SavedCheckpoint

MARKER = "executed"
"""The folder beside a checkpoint that planted code would make."""

_DTYPES = ("float16", "float32")
_VARIANTS = ("medusa-1", "medusa-2", "self-distilled")
_PROJECTIONS = ("independent", "shared")
_BREAKS = {"heads": "HEAD_COUNT", "projection": "REPRESENTATION"}


class Fault(NamedTuple):
    """How a copy of a checkpoint is broken, and the rule that it then breaks."""

    breaks: str
    what: str
    corrupt: Callable[[Path], None]
    plants: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A lawful checkpoint: its folder, what its engine said of it, and the heads that it holds.

    `seed` says which of several tensors is broken.
    """

    folder: Path
    answer: SavedCheckpoint
    held: HeadState | None
    seed: int

    @property
    def config(self) -> Any:
        """The config as it stands on disk."""
        return read_config(self.folder / self.answer.config)

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


def _of_identity(written: Written) -> Iterator[Fault]:
    """Each word of the identity, left out, and with another value."""
    config, fields = written.config, written.answer.fields
    for word, key in fields.items():
        value = field_of(config, key)
        if value is None:
            continue
        code = f"CHECKPOINT.{_BREAKS.get(word, 'IDENTITY')}"
        yield Fault(code, f"its config names no {word}", partial(_set, written, {word: None}))
        for other in _others(word, value):
            what = f"its config names {json.dumps(other)} as {word}, not {json.dumps(value)}"
            yield Fault(code, what, partial(_set, written, {word: other}))


def _others(word: str, value: Any) -> tuple[Any, ...]:
    if word == "heads" and isinstance(value, int):
        return value - 1, value + 1
    known = {"dtype": _DTYPES, "variant": _VARIANTS, "projection": _PROJECTIONS}.get(word)
    if known is not None:
        return tuple(other for other in known if other not in str(value))[:1]
    return (value + 1 if isinstance(value, int) else f"{value}-other",)


def _set(written: Written, values: dict[str, Any], folder: Path) -> None:
    config = written.config
    for word, value in values.items():
        config = with_field(config, written.answer.fields[word], value)
    (folder / written.answer.config).write_text(json.dumps(config), "utf-8")


def _of_files(written: Written) -> Iterator[Fault]:
    """Files that are not there, have another name, or end early."""
    answer = written.answer
    alone = [name for name in answer.backbone if name not in answer.heads]
    for code, names in (
        ("FILENAME_ABI", (answer.config, *answer.heads)),
        ("MEDUSA2_SHIPS_BACKBONE", alone),
    ):
        for name in names:
            yield Fault(f"CHECKPOINT.{code}", f"{name} is not there", partial(_remove, name))
    for name in answer.heads:
        what = f"{name} is called old-{name}"
        yield Fault("CHECKPOINT.FILENAME_ABI", what, partial(_rename, name))
    for name in (answer.config, *answer.heads, *alone):
        for what, change in (("ends in its middle", _halve), ("holds other text", _scribble)):
            code = "CHECKPOINT.ALL_OR_NOTHING"
            yield Fault(code, f"{name} {what}", partial(change, name))


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()


def _rename(name: str, folder: Path) -> None:
    (folder / name).rename(folder / f"old-{name}")


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
    extra = Stored("no_head_of_these.weight", one.dtype, one.shape, one.raw)
    changes = [
        (f"{one.name} is not in {name}", others),
        (f"{name} holds {extra.name}", [*stored, extra]),
        (f"{one.name} is called old_{one.name}", [*others, one._replace(name=f"old_{one.name}")]),
    ]
    if one.raw and one.shape and one.shape[-1] > 1:
        *outer, last = one.shape
        size = len(one.raw) // int(np.prod(one.shape))
        short = np.frombuffer(one.raw, f"V{size}").reshape(one.shape)[..., :-1]
        cut = Stored(one.name, one.dtype, (*outer, last - 1), short.tobytes())
        changes.append((f"{one.name} is one column short", [*others, cut]))
    if one.numbers() is not None:
        changes.append((f"{one.name} has another dtype than the others", [*others, one.cast()]))
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
    if name in written.answer.backbone and len(rest) < len(stored):
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
    """A pickle in the place of the heads, under their own name, and under those of pickles."""
    for name in written.answer.heads:
        stem = Path(name).stem
        for other in dict.fromkeys((name, f"{stem}.pt", f"{stem}.bin")):
            what = f"a pickle called {other} is in the place of {name}"
            plant = partial(_plant, name, other)
            yield Fault("CHECKPOINT.RUNS_NO_CODE", what, plant, plants=True)


def _plant(name: str, other: str, folder: Path) -> None:
    (folder / name).unlink()
    bomb = _Bomb(folder.with_name(f"{folder.name}-{MARKER}"))
    # Of the protocol that torch writes, so that no loader has that to complain of.
    (folder / other).write_bytes(pickle.dumps(bomb, 2))


def executed(folder: Path) -> bool:
    """Whether what was planted in a folder has run."""
    return folder.with_name(f"{folder.name}-{MARKER}").exists()
