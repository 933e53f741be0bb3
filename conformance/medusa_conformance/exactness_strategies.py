"""Hypothesis strategies for output laws: tables of a few tokens, and a mode over them."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Exactness, Sampling, SamplingMode, canonical_order

MODES: tuple[SamplingMode, ...] = get_args(SamplingMode)

EXACT: tuple[SamplingMode, ...] = ("greedy", "row-draw", "rejection")
"""Modes with a rule of their own."""


@st.composite
def exactnesses(draw: st.DrawFn, modes: tuple[SamplingMode, ...] = (*MODES, *EXACT)) -> Exactness:
    """Two or three tokens, up to two heads, and at most three published tokens.

    Weights are small, so that many are equal or nothing; ceilings and masses lie between the sums
    that such weights make at temperature 1.
    """
    mode = draw(st.sampled_from(modes))
    size, heads = draw(st.sampled_from((2, 3))), draw(st.sampled_from((1, 2, 2, 0)))
    row = st.lists(st.sampled_from((1, 2, 3, 0)), min_size=size, max_size=size).filter(any)
    table = st.lists(row.map(tuple), min_size=1 + size, max_size=1 + size).map(tuple)
    sampling = Sampling(
        mode=mode,
        temperature=draw(st.sampled_from((1.0, 0.5, 2.0, 0.7))) if mode != "greedy" else 0.0,
        epsilon=draw(st.sampled_from((0.09, 0.23, 0.37))),
        alpha=draw(st.sampled_from((0.3, 0.71, 0.93))),
        entropy_guard=1e-5,
        top_p=draw(st.sampled_from((1.0, 0.81, 0.57))),
    )
    return Exactness(
        model=draw(table),
        drafts=tuple(draw(table) for _ in range(heads)),
        paths=tuple((0,) * (depth + 1) for depth in range(heads))
        if sampling.rejects
        else draw(_trees(size, heads)),
        sampling=sampling,
        length=draw(st.sampled_from((2, 3, 1))),
        samples=draw(st.sampled_from((40, 120))),
        seed=draw(st.integers(0, 63)),
    )


@st.composite
def _trees(draw: st.DrawFn, size: int, heads: int) -> tuple[RankPath, ...]:
    """A tree of up to four paths."""
    paths: list[RankPath] = []
    for _ in range(draw(st.integers(0, 4)) if heads else 0):
        free = [
            (*above, rank)
            for above in ((), *paths)
            for rank in range(size)
            if len(above) < heads and (*above, rank) not in paths
        ]
        if free:
            paths.append(draw(st.sampled_from(free)))
    return canonical_order(paths)
