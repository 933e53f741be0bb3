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
from medusa_conformance.refusal import answered
from medusa_conformance.rounds import present
from medusa_conformance.stored import listed, read_config
from medusa_spec.arrays import Array, FloatArray
from medusa_spec.coordinate import Coordinate, Projection, Release
from medusa_spec.errors import Unsupported
from medusa_spec.stages import Forward, HeadState, LoadedCheckpoint, SavedCheckpoint, arrays_of
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line
    from medusa_conformance.translation import Engine


NAMES = ("base", "base_revision", "tokenizer")
"""Words of a release that any engine may be asked for otherwise."""


def checkpoint(line: Line) -> Iterator[Trace]:
    """One lawful checkpoint, saved, loaded and saved again; then faults, each of a copy of it.

    Every other fault, as the seed says: neighbours differ little, and over a few coordinates all of
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
        loader = None
        some = islice(faults(written), written.seed % 2, None, 2)
        for number, fault in enumerate(chain(some, planted(written))):
            folder = room / f"fault-{number}"
            shutil.copytree(written.folder, folder)
            fault.corrupt(folder)
            loader = loader or line.engine()
            trace = broken(line, loader, release, folder, fault)
            if trace["checkpoint.refused"] is None:
                # Whatever it holds now is not what it was made with.
                loader = None
            yield trace
        # Who has refused has not stopped loading, and a second load adds nothing to the first.
        loader = loader or line.engine()
        answered(line, partial(loader.load_checkpoint, written.folder, release))
        yield loaded(line, loader, release, written, before, room / "saved-once-more")
        with suppress(Unsupported):
            yield foreign(line, release, room)


def saved(line: Line, release: Release, folder: Path) -> tuple[Written, Forward | None]:
    """A checkpoint, and a plain pass of the engine that saved it."""
    coordinate, saver = line.coordinate, line.engine()
    given = saved_heads(saver, coordinate, release)
    answer = save(saver, folder, release, given)
    before = passed(saver, coordinate)
    held = before.state if given is None and before is not None else given
    return Written(folder, answer, held, coordinate.policy.seed), before


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
    found, refused = answered(line, partial(loader.load_checkpoint, written.folder, release))
    documents["checkpoint.refused"] = refused
    if found is None:
        return line.trace(arrays, documents)
    after = passed(loader, line.coordinate)
    arrays |= loaded_arrays(found, after)
    if after is not None:
        shown = {"loader_hidden": after.hidden, "loader_heads": after.head_logits}
        if release.variant != "medusa-1" and before is not None:
            shown |= {"saver_logits": before.logits, "loader_logits": after.logits}
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
    fault = Fault("CHECKPOINT.IDENTITY", f"another {word} was asked for", lambda _: None)
    return broken(line, line.engine(), asked, written.folder, fault)


def broken(line: Line, loader: Engine, release: Release, folder: Path, fault: Fault) -> Trace:
    """What became of a request to load a broken checkpoint, and of the engine that was asked."""
    before = passed(loader, line.coordinate)
    _, refused = answered(line, partial(loader.load_checkpoint, folder, release))
    documents: dict[str, Any] = {
        "checkpoint.fault": {"breaks": fault.breaks, "what": fault.what},
        "checkpoint.refused": refused,
    }
    if fault.plants:
        documents["checkpoint.executed"] = executed(folder)
    after = passed(loader, line.coordinate)
    arrays: dict[str, Array] = {}
    for when, seen in (("before", before), ("after", after)):
        if seen is not None:
            shown = {"logits": seen.logits, "head_logits": seen.head_logits}
            arrays |= present(f"checkpoint.{when}", **shown)
    return line.trace(arrays, documents)


def foreign(line: Line, release: Release, room: Path) -> Trace:
    """A whole checkpoint of heads of the other projection, of which all else agrees."""
    model = line.coordinate.model
    other: Projection = "shared" if model.projection == "independent" else "independent"
    theirs = replace(line.coordinate, model=replace(model, projection=other))
    saver, folder = replace(line, coordinate=theirs).engine(), room / "foreign"
    save(saver, folder, release, saved_heads(saver, theirs, release))
    what = f"its heads are those of an engine with {other} projections"
    fault = Fault("CHECKPOINT.REPRESENTATION", what, lambda _: None)
    return broken(line, line.engine(), release, folder, fault)


def saved_heads(engine: Engine, coordinate: Coordinate, release: Release) -> HeadState | None:
    """Heads for an engine to save; `None` for those that it has just trained with its backbone."""
    if release.variant == "medusa-1":
        return different_heads(coordinate)
    training = coordinate.training
    if training is None:
        raise Unsupported("a backbone that no training of the coordinate changed")
    for step in range(training.steps):
        engine.train_step(training, step)
    return None


def different_heads(coordinate: Coordinate) -> HeadState:
    """Heads of which all tensors differ, of values that even a bfloat16 holds exactly."""
    generator = np.random.default_rng([coordinate.policy.seed, coordinate.heads, 5])

    def drawn(*size: int) -> FloatArray:
        return generator.integers(-127, 128, size) / 64

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
