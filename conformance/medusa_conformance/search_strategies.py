"""Hypothesis strategies for what a tree is searched for: calibrations, many of them with ties."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import strategies as st

from medusa_spec.coordinate import Calibration, Evidence, TableForm

_FORMS: tuple[TableForm, ...] = ("incremental", "cumulative")
_EVIDENCE: tuple[Evidence, ...] = ("synthetic", "derived", "measured", "source-reported")


@st.composite
def calibrations(draw: st.DrawFn, heads: int, topk: int) -> Calibration:
    """A table of at least one head, and a budget that may be 0 or more than there are paths.

    Masses are multiples of one 64th, so that many are equal, or 0, and products are exact.
    """
    ranks = draw(st.integers(1, topk))
    spare = draw(st.integers(0, 2))
    form = draw(st.sampled_from(_FORMS))
    most = 64 // (ranks + spare)
    mass = st.integers(0, most) | st.sampled_from((0, most // 2, most))
    rows = [[draw(mass) / 64 for _ in range(ranks + spare)] for _ in range(heads)]
    if form == "cumulative":
        rows = [[*accumulate(row)] for row in rows]
    return Calibration(
        form=form,
        accuracy=tuple(map(tuple, rows)),
        nodes=draw(st.integers(0, 8) | st.sampled_from((3, 5, 12, 30))),
        max_rank=ranks,
        model="drawn",
        data_set="none",
        prompts="none",
        policy="greedy",
        evidence=draw(st.sampled_from(_EVIDENCE)),
    )
