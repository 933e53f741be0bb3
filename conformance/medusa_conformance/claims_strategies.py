"""Hypothesis strategies for what may be claimed: figures of every origin, and their policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from medusa_spec.claims import Facts, Figure, Law, Quantity

_QUANTITIES: tuple[Quantity, ...] = ("count", "share", "time", "rate", "size", "speedup")
_MODES = (
    *("greedy", "fast-typical", "typical", "nucleus", "rejection"),
    *("nucleus-per-path", "rejection-uncorrected"),
)
_TEXTS = ("drawn", "ein Grund", "tokens: 3, or so")


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    """Up to six figures, of which many are computed of others; and up to two policies."""
    figures: list[Figure] = []
    for number in range(draw(st.integers(0, 6))):
        figures.append(
            Figure(
                name=f"figure-{number}",
                value=draw(st.sampled_from((0.0, 1.7, 2.125, 64.0, -3.0, 1e-9, 12345.678))),
                unit=draw(st.sampled_from(("rows", "accepted edges a round", "ms"))),
                quantity=draw(st.sampled_from(_QUANTITIES)),
                origin=draw(_origins([figure.name for figure in figures])),
            )
        )
    distances = st.sampled_from((None, 0.0, 0.0, 0.25, 1e-12))
    modes = draw(st.lists(st.sampled_from(_MODES), max_size=2, unique=True))
    return Facts(tuple(figures), tuple(Law(mode, draw(distances)) for mode in modes))


@st.composite
def _origins(draw: st.DrawFn, known: list[str]) -> Mapping[str, Any]:
    text = st.sampled_from(_TEXTS)
    kind = draw(st.sampled_from(("computed", "computed", "made-up", "run", "said")))
    match kind:
        case "computed":
            inputs = st.lists(st.sampled_from(known), max_size=3, unique=True) if known else None
            return {
                "kind": kind,
                "formula": draw(text),
                "inputs": draw(inputs) if inputs is not None else [],
            }
        case "made-up":
            return {"kind": kind, "purpose": draw(text)}
        case "run":
            sample = {"size": draw(st.integers(1, 1000)), "of": draw(text)}
            own = {"machine": draw(text), "command": draw(text)}
            return {"kind": kind, **own, "sample": sample}
        case _:
            return {"kind": kind, "source": draw(st.sampled_from(("a paper", "a log", "b")))}
