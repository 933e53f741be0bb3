"""Hypothesis strategies for what heads learn from, and for what a checkpoint says that they are."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from medusa_spec.coordinate import Release, Training, Variant

Value = TypeVar("Value")

_VARIANTS: tuple[Variant, ...] = ("medusa-1", "medusa-2", "self-distilled")


@st.composite
def trainings(draw: st.DrawFn, vocabulary: int, heads: int) -> Training:
    """One or two short sequences, of which many labels are nobody's, and a recipe of any variant.

    Often the last heads have no label at all.
    """
    batch, length = draw(st.integers(1, 2)), draw(st.integers(2, heads + 3))
    tokens, owners = st.integers(0, vocabulary - 1), st.booleans() | st.just(True)
    variant = draw(st.sampled_from(_VARIANTS))
    steps, first = draw(st.integers(1, 2)), draw(st.sampled_from((0.8, 0.5, 1.0)))
    alone = variant == "medusa-1"
    ranks = (0,) if alone else (1, 2) if variant == "self-distilled" else (0, 1)
    return Training(
        variant=variant,
        tokens=_rows(draw, tokens, batch, length),
        owned=_rows(draw, owners, batch, length),
        head_weights=tuple(first ** (head + 1) for head in range(heads)),
        medusa_weight=1.0 if alone else draw(st.sampled_from((0.2, 0.01, 2.0))),
        head_rate=2e-3,
        backbone_rate=0.0 if alone else 5e-4,
        schedule="two-stage" if alone else draw(st.sampled_from(("two-stage", "ramp"))),
        warm_up=0 if alone else draw(st.integers(0, steps)),
        steps=steps,
        adapter_rank=draw(st.sampled_from(ranks)),
    )


def _rows(
    draw: st.DrawFn, entries: st.SearchStrategy[Value], batch: int, length: int
) -> tuple[tuple[Value, ...], ...]:
    row = st.lists(entries, min_size=length, max_size=length).map(tuple)
    return tuple(draw(row) for _ in range(batch))


@st.composite
def releases(draw: st.DrawFn, training: Training | None) -> Release | None:
    """Often none; else heads of the variant that was trained, on a base of any name."""
    names = st.sampled_from(("example/base", "example/base@2", "b", 'base of "1"', "modèle"))
    revisions = st.sampled_from(("0f" * 20, "main", "1"))
    variant = "medusa-1" if training is None else training.variant
    # Each is saved and loaded some forty times; backbones that were changed are rare already.
    chances = (False, False, False, True) if variant == "medusa-1" else (False, True)
    if not draw(st.sampled_from(chances)):
        return None
    return Release(draw(names), draw(revisions), draw(names), variant)
