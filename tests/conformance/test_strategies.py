"""What the strategies draw: lawful always, odd often enough, and the same for one seed."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_conformance.line import Crash, Line
from medusa_conformance.strategies import (
    MAX_PATHS,
    acceptances,
    branchings,
    coordinates,
    logits,
    model_shapes,
    policies,
    regular_tree,
    rounds,
    sample,
    trees,
)
from medusa_manifests import tolerance
from medusa_oracles import derive_tree, judge
from medusa_oracles.claims import derive_typing
from medusa_oracles.coordinate import derive_violations
from medusa_oracles.search_plan import derive_increments, derive_size
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_reference_engine.engine import ReferenceEngine
from medusa_reference_engine.posterior import PosteriorStage
from medusa_spec import Coordinate, canonical_order, coordinate_from, invariants
from medusa_spec.arrays import RankPath
from medusa_spec.claims import Facts
from medusa_spec.coordinate import Calibration
from medusa_spec.stages import arrays_of
from medusa_spec.trace import Trace

COUNT = 300


@pytest.fixture(scope="module")
def drawn() -> list[Coordinate]:
    return sample(coordinates(), COUNT, 5)


def test_every_coordinate_is_lawful(drawn: list[Coordinate]) -> None:
    for coordinate in drawn:
        document = coordinate.document()
        assert coordinate_from(document, "drawn") == coordinate
        assert derive_violations(document) == frozenset()
        assert AdmissionStage().admit(document).document == document


def leaves(paths: tuple[RankPath, ...]) -> list[RankPath]:
    return [path for path in paths if not any(other[:-1] == path for other in paths)]


def children(paths: tuple[RankPath, ...]) -> Counter[RankPath]:
    return Counter(path[:-1] for path in paths)


def ends_inside_an_accepted_path(c: Coordinate) -> bool:
    first = c.rounds[0]
    if c.ranking is None or first is None or c.posterior:
        return False
    accepted = first.path[: first.edges]
    tokens = [c.ranking.root, *(c.ranking.heads[j][rank] for j, rank in enumerate(accepted))]
    return c.end_of_sequence in tokens[:-1]


def stands_at_its_threshold(c: Coordinate) -> bool:
    policy, row = c.policy, 1 / c.model.vocabulary
    entropy = -math.log(row + policy.entropy_guard)
    threshold = min(policy.epsilon, policy.alpha * math.exp(-entropy))
    uniform = any(not row.probabilities for row in c.posterior)
    return policy.mode == "fast-typical" and uniform and threshold == row


def begins_alike(c: Coordinate) -> bool:
    """Two tokens or more are the same, and both prefixes go on otherwise."""
    if c.earlier is None:
        return False
    pairs = zip(c.earlier.prefix, c.prefix, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 0) >= 2


def reparented(c: Coordinate) -> bool:
    if c.earlier is None or c.earlier.paths == c.paths:
        return False
    before, now = ([(len(p), p[-1]) for p in each.paths] for each in (c.earlier, c))
    return sorted(before) == sorted(now)


def distinct(calibration: Calibration) -> bool:
    """Whether the increments of each head differ from each other."""
    return all(len({*row}) == len(row) for row in derive_increments(calibration).tolist())


def depths(facts: Facts) -> dict[str, int]:
    """How many formulas stand one on another below each figure, itself counted."""
    found = {"": 0}
    for figure in facts.figures:
        below = [found[name] for name in figure.origin.get("inputs", ())]
        found[figure.name] = max(below, default=0) + (figure.origin["kind"] == "computed")
    return found


ODDITIES: dict[str, Callable[[Coordinate], Any]] = {
    "token 0 in the prefix": lambda c: 0 in c.prefix,
    "token 0 as the root": lambda c: c.ranking and c.ranking.root == 0,
    "token 0 ranked": lambda c: c.ranking and any(0 in ranked for ranked in c.ranking.heads),
    "one prefix token": lambda c: len(c.prefix) == 1,
    "a search that no two increments let tie": lambda c: c.search and distinct(c.search),
    "a search among equal increments": lambda c: c.search and not distinct(c.search),
    "a search for nothing": lambda c: c.search and c.search.nodes == 0,
    "a search that runs out of paths": lambda c: (
        c.search and 0 < derive_size(c.search) < c.search.nodes
    ),
    "a search of fewer ranks than its table has": lambda c: (
        c.search and c.search.max_rank < len(c.search.accuracy[0])
    ),
    "a round that is counted with heads on one of several rows": lambda c: (
        c.cost and c.cost.head_rows == "terminal" and c.cost.paths
    ),
    "a round that is counted with heads on all of several rows": lambda c: (
        c.cost and c.cost.head_rows == "all" and c.cost.paths
    ),
    "a root alone that is counted": lambda c: c.cost and not c.cost.paths,
    "a profile": lambda c: c.cost and c.cost.profile,
    "no profile": lambda c: c.cost and not c.cost.profile,
    "a figure computed of a computed one": lambda c: (
        c.claims and max(depths(c.claims).values()) > 1
    ),
    "a figure that rests on two kinds": lambda c: (
        c.claims and any(len(t.rests_on) > 1 for t in derive_typing(c.claims).values())
    ),
    "a policy that nobody enumerated": lambda c: (
        c.claims and any(law.distance is None for law in c.claims.policies)
    ),
    "no path": lambda c: not c.paths,
    "no head": lambda c: c.heads == 0,
    "five heads": lambda c: c.heads == 5,
    "five levels": lambda c: any(len(path) == 5 for path in c.paths),
    "idle heads": lambda c: c.heads > max(map(len, c.paths), default=0),
    "one level": lambda c: len(c.paths) > 1 and {*map(len, c.paths)} == {1},
    "a chain": lambda c: len(c.paths) > 1 and len(leaves(c.paths)) == 1,
    "leaves of unequal depth": lambda c: len({*map(len, leaves(c.paths))}) > 1,
    "a fork below the root": lambda c: any(n > 1 for path, n in children(c.paths).items() if path),
    "the greatest rank": lambda c: c.topk > 1 and any(p[-1] == c.topk - 1 for p in c.paths),
    "a skipped rank": lambda c: any(p[-1] and (*p[:-1], p[-1] - 1) not in c.paths for p in c.paths),
    "equal tokens under different parents": lambda c: (
        len({(len(p), p[-1]) for p in c.paths}) < len(c.paths)
    ),
    "as many ranks as tokens": lambda c: c.topk == c.model.vocabulary,
    "one token ranked alike by several heads": lambda c: (
        c.ranking and any(len({*rank}) < len(rank) for rank in zip(*c.ranking.heads, strict=True))
    ),
    "a regular tree of two levels": lambda c: c.branching and len(c.branching) > 1,
    "greedy": lambda c: c.policy.mode == "greedy",
    "fast typical": lambda c: c.policy.mode == "fast-typical",
    "temperature 1": lambda c: c.policy.temperature == 1.0,
    "temperature below 0.2": lambda c: 0.0 < c.policy.temperature < 0.2,
    "temperature above 1.5": lambda c: c.policy.temperature > 1.5,
    "another temperature": lambda c: c.policy.temperature not in (0.0, 1.0),
    "alpha above epsilon": lambda c: c.policy.alpha > c.policy.epsilon,
    "alpha below epsilon": lambda c: c.policy.alpha < c.policy.epsilon,
    "an edge at its threshold": stands_at_its_threshold,
    "retrieval in pinned order": lambda c: c.policy.retrieval_order == "pinned",
    "sentinel -1": lambda c: c.policy.sentinel == -1,
    "another sentinel": lambda c: c.policy.sentinel < -1,
    "as many key heads as heads": lambda c: c.model.kv_heads == c.model.attention_heads,
    "grouped heads": lambda c: 1 < c.model.kv_heads < c.model.attention_heads,
    "one key head": lambda c: c.model.kv_heads == 1,
    "four key heads": lambda c: c.model.kv_heads == 4,
    "five layers": lambda c: c.model.layers == 5,
    "heads of three blocks": lambda c: c.model.head_blocks == 3,
    "heads without blocks": lambda c: c.model.head_blocks == 0,
    "heads of two blocks": lambda c: c.model.head_blocks == 2,
    "shared projection": lambda c: c.model.projection == "shared",
    "a full cache": lambda c: c.capacity == len(c.prefix) + c.nodes,
    "room for a long generation": lambda c: (
        c.capacity - len(c.prefix) - c.nodes + 1 >= 2 * max(map(len, c.paths), default=0) + 3
    ),
    "three rounds": lambda c: len(c.rounds) == 3,
    "a round of its own": lambda c: None in c.rounds,
    "nothing accepted": lambda c: any(r and r.path and r.edges == 0 for r in c.rounds),
    "a part accepted": lambda c: any(r and 0 < r.edges < len(r.path) for r in c.rounds),
    "all accepted": lambda c: any(r and r.path and r.edges == len(r.path) for r in c.rounds),
    "an end inside an accepted path": ends_inside_an_accepted_path,
    "an end": lambda c: c.end_of_sequence is not None,
    "no end": lambda c: c.end_of_sequence is None,
    "a posterior": lambda c: c.posterior,
    "an earlier generation": lambda c: c.earlier,
    "an earlier tree of as many nodes": lambda c: (
        c.earlier and c.earlier.paths != c.paths and len(c.earlier.paths) == len(c.paths)
    ),
    "an earlier prefix of as many tokens": lambda c: (
        c.earlier and c.earlier.prefix != c.prefix and len(c.earlier.prefix) == len(c.prefix)
    ),
    "an earlier prefix that begins alike": begins_alike,
    "an earlier tree of the same slots under other parents": reparented,
    "the legacy variant": lambda c: c.source.variant == "legacy",
    "a training": lambda c: c.training,
    "a release on the unchanged base": lambda c: c.release and c.release.variant == "medusa-1",
    "a release with an adapter": lambda c: c.release and c.training and c.training.adapter_rank,
    "a release with a whole backbone": lambda c: (
        c.release and c.release.variant != "medusa-1" and not c.training.adapter_rank
    ),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_an_oddity_is_drawn_often_enough(oddity: str, drawn: list[Coordinate]) -> None:
    # One in a hundred is what the first few dozen still have a chance to meet.
    assert sum(bool(ODDITIES[oddity](coordinate)) for coordinate in drawn) >= COUNT / 100


@pytest.mark.parametrize("seed", [0, 1])
def test_forty_coordinates_execute_every_invariant(seed: int) -> None:
    """A check that is never executed cannot fail; and the reference engine breaks no rule."""
    executed: set[str] = set()
    outcomes: set[str] = set()
    for coordinate in sample(coordinates(), 40, seed):
        line = Line(coordinate, _engine, tolerance("float64"), tolerance("policy"))
        for trace in line.run():
            assert not isinstance(trace, Crash), trace
            judgement = judge(trace)
            assert judgement.findings == ()
            executed |= {*judgement.executed}
            outcomes |= _outcomes(trace)
    assert executed == invariants().keys()
    assert outcomes == {"nothing", "a part", "everything", "cut by an end", "a tie"}


def _engine(coordinate: Coordinate, capacity: int) -> ReferenceEngine:
    return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity)


def _outcomes(trace: Trace) -> set[str]:
    if not trace.has("selection.lengths", "commit.tokens"):
        return set()
    lengths, tokens = trace["selection.lengths"], trace["commit.tokens"]
    accepted, edges = int(lengths.max()), trace["selection.candidates"].shape[1] - 1
    found = {"nothing" if accepted == 0 else "a part" if accepted < edges else "everything"}
    if len(tokens) <= accepted:
        found.add("cut by an end")
    if accepted and (lengths == accepted).sum() > 1:
        found.add("a tie")
    return found


SHAPES = st.tuples(st.integers(1, 5), st.integers(0, 4))


@given(st.data(), SHAPES)
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_a_tree_is_closed_bounded_and_canonical(
    data: st.DataObject, shape: tuple[int, int]
) -> None:
    topk, heads = shape
    paths = data.draw(trees(topk, heads))
    assert len(paths) <= MAX_PATHS
    assert all(path[:-1] in {(), *paths} for path in paths)
    assert all(0 <= rank < topk for path in paths for rank in path)
    assert all(len(path) <= heads for path in paths)
    assert len({*paths}) == len(paths)
    assert paths == canonical_order(paths)


@pytest.mark.parametrize(("asked", "grown"), [(3, 3), (6, 6), (7, 6)])
def test_a_tree_has_as_many_paths_as_fit(asked: int, grown: int) -> None:
    # Two ranks on two levels are 2 + 4 paths.
    drawn = sample(trees(2, 2, asked, asked), 20, 0)
    assert {*map(len, drawn)} == {grown}


def test_a_tree_shrinks_to_few_nodes_and_low_ranks() -> None:
    def smallest(wanted: Callable[[tuple[RankPath, ...]], bool]) -> tuple[RankPath, ...]:
        quiet = settings(database=None, derandomize=True, deadline=None, max_examples=1000)
        return hypothesis.find(trees(4, 4), wanted, settings=quiet)

    assert smallest(lambda paths: True) == ()
    assert smallest(lambda paths: any(path[-1] == 3 for path in paths)) == ((3,),)
    assert smallest(lambda paths: any(len(p) == 2 for p in paths)) == ((0,), (0, 0))


@given(st.data(), SHAPES)
@settings(max_examples=60, derandomize=True, database=None, deadline=None)
def test_a_regular_tree_has_every_path_of_its_branching(
    data: st.DataObject, shape: tuple[int, int]
) -> None:
    topk, heads = shape
    branching = data.draw(branchings(topk, heads))
    paths = regular_tree(branching)
    assert len(branching) <= heads
    assert all(1 <= width <= topk for width in branching)
    assert len(paths) == sum(math.prod(branching[:n]) for n in range(1, len(branching) + 1))
    assert len(paths) <= MAX_PATHS
    assert paths == canonical_order(paths)
    assert all(rank < branching[depth] for path in paths for depth, rank in enumerate(path))


def test_acceptances_and_rounds_stay_in_the_tree() -> None:
    paths = ((0,), (1,), (0, 2), (0, 3))
    planned = sample(acceptances(paths), 100, 0)
    assert {plan.path for plan in planned} == {(), *paths}
    assert all(0 <= plan.edges <= len(plan.path) for plan in planned)
    plans = sample(rounds(paths), 100, 0)
    assert {*map(len, plans)} == {1, 2, 3}
    assert {type(plan).__name__ for plan in sum(plans, ())} == {"NoneType", "Acceptance"}


def test_model_shapes_fit_rotary_pairs_and_groups() -> None:
    for shape in sample(model_shapes(), 100, 0):
        assert shape.head_dim % 2 == 0
        assert shape.head_dim * shape.attention_heads == shape.hidden
        assert shape.attention_heads % shape.kv_heads == 0


def test_a_policy_has_an_epsilon_at_a_uniform_row_only_where_that_is_exact() -> None:
    assert 1 / 8 in {policy.epsilon for policy in sample(policies(8), 100, 0)}
    assert 1 / 11 not in {policy.epsilon for policy in sample(policies(11), 100, 0)}


def test_logits_are_finite_and_often_tied() -> None:
    tied = decided = impossible = 0
    for values in sample(logits(3, 8), 100, 0):
        assert values.shape == (3, 8)
        assert np.isfinite(values).all()
        best = (values == values.max(axis=1, keepdims=True)).sum(axis=1)
        tied += int((best > 1).sum())
        decided += int((best == 1).sum())
        impossible += bool((np.exp(values - values.max()) == 0.0).any())
    assert min(tied, decided, impossible) >= 10


@given(st.data())
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_ties_and_impossible_tokens_are_selected_alike(data: st.DataObject) -> None:
    coordinate = data.draw(coordinates())
    policy, vocabulary = coordinate.policy, coordinate.model.vocabulary
    retrieval = derive_tree(
        coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel
    ).retrieval
    packed = data.draw(st.lists(st.integers(0, vocabulary - 1), min_size=8, max_size=8))
    candidates = np.where(retrieval < 0, policy.sentinel, np.array(packed)[retrieval % 8])
    path_logits = data.draw(logits(*retrieval.shape, vocabulary))
    selection = PosteriorStage().select(candidates, path_logits, policy)
    arrays = {
        **arrays_of("selection", selection),
        "selection.candidates": candidates,
        "selection.path_logits": path_logits,
    }
    within = tolerance("float64"), tolerance("policy")
    judgement = judge(Trace(coordinate, *within, arrays, {"selection.refused": None}))
    assert "POSTERIOR.CONTIGUOUS_PREFIX" in judgement.executed
    assert judgement.findings == ()


@pytest.mark.parametrize("count", [0, 1, 8, 9, 30])
def test_a_sample_has_its_count_and_is_the_head_of_a_longer_one(
    count: int, drawn: list[Coordinate]
) -> None:
    assert sample(coordinates(), count, 5) == drawn[:count]


def test_a_sample_differs_by_seed_and_hardly_repeats(drawn: list[Coordinate]) -> None:
    assert sample(coordinates(), 10, 6) != drawn[:10]
    assert len({*map(repr, drawn)}) == COUNT


def test_a_sample_of_few_values_repeats_them() -> None:
    assert sample(st.just(3), 5, 0) == [3] * 5
    assert {*sample(st.booleans(), 20, 0)} == {False, True}


PROGRAM = """
import hashlib
from medusa_conformance.strategies import coordinates, sample
print(hashlib.sha256(repr(sample(coordinates(), 40, 5)).encode()).hexdigest())
"""


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_a_sample_is_the_same_in_another_process(hash_seed: str, drawn: list[Coordinate]) -> None:
    """Other modules are loaded there, and hash randomisation differs."""
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here = hashlib.sha256(repr(drawn[:40]).encode()).hexdigest()
    assert done.stdout.strip() == here
