"""Checkpoints, broken: every shape agrees, and something else is decoded with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medusa_mutations.catalog import mutant
from medusa_reference_engine.checkpoint import HEADS, CheckpointStage, Origin
from medusa_reference_engine.decoder import Cache, Decoder
from medusa_reference_engine.heads import HeadTensors
from medusa_reference_engine.learner import Weights
from medusa_reference_engine.round import Session
from medusa_reference_engine.weights import HEAD_NAME, block_bias, block_weight
from medusa_spec.coordinate import Release
from medusa_spec.errors import InputError


@mutant("base-revision-absent")
class BaseRevisionAbsent(CheckpointStage):
    def identity(self, release: Release, heads: HeadTensors) -> dict[str, Any]:
        identity = super().identity(release, heads)
        del identity["base_revision"]
        return identity


@mutant("offset-convention-ignored")
class OffsetConventionIgnored(CheckpointStage):
    def compare(self, file: Path, config: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        super().compare(file, {**config, "offset": identity["offset"]}, identity)


@mutant("hard-coded-head-count")
class HardCodedHeadCount(CheckpointStage):
    def compare(self, file: Path, config: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        super().compare(file, {**config, "heads": identity["heads"]}, identity)

    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        # A head that the file has not stays as it was made.
        return {**held.named(), **super().heads_loaded(folder, held)}

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        heads = {_head(name) for name in found}
        taken = [name for name in needed if _head(name) in heads and _head(name) < 5]
        return super().names(file, {name for name in found if _head(name) < 5}, taken)


def _head(name: str) -> int:
    """The head that a tensor belongs to; -1 for one of the backbone."""
    match = HEAD_NAME.fullmatch(name)
    return int(match["head"]) if match else -1


@mutant("filename-mismatch")
class FilenameMismatch(CheckpointStage):
    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        shapes = {name: tuple(tensor.shape) for name, tensor in held.named().items()}
        file = folder / f"trained_{HEADS}"
        return dict(self.read(file, shapes, self.dtype(held))) if file.exists() else held.named()


@mutant("head-missing-loose-load")
class HeadMissingLooseLoad(CheckpointStage):
    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        return {**held.named(), **super().heads_loaded(folder, held)}

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        if file.name != HEADS:
            return super().names(file, found, needed)
        return [name for name in needed if name in found]


@mutant("shared-loaded-as-independent")
class SharedLoadedAsIndependent(CheckpointStage):
    def compare(self, file: Path, config: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        super().compare(file, {**config, "projection": identity["projection"]}, identity)

    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        # Every projection begins as a copy of the base model's, as it does where heads are made.
        begun = {name: held.lm_head for name in held.named() if _is_projection(name)}
        return {**begun, **super().heads_loaded(folder, held)}

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        shared = not any(map(_is_projection, found))
        taken = [name for name in needed if not (shared and _is_projection(name))]
        return super().names(file, found, taken)


def _is_projection(name: str) -> bool:
    match = HEAD_NAME.fullmatch(name)
    return match is not None and not match["linear"]


@mutant("head-only-medusa-2")
class HeadOnlyMedusa2(CheckpointStage):
    def backbone_saved(self, decoder: Decoder, origin: Origin) -> dict[str, Weights]:
        return {}

    def backbone_loaded(
        self, folder: Path, release: Release, held: HeadTensors, origin: Origin
    ) -> tuple[Decoder, Origin]:
        return origin.base, Origin(origin.base, release.variant)


@mutant("aliased-blocks-saved")
class AliasedBlocksSaved(CheckpointStage):
    def heads_saved(self, heads: HeadTensors) -> dict[str, Tensor]:
        saved = super().heads_saved(heads)
        for head, blocks in enumerate(heads.weight):
            for block in range(len(blocks)):
                saved[block_weight(head, block)] = saved[block_weight(head, 0)]
                saved[block_bias(head, block)] = saved[block_bias(head, 0)]
        return saved


@mutant("dtype-silently-cast")
class DtypeSilentlyCast(CheckpointStage):
    def dtype(self, heads: HeadTensors) -> torch.dtype:
        narrower = {torch.float64: torch.float32, torch.float32: torch.bfloat16}
        return narrower.get(super().dtype(heads), torch.float8_e5m2)


@mutant("loads-while-checking")
class LoadsWhileChecking(CheckpointStage):
    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        own = held.named()
        shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        for name, tensor in self.read(folder / HEADS, shapes, self.dtype(held)):
            # Engines of one seed share their projections; the blocks are each engine's own.
            if not _is_projection(name):
                own[name].copy_(tensor)
        return super().heads_loaded(folder, held)


@mutant("unpickles-what-it-finds")
class UnpicklesWhatItFinds(CheckpointStage):
    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        file = (folder / HEADS).with_suffix(".pt")
        if (folder / HEADS).exists() or not file.exists():
            return super().heads_loaded(folder, held)
        try:
            found = torch.load(file, weights_only=False)
            return {name: found[name] for name in held.named()}
        except Exception as error:
            raise InputError(str(file), "", f"cannot be read: {error}") from None


@mutant("session-outlives-load")
class SessionOutlivesLoad(CheckpointStage):
    def session(self, old: Session, cache: Cache) -> Session:
        return old
