"""A finding's coordinate shrinks to one that is lawful, no larger, and still breaks the rule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from medusa_conformance import shrink as module
from medusa_conformance.folding import Cause
from medusa_conformance.runner import (
    Located,
    Setting,
    first_finding,
    line_of,
    reference_factory,
)
from medusa_conformance.shrink import ALL_TRIALS, STEPS, TRIALS, lawful, shrink, shrink_all
from medusa_manifests import load, names
from medusa_mutations import mutations
from medusa_spec.coordinate import Coordinate
from medusa_spec.findings import Finding
from medusa_spec.loading import coordinate_from

SETTING = Setting("cpu", "float64")

Judge = Callable[[Coordinate], Located | None]


def judge_of(mutant: str) -> Judge:
    mutation = mutations()[mutant]
    factory = reference_factory(SETTING, mutation)
    return lambda coordinate: first_finding(line_of(factory, coordinate, SETTING), mutation.killer)


def size(coordinate: Coordinate) -> tuple[int, ...]:
    shape = coordinate.heads, coordinate.topk, len(coordinate.prefix), len(coordinate.rounds)
    return coordinate.nodes, *shape, coordinate.model.layers


def shrunken(mutant: str, name: str) -> Coordinate:
    judge = judge_of(mutant)
    found = judge(load(name))
    assert found is not None
    best, used = shrink(found, judge, TRIALS, time.monotonic() + 60)
    assert used <= TRIALS
    assert best.finding.code == mutations()[mutant].killer
    # Lawful by its document alone, which is all that a finding file keeps.
    assert coordinate_from(best.coordinate.document(), "a finding") == best.coordinate
    again = judge(best.coordinate)
    assert again is not None
    assert again.finding == best.finding
    return best.coordinate


LARGE = "public-mc-sim-7b-63"


@pytest.mark.parametrize(
    ("mutant", "name", "nodes"),
    [
        # A rank of a head that is not its own: no row at all.
        ("heads-reversed", LARGE, 1),
        # A row that is not the root.
        ("gather-off-by-one", LARGE, 2),
        # Two siblings, and the root that makes them such.
        ("sibling-visible", LARGE, 3),
        # A row whose number is not its depth: the second of one depth.
        ("position-from-row", LARGE, 3),
        ("verify-position-from-row", LARGE, 3),
        # Paths of two lengths, so that one is padded: a leaf, and a leaf below another row.
        ("padding-reads-last-row", LARGE, 4),
        # An edge that fails, and one behind it that would pass.
        ("passes-counted-after-mismatch", "posterior-fast-typical", 3),
        # A winner that is not the row behind the root.
        ("commit-contiguous-suffix", "depth-one", 3),
    ],
)
def test_no_row_is_left_that_the_rule_does_not_need(mutant: str, name: str, nodes: int) -> None:
    small, large = shrunken(mutant, name), load(name)
    assert small.nodes == nodes
    assert all(ours <= theirs for ours, theirs in zip(size(small), size(large), strict=True))
    # No manifest is taken for what became of it.
    assert small.name == f"{name}-shrunken"
    assert (len(small.prefix), small.expected) == (1, {})


@pytest.mark.parametrize(
    ("mutant", "name", "batch", "steps"),
    [
        # Head 0 has the token behind its own, so there are two.
        ("labels-offset-one", "assistant-only", [1, 2], 1),
        # A gradient of the step before; in the sequence that is left, place 4 is owned first.
        ("gradients-accumulate", "two-turns", [1, 5], 2),
    ],
)
def test_no_token_and_no_step_is_left_that_the_rule_does_not_need(
    mutant: str, name: str, batch: list[int], steps: int
) -> None:
    training = shrunken(mutant, name).training
    assert training is not None
    assert [len(training.tokens), len(training.tokens[0])] == batch
    assert training.steps == steps


@pytest.mark.parametrize(
    ("mutant", "name", "nodes", "ranks", "heads"),
    [
        # The root is counted where there is a path to leave out.
        ("budget-off-by-one", "ten-paths", 1, 1, 1),
        # A sum where there is a second factor.
        ("sum-for-product", "ten-paths", 2, 1, 2),
        # Two paths that weigh the same: those of head 1, whose row one of two searches puts first.
        ("last-of-equal-paths", "equal-increments", 2, 2, 2),
    ],
)
def test_no_path_and_no_rank_is_left_that_the_search_does_not_need(
    mutant: str, name: str, nodes: int, ranks: int, heads: int
) -> None:
    search = shrunken(mutant, name).search
    assert search is not None
    assert (search.nodes, search.max_rank, len(search.accuracy)) == (nodes, ranks, heads)


@pytest.mark.parametrize(
    ("mutant", "name", "rows"),
    [
        # A key and a value; the rule needs no tree, no head and no second layer.
        ("keys-staged-without-values", "cost-nine-row", 1),
        # Where there is a row beside the one that is counted.
        ("lm-head-on-one-row", "cost-nine-row", 2),
        # Two paths have a root in common.
        ("paths-deduplicated", "cost-regular-3-2-2", 3),
    ],
)
def test_no_row_is_left_that_a_count_does_not_need(mutant: str, name: str, rows: int) -> None:
    cost = shrunken(mutant, name).cost
    assert cost is not None
    assert len(cost.paths) + 1 == rows
    assert cost.profile is None
    assert (cost.prefix, cost.layers, cost.vocabulary, cost.published) == (1, 1, 2, 1)


def test_a_round_s_finding_needs_neither_training_nor_search() -> None:
    assert shrunken("gather-off-by-one", "assistant-only").training is None
    assert shrunken("heads-reversed", "two-heads").search is None


def test_the_same_finding_shrinks_the_same_way() -> None:
    assert shrunken("padding-reads-last-row", LARGE) == shrunken("padding-reads-last-row", LARGE)


# Steps


@pytest.mark.parametrize("name", names())
def test_every_lawful_step_is_smaller(name: str) -> None:
    given = load(name)
    document = given.document()
    before = size(given)
    steps = [lawful(step) for smaller in STEPS for step in smaller(document)]
    taken = [coordinate for coordinate in steps if coordinate is not None]
    assert taken or given.nodes == 1
    for coordinate in taken:
        after = size(coordinate)
        assert all(ours <= theirs for ours, theirs in zip(after, before, strict=True))
        assert plain(coordinate) != plain(given)


def plain(coordinate: Coordinate) -> dict[str, Any]:
    return {k: v for k, v in coordinate.document().items() if k not in ("name", "expected")}


def test_ranks_of_siblings_move_down_together(coordinate: Callable[..., Coordinate]) -> None:
    given = coordinate(((1,), (2,), (1, 0), (2, 1), (2, 2)))
    (moved,) = module._lower_ranks(given.document())
    assert sorted(moved["paths"]) == [[0], [0, 0], [1], [1, 0], [1, 1]]
    assert list(module._lower_ranks(moved)) == []


def test_what_is_planned_moves_with_its_path() -> None:
    document = load("likelihood-tie").document()
    planned = {"path": document["paths"][-1], "edges": 1}
    document |= {"rounds": [planned, None]}
    last = tuple(planned["path"])
    moved = module._moved(document, {last: [0, 0, 0]})
    assert moved["rounds"] == [{"path": [0, 0, 0], "edges": 1}, None]
    gone = module._moved(document, {})
    assert gone["rounds"] == [None, None]
    assert all(row["path"] == [] for row in gone["posterior"])


def test_a_long_name_stays_within_its_limit(coordinate: Callable[..., Coordinate]) -> None:
    given = lawful(coordinate(name="x" * 80).document())
    assert given is not None
    assert given.name == f"{'x' * 71}-shrunken"
    again = lawful(given.document())
    assert again is not None
    assert again.name == given.name


def test_what_breaks_a_rule_is_no_coordinate(coordinate: Callable[..., Coordinate]) -> None:
    document = coordinate().document()
    assert lawful(document | {"prefix_length": 99}) is None
    assert lawful(document | {"paths": [[0, 0]]}) is None


# How much is tried


def cause(coordinate: Coordinate) -> Cause:
    return Cause(Located(Finding("TREE.SLOT", "odd"), coordinate, 0, 0), 1, {})


class Counting:
    """Finds the rule broken on every coordinate, or on the first alone, and counts them."""

    def __init__(self, always: bool) -> None:
        self.always = always
        self.asked = 0

    def __call__(self, coordinate: Coordinate) -> Located | None:
        self.asked += 1
        first = not coordinate.name.endswith("-shrunken")
        return cause(coordinate).located if self.always or first else None


def test_one_cause_gets_its_trials_and_no_more() -> None:
    judge = Counting(always=False)
    (found,) = shrink_all([cause(load(LARGE))], lambda _: judge)
    # One more than are tried: the original is looked at again.
    assert judge.asked == TRIALS + 1
    assert (found.reproduced, found.located.coordinate) == (True, load(LARGE))


def test_many_causes_share_what_a_run_has() -> None:
    judge, many = Counting(always=False), 50
    found = shrink_all([cause(load(LARGE))] * many, lambda _: judge)
    assert len(found) == many
    assert many <= judge.asked <= many + ALL_TRIALS


def test_what_one_does_not_need_is_left_for_the_others() -> None:
    judge = Counting(always=True)
    few, many = load("root-only"), load(LARGE)
    found = shrink_all([*[cause(few)] * 9, cause(many)], lambda _: judge)
    assert found[-1].located.coordinate.nodes == 1


def test_what_is_not_seen_again_is_not_shrunken() -> None:
    asked = []

    def judge(coordinate: Coordinate) -> None:
        asked.append(coordinate)

    (found,) = shrink_all([cause(load(LARGE))], lambda _: judge)
    assert asked == [load(LARGE)]
    assert found == replace(cause(load(LARGE)), reproduced=False)


def test_a_slow_engine_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.0)
    judge = Counting(always=True)
    shrink_all([cause(load(LARGE))] * 3, lambda _: judge)
    assert judge.asked == 3
