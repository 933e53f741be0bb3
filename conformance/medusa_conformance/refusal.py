"""Asking for what must be refused, and seeing that nothing has changed (clause M10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from medusa_conformance.incident import Incident
from medusa_conformance.translation import Engine
from medusa_spec.arrays import Array
from medusa_spec.errors import Refused
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line

Answer = TypeVar("Answer")


def refusal(
    line: Line, engine: Engine, asked: str, ask: Callable[[], Any], last: Trace | None = None
) -> Trace:
    """Ask for what must be refused, and compare the cache before and after.

    `last` is a refusal behind which nothing else was asked: as it left the cache, it is now.
    """
    arrays = looked("before", engine) if last is None else behind(last)
    documents = {"refusal.asked": asked, "refusal.refused": said_no(line, ask)}
    return line.trace(arrays | looked("after", engine), documents)


def behind(seen: Trace) -> dict[str, Array]:
    """What was seen behind one refusal, as what is seen before the next."""
    left = {name: array for name, array in seen.arrays.items() if "after" in name}
    return {name.replace("after", "before"): array for name, array in left.items()}


def left_alone(seen: Trace) -> bool:
    """Whether what was asked for was refused, and the cache is as before, as far as it is shown.

    What else an engine does behind a breach of M10 follows from that breach.
    """
    if seen["refusal.refused"] is None:
        return False
    pairs = (("refusal.before", "refusal.after"), ("refusal.length_before", "refusal.length_after"))
    return all(
        np.array_equal(seen[before], seen[after])
        for before, after in pairs
        if seen.has(before, after)
    )


def said_no(line: Line, ask: Callable[[], Any]) -> str | None:
    """What an engine answered to an unlawful request where it refused; `None` where it did not."""
    return answered(line, ask)[1]


def answered(line: Line, ask: Callable[[], Answer]) -> tuple[Answer | None, str | None]:
    """An answer, or what an engine said where it refused: one of the two."""
    try:
        return ask(), None
    except Refused as refused:
        return None, str(refused)
    except Incident as incident:
        if is_refusal(line, incident):
            return None, incident.text
        raise


def is_refusal(line: Line, incident: Incident) -> bool:
    """Whether an exception is how this engine refuses what is unlawful."""
    return line.dialect.refusals == "any-error" and incident.kind == "crash"


def looked(when: str, engine: Engine) -> dict[str, Array]:
    """The cache as far as the engine shows it."""
    if not engine.has("cache"):
        return {}
    view = engine.cache()
    seen = {when: view.backing, f"length_{when}": view.length}
    return {f"refusal.{name}": np.asarray(v) for name, v in seen.items() if v is not None}
