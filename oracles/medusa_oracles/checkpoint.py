"""Oracle of `spec/checkpoint.md`: what a checkpoint says and holds, and what is not loaded.

A trace is of a lawful checkpoint, which was saved, loaded and saved again, or of one of which one
thing is broken: there `checkpoint.fault` says what, and which rule that breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any

import numpy as np

from medusa_oracles.judge import Check, equal, oracle_beside
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Coordinate
from medusa_spec.documents import field_of
from medusa_spec.findings import Finding
from medusa_spec.stages import IDENTITY
from medusa_spec.trace import Trace

OFFSET = 2
"""From a row to the token that head 0 stands for (H1)."""

_FLOATS: Mapping[str, str] = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}
"""The names of a config for the dtypes of a safetensors file."""

_ELSEWHERE = ("heads", "projection")
"""Words of the identity that have a clause of their own, A2 and A5."""

FAULT = ("checkpoint.fault", "checkpoint.refused")
"""What a trace of a broken checkpoint holds."""


def derive_identity(coordinate: Coordinate, dtype: str) -> dict[str, Any]:
    """Clauses A1, A2 and A5: what each of `IDENTITY` is, of heads that are stored as `dtype`.

    `ValueError` for a coordinate without a release: nothing says what its heads stand for.
    """
    release, shape = coordinate.release, coordinate.model
    if release is None:
        raise ValueError(f"{coordinate.name} has no release")
    said = {
        "base": release.base,
        "base_revision": release.base_revision,
        "tokenizer": release.tokenizer,
        "variant": release.variant,
        "heads": coordinate.heads,
        "blocks": shape.head_blocks,
        "projection": shape.projection,
        "offset": OFFSET,
        "dtype": dtype,
    }
    return {word: said[word] for word in IDENTITY}


def _breaks(trace: Trace, code: str) -> bool:
    return bool(trace["checkpoint.fault"]["breaks"] == code)


def is_refused(trace: Trace) -> bool:
    """Whether an engine refused to load."""
    return trace.has("checkpoint.refused") and trace["checkpoint.refused"] is not None


def _must_refuse(code: str, trace: Trace) -> Iterator[Finding]:
    """At most one finding: a broken checkpoint that was loaded."""
    if not is_refused(trace):
        message = f"a checkpoint was loaded although {what_is_broken(trace)}"
        yield Finding(code, message, {}, "refused", None)


def what_is_broken(trace: Trace) -> str:
    """What is wrong with a broken checkpoint, in words."""
    return str(trace["checkpoint.fault"]["what"])


release_oracle = partial(oracle_beside, "release")
"""An oracle of checkpoints, lawful or broken, whose coordinates say what they stand for."""


def checkpoint_oracle(
    code: str,
    *needs: str,
    instead: tuple[str, ...] = FAULT,
    applies: Callable[[Trace], bool] = lambda _: True,
    proves: Callable[[Trace], bool] | None = None,
) -> Callable[[Check], Check]:
    """An oracle of lawful checkpoints that also hears of each fault that breaks its rule.

    It applies where the coordinate has a release; `applies` is asked of lawful ones alone.
    """

    def called_for(trace: Trace) -> bool:
        return _breaks(trace, code) if trace.has(*FAULT) else applies(trace)

    def register(check: Check) -> Check:
        @wraps(check)
        def judged(trace: Trace) -> Iterator[Finding]:
            yield from _must_refuse(code, trace) if trace.has(*FAULT) else check(trace)

        found = release_oracle(code, *needs, instead=instead, applies=called_for, proves=proves)
        return found(judged)

    return register


_SAID = ("checkpoint.saved", "checkpoint.config")


def _words(trace: Trace) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where an identity stands, and its words there: in the config, and as the loader read it."""
    config, fields = trace["checkpoint.config"], trace["checkpoint.saved"]["fields"]
    yield "the config", {word: field_of(config, key) for word, key in fields.items()}
    if trace.has("checkpoint.identity"):
        yield "the identity that was read", trace["checkpoint.identity"]


def _says(code: str, word: str, expected: Any, trace: Trace) -> Iterator[Finding]:
    """Each place that names a word not, or otherwise."""
    for place, words in _words(trace):
        said = words.get(word)
        # In JSON `true` is no number, and in Python it is 1.
        if said is None or isinstance(said, bool) or said != expected:
            yield Finding(code, _lacking(place, word, said, trace), {}, expected, said)


def _lacking(place: str, word: str, said: Any, trace: Trace) -> str:
    """What is said of a word that is not there, or has another value; and where it was sought."""
    if said is not None:
        return f"{place} names another {word}"
    key = trace["checkpoint.saved"]["fields"].get(word)
    if place != "the config":
        return f"{place} names no {word}"
    return f"{place} names no {word}: " + (f"its key is {key}" if key else "no key was answered")


@checkpoint_oracle("CHECKPOINT.IDENTITY", *_SAID)
def identity(trace: Trace) -> Iterator[Finding]:
    """Clause A1. The dtype is that of the tensors, where files could be looked into."""
    code = "CHECKPOINT.IDENTITY"
    for word, expected in derive_identity(trace.coordinate, "").items():
        if word not in (*_ELSEWHERE, "dtype"):
            yield from _says(code, word, expected, trace)
    stored = _stored_dtypes(trace)
    for place, words in _words(trace):
        said = words.get("dtype")
        name = str(said).removeprefix("torch.")
        if said is None:
            message = _lacking(place, "dtype", None, trace)
            yield Finding(code, message, {}, " and ".join(stored) or None, None)
        elif stored and stored != [name]:
            message = f"{place} names another dtype than that of the stored tensors"
            yield Finding(code, message, {}, " and ".join(stored), said)
        elif name not in _FLOATS.values():
            message = f"{place} names a dtype that is none of a float"
            yield Finding(code, message, {}, ", ".join(_FLOATS.values()), said)


def _stored_dtypes(trace: Trace) -> list[str]:
    """The dtypes of the floats in the files of the heads; none where no file could be read."""
    files = trace["checkpoint.saved"]["heads"]
    listed = trace["checkpoint.stored"] if trace.has("checkpoint.stored") else ()
    codes = {entry["dtype"] for entry in listed if entry["file"] in files}
    return sorted(_FLOATS.get(code, code) for code in codes if code.startswith(("F", "BF")))


@checkpoint_oracle("CHECKPOINT.HEAD_COUNT", *_SAID)
def head_count(trace: Trace) -> Iterator[Finding]:
    """Clause A2: by the config, and by the heads that are held behind a load."""
    code, heads = "CHECKPOINT.HEAD_COUNT", trace.coordinate.heads
    yield from _says(code, "heads", heads, trace)
    for name in ("weight", "bias", "projection"):
        if trace.has(f"checkpoint.loaded.{name}"):
            found = len(trace[f"checkpoint.loaded.{name}"])
            if found != heads:
                yield Finding(code, "another number of heads was loaded", {}, heads, found)
                return


@checkpoint_oracle("CHECKPOINT.FILENAME_ABI", "checkpoint.saved", "checkpoint.refused")
def filename_abi(trace: Trace) -> Iterator[Finding]:
    """Clause A3."""
    refused = trace["checkpoint.refused"]
    if refused is not None:
        message = "what an engine saved is refused by another of its kind"
        yield Finding("CHECKPOINT.FILENAME_ABI", message, {}, None, refused)


@checkpoint_oracle("CHECKPOINT.STRICT_KEYS", *FAULT, instead=())
def strict_keys(trace: Trace) -> Iterator[Finding]:
    """Clause A4, of broken checkpoints alone: that a lawful one is loaded is A3's."""
    yield from _must_refuse("CHECKPOINT.STRICT_KEYS", trace)


@checkpoint_oracle("CHECKPOINT.REPRESENTATION", *_SAID)
def representation(trace: Trace) -> Iterator[Finding]:
    """Clause A5: by the config, and by what the heads hold behind a load."""
    code, declared = "CHECKPOINT.REPRESENTATION", trace.coordinate.model.projection
    yield from _says(code, "projection", declared, trace)
    parts = ("weight", "bias", "lm_head", "projection")
    *others, own = (trace.has(f"checkpoint.loaded.{part}") for part in parts)
    # Of a state that lacks more, nobody knows whether that is all that it holds.
    held = "independent" if own else "shared" if all(others) else declared
    if held != declared:
        message = f"the heads that were loaded have {held} projections"
        yield Finding(code, message, {}, declared, held)


def trains_backbone(trace: Trace) -> bool:
    """Whether what was trained changed the backbone, too."""
    release = trace.coordinate.release
    return release is not None and release.variant != "medusa-1"


def _says_anything(logits: Array) -> bool:
    """Whether any two tokens are told apart; bits are compared, so how far does not matter."""
    return bool(logits.size) and bool((np.ptp(logits, axis=-1) > 0).any())


_TRAINED = ("checkpoint.saver_logits", "checkpoint.loader_logits")


@checkpoint_oracle(
    "CHECKPOINT.MEDUSA2_SHIPS_BACKBONE",
    "checkpoint.saved",
    applies=trains_backbone,
    proves=lambda trace: trace.has(*_TRAINED) and _says_anything(trace[_TRAINED[0]]),
)
def medusa2_ships_backbone(trace: Trace) -> Iterator[Finding]:
    """Clause A6.

    Without equal logits nothing is proved, nor by such as are all alike. Nor would it be where
    training changed none, but that is L13's: no trace of this kind has an untrained engine's.
    """
    code = "CHECKPOINT.MEDUSA2_SHIPS_BACKBONE"
    if not trace["checkpoint.saved"]["backbone"]:
        yield Finding(code, "no file holds the changed backbone or its adapter")
    if trace.has(*_TRAINED):
        message = "the engine that loaded gives other logits than the one that saved"
        saved, loaded = (trace[name] for name in _TRAINED)
        yield from equal(code, message, saved, loaded, ("position", "token"))


PASSES: Mapping[str, tuple[str, ...]] = {
    "logits": ("position", "token"),
    "head_logits": ("head", "position", "token"),
}
"""What a plain pass shows of an engine before and behind a refusal, and its axes."""


@release_oracle(
    "CHECKPOINT.ALL_OR_NOTHING",
    *FAULT,
    applies=lambda trace: _breaks(trace, "CHECKPOINT.ALL_OR_NOTHING") or is_refused(trace),
    proves=lambda trace: (
        trace.has("checkpoint.before.head_logits", "checkpoint.after.head_logits")
        and _says_anything(trace["checkpoint.before.head_logits"])
    ),
)
def all_or_nothing(trace: Trace) -> Iterator[Finding]:
    """Clause A8, of whatever was refused. Without the heads' logits nobody sees what they hold."""
    code = "CHECKPOINT.ALL_OR_NOTHING"
    if not is_refused(trace):
        yield from _must_refuse(code, trace)
        return
    for part, axes in PASSES.items():
        before, after = f"checkpoint.before.{part}", f"checkpoint.after.{part}"
        if trace.has(before, after):
            message = f"{part} of a plain pass change behind a refusal: {what_is_broken(trace)}"
            yield from equal(code, message, trace[before], trace[after], axes)


@release_oracle("CHECKPOINT.RUNS_NO_CODE", *FAULT, "checkpoint.executed")
def runs_no_code(trace: Trace) -> Iterator[Finding]:
    """Clause A9."""
    code = "CHECKPOINT.RUNS_NO_CODE"
    if trace["checkpoint.executed"]:
        yield Finding(code, f"what a file holds was run: {what_is_broken(trace)}", {}, False, True)
    # The rest of such a folder is lawful, so whoever leaves the pickle alone may load it.
    if not trace["checkpoint.fault"].get("beside"):
        yield from _must_refuse(code, trace)
