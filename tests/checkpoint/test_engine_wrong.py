"""Engines that keep every rule of a single load, and are wrong behind it or beside it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from medusa_conformance.runner import Setting, judge_coordinates
from medusa_manifests import load
from medusa_reference_engine import ReferenceEngine, Stages
from medusa_reference_engine.checkpoint import CheckpointStage, Origin
from medusa_reference_engine.heads import HeadTensors
from medusa_reference_engine.round import Session
from medusa_reference_engine.verification import Model
from medusa_reference_engine.weights import HEAD_NAME
from medusa_spec import Coordinate
from medusa_spec.errors import Refused

SETTING = Setting("cpu", "float64", ("checkpoint",))
NAMES = tuple(f"checkpoint-{of}" for of in ("independent", "shared", "joint", "adapter"))


class EchoesTheRelease(CheckpointStage):
    """Of the identity only the sizes are compared; whose heads they are is taken for granted."""

    def compare(self, file: Path, config: Any, identity: Mapping[str, Any]) -> None:
        if isinstance(config, dict) and identity.keys() <= config.keys():
            named = {word: config[word] for word in ("base", "base_revision", "tokenizer")}
            # Sums of the file would betray an edit, and say nothing of who asks for it.
            if not any(str(value).endswith("-other") for value in named.values()):
                identity = {**identity, **named}
        super().compare(file, config, identity)


class Poisoned(ReferenceEngine):
    """One refusal, and nothing is loaded any more."""

    poisoned = False

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        if self.poisoned:
            raise Refused("an earlier load failed")
        try:
            return super().load_checkpoint(folder, release)
        except Refused:
            self.poisoned = True
            raise


class ShowsNewRunsOld(ReferenceEngine):
    """The parameters that it shows are new, and its heads' logits are of the old ones."""

    old: Any = None

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        self.old = self._model.held
        return super().load_checkpoint(folder, release)

    def forward(self, tokens: Any) -> Any:
        seen = super().forward(tokens)
        if self.old is None:
            return seen
        hidden = torch.as_tensor(seen.hidden, dtype=self._dtype)
        return replace(seen, head_logits=self._heads.run(self.old, hidden)[1].numpy())


class AdapterTwice(ReferenceEngine):
    """An adapter is added to the weights that are there, its own among them."""

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        origin = self._origin
        self._origin = Origin(self._model.decoder, origin.variant, origin.adapter)
        return super().load_checkpoint(folder, release)


class KeepsSession(ReferenceEngine):
    """The generation under way goes on behind a load."""

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        session = self._session
        found = super().load_checkpoint(folder, release)
        self._session = session
        return found


class RefusalDropsSession(ReferenceEngine):
    """The generation under way is over behind a refusal."""

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        try:
            return super().load_checkpoint(folder, release)
        except Refused:
            self._session = Session(self._cache(self.capacity))
            raise


class DecodesOld(ReferenceEngine):
    """A plain pass runs the new model, and a generation the one that was captured for it."""

    old: Any = None

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        old = self._model
        found = super().load_checkpoint(folder, release)
        self.old = old
        return found

    def prefill(self, tokens: Any) -> Any:
        new = self._model
        self._model = self.old or new
        try:
            return super().prefill(tokens)
        finally:
            self._model = new


class LoadsOnce(ReferenceEngine):
    """What was read once is what every later load gives."""

    found: Any = None

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        self.found = self.found or super().load_checkpoint(folder, release)
        return self.found


class SaveTakes(ReferenceEngine):
    """Lawful: heads that were given to be saved are those that it goes on with."""

    def save_checkpoint(self, folder: Path, release: Any, state: Any) -> Any:
        found = super().save_checkpoint(folder, release, state)
        if state is not None:
            held = self._heads.load(HeadTensors.of(state, self._dtype, self._device))
            self._model = Model(self._model.decoder, held, self._heads)
        return found


class ShipsTheBase(ReferenceEngine):
    """Lawful: heads of `medusa-1` with the unchanged base beside them, which nobody reads."""

    def save_checkpoint(self, folder: Path, release: Any, state: Any) -> Any:
        found = super().save_checkpoint(folder, release, state)
        if found.backbone:
            return found
        save_file({"weight": torch.ones(2)}, folder / "base.safetensors")
        return replace(found, backbone=("base.safetensors",))


class InAFolderOfItsOwn(ReferenceEngine):
    """Lawful: an adapter, as other projects have it, in a folder below."""

    def save_checkpoint(self, folder: Path, release: Any, state: Any) -> Any:
        found = super().save_checkpoint(folder, release, state)
        below = {name: f"below/{name}" for name in found.backbone}
        for name, place in below.items():
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / name).rename(folder / place)
        return replace(found, backbone=tuple(below.values()))

    def load_checkpoint(self, folder: Path, release: Any) -> Any:
        with TemporaryDirectory() as name:
            flat = Path(name)
            for file in folder.rglob("*"):
                if file.is_file():
                    shutil.copy(file, flat / file.name)
            return super().load_checkpoint(flat, release)


class LosesBits(CheckpointStage):
    """Through a narrower dtype and back: name, shape and dtype are as they were."""

    def heads_saved(self, heads: HeadTensors) -> dict[str, torch.Tensor]:
        saved = super().heads_saved(heads)
        return {name: tensor.float().to(tensor.dtype) for name, tensor in saved.items()}


class NullIsDefault(CheckpointStage):
    """A word that is null has the value that is needed."""

    def compare(self, file: Path, config: Any, identity: Mapping[str, Any]) -> None:
        kept = {word: identity.get(word) if v is None else v for word, v in config.items()}
        super().compare(file, kept, identity)


class OwnersAlike(CheckpointStage):
    """Of a base the name counts, and not whose it is."""

    def compare(self, file: Path, config: Any, identity: Mapping[str, Any]) -> None:
        given, asked = (str(words.get("base", "")) for words in (config, identity))
        if given.split("/")[-1] == asked.split("/")[-1]:
            identity = {**identity, "base": given}
        super().compare(file, config, identity)


class MoreHeadsIgnored(CheckpointStage):
    """Heads behind those that the config names are passed over."""

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        wanted = list(needed)
        heads = max((head_of(name) for name in wanted), default=-1)
        return super().names(file, {name for name in found if head_of(name) <= heads}, wanted)


class SharedIgnoresProjections(CheckpointStage):
    """Projections that shared heads have no use for are passed over."""

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        wanted = list(needed)
        own = {name for name in found if (m := HEAD_NAME.fullmatch(name)) and not m["linear"]}
        return super().names(file, found - (own - set(wanted)), wanted)


class ReadsArguments(CheckpointStage):
    """What a trainer left beside its heads is unpickled."""

    def config(self, file: Path) -> Mapping[str, Any]:
        beside = file.with_name("training_args.bin")
        if beside.exists():
            pickle.loads(beside.read_bytes())
        return super().config(file)


def head_of(name: str) -> int:
    match = HEAD_NAME.fullmatch(name)
    return int(match["head"]) if match else -1


class Abbreviates(CheckpointStage):
    """A revision may be given by its beginning."""

    def compare(self, file: Path, config: Any, identity: Mapping[str, Any]) -> None:
        given = config.get("base_revision") if isinstance(config, dict) else None
        if isinstance(given, str) and str(identity["base_revision"]).startswith(given):
            identity = {**identity, "base_revision": given}
        super().compare(file, config, identity)


def failed(kind: type[ReferenceEngine], stage: type[CheckpointStage]) -> set[str]:
    def factory(coordinate: Coordinate, capacity: int) -> Any:
        shape, heads = coordinate.model, coordinate.heads
        return kind.seeded(shape, heads, capacity, stages=Stages(checkpoint=stage))

    tally = judge_coordinates(factory, map(load, NAMES), SETTING)
    assert tally.crashes == []
    return set(tally.failed)


@pytest.mark.parametrize("kind", [ReferenceEngine, InAFolderOfItsOwn, SaveTakes, ShipsTheBase])
def test_a_right_engine_breaks_nothing(kind: type[ReferenceEngine]) -> None:
    assert failed(kind, CheckpointStage) == set()


@pytest.mark.parametrize(
    ("kind", "stage", "code"),
    [
        (ReferenceEngine, EchoesTheRelease, "CHECKPOINT.IDENTITY"),
        (ReferenceEngine, Abbreviates, "CHECKPOINT.IDENTITY"),
        (ReferenceEngine, LosesBits, "CHECKPOINT.ROUND_TRIP"),
        (ReferenceEngine, NullIsDefault, "CHECKPOINT.IDENTITY"),
        (ReferenceEngine, OwnersAlike, "CHECKPOINT.IDENTITY"),
        (ReferenceEngine, MoreHeadsIgnored, "CHECKPOINT.HEAD_COUNT"),
        (ReferenceEngine, SharedIgnoresProjections, "CHECKPOINT.REPRESENTATION"),
        (ReferenceEngine, ReadsArguments, "CHECKPOINT.RUNS_NO_CODE"),
        (KeepsSession, CheckpointStage, "CHECKPOINT.SESSION"),
        (RefusalDropsSession, CheckpointStage, "CHECKPOINT.SESSION"),
        (DecodesOld, CheckpointStage, "CHECKPOINT.ROUND_TRIP"),
        (LoadsOnce, CheckpointStage, "CHECKPOINT.ROUND_TRIP"),
        (Poisoned, CheckpointStage, "CHECKPOINT.FILENAME_ABI"),
        (ShowsNewRunsOld, CheckpointStage, "CHECKPOINT.ROUND_TRIP"),
        (AdapterTwice, CheckpointStage, "CHECKPOINT.MEDUSA2_SHIPS_BACKBONE"),
    ],
)
def test_what_is_wrong_behind_a_load_is_found(
    kind: type[ReferenceEngine], stage: type[CheckpointStage], code: str
) -> None:
    assert code in failed(kind, stage)
