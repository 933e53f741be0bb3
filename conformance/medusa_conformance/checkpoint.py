"""The section that saves and loads: real folders, as they were written and with one thing broken.

A section of a `line.Line`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.crafted import heads_of
from medusa_conformance.faults import Fault, Written, executed, faults, planted
from medusa_conformance.incident import Incident
from medusa_conformance.isolation import Missing
from medusa_conformance.refusal import answered, behind
from medusa_conformance.rounds import present
from medusa_conformance.stored import listed, read_config
from medusa_spec.arrays import Array, DType, FloatArray
from medusa_spec.coordinate import Coordinate, Projection, Release
from medusa_spec.errors import Unsupported
from medusa_spec.stages import (
    IDENTITY,
    Forward,
    HeadState,
    LoadedCheckpoint,
    SavedCheckpoint,
    arrays_of,
)
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line
    from medusa_conformance.translation import Engine


NAMES = ("base", "base_revision", "tokenizer")
"""Words of a release that any engine may be asked for otherwise."""


def checkpoint(line: Line) -> Iterator[Trace]:
    """One lawful checkpoint, saved, loaded and saved again; then faults, each of a copy of it.

    Each third fault, as the seed says: neighbours differ little, and over a few coordinates all of
    them come up; but everything that is planted. Then the lawful one is loaded by who refused the
    others. Of a checkpoint that is not loaded as it is, none of this would say more.
    """
    release = line.coordinate.release
    if release is None:
        return
    with TemporaryDirectory(prefix="medusa-") as name:
        room = Path(name)
        written, before = saved(line, release, room / "saved")
        engine = line.engine()
        if not engine.has("load_checkpoint"):
            yield line.trace(*of_files(written))
            return
        trace = loaded(line, engine, release, written, before, room / "saved-again")
        yield trace
        if trace["checkpoint.refused"] is not None:
            return
        for word in NAMES:
            yield elsewhere(line, release, written, word)
        loader = last = None
        some = islice(faults(written), written.seed % 3, None, 3)
        for number, fault in enumerate(chain(some, planted(written))):
            folder = room / f"fault-{number}"
            shutil.copytree(written.folder, folder)
            fault.corrupt(folder)
            loader = loader or line.engine()
            trace = last = broken(line, loader, release, folder, fault, last=last)
            if trace["checkpoint.refused"] is None:
                # Whatever it holds now is not what it was made with.
                loader = last = None
            yield trace
        # Who has refused has not stopped loading; another load is not the first one over again, and
        # a third adds nothing to the second.
        loader = loader or line.engine()
        if not written.changed:
            other = different_heads(line.coordinate, line.dtype, 6)
            save(loader, room / "other", release, other)
            answered(line, partial(loader.load_checkpoint, room / "other", release))
        answered(line, partial(loader.load_checkpoint, written.folder, release))
        yield loaded(line, loader, release, written, before, room / "saved-once-more")
        with suppress(Unsupported):
            yield from foreign(line, release, written, room)
        with suppress(Unsupported):
            yield from one_more(line, release, written, room)


def saved(line: Line, release: Release, folder: Path) -> tuple[Written, Forward | None]:
    """A checkpoint, and a plain pass of the engine that saved it."""
    coordinate, saver = line.coordinate, line.engine()
    given = saved_heads(line, saver, release)
    answer = save(saver, folder, release, given)
    before = passed(saver, coordinate)
    held = before.state if given is None and before is not None else given
    changed = release.variant != "medusa-1"
    return Written(folder, answer, held, coordinate.policy.seed, changed), before


def of_files(written: Written) -> tuple[dict[str, Array], dict[str, Any]]:
    """What is known of a checkpoint before anybody has loaded it."""
    held, answer, folder = written.held, written.answer, written.folder
    documents: dict[str, Any] = {
        "checkpoint.saved": document_of(answer),
        "checkpoint.config": read_config(folder / answer.config),
        "checkpoint.stored": listed(folder),
    }
    return {} if held is None else arrays_of("checkpoint.held", held), documents


def loaded(
    line: Line,
    loader: Engine,
    release: Release,
    written: Written,
    before: Forward | None,
    again: Path,
) -> Trace:
    """What an engine loads of a lawful checkpoint, decodes with, and saves again."""
    arrays, documents = of_files(written)
    began = begin(loader, line.coordinate)
    rows = visible(loader) if began else None
    found, refused = answered(line, partial(loader.load_checkpoint, written.folder, release))
    documents["checkpoint.refused"] = refused
    if found is None:
        return line.trace(arrays, documents)
    shown = {"began_kv": rows, "session_kv": visible(loader)} if began else {}
    after = passed(loader, line.coordinate)
    arrays |= loaded_arrays(found, after)
    if after is not None:
        shown |= {"loader_hidden": after.hidden, "loader_heads": after.head_logits}
        if written.changed and before is not None:
            shown |= {"saver_logits": before.logits, "loader_logits": after.logits}
    if loader.has("prefill"):
        frontier = loader.prefill(line.coordinate.prefix)
        arrays |= present("checkpoint.frontier", target=frontier.target, heads=frontier.heads)
        if began:
            # By the same request as the rows before the load: what is the same to the bit is kept.
            shown["loader_kv"] = visible(loader)
    arrays |= present("checkpoint", **shown)
    if found.identity is not None:
        documents["checkpoint.identity"] = dict(found.identity)
    save(loader, again, release, None)
    documents["checkpoint.restored"] = listed(again)
    return line.trace(arrays, documents)


def elsewhere(line: Line, release: Release, written: Written, word: str) -> Trace:
    """A checkpoint as it was written, for an engine that is asked for another one."""
    other: dict[str, Any] = {word: f"{getattr(release, word)}-other"}
    asked = replace(release, **other)
    fault = whole("CHECKPOINT.IDENTITY", f"another {word} was asked for")
    loader = line.engine()
    return broken(line, loader, asked, written.folder, fault, begin(loader, line.coordinate))


def broken(
    line: Line,
    loader: Engine,
    release: Release,
    folder: Path,
    fault: Fault,
    began: bool = False,
    last: Trace | None = None,
) -> Trace:
    """What became of a request to load a broken checkpoint, and of the engine that was asked.

    Where it `began` a session, its rows are looked at, too. `last` is its refusal of another one,
    behind which nothing else was asked: as that left it, it is now.
    """
    arrays: dict[str, Array] = {}

    def look(when: str) -> None:
        shown = {"kv": visible(loader)} if began else {}
        seen = passed(loader, line.coordinate)
        if seen is not None:
            shown |= {"logits": seen.logits, "head_logits": seen.head_logits}
        arrays.update(present(f"checkpoint.{when}", **shown))

    if last is None:
        look("before")
    else:
        arrays |= behind(last)
    try:
        _, refused = answered(line, partial(loader.load_checkpoint, folder, release))
    except Incident as incident:
        # The folder has another name each time, and says nothing of what is broken in it.
        said = incident.text.replace(f"{folder}", "FOLDER")
        text = f"{said}, where {fault.what}; what cannot be loaded is to be Refused"
        raise Incident(incident.kind, incident.stage, text, incident.asked) from None
    documents: dict[str, Any] = {
        "checkpoint.fault": {
            "breaks": fault.breaks,
            "what": fault.what,
            **({"beside": True} if fault.beside else {}),
        },
        "checkpoint.refused": refused,
    }
    if fault.plants:
        documents["checkpoint.executed"] = executed(folder)
    look("after")
    return line.trace(arrays, documents)


def foreign(line: Line, release: Release, written: Written, room: Path) -> Iterator[Trace]:
    """A whole checkpoint of heads of the other projection, and its heads under our own config."""
    model = line.coordinate.model
    other: Projection = "shared" if model.projection == "independent" else "independent"
    theirs = replace(line.coordinate, model=replace(model, projection=other))
    folder = room / "foreign"
    answer = saved_by(line, theirs, release, folder)
    fault = whole(
        "CHECKPOINT.REPRESENTATION",
        f"its heads are those of an engine with {other} projections",
    )
    yield broken(line, line.engine(), release, folder, fault)
    moved = fault._replace(what=f"{fault.what}, under the config of ours")
    yield from transplanted(line, release, written, answer, folder, moved)


def one_more(line: Line, release: Release, written: Written, room: Path) -> Iterator[Trace]:
    """The heads of an engine with one head more, under the config of this one."""
    more, model = line.coordinate.heads + 1, line.coordinate.model
    theirs = replace(line.coordinate, heads=more)
    bare = model.projection == "shared" and not model.head_blocks
    # The loss of a training has a weight for each head, and knows of no more; and of heads without
    # parameters no file says how many they are.
    if written.changed or bare:
        return
    folder = room / "one-more"
    answer = saved_by(line, theirs, release, folder)
    what = f"its files hold {more} heads, and its config names {more - 1}"
    fault = whole("CHECKPOINT.HEAD_COUNT", what)
    yield from transplanted(line, release, written, answer, folder, fault)


def whole(breaks: str, what: str) -> Fault:
    """A folder that is as it was written, and not what it is asked for as."""
    return Fault(breaks, what, lambda _: None)


def saved_by(line: Line, theirs: Coordinate, release: Release, folder: Path) -> SavedCheckpoint:
    """What an engine made for another coordinate saves."""
    other = replace(line, coordinate=theirs)
    saver = other.engine()
    return save(saver, folder, release, saved_heads(other, saver, release))


def transplanted(
    line: Line,
    release: Release,
    written: Written,
    answer: SavedCheckpoint,
    folder: Path,
    fault: Fault,
) -> Iterator[Trace]:
    """Our own config in the place of theirs; where both stand in files of their own."""
    ours = written.answer
    same = (ours.config, set(ours.heads)) == (answer.config, set(answer.heads))
    if not same or ours.config in ours.heads:
        return
    shutil.copyfile(written.folder / ours.config, folder / answer.config)
    yield broken(line, line.engine(), release, folder, fault)


def saved_heads(line: Line, engine: Engine, release: Release) -> HeadState | None:
    """Heads for an engine to save; `None` for those that it has just trained with its backbone."""
    if release.variant == "medusa-1":
        return different_heads(line.coordinate, line.dtype)
    training = line.coordinate.training
    if training is None:
        raise Unsupported("a backbone that no training of the coordinate changed")
    for step in range(training.steps):
        engine.train_step(training, step)
    return None


BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of each dtype."""


def different_heads(coordinate: Coordinate, dtype: DType, draw: int = 5) -> HeadState:
    """Heads of which all tensors differ, of values that need every bit of a dtype, and no other.

    Of another `draw` all are others.
    """
    generator = np.random.default_rng([coordinate.policy.seed, coordinate.heads, draw])
    most = 2 ** BITS[dtype]

    def drawn(*size: int) -> FloatArray:
        # Odd, so that without its last bit it is another value. A power of two keeps a head's sums
        # of the size of what it reads: greater ones round by more than is granted.
        odd = generator.integers(most // 4, most // 2, size) * 2 + 1
        values: FloatArray = generator.choice((-1.0, 1.0), size) * odd / most
        values *= 2.0 ** -np.ceil(np.log2(size[-1]))
        return values

    return heads_of(coordinate, drawn, drawn)


def save(
    engine: Engine, folder: Path, release: Release, state: HeadState | None
) -> SavedCheckpoint:
    """Let an engine save into a new folder; `Incident` where it names what is not there."""
    folder.mkdir()
    answer: SavedCheckpoint = engine.save_checkpoint(folder, release, state)
    for name in ("config", "fields", "heads", "backbone"):
        if getattr(answer, name) is None:
            raise Incident("rubbish", "save_checkpoint", f"no {name} was answered")
    for name in ("heads", "backbone"):
        if isinstance(getattr(answer, name), str):
            raise Incident("rubbish", "save_checkpoint", f"{name} is one string, and no list")
    for word in answer.fields:
        if word not in IDENTITY:
            text = f"fields has {word!r}, which is no word of {', '.join(IDENTITY)}"
            raise Incident("rubbish", "save_checkpoint", text)
    for name in (answer.config, *answer.heads, *answer.backbone):
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if not inside or not (folder / name).is_file():
            text = f"{name!r} is no file of the folder that was saved into"
            raise Incident("rubbish", "save_checkpoint", text)
    return answer


def document_of(answer: SavedCheckpoint) -> dict[str, Any]:
    """What was answered, in JSON's own values."""
    plain = asdict(answer)
    return plain | {name: list(plain[name]) for name in ("heads", "backbone")}


def loaded_arrays(loaded: LoadedCheckpoint, after: Forward | None) -> dict[str, Array]:
    """The parameters as a plain pass shows them, or else as the answer does."""
    state = loaded.state if after is None or after.state is None else after.state
    return {} if state is None else arrays_of("checkpoint.loaded", state)


def passed(engine: Engine, coordinate: Coordinate) -> Forward | None:
    """A plain pass over the prefix, where the engine has one."""
    try:
        found: Forward = engine.forward(coordinate.prefix)
    except (Missing, Unsupported):
        return None
    return found


def begin(engine: Engine, coordinate: Coordinate) -> bool:
    """Begin a session, and say whether there is one whose rows can be looked at."""
    if not (engine.has("prefill") and engine.has("cache")):
        return False
    engine.prefill(coordinate.prefix)
    return visible(engine) is not None


def visible(engine: Engine) -> Array | None:
    """The rows that a session shows `[L, 2, H_kv, rows, d_h]`, where it shows any."""
    view = engine.cache()
    if view.backing is None or view.length is None:
        return None
    rows: Array = view.backing[..., : view.length, :]
    return rows
