"""Laws a third time, over drawn tables: every draw at once, in fractions; and theorems of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import ModuleType
from typing import get_args

import numpy as np
import pytest
from hypothesis import given as with_given
from hypothesis import settings
from hypothesis import strategies as st

from medusa_conformance.exactness_strategies import EXACT, exactnesses
from medusa_oracles.exactness import derived
from medusa_oracles.firewall import derive_smallest, small_tables
from medusa_oracles.output_law import (
    derive_distance,
    derive_drafts,
    derive_path_probability,
    derive_products,
    derive_tables,
)
from medusa_reference_engine.exactness import ExactnessStage
from medusa_spec.coordinate import Exactness, Sampling, SamplingMode

CLOSE = {"rtol": 0, "atol": 1e-12}


@settings(max_examples=40, deadline=None)
@with_given(exactnesses())
def test_three_roads_lead_to_one_law(literal_law: ModuleType, exactness: Exactness) -> None:
    found = derived(exactness)
    answer = ExactnessStage().law(exactness)
    if not found.decided:
        return
    law, plain = literal_law.output_law(exactness), literal_law.plain_law(exactness)
    for slow, oracle, engine in (
        (law, found.law, answer.law),
        (plain, found.target, answer.target),
    ):
        written = [float(slow[sequence]) for sequence in sorted(slow)]
        np.testing.assert_allclose(oracle, written, **CLOSE)
        np.testing.assert_allclose(engine, written, **CLOSE)
    rows = [
        [float(p) for p in literal_law.processed(weights, exactness.sampling)]
        for weights in exactness.model
    ]
    np.testing.assert_allclose(found.tables.processed, rows, **CLOSE)
    np.testing.assert_allclose(answer.roots, rows, **CLOSE)
    np.testing.assert_allclose(answer.rows, rows[1:], **CLOSE)
    paths = np.reshape(literal_law.path_probability(exactness), (len(rows), -1))
    np.testing.assert_allclose(derive_path_probability(found.tables), paths, **CLOSE)
    np.testing.assert_allclose(answer.path_probability, paths, **CLOSE)
    apart = float(literal_law.distance(exactness))
    assert derive_distance(found.law, found.target) == pytest.approx(apart, abs=1e-12)
    assert float(answer.distance) == pytest.approx(apart, abs=1e-12)
    if answer.proposal is not None:
        np.testing.assert_allclose(answer.proposal, derive_drafts(exactness), **CLOSE)


@settings(max_examples=40, deadline=None)
@with_given(exactnesses(EXACT), st.sampled_from((1.0, 0.5)))
def test_exact_modes_are_exact_to_the_last_fraction(
    literal_law: ModuleType, exactness: Exactness, temperature: float
) -> None:
    """Not within a tolerance: the two laws are equal fractions."""
    sampling = exactness.sampling
    if sampling.mode != "greedy":
        numbers = (sampling.epsilon, sampling.alpha, sampling.entropy_guard, sampling.top_p)
        exactness = with_sampling(exactness, Sampling(sampling.mode, temperature, *numbers))
    law = literal_law.output_law(exactness)
    assert law == literal_law.plain_law(exactness)
    assert sum(law.values()) == 1
    assert all(isinstance(chance, int | Fraction) for chance in law.values())


def with_sampling(given: Exactness, sampling: Sampling) -> Exactness:
    rest = given.length, given.samples, given.seed
    return Exactness(given.model, given.drafts, given.paths, sampling, *rest)


@pytest.mark.parametrize("mode", get_args(SamplingMode))
def test_the_smallest_example_of_a_mode(mode: SamplingMode, literal_law: ModuleType) -> None:
    expected = {
        "fast-typical": Fraction(1, 2),
        "typical-per-path": Fraction(1, 4),
        "nucleus-per-path": Fraction(1, 4),
        "rejection-uncorrected": Fraction(1, 4),
    }
    found = derive_smallest(mode)
    if mode not in expected:
        assert found is None
        assert all(literal_law.distance(table) == 0 for table in small_tables(mode))
        return
    assert found is not None
    assert literal_law.distance(found) == expected[mode]
    before = [*small_tables(mode)]
    assert all(literal_law.distance(table) == 0 for table in before[: before.index(found)])


@pytest.mark.parametrize("weight", [1, 2, 5, 8])
def test_a_candidate_of_a_redrawn_mode_comes_twice(
    weight: int, exactness: Callable[..., Exactness]
) -> None:
    """`p + (1 - p) p`, whatever `p` is: the rejected draw had its say and was not heard."""
    p = weight / 10
    table = exactness("nucleus-per-path", model=((1, 0), (weight, 10 - weight), (1, 0)))
    law = derived(table).law
    assert law[0] == pytest.approx(p + (1 - p) * p)
    assert derive_distance(law, derived(table).target) == pytest.approx(p * (1 - p))


def test_heads_that_are_right_about_each_token_are_wrong_about_a_path(
    exactness: Callable[..., Exactness],
) -> None:
    fair = ((1, 1),) * 3
    tables = derive_tables(
        exactness(
            "row-draw",
            model=((1, 1), (1, 0), (0, 1)),
            drafts=(fair, fair),
            paths=((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)),
        )
    )
    assert derive_products(tables)[0].tolist() == [0.5, 0.5, 0.25, 0.25, 0.25, 0.25]
    assert derive_path_probability(tables)[0].tolist() == [0.5, 0.5, 0.5, 0.0, 0.0, 0.5]


def test_no_head_changes_the_law_of_an_exact_mode_and_any_changes_another(
    exactness: Callable[..., Exactness],
) -> None:
    model = ((1, 1), (3, 1), (1, 2))
    for mode, exact in (("row-draw", True), ("rejection", True), ("nucleus-per-path", False)):
        laws = [
            derived(exactness(mode, model=model, drafts=((row,) * 3,))).law  # type: ignore[arg-type]
            for row in ((1, 0), (0, 1), (2, 3))
        ]
        same = [np.allclose(laws[0], law) for law in laws[1:]]
        assert all(same) if exact else not all(same)
