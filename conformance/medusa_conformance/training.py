"""The section that trains: every step of a coordinate's training, on one engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.incident import Incident
from medusa_conformance.unlawful import is_refusal
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Training
from medusa_spec.errors import Refused
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
    one: it shows what became of the backbone without a word of the engine's about it.
    """
    planned = line.coordinate.training
    if planned is None:
        return
    engine = line.engine()
    before = plain(engine, planned)
    for step in range(planned.steps):
        arrays = {"training.step": np.asarray(step)}
        try:
            seen = engine.train_step(planned, step)
        except Refused as refusal:
            yield line.trace(arrays, {"training.refused": str(refusal)})
            return
        except Incident as incident:
            if not is_refusal(line, incident):
                raise
            yield line.trace(arrays, {"training.refused": incident.text})
            return
        after = plain(engine, planned)
        arrays |= arrays_of("training", seen)
        if before is not None and after is not None:
            arrays |= {"training.plain_before": before, "training.plain_after": after}
        shown = {name: getattr(seen, name) for name in DOCUMENTS}
        documents: dict[str, Any] = {"training.refused": None}
        documents |= {f"training.{name}": list(v) for name, v in shown.items() if v is not None}
        yield line.trace(arrays, documents)
        before = after


def plain(engine: Engine, planned: Training) -> Array | None:
    """The ordinary head's logits `[B, S, V]` of a plain pass over each sequence of the batch."""
    if not engine.has("forward"):
        return None
    passes = [engine.forward(row).logits for row in planned.tokens]
    return None if any(logits is None for logits in passes) else np.stack(passes)
