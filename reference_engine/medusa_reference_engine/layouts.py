"""Heads as other projects leave them in a folder: converted, or refused with the reason (0x05D).

Shapes: `K` heads of `R_h` blocks over hidden width `d` and `V` tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from medusa_reference_engine.layout_files import file_of_heads, read_tensors
from medusa_reference_engine.layout_names import LM_HEAD, OWN, Name, Place, family_of
from medusa_reference_engine.weights import FLOATS, shown
from medusa_spec.arrays import FloatArray
from medusa_spec.documents import load_document
from medusa_spec.errors import InputError
from medusa_spec.stages import IDENTITY, HeadState

Layout: TypeAlias = Literal["legacy", "current", "modelopt", "vllm"]

CONFIG = "config.json"
_COUNTS = {
    "medusa": (("medusa_num_heads",), ("medusa_num_layers",)),
    "modelopt": (("medusa.num_medusa_heads",), ("medusa.num_medusa_layers",)),
    "vllm": (("num_heads", "medusa_num_heads"), ("num_hidden_layers", "medusa_num_layers")),
}
"""The config's keys for `K` and for `R_h`, one of each."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Heads of another layout in float64, which holds every narrower float, and what they say.

    `weight` `[K, R_h, d, d]`, `bias` `[K, R_h, d]`; `projection` `[K, V, d]` where each head owns
    one. `lm_head` `[V, d]` is the base model's where the file holds it. `identity` has those words
    of a checkpoint's identity that the files say.
    """

    layout: Layout
    weight: FloatArray
    bias: FloatArray
    projection: FloatArray | None
    lm_head: FloatArray | None
    identity: Mapping[str, Any]

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The words of the identity that the files leave to whoever uses them."""
        return tuple(word for word in IDENTITY if word not in self.identity)

    def state(self, lm_head: FloatArray) -> HeadState:
        """The heads beside the base model's own head `[V, d]`."""
        return HeadState(self.weight, self.bias, lm_head, self.projection)


def import_heads(folder: Path) -> Imported:
    """The heads of a folder in the layout of FasterDecoding, its legacy, ModelOpt or vLLM.

    `InputError` for whatever is missing, unexpected or ambiguous, and for heads that a `HeadState`
    cannot hold. A pickle is read for its tensors alone; nothing in it is run.
    """
    config_file = folder / CONFIG
    config = load_document(config_file)
    if not isinstance(config, dict):
        raise InputError(str(config_file), "", "is not a JSON object")
    file = file_of_heads(folder)
    stored = read_tensors(file)
    family, names = family_of(file, stored)
    reader = (_VLLM if family == "vllm" else _Medusa)(file, config_file, config, stored, names)
    return reader.read(family)


@dataclass(frozen=True, slots=True)
class _Medusa:
    """The heads of one file as FasterDecoding and ModelOpt name them; vLLM reads otherwise."""

    file: Path
    config_file: Path
    config: Mapping[str, Any]
    stored: Mapping[str, Tensor]
    names: Mapping[str, Name]

    def read(self, family: str) -> Imported:
        """Everything that is needed, and nothing else, as one float in shapes that agree."""
        of_heads, of_blocks = _COUNTS[family]
        places = [name.place for name in self.names.values()]
        heads = self.count(of_heads, {p.head for p in places}, "heads")
        blocks = self.count(of_blocks, {p.block for p in places} - {OWN}, "blocks a head")
        shared = self.shared(family)
        parts = ("weight",) if self.bare() else ("weight", "bias")
        every = [(j, i) for j in range(heads) for i in range(blocks)]
        needed = [Place(j, i, part) for j, i in every for part in parts]
        if not shared:
            needed += [Place(j, OWN, "projection") for j in range(heads)]
        named = self.named(needed, blocks, shared)
        lm_head = self.lm_head(shared)
        width, vocabulary = self.sizes(named, lm_head)
        self.distinct(named)

        arrays = {
            "weight": np.empty((heads, blocks, width, width)),
            "bias": np.zeros((heads, blocks, width)),
            "projection": np.empty((heads, vocabulary, width)),
        }
        for place, name in named.items():
            index = place.head if place.block == OWN else (place.head, place.block)
            arrays[place.part][index] = _floats(self.stored[name])
        identity = {
            "heads": heads,
            "blocks": blocks,
            "projection": "shared" if shared else "independent",
            "dtype": str(self.stored[next(iter(named.values()))].dtype).removeprefix("torch."),
        }
        base = self.value("base_model_name_or_path")
        if isinstance(base, str) and base:
            identity["base"] = base
        layout: Any = family if family != "medusa" else "legacy" if shared else "current"
        own = None if shared else arrays["projection"]
        base_head = None if lm_head is None else _floats(lm_head)
        return Imported(layout, arrays["weight"], arrays["bias"], own, base_head, identity)

    def shared(self, family: str) -> bool:
        """Whether the heads project by the base model's matrix."""
        # ModelOpt makes no such heads: in its layout a projection would only be missing.
        own = any(name.place.block == OWN for name in self.names.values())
        return family == "medusa" and not own

    def bare(self) -> bool:
        """Whether blocks are declared to have no bias, which is one of zeros."""
        return False

    def lm_head(self, shared: bool) -> Tensor | None:
        """The base model's own head, where the file holds it."""
        return self.stored.get(LM_HEAD)

    def stands_for_base(self, place: Place, shared: bool) -> bool:
        """Whether what looks like a head's projection is the base model's."""
        return False

    def value(self, key: str) -> Any:
        """What the config says; a dot leads into an object."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def count(self, keys: tuple[str, ...], found: set[int], what: str) -> int:
        """How many there are, as the config and the file agree."""
        values = {key: value for key in keys if (value := self.value(key)) is not None}
        if not values:
            raise self.in_config(
                keys[0], f"is missing; nothing else says how many {what} to expect"
            )
        for key, value in values.items():
            if type(value) is not int or value != len(found):
                rule = f"is {shown(value)}, and the {what} of {self.file.name} are {len(found)}"
                if what != "heads":
                    rule += "; blocks that are one module are often stored once"
                raise self.in_config(key, rule)
        if max(found, default=OWN) >= len(found):
            raise self.in_file("", f"the {what} are not counted from 0: {sorted(found)[:9]}")
        return len(found)

    def named(self, needed: list[Place], blocks: int, shared: bool) -> dict[Place, str]:
        """The name under which each needed tensor stands, in their order."""
        there: dict[Place, str] = {}
        wanted = set(needed)
        for name, said in self.names.items():
            if self.stands_for_base(said.place, shared):
                continue
            if said.last not in (None, blocks):
                rule = f"is no projection behind {blocks} blocks, which stands at {blocks}"
                raise self.in_file(name, rule)
            if said.place not in wanted:
                raise self.in_file(name, "is no tensor of these heads")
            there[said.place] = name
        for place in needed:
            if place not in there:
                block = "" if place.block == OWN else f" of block {place.block}"
                rule = f"the {place.part}{block} of head {place.head} is missing"
                raise self.in_file("", f"{rule}, beside {next(iter(self.names))}")
        if not there:
            raise self.in_file("", "holds no tensor of a Medusa head")
        return {place: there[place] for place in needed}

    def sizes(self, named: Mapping[Place, str], lm_head: Tensor | None) -> tuple[int, int]:
        """`d` and `V`, on which all shapes agree; `V` is 0 where nothing tells it."""
        first = next(iter(named.values()))
        dtype, width = self.stored[first].dtype, self.stored[first].shape[-1:].numel()
        projections = [self.stored[n] for place, n in named.items() if place.block == OWN]
        if lm_head is not None:
            projections.append(lm_head)
        vocabulary = projections[0].shape[:1].numel() if projections else 0
        sizes = {"weight": (width, width), "bias": (width,), "projection": (vocabulary, width)}
        looked_at = [(name, self.stored[name], sizes[p.part]) for p, name in named.items()]
        if lm_head is not None:
            looked_at.append((LM_HEAD, lm_head, sizes["projection"]))
        for name, tensor, size in looked_at:
            if tuple(tensor.shape) != size:
                rule = f"has shape {list(tensor.shape)}; beside {first}, {list(size)} is needed"
                raise self.in_file(name, rule)
            if tensor.dtype != dtype or dtype not in FLOATS:
                rule = f"has dtype {tensor.dtype}; {first} has {dtype}, and one float is needed"
                raise self.in_file(name, rule)
        for key, found in (("hidden_size", width), ("vocab_size", vocabulary)):
            if found and self.value(key) not in (None, found):
                rule = f"is {shown(self.value(key))}, and the tensors have {found}"
                raise self.in_config(key, rule)
        return width, vocabulary

    def distinct(self, named: Mapping[Place, str]) -> None:
        """Blocks that alias one module would be taken for as many that were trained."""
        known: dict[tuple[int, int], str] = {}
        for name in named.values():
            tensor = self.stored[name]
            memory = tensor.data_ptr(), tensor.numel()
            if known.setdefault(memory, name) != name:
                raise self.in_file(name, f"is {known[memory]} again: both are one module")

    def in_file(self, name: str, rule: str) -> InputError:
        """An error about a tensor."""
        return InputError(str(self.file), name, rule)

    def in_config(self, key: str, rule: str) -> InputError:
        """An error about the config."""
        return InputError(str(self.config_file), key, rule)


class _VLLM(_Medusa):
    """As vLLM names them, which may leave out biases and tokens, and own projections."""

    __slots__ = ()

    def shared(self, family: str) -> bool:
        kept, tokens = self.value("truncated_vocab_size"), self.value("vocab_size")
        if kept is not None and kept != tokens:
            rule = f"is {shown(kept)} of {shown(tokens)}: heads have no logits of the others"
            raise self.in_config("truncated_vocab_size", rule)
        scale = self.value("logit_scale")
        if scale is not None and scale != 1:
            raise self.in_config("logit_scale", f"is {shown(scale)}; logits are not scaled here")
        shared: bool = self.value("original_lm_head") is True
        if LM_HEAD in self.stored and not shared:
            raise self.in_file(LM_HEAD, "is not used where original_lm_head is not true")
        return shared

    def bare(self) -> bool:
        if self.value("medusa_fc_bias") is True:
            return False
        for name, said in self.names.items():
            if said.place.part == "bias":
                rule = "is a bias, and vLLM leaves those out where medusa_fc_bias is not true"
                raise self.in_file(name, rule)
        return True

    def lm_head(self, shared: bool) -> Tensor | None:
        if not shared:
            return None
        there = [
            name for name, said in self.names.items() if self.stands_for_base(said.place, True)
        ]
        there += [LM_HEAD] if LM_HEAD in self.stored else []
        if len(there) != 1:
            rule = f"one of it and lm_heads.0.weight is needed; {len(there)} are here"
            raise self.in_file(LM_HEAD, rule)
        return self.stored[there[0]]

    def stands_for_base(self, place: Place, shared: bool) -> bool:
        return shared and place == Place(0, OWN, "projection")


def _floats(tensor: Tensor) -> FloatArray:
    array: FloatArray = tensor.to(torch.float64, copy=True).numpy()
    return array
