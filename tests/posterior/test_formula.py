"""The choice of a path a second time: one edge and one float at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from medusa_oracles.posterior import (
    derive_entropy,
    derive_lengths,
    derive_likeliest,
    derive_probabilities,
    derive_selection,
    derive_threshold,
)

V = 5


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[list[int]], list[list[list[float]]]]:
    """Candidates `[R, W]`, padded behind each path's end, and path logits `[R, W, V]`."""
    paths, width = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    # Few different values, so that ties of logits and of lengths are common.
    logits = draw(st.sampled_from([st.integers(-1, 1).map(float), st.floats(-4, 4)]))
    candidates = []
    for _ in range(paths):
        real = draw(st.integers(1, width))
        tokens = draw(st.lists(st.integers(0, V - 1), min_size=real, max_size=real))
        candidates.append(tokens + [-1] * (width - real))
    row = st.lists(logits, min_size=V, max_size=V)
    path = st.lists(row, min_size=width, max_size=width)
    return candidates, draw(st.lists(path, min_size=paths, max_size=paths))


@st.composite
def policies(draw: st.DrawFn) -> dict[str, float]:
    return {
        "temperature": draw(st.sampled_from([0.5, 0.7, 1.0, 2.0])),
        "epsilon": draw(st.sampled_from([0.05, 0.09, 0.3, 1.0])),
        "alpha": draw(st.sampled_from([0.09, 0.3, 1.0])),
        "entropy_guard": draw(st.sampled_from([0.0, 1e-5, 1e-3])),
    }


def _masked(candidates: list[list[int]], logits: list[list[list[float]]]) -> list[list[Any]]:
    return [
        [row if token >= 0 else None for token, row in zip(tokens, rows, strict=True)]
        for tokens, rows in zip(candidates, logits, strict=True)
    ]


@settings(max_examples=150, deadline=None)
@given(rounds())
def test_greedy(coordinate: Any, literal: Any, given_round: Any) -> None:
    candidates, logits = given_round
    selection = derive_selection(np.array(candidates), np.array(logits), coordinate().policy)
    assert (selection.path, selection.accepted) == literal.greedy(candidates, logits)
    passes = [
        literal.greedy_passes(tokens, rows)
        for tokens, rows in zip(candidates, _masked(candidates, logits), strict=True)
    ]
    assert selection.passes.tolist() == passes


@settings(max_examples=150, deadline=None)
@given(rounds(), policies())
def test_fast_typical(coordinate: Any, literal: Any, given_round: Any, given_policy: Any) -> None:
    candidates, logits = given_round
    policy = replace(coordinate(mode="fast-typical").policy, **given_policy)
    selection = derive_selection(np.array(candidates), np.array(logits), policy)
    probability, entropy, threshold = (
        selection.probability,
        selection.entropy,
        selection.threshold,
    )
    assert probability is not None
    assert entropy is not None
    assert threshold is not None
    for path, tokens in enumerate(candidates):
        for place, token in enumerate(tokens[1:]):
            p = literal.softmax(logits[path][place], policy.temperature)
            where = path, place
            guard = policy.entropy_guard
            assert entropy[where] == pytest.approx(literal.entropy(p, guard), abs=1e-12)
            assert threshold[where] == pytest.approx(literal.threshold(p, policy), abs=1e-12)
            assert probability[where] == pytest.approx(p[token] if token >= 0 else 0, abs=1e-12)
    # Where rounding alone could decide an edge, the two roads may part.
    assume((abs(probability - threshold) > 1e-9).all())
    path, accepted = literal.fast_typical(candidates, logits, policy)
    assert selection.accepted == accepted
    assert selection.path == path or _as_likely(probability, selection.path, path, accepted)


def _as_likely(probability: Any, one: int, other: int, accepted: int) -> bool:
    likelihoods = [math.fsum(map(math.log, probability[p, :accepted])) for p in (one, other)]
    return math.isclose(*likelihoods, abs_tol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda w: st.lists(st.lists(st.booleans(), min_size=w, max_size=w), min_size=1)
    )
)
def test_lengths(passes: list[list[bool]]) -> None:
    """The sum of running products, as 0x04D has it."""
    expected = [sum(math.prod(row[: j + 1]) for j in range(len(row))) for row in passes]
    assert derive_lengths(np.array(passes)).tolist() == expected


def test_logs_are_summed_and_not_probabilities() -> None:
    probability = np.array([[0.45, 0.06], [0.40, 0.08]])
    assert 0.45 + 0.06 > 0.40 + 0.08
    assert 0.45 * 0.06 < 0.40 * 0.08
    assert derive_likeliest(np.array([2, 2]), probability) == 1


@pytest.mark.parametrize("guard", [0.0, 1e-5])
def test_an_impossible_token_contributes_nothing(coordinate: Any, guard: float) -> None:
    policy = replace(coordinate(mode="fast-typical").policy, entropy_guard=guard)
    with np.errstate(all="raise"):
        entropy = derive_entropy(np.array([0.5, 0.5, 0.0]), policy)
    assert float(entropy) == pytest.approx(-math.log(0.5 + guard), abs=1e-15)


@pytest.mark.parametrize(("uniform", "threshold"), [(2, 0.09), (3, 0.09), (4, 0.075), (30, 0.01)])
def test_threshold_falls_with_entropy_below_its_ceiling(
    coordinate: Any, uniform: int, threshold: float
) -> None:
    """Over n equal tokens H = ln n, so that the threshold is min(0.09, 0.3 / n)."""
    policy = replace(coordinate(mode="fast-typical").policy, entropy_guard=0.0)
    entropy = derive_entropy(np.full(uniform, 1 / uniform), policy)
    assert float(derive_threshold(entropy, policy)) == pytest.approx(threshold, abs=1e-12)


@pytest.mark.parametrize("offset", [-1e4, 0.0, 1e4])
def test_probabilities_do_not_overflow(coordinate: Any, literal: Any, offset: float) -> None:
    policy = coordinate(mode="fast-typical").policy
    logits = [0.3, -2.0, 1.5]
    with np.errstate(all="raise"):
        found = derive_probabilities(np.array(logits) + offset, policy)
    expected = literal.softmax(logits, policy.temperature)
    assert found.tolist() == pytest.approx(expected, abs=1e-11)
