"""Engines that are wrong on purpose, each in one way: the targets `miniatures:Name`.

They are small, so that what is judged is the judge: what each deserves stands in the tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from toy_engine import Toy

from medusa_spec.errors import Unsupported
from medusa_spec.stages import STAGES, Proposal, Selection

OWN = [stage for stage in STAGES if hasattr(Toy, stage)]
"""The stages of the toy."""


def with_stages(
    names: Sequence[str], answer: Callable[[Any, str, tuple[Any, ...]], Any], **members: Any
) -> type:
    """An engine with a toy inside, whose stages answer what `answer(toy, stage, given)` does."""

    def begin(self: Any, *given: Any) -> None:
        self.toy = Toy(*given)

    def stage(name: str) -> Callable[..., Any]:
        return lambda self, *given: answer(self.toy, name, given)

    return type("Miniature", (), {"__init__": begin, **{n: stage(n) for n in names}, **members})


def rightly(toy: Toy, stage: str, given: tuple[Any, ...]) -> Any:
    return getattr(toy, stage)(*given)


# Right


class Right(Toy):
    name = "always right"


class Prints(Toy):
    """On standard output, and more than a pipe holds: for an engine in Python it is harmless."""

    def select(self, *given: Any) -> Any:
        print("x" * 300_000)
        os.write(1, b'{"id": 1, "answer": {}}\n')
        return super().select(*given)


class Slow(Toy):
    def verify(self, *given: Any) -> Any:
        time.sleep(0.02)
        return super().verify(*given)


def arrays_in(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name))


def editing(toy: Toy, stage: str, given: tuple[Any, ...]) -> Any:
    answer = rightly(toy, stage, deepcopy(given))
    for value in given:
        for array in arrays_in(value):
            array[...] = 0
    return answer


Edits = with_stages(OWN, editing)
OnlyCompiles = with_stages(["compile_tree"], rightly)
OnlySelects = with_stages(["select"], rightly)
OnlyGenerates = with_stages(["generate", "forward"], rightly)
NeverCommits = with_stages(["compile_tree", "prefill", "propose", "verify"], rightly)
HidesItsCache = with_stages([stage for stage in OWN if stage != "cache"], rightly)
OnlyProposes = with_stages(["propose"], rightly)
NoStages = with_stages([], rightly)


def unsupported(toy: Toy, stage: str, given: tuple[Any, ...]) -> Any:
    raise Unsupported("made for another card")


SupportsNothing = with_stages(OWN, unsupported)


# Wrong


def nonsense(answer: Any) -> Any:
    """Another answer of the same form."""
    if answer is None:
        return None
    if isinstance(answer, Selection):
        return replace(answer, path=len(answer.lengths) - 1, accepted=0, passes=~answer.passes)
    if isinstance(answer, Proposal):
        return Proposal(answer.table[::-1], answer.packed[::-1], answer.candidates[::-1])
    if is_dataclass(answer):
        changed = {f.name: nonsense(getattr(answer, f.name)) for f in fields(answer)}
        return type(answer)(**changed)
    if isinstance(answer, np.ndarray):
        if answer.dtype.kind == "b":
            return ~answer
        return -answer if answer.dtype.kind == "f" else answer[::-1]
    if isinstance(answer, tuple):
        return answer[::-1]
    return answer + 1


AlwaysWrong = with_stages(OWN, lambda *asked: nonsense(rightly(*asked)))


class SeesSiblings(Toy):
    """The wrong mask that everything else follows from."""

    def compile_tree(self, *given: Any) -> Any:
        tree = super().compile_tree(*given)
        mask = tree.mask | (tree.depths[:, None] == tree.depths[None, :])
        return replace(tree, mask=mask)


class Noisy(Toy):
    """Above any tolerance, and every time otherwise."""

    def verify(self, *given: Any) -> Any:
        answer = super().verify(*given)
        noise = np.random.default_rng().normal(size=answer.logits.shape)
        return replace(answer, logits=answer.logits + 0.1 * noise)


class Fickle(Toy):
    """Every fifth selection is another path, whoever asks."""

    calls = 0

    def select(self, *given: Any) -> Any:
        answer = super().select(*given)
        Fickle.calls += 1
        other = (answer.path + 1) % len(answer.lengths)
        return answer if Fickle.calls % 5 else replace(answer, path=other)


class WrongOnce(SeesSiblings):
    """In the first trees of a run; a file remembers it, for its process does not."""

    def compile_tree(self, *given: Any) -> Any:
        mark = Path(os.environ["MINIATURE_MARK"])
        if mark.exists():
            return Toy.compile_tree(self, *given)
        return super().compile_tree(*given)

    def select(self, *given: Any) -> Any:
        Path(os.environ["MINIATURE_MARK"]).touch()
        return super().select(*given)


class Halved(Toy):
    """What its tree pass computes has been through float16, and it does not say so."""

    halving = False

    def passed(self, *given: Any) -> Any:
        answer = super().passed(*given)
        if not self.halving:
            return answer
        return tuple(part.astype(np.float16).astype(np.float64) for part in answer)

    def verify(self, *given: Any) -> Any:
        self.halving = True
        try:
            return super().verify(*given)
        finally:
            self.halving = False


class HalvedAndSaysSo(Halved):
    dialect: ClassVar = {"dtype": "float16"}


# Out of order


class CrashesInSelect(Toy):
    def select(self, *_: Any) -> Any:
        raise RuntimeError("no kernel for this card")


def crash(toy: Toy, stage: str, given: tuple[Any, ...]) -> Any:
    raise RuntimeError(f"no kernel for {stage}")


CrashesEverywhere = with_stages(OWN, crash)


class CrashesInInit(Toy):
    def __init__(self, *_: Any) -> None:
        raise RuntimeError("no card")


class ExitsInVerify(Toy):
    def verify(self, *_: Any) -> Any:
        os._exit(3)


class ExitsInInit(Toy):
    def __init__(self, *_: Any) -> None:
        os._exit(4)


class HangsInSelect(Toy):
    def select(self, *_: Any) -> Any:
        time.sleep(600)


class HangsInInit(Toy):
    def __init__(self, *_: Any) -> None:
        time.sleep(600)


class HangsInTheEnd(Toy):
    """When a session is let go, which no stage is to blame for."""

    def __del__(self) -> None:
        time.sleep(600)


class Endless(Toy):
    """Finds the protocol's own descriptor, and never ends its line."""

    def verify(self, *_: Any) -> Any:
        while True:
            for descriptor in range(3, 12):
                with suppress(OSError):
                    os.write(descriptor, b"x" * 1_000_000)


def unimplemented(toy: Toy, stage: str, given: tuple[Any, ...]) -> Any:
    raise NotImplementedError


class Empty:
    """Has the fields of every answer, and nothing in them."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


LiesUnimplemented = with_stages(OWN, unimplemented)
LiesNone = with_stages(OWN, lambda *_: None)
LiesMapping = with_stages(OWN, lambda *_: {})
LiesEmpty = with_stages(OWN, lambda *_: Empty())

EVIL = "a\x1b[2Jb\r\nc\u202ed\ud800"


class Evil(Toy):
    """Terminal codes in its name and in what it raises."""

    name = EVIL
    version = EVIL

    def select(self, *_: Any) -> Any:
        raise RuntimeError(EVIL)


class Googol(Toy):
    """Numbers that no array holds."""

    def generate(self, *given: Any) -> Any:
        return {"tokens": (10**100,), "published": (1,)}
