"""The section that trains: every step of a coordinate's training, on one engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.isolation import Missing
from medusa_conformance.refusal import answered
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Training
from medusa_spec.errors import Unsupported
from medusa_spec.stages import arrays_of
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line
    from medusa_conformance.translation import Engine

DOCUMENTS = ("skipped", "groups", "parameters")
"""Fields of a step that are no arrays."""


def training(line: Line) -> Iterator[Trace]:
    """One trace a step. A batch that was refused ends them: nothing of it was learnt.

    A plain pass over the batch stands before the first step and behind each, where the engine has
    one: it shows what became of the backbone without a word of the engine's about it. The first of
    them goes with every step: it is what a teacher says.
    """
    planned = line.coordinate.training
    if planned is None:
        return
    engine = line.engine()
    # Of an engine that does not train, nothing else is asked either.
    train = engine.train_step
    first = before = plain(engine, planned)
    for step in range(planned.steps):
        arrays = {"training.step": np.asarray(step)}
        seen, refused = answered(line, partial(train, planned, step))
        if seen is None:
            yield line.trace(arrays, {"training.refused": refused})
            return
        after = plain(engine, planned)
        arrays |= arrays_of("training", seen)
        passes = {"first": first, "before": before, "after": after}
        arrays |= {f"training.plain_{n}": p for n, p in passes.items() if p is not None}
        shown = {name: getattr(seen, name) for name in DOCUMENTS}
        documents: dict[str, Any] = {"training.refused": None}
        documents |= {f"training.{name}": list(v) for name, v in shown.items() if v is not None}
        yield line.trace(arrays, documents)
        before = after


def plain(engine: Engine, planned: Training) -> Array | None:
    """The ordinary head's logits `[B, S, V]` of a plain pass over each sequence of the batch."""
    try:
        passes = [engine.forward(row).logits for row in planned.tokens]
    except (Missing, Unsupported):
        return None
    return None if any(logits is None for logits in passes) else np.stack(passes)
