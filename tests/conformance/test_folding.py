"""One cause, one finding: every mutant has the cause that it was made to be, and two have two."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from medusa_conformance.folding import fold
from medusa_conformance.runner import (
    Located,
    Setting,
    Tally,
    judge_coordinates,
    reference_factory,
)
from medusa_manifests import load
from medusa_mutations import Mutation, mutations
from medusa_mutations.catalog import STAGES
from medusa_reference_engine import ReferenceEngine
from medusa_spec import Coordinate
from medusa_spec.findings import Finding

SETTING = Setting("cpu", "float64")
WATCHED = ("depth-one", "threshold-tie")
"""Shown to every mutant beside the coordinate that exposes it: a short tree, and a padded one."""

DEEPER = {
    "permute-only-tree-indices": (
        "TREE.SLOT",
        "over rows in their right order a wrong slot and a slot of another row are the same thing",
    ),
    "cache-row-as-rope-position": (
        "VERIFICATION.PATH_LOGITS",
        "keys are wrong in every layer, as they are where attention is; logits are named first",
    ),
    "prefill-positions-from-one": (
        "VERIFICATION.PATH_LOGITS",
        "the round that reads the prefilled rows is judged before the cache that it leaves",
    ),
    "generation-cut-from-the-front": (
        "ROUND.FRONTIER_FEEDS_NEXT",
        "over an output without its beginning no round begins where the one before ended",
    ),
    "leaf-accepted-unverified": (
        "ROUND.CHAIN_IS_CHAIN",
        "the unseen edge is accepted on a tree of one path, too",
    ),
    "level-by-level": (
        "SEARCH.FRONTIER_BEST",
        "an admission that is not the heaviest is named before the tree that it ends in",
    ),
}
"""Mutants whose killer is folded under another rule, and why that one is named first."""

PAIRS = 60


def codes(tally: Tally) -> list[str]:
    return [cause.located.finding.code for cause in fold(tally.findings)]


@pytest.mark.parametrize("mutation", mutations().values(), ids=lambda m: m.id)
def test_a_mutant_has_one_cause(
    mutation: Mutation, skip_broken_documents: Callable[[str], None]
) -> None:
    skip_broken_documents(mutation.contract)
    watched = [load(name) for name in dict.fromkeys((*WATCHED, mutation.exposed_by))]
    tally = judge_coordinates(reference_factory(SETTING, mutation), watched, SETTING)
    (cause,) = fold(tally.findings)
    expected, _ = DEEPER.get(mutation.id, (mutation.killer, ""))
    assert cause.located.finding.code == expected
    # Nothing is lost: what is not the cause's is folded under it.
    assert cause.coordinates == tally.failed[expected]
    assert cause.coordinates + sum(cause.follows.values()) == len(tally.findings)
    assert {expected, *cause.follows} == set(tally.failed)


def pairs() -> list[tuple[Mutation, Mutation]]:
    """Two mutations of different contracts, each of a stage of its own; documents' first."""
    catalog = list(mutations().values())
    found: list[tuple[Mutation, Mutation]] = []
    chance = random.Random(0)
    while len(found) < PAIRS:
        one, other = chance.sample(catalog, 2)
        if one.contract != other.contract and field(one) != field(other):
            found.append((one, other))
    return sorted(found, key=lambda pair: "coordinate" not in {m.contract for m in pair})


def field(mutation: Mutation) -> str:
    return next(STAGES[base] for base in mutation.stage.__mro__ if base in STAGES)


def judge_pair(one: Mutation, other: Mutation) -> Tally:
    stages = replace(one.stages(), **{field(other): other.stage})

    def factory(coordinate: Coordinate, capacity: int) -> Any:
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity, stages=stages)

    names = dict.fromkeys((*WATCHED, one.exposed_by, other.exposed_by))
    return judge_coordinates(factory, map(load, names), SETTING)


def test_two_faults_have_two_causes(skip_broken_documents: Callable[[str], None]) -> None:
    both = several = 0
    for one, other in pairs():
        if "coordinate" not in {one.contract, other.contract}:
            skip_broken_documents(one.contract)
        found = codes(judge_pair(one, other))
        expected = {DEEPER.get(m.id, (m.killer, ""))[0] for m in (one, other)}
        if "ROUND.GENERATION_IS_ROUNDS" in found:
            # A loop that is wrong over wrong stages may show as another than that of its stages.
            expected = {code for code in expected if not code.startswith("ROUND.")}
        both += expected <= set(found)
        several += len(found) > 1
    # The rest: a rule that is broken wherever a rule before it is says nothing of its own.
    assert both >= 0.95 * PAIRS
    assert several >= 0.95 * PAIRS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("max-for-min", "causal-triangle-for-tree"),
        ("residual-dropped", "keys-without-values"),
        ("topk-ascending", "frontier-of-predecessor"),
    ],
)
def test_faults_that_have_nothing_to_do_with_each_other(one: str, other: str) -> None:
    first, second = mutations()[one], mutations()[other]
    assert set(codes(judge_pair(first, second))) == {first.killer, second.killer}


def located(code: str, name: str, generation: int = 1, number: int = 0) -> Located:
    return Located(Finding(code, "made up"), load(name), generation, number)


MASK, RECTANGLE = "TREE.MASK_IS_ANCESTRY", "VERIFICATION.RECTANGULAR_MASK"


def test_another_contract_explains_nothing_where_it_is_kept() -> None:
    found = [located(MASK, "six-node"), located(RECTANGLE, "six-node")]
    (cause,) = fold(found)
    assert (cause.located.finding.code, cause.follows) == (MASK, {RECTANGLE: 1})
    causes = fold([*found, located(RECTANGLE, "chain-three")])
    assert [(c.located.finding.code, c.coordinates, dict(c.follows)) for c in causes] == [
        (MASK, 1, {RECTANGLE: 1}),
        (RECTANGLE, 1, {}),
    ]


def test_a_whole_generation_may_show_what_no_trace_holds() -> None:
    (cause,) = fold([located(MASK, "six-node"), located("ROUND.GREEDY_EQUALS_PLAIN", "depth-one")])
    assert cause.follows == {"ROUND.GREEDY_EQUALS_PLAIN": 1}


def test_what_a_round_leaves_is_met_by_the_next() -> None:
    commit, logits = "COMMIT.SOURCE_ROWS", "VERIFICATION.PATH_LOGITS"
    (cause,) = fold([located(commit, "six-node"), located(logits, "six-node", 1, 1)])
    assert (cause.located.finding.code, cause.follows) == (commit, {logits: 1})
    assert len(fold([located(commit, "six-node"), located(logits, "six-node", 1, 0)])) == 2
    assert len(fold([located(commit, "six-node", 1, 1), located(logits, "six-node", 1, 0)])) == 2


def test_an_earlier_generation_has_a_tree_that_no_tree_rule_sees() -> None:
    later = load("rank-gaps")
    assert later.earlier is not None
    chain, gather = located("TREE.RETRIEVAL_CHAIN", "six-node"), "VERIFICATION.GATHER"
    assert len(fold([chain, located(gather, "rank-gaps", 0)])) == 1
    assert len(fold([chain, located(gather, "rank-gaps", 1)])) == 2


def test_the_least_example_is_shown_whatever_came_first() -> None:
    found = [
        located(MASK, "regular-3-2-2"),
        located(MASK, "six-node", 1, 2),
        located(MASK, "six-node", 1, 1),
        located(MASK, "verification-p5"),
    ]
    assert len({f.coordinate.nodes for f in found}) == 3
    for seed in range(5):
        random.Random(seed).shuffle(found)
        (cause,) = fold(found)
        shown = cause.located
        assert (shown.coordinate.name, shown.round) == ("six-node", 1)
        assert cause.coordinates == 3


def test_drawn_coordinates_of_one_name_are_as_many_as_they_are() -> None:
    first = replace(load("six-node"), name="drawn")
    second = replace(load("depth-one"), name="drawn")
    copy = replace(first)
    found = [Located(Finding(MASK, "made up"), c, 1, 0) for c in (first, second, copy)]
    assert [cause.coordinates for cause in fold(found)] == [2]


def test_nothing_found_has_no_cause() -> None:
    assert fold([]) == []
