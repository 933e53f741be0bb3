"""Checkpoints: heads, what they stand on, and what they say of themselves, in a folder (0x05D).

Shapes: `K` heads of `R_h` blocks over hidden width `d`. Nothing here reads a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from medusa_reference_engine.decoder import Cache, Decoder
from medusa_reference_engine.heads import HeadTensors
from medusa_reference_engine.learner import Learner, Weights, with_adapter
from medusa_reference_engine.round import Session
from medusa_reference_engine.weights import adapter_shapes, opened, shown
from medusa_spec.coordinate import Release, Variant
from medusa_spec.documents import parse_json, read_text
from medusa_spec.errors import InputError, Refused
from medusa_spec.files import written_whole
from medusa_spec.stages import SavedCheckpoint

CONFIG = "medusa_config.json"
HEADS = "medusa_heads.safetensors"
BACKBONE = "backbone.safetensors"
ADAPTER = "adapter.safetensors"
OFFSET = 2
"""The distance from a hidden row to head 0's label."""

STORED = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e5m2: "F8_E5M2",
}
"""What safetensors calls a dtype."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the decoder of an engine comes from.

    `base` is the one that it began with. `variant` is that of what changed it since, "medusa-1"
    where nothing did; `adapter` holds the factors that alone make the difference, if some do.
    """

    base: Decoder
    variant: Variant = "medusa-1"
    adapter: Mapping[str, Tensor] = field(default_factory=dict)

    def after(self, learner: Learner) -> Origin:
        """Of the decoder that a training which began with this one's has made."""
        variant = learner.training.variant
        if variant == "medusa-1":
            return self
        # Factors beside weights that something else has changed would not make the difference.
        return Origin(self.base, variant, learner.adapter() if self.variant == "medusa-1" else {})


@dataclass(frozen=True, slots=True)
class Restored:
    """What was read of a checkpoint: nothing in it is shared with the engine that asked."""

    decoder: Decoder
    heads: HeadTensors
    origin: Origin
    identity: Mapping[str, Any]


class CheckpointStage:
    """Clauses A1 to A10."""

    def save(
        self, folder: Path, release: Release, heads: HeadTensors, decoder: Decoder, origin: Origin
    ) -> SavedCheckpoint:
        """Write `heads`, and what of `decoder` is not the base's own, into an empty folder.

        `Refused` where the folder is not there or not empty, where the release is not what the
        engine holds, and where a file cannot be written; what was written is removed again.
        """
        with _refusing():
            if not folder.is_dir() or any(folder.iterdir()):
                raise InputError(str(folder), "", "is no empty folder")
        self.own_variant(release, origin)
        identity = self.identity(release, heads)
        dtype = self.dtype(heads)
        backbone = self.backbone_saved(decoder, origin)
        tensors = {HEADS: self.heads_saved(heads), **backbone}
        contents = {name: save(_packed(found, dtype)) for name, found in tensors.items()}
        # Last, for without it nothing is loaded: a process that ends before leaves no checkpoint.
        contents[CONFIG] = json.dumps(identity, indent=2).encode() + b"\n"
        with _refusing():
            _write(folder, contents)
        fields = {word: word for word in identity}
        return SavedCheckpoint(CONFIG, fields, (HEADS,), tuple(backbone))

    def load(self, folder: Path, release: Release, held: HeadTensors, origin: Origin) -> Restored:
        """What a folder holds for an engine with heads like `held` and the base of `origin`.

        `Refused`, in one line that names file, field and rule, for whatever is missing,
        unexpected, misshapen or cannot be read.
        """
        with _refusing():
            config = self.config(folder / CONFIG)
            self.compare(folder / CONFIG, config, self.identity(release, held))
            weights = self.heads_loaded(folder, held)
            decoder, from_here = self.backbone_loaded(folder, release, held, origin)
        weights = {name: weight.to(held.bias) for name, weight in weights.items()}
        weights["lm_head.weight"] = decoder.lm_head.weight.detach()
        return Restored(decoder, held.filled(weights), from_here, config)

    def session(self, old: Session, cache: Cache) -> Session:
        """Clause A10: behind a load a generation begins anew, in a cache that is empty."""
        return Session(cache)

    def own_variant(self, release: Release, origin: Origin) -> None:
        """Clause A6: heads stand on the backbone that they were trained with, or on none."""
        asked, own = release.variant, origin.variant
        if asked == own:
            return
        rule = f"is {asked}, and the backbone is that of {own}"
        if own == "medusa-1":
            rule = f"is {asked}, whose changed backbone or adapter is not here: nothing trained it"
        elif asked == "medusa-1":
            rule = f"is {asked}, whose base stays as it is, and {own} has changed it"
        raise Refused(f"release: variant: {rule}")

    def identity(self, release: Release, heads: HeadTensors) -> dict[str, Any]:
        """Clause A1: every word, with the value that it has for these heads."""
        return {
            "base": release.base,
            "base_revision": release.base_revision,
            "tokenizer": release.tokenizer,
            "variant": release.variant,
            "heads": len(heads.weight),
            "blocks": heads.weight.shape[1],
            "projection": "shared" if heads.projection is None else "independent",
            "offset": OFFSET,
            "dtype": str(self.dtype(heads)).removeprefix("torch."),
        }

    def dtype(self, heads: HeadTensors) -> torch.dtype:
        """Clause A7: what tensors are stored in, which is what they are."""
        return heads.bias.dtype

    def heads_saved(self, heads: HeadTensors) -> dict[str, Tensor]:
        """Clause A4: the tensors of the heads by name."""
        return heads.named()

    def backbone_saved(self, decoder: Decoder, origin: Origin) -> dict[str, Weights]:
        """Clause A6: the tensors that make the changed backbone, by their file; none for none."""
        if origin.variant == "medusa-1":
            return {}
        if origin.adapter:
            return {ADAPTER: origin.adapter}
        return {BACKBONE: decoder.state_dict()}

    def config(self, file: Path) -> Mapping[str, Any]:
        """What a checkpoint says of itself."""
        found = parse_json(read_text(file), str(file))
        if not isinstance(found, dict):
            raise InputError(str(file), "", "is not a JSON object")
        return found

    def compare(self, file: Path, config: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        """Clauses A1, A2 and A5: the config is the identity, word for word, and says no more."""
        for word in sorted(config.keys() - identity.keys()):
            raise InputError(str(file), shown(word), "is no word of a checkpoint's identity")
        for word, value in identity.items():
            if word not in config:
                raise InputError(str(file), word, "is missing")
            given = config[word]
            # True is no count, and 2.0 no offset, though Python calls them equal to one.
            if type(given) is not type(value) or given != value:
                rule = f"is {shown(given)}; {shown(value)} was asked for"
                raise InputError(str(file), word, rule)

    def heads_loaded(self, folder: Path, held: HeadTensors) -> Weights:
        """Clauses A3 and A4: the tensors of heads like `held` by name."""
        shapes = {name: tuple(tensor.shape) for name, tensor in held.named().items()}
        return dict(self.read(folder / HEADS, shapes, self.dtype(held)))

    def backbone_loaded(
        self, folder: Path, release: Release, held: HeadTensors, origin: Origin
    ) -> tuple[Decoder, Origin]:
        """Clause A6: the decoder that the heads stand on, and where it comes from."""
        base, variant = origin.base, release.variant
        there = [name for name in (BACKBONE, ADAPTER) if (folder / name).exists()]
        if variant == "medusa-1":
            for name in there:
                rule = "is here, and the base of medusa-1 stays as it is"
                raise InputError(str(folder / name), "", rule)
            return base, Origin(base)
        if len(there) != 1:
            rule = f"one of it and {ADAPTER} is needed for {variant}; {len(there)} are here"
            raise InputError(str(folder / BACKBONE), "", rule)
        file, dtype = folder / there[0], self.dtype(held)
        own = base.state_dict()
        adapter: Weights = {}
        if there == [ADAPTER]:
            shapes = adapter_shapes(base.shape, _rank(file, base))
            adapter = {name: t.to(held.bias) for name, t in self.read(file, shapes, dtype)}
            weights = with_adapter(own, adapter)
        else:
            shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
            weights = dict(self.read(file, shapes, dtype))
        # Engines of one seed share their base: it is copied, and never written to.
        decoder = deepcopy(base)
        decoder.load_state_dict(weights)
        return decoder, Origin(base, variant, adapter)

    def read(
        self, file: Path, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
    ) -> Iterator[tuple[str, Tensor]]:
        """Clauses A4 and A8: the tensors of a file, each looked at before it is read."""
        with opened(file) as stored:
            for name in self.names(file, set(stored.keys()), shapes):
                part = stored.get_slice(name)
                size, kind = tuple(part.get_shape()), part.get_dtype()
                if size != shapes[name]:
                    rule = f"has shape {list(size)}; {list(shapes[name])} is needed"
                    raise InputError(str(file), name, rule)
                if kind != STORED[dtype]:
                    rule = f"is stored as {kind}; {CONFIG} says {STORED[dtype]}"
                    raise InputError(str(file), name, rule)
                # The library maps the file: what is kept must not change with it.
                yield name, stored.get_tensor(name).clone()

    def names(self, file: Path, found: set[str], needed: Iterable[str]) -> list[str]:
        """Clause A4: the names to read, which are all that are needed and all that are there."""
        wanted = list(needed)
        for name in sorted(found.difference(wanted)):
            raise InputError(str(file), shown(name), "is no tensor of this checkpoint")
        for name in wanted:
            if name not in found:
                raise InputError(str(file), name, "is missing")
        return wanted


def _packed(tensors: Weights, dtype: torch.dtype) -> dict[str, Tensor]:
    """As the library takes them: each with memory of its own, on the host."""
    return {
        name: tensor.detach().to("cpu", dtype, copy=True).contiguous()
        for name, tensor in tensors.items()
    }


def _rank(file: Path, base: Decoder) -> int:
    """The rank of an adapter as its first factor says; 1 where there is none to ask."""
    first = next(iter(adapter_shapes(base.shape, 1)))
    with opened(file) as stored:
        size = stored.get_slice(first).get_shape() if first in stored.keys() else []  # noqa: SIM118
    return int(size[0]) if size else 1


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Every file whole, or none at all."""
    written: list[Path] = []
    try:
        for name, content in contents.items():
            with written_whole(folder / name) as stream:
                stream.write(content)
            written.append(folder / name)
    except BaseException:
        for file in written:
            file.unlink(missing_ok=True)
        raise


@contextmanager
def _refusing() -> Iterator[None]:
    """What cannot be used is refused; the folder is left out, for whoever asked has named it."""
    try:
        yield
    except InputError as error:
        short = InputError(Path(error.source).name, error.field, error.rule)
        raise Refused(str(short)) from None
    except OSError as error:
        name = Path(str(error.filename)).name
        raise Refused(str(InputError(name, "", f"cannot be used: {error.strerror}"))) from None
