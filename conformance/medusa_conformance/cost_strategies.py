"""Hypothesis strategies for rounds that are counted: workloads, and profiles of them."""

from __future__ import annotations

from hypothesis import strategies as st

from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import CostProfile, Evidence, HeadRows, Workload

_ROWS: tuple[HeadRows, ...] = ("all", "terminal")
_EVIDENCE: tuple[Evidence, ...] = ("synthetic", "derived", "measured", "source-reported")


@st.composite
def workloads(draw: st.DrawFn, trees: st.SearchStrategy[tuple[RankPath, ...]]) -> Workload:
    """A round over one of these trees, of any sizes: small ones, and those of a great model.

    Nothing of either is made, so both are counted as fast.
    """
    paths = draw(trees)
    depth = max(map(len, paths), default=0)
    attention_heads, kv_heads = draw(st.sampled_from(((2, 1), (4, 2), (4, 4), (32, 8), (64, 1))))
    width = draw(st.sampled_from((2, 4, 128)))
    return Workload(
        prefix=draw(st.integers(1, 9) | st.sampled_from((2048, 131_072))),
        paths=paths,
        heads=depth + draw(st.integers(0, 2)),
        head_rows=draw(st.sampled_from(_ROWS)),
        layers=draw(st.sampled_from((1, 2, 32, 80))),
        hidden=attention_heads * width,
        attention_heads=attention_heads,
        kv_heads=kv_heads,
        intermediate=draw(st.sampled_from((8, 11_008))),
        vocabulary=draw(st.sampled_from((5, 16, 32_000, 128_256))),
        head_blocks=draw(st.sampled_from((1, 2, 0))),
        projection=draw(st.sampled_from(("independent", "shared"))),
        scalar_bytes=draw(st.sampled_from((2, 4, 8))),
        published=draw(st.integers(1, depth + 1)),
        batch=1,
        profile=draw(st.none() | profiles(depth)),
    )


@st.composite
def profiles(draw: st.DrawFn, depth: int) -> CostProfile:
    """Costs in quarters, so that some break exactly even, of rounds that accept 0 to `depth`."""
    quarters = st.integers(1, 16)
    rounds = draw(st.sampled_from((1, 4, 3)))
    return CostProfile(
        baseline_step=draw(st.sampled_from((1.0, 0.5, 3.0))),
        round=draw(quarters) / 4,
        unit="made up",
        rounds=rounds,
        published=draw(st.integers(rounds, rounds * (depth + 1))),
        evidence=draw(st.sampled_from(_EVIDENCE)),
    )
