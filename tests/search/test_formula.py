"""Searches a second time: in fractions, over every subset of paths, and by two other roads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_conformance.search_strategies import calibrations
from medusa_oracles.search_plan import (
    derive_best,
    derive_increments,
    derive_search,
    derive_sets,
    derive_size,
    prefix_closed_sets,
)
from medusa_reference_engine.search import SearchStage
from medusa_spec.coordinate import Calibration

Path = tuple[int, ...]
SHAPES = [(1, 1), (1, 4), (2, 2), (2, 3), (3, 2), (4, 1)]

DRAWN = st.tuples(st.integers(1, 3), st.integers(1, 4)).flatmap(lambda s: calibrations(*s))


def every_path(heads: int, ranks: int) -> list[Path]:
    return [path for depth in range(1, heads + 1) for path in product(range(ranks), repeat=depth)]


def closed(paths: tuple[Path, ...]) -> bool:
    return all(path[:-1] in ((), *paths) for path in paths)


@settings(max_examples=150, deadline=None)
@given(DRAWN)
def test_every_decision_is_that_of_exact_fractions(
    literal: ModuleType, calibration: Calibration
) -> None:
    # Masses of 64ths: up to four of them are multiplied without rounding, so ties are exact.
    found, record = derive_search(calibration), literal.search(calibration)
    assert [decision._asdict() for decision in found.decisions] == record
    assert found.objective == sum(decision["weight"] for decision in record)
    assert found.increments.tolist() == literal.increments(calibration)


@settings(max_examples=150, deadline=None)
@given(DRAWN)
def test_the_engine_decides_as_exact_fractions_do(
    literal: ModuleType, calibration: Calibration
) -> None:
    plan, record = SearchStage().search(calibration), literal.search(calibration)
    assert [dict(decision) for decision in plan.decisions] == record
    assert list(plan.paths) == [decision["path"] for decision in record]
    assert plan.weights.tolist() == [decision["weight"] for decision in record]
    assert plan.objective == sum(decision["weight"] for decision in record)
    assert plan.increments.tolist() == literal.increments(calibration)


@pytest.mark.parametrize(("heads", "ranks"), SHAPES)
def test_prefix_closed_sets_are_those_among_all_sets(heads: int, ranks: int) -> None:
    paths = every_path(heads, ranks)
    for size in range(len(paths) + 1):
        among_all = {frozenset(c) for c in combinations(paths, size) if closed(c)}
        found = [*prefix_closed_sets(heads, ranks, size)]
        assert {*map(frozenset, found)} == among_all
        assert len(found) == len(among_all) == derive_sets(heads, ranks, size)


def worth(paths: tuple[Path, ...], masses: list[list[Fraction]]) -> Fraction:
    total = Fraction(0)
    for path in paths:
        weight = Fraction(1)
        for head, rank in enumerate(path):
            weight *= masses[head][rank]
        total += weight
    return total


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SHAPES[:4]), st.data())
def test_no_set_of_paths_is_worth_more_than_the_greedy_one(
    calibrated: Callable[..., Calibration], shape: tuple[int, int], data: st.DataObject
) -> None:
    """Every subset of all paths is tried, closed or not, for each budget: exactly, in fractions."""
    heads, ranks = shape
    mass = st.integers(0, 1000 // ranks)
    thousandths = [[data.draw(mass) for _ in range(ranks)] for _ in range(heads)]
    masses = [[Fraction(part, 1000) for part in row] for row in thousandths]
    rows = [tuple(part / 1000 for part in row) for row in thousandths]
    paths = every_path(heads, ranks)
    for nodes in range(min(len(paths), 5) + 1):
        greedy = tuple(d.path for d in derive_search(calibrated(*rows, nodes=nodes)).decisions)
        best = max(worth(chosen, masses) for chosen in combinations(paths, nodes))
        assert worth(greedy, masses) == best
        assert derive_best(calibrated(*rows, nodes=nodes)) == pytest.approx(float(best))


def best_split(masses: Any, nodes: int) -> Any:
    """The most that `n` paths are worth, for every `n`: below each rank any part of the budget.

    A dynamic program over heads from the last, that never looks at a frontier.
    """
    below = np.zeros(1)
    for row in masses[::-1]:
        worth = np.zeros(1)
        for mass in row:
            with_rank = mass * np.concatenate([[0.0], 1.0 + below])[: nodes + 1]
            pairs = np.full(min(len(worth) + len(with_rank) - 1, nodes + 1), -np.inf)
            for part, gained in enumerate(with_rank):
                room = min(len(worth), len(pairs) - part)
                pairs[part : part + room] = np.maximum(
                    pairs[part : part + room], worth[:room] + gained
                )
            worth = pairs
        below = worth
    return below


def ladder(heads: int, ranks: int) -> list[tuple[float, ...]]:
    """Masses that fall with the rank and with the head, no two of them alike."""
    return [
        tuple(0.6 * 0.83**head * 0.37 ** (1 + rank * 0.61) for rank in range(ranks))
        for head in range(heads)
    ]


@pytest.mark.parametrize("nodes", [1, 7, 63, 200])
def test_a_tree_of_five_heads_and_ten_ranks_is_the_best_split_of_its_budget(
    calibrated: Callable[..., Calibration], nodes: int
) -> None:
    found = derive_search(calibrated(*ladder(5, 10), nodes=nodes))
    expected = best_split(derive_increments(calibrated(*ladder(5, 10), nodes=nodes)), nodes)
    assert found.objective == pytest.approx(expected[nodes], rel=1e-12)


def test_the_heaviest_of_all_paths_are_the_tree(calibrated: Callable[..., Calibration]) -> None:
    """All 111,110 paths, sorted: the way to the tree that has no frontier at all."""
    rows = ladder(5, 10)
    found = derive_search(calibrated(*rows, nodes=63))
    weights = {
        path: float(np.prod([rows[head][rank] for head, rank in enumerate(path)]))
        for path in every_path(5, 10)
    }
    heaviest = sorted(weights, key=lambda path: -weights[path])[:63]
    assert {decision.path for decision in found.decisions} == {*heaviest}
    assert len(weights) == 111_110


@pytest.mark.parametrize("nodes", [1, 63, 1_000, 65_536])
def test_oracle_and_engine_agree_on_great_trees(
    calibrated: Callable[..., Calibration], nodes: int
) -> None:
    calibration = calibrated(*ladder(5, 10), nodes=nodes)
    found, plan = derive_search(calibration), SearchStage().search(calibration)
    assert tuple(decision._asdict() for decision in found.decisions) == plan.decisions
    assert len(plan.paths) == nodes


def test_another_calibration_is_another_tree(calibrated: Callable[..., Calibration]) -> None:
    """The same model, heads, ranks and budget; where the mass lies decides, and it is undone."""
    strong, weak = (0.5, 0.2, 0.1), (0.1, 0.1, 0.1)
    deep = calibrated(strong, strong, strong, nodes=5)
    flat = calibrated(strong, weak, weak, nodes=5)
    paths = [{d.path for d in derive_search(c).decisions} for c in (deep, flat, deep)]
    # .5, .25, .2 and .125; then 2, 0 1 and 1 0 of .1 each, of which the first is the shortest.
    assert paths[0] == {(0,), (0, 0), (1,), (0, 0, 0), (2,)}
    # Behind .5, .2 and .1 come .5 * .1 three times, of which two are admitted.
    assert paths[1] == {(0,), (1,), (2,), (0, 0), (0, 1)}
    assert paths[0] == paths[2] != paths[1]


def test_a_cumulative_table_is_its_increments_and_no_other(
    calibrated: Callable[..., Calibration],
) -> None:
    # Dyadic, so that sums and differences are exact.
    masses = (0.5, 0.125, 0.25), (0.25, 0.0, 0.5)
    sums = (0.5, 0.625, 0.875), (0.25, 0.25, 0.75)
    incremental = calibrated(*masses, nodes=8)
    cumulative = calibrated(*sums, nodes=8, form="cumulative")
    assert derive_search(cumulative).decisions == derive_search(incremental).decisions
    wrong = replace(cumulative, form="incremental")
    assert derive_search(wrong).decisions != derive_search(incremental).decisions


def test_a_budget_ends_with_it_or_with_the_paths(calibrated: Callable[..., Calibration]) -> None:
    for nodes, size in ((0, 0), (1, 1), (11, 11), (12, 12), (13, 12), (1000, 12)):
        calibration = calibrated((0.5, 0.3, 0.1), (0.4, 0.2, 0.1), nodes=nodes)
        assert derive_size(calibration) == len(derive_search(calibration).decisions) == size
    last = derive_search(calibrated((0.5,), nodes=3)).decisions[-1]
    assert (last.path, last.frontier, last.runner_up, last.runner_up_weight) == (
        (0,),
        1,
        None,
        None,
    )


def test_ranks_beyond_the_last_are_as_if_they_were_not_there(
    calibrated: Callable[..., Calibration],
) -> None:
    wide = calibrated((0.25, 0.5), (0.25, 0.5), nodes=4, max_rank=1)
    assert derive_search(wide)[1:] == derive_search(calibrated((0.25,), (0.25,), nodes=4))[1:]
