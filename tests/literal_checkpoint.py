"""Traces of checkpoints that no engine wrote: every value stands here or follows by a formula."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

import medusa_manifests
from medusa_oracles import judge
from medusa_spec import Coordinate, Tolerance, Trace
from medusa_spec.coordinate import Release

WITHIN = Tolerance(1e-9, 1e-9, "one dtype")
HEADS, BLOCKS, WIDTH, VOCABULARY, PREFIX = 3, 2, 8, 48, 5
LAYERS, KV_HEADS = 2, 1
BASE, REVISION = "example/base", "5a0f9c31"
TRAINED = {"medusa-2": "assistant-only-joint", "self-distilled": "assistant-only-distilled"}
"""Manifests of which the training changed the backbone."""


def entry(file: str, tensor: str, dtype: str, shape: list[int]) -> dict[str, Any]:
    sha256 = hashlib.sha256(tensor.encode()).hexdigest()
    return {"file": file, "tensor": tensor, "dtype": dtype, "shape": shape, "sha256": sha256}


def stored(independent: bool, backbone: list[str], dtype: str) -> list[dict[str, Any]]:
    found = [
        entry("heads.safetensors", f"{head}.{block}.linear.{name}", dtype, shape)
        for head in range(HEADS)
        for block in range(BLOCKS)
        for name, shape in (("weight", [WIDTH, WIDTH]), ("bias", [WIDTH]))
    ]
    if independent:
        size = [VOCABULARY, WIDTH]
        names = [f"{head}.{BLOCKS}.weight" for head in range(HEADS)]
        found += [entry("heads.safetensors", name, dtype, size) for name in names]
    return found + [entry(file, "embed.weight", "F64", [VOCABULARY, WIDTH]) for file in backbone]


def lawful(
    coordinate: Any,
    variant: str = "medusa-1",
    projection: str = "independent",
    dtype: str = "F32",
    named: str = "float32",
) -> Trace:
    """A checkpoint that keeps every rule; `coordinate` is the builder of such."""
    manifest = TRAINED.get(variant)
    planned = coordinate(
        tuple((0,) * depth for depth in range(1, HEADS + 1)),
        projection=projection,
        training=manifest and medusa_manifests.load(manifest).training,
        release=Release(BASE, REVISION, f"{BASE}@{REVISION}", variant),
    )
    generator = np.random.default_rng(5)
    independent = projection == "independent"
    sizes = {
        "weight": (HEADS, BLOCKS, WIDTH, WIDTH),
        "bias": (HEADS, BLOCKS, WIDTH),
        **({"projection": (HEADS, VOCABULARY, WIDTH)} if independent else {}),
    }
    arrays = {}
    for name, size in sizes.items():
        held = generator.normal(size=size)
        arrays[f"checkpoint.held.{name}"] = held
        arrays[f"checkpoint.loaded.{name}"] = held.copy()
    # The head of the base model is its own, whatever stood beside the heads.
    for place in ("held", "loaded"):
        arrays[f"checkpoint.{place}.lm_head"] = generator.normal(size=(VOCABULARY, WIDTH))
    backbone = []
    if manifest is not None:
        backbone = ["backbone.safetensors"]
        logits = generator.normal(size=(PREFIX, VOCABULARY))
        arrays["checkpoint.saver_logits"] = logits
        arrays["checkpoint.loader_logits"] = logits.copy()
        rows = generator.normal(size=(LAYERS, 2, KV_HEADS, PREFIX, WIDTH))
        arrays["checkpoint.loader_kv"] = rows
        # Two rows of the session are left, and they are those of the new model.
        arrays["checkpoint.session_kv"] = rows[..., :2, :].copy()
        arrays["checkpoint.began_kv"] = generator.normal(size=rows.shape)
    words = {
        "base": BASE,
        "base_revision": REVISION,
        "tokenizer": f"{BASE}@{REVISION}",
        "variant": variant,
        "heads": 3,
        "blocks": 2,
        "projection": projection,
        "offset": 2,
        "dtype": named,
    }
    # Two words of their own, and the others in an object.
    alone = ("base", "heads")
    config = {"base": BASE, "heads": 3, "medusa": dict(words)}
    documents = {
        "checkpoint.saved": {
            "config": "config.json",
            "fields": {w: w if w in alone else f"medusa.{w}" for w in words},
            "heads": ["heads.safetensors"],
            "backbone": backbone,
        },
        "checkpoint.config": config,
        "checkpoint.stored": stored(independent, backbone, dtype),
        "checkpoint.restored": stored(independent, backbone, dtype),
        "checkpoint.identity": words,
        "checkpoint.refused": None,
    }
    return Trace(planned, WITHIN, WITHIN, arrays, documents)


def broken(
    planned: Coordinate,
    breaks: str,
    refused: str | None = "a.safetensors: no such file",
    executed: bool | None = None,
) -> Trace:
    """A broken checkpoint, refused without a trace unless told otherwise."""
    generator = np.random.default_rng(6)
    arrays = {}
    for name, size in (
        ("logits", (PREFIX, VOCABULARY)),
        ("head_logits", (HEADS, PREFIX, VOCABULARY)),
        ("kv", (LAYERS, 2, KV_HEADS, PREFIX, WIDTH)),
    ):
        arrays[f"checkpoint.before.{name}"] = generator.normal(size=size)
        arrays[f"checkpoint.after.{name}"] = arrays[f"checkpoint.before.{name}"].copy()
    documents: dict[str, Any] = {
        "checkpoint.fault": {"breaks": breaks, "what": "its third screw is loose"},
        "checkpoint.refused": refused,
    }
    if executed is not None:
        documents["checkpoint.executed"] = executed
    return Trace(planned, WITHIN, WITHIN, arrays, documents)


ABSENT = object()


def names(*words: str) -> dict[str, Any]:
    """Changes that leave names of a checkpoint's trace out."""
    return {f"checkpoint.{word}": ABSENT for word in words}


def changed(trace: Trace, changes: Mapping[str, Any]) -> Trace:
    """A trace with other values; `ABSENT` leaves one out."""
    arrays, documents = dict(trace.arrays), dict(trace.documents)
    for name, value in changes.items():
        arrays.pop(name, None)
        documents.pop(name, None)
        if value is not ABSENT:
            (arrays if isinstance(value, np.ndarray) else documents)[name] = value
    return replace(trace, arrays=arrays, documents=documents)


def codes(trace: Trace, **changes: Any) -> set[str]:
    """The rules that a trace breaks with other values of a checkpoint's names."""
    given = {f"checkpoint.{name}": value for name, value in changes.items()}
    return {finding.code for finding in judge(changed(trace, given)).findings}


def executed(trace: Trace, *without: str) -> set[str]:
    """The rules that are executed on a trace without some of its names; none is broken."""
    judgement = judge(changed(trace, names(*without)))
    assert judgement.findings == ()
    return {*judgement.executed}


def config_with(trace: Trace, word: str, value: Any) -> dict[str, Any]:
    """The config with another value under the key of a word; `ABSENT` leaves it out."""
    config = deepcopy(trace["checkpoint.config"])
    *inside, last = trace["checkpoint.saved"]["fields"][word].split(".")
    place = config[inside[0]] if inside else config
    place[last] = value
    if value is ABSENT:
        del place[last]
    return config


def saved_with(trace: Trace, **changes: Any) -> dict[str, Any]:
    return trace["checkpoint.saved"] | changes


def nudged(array: Any, *place: int) -> Any:
    """The next number at one place."""
    other = array.copy()
    other[place] = np.nextafter(other[place], np.inf)
    return other


def names_of(*absent: str) -> dict[str, Any]:
    """The same as arguments of `codes`."""
    return dict.fromkeys(absent, ABSENT)
