"""Hypothesis strategies for what a round is made of, biased to where real engines break.

Every one shrinks: to fewer nodes, rank 0, token 0, one layer, an engine without a past. Integers
are drawn below 100 and everything greater is chosen from a list, because hypothesis mixes greater
constants of whatever modules are loaded into its draws, and `sample` would follow them.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any, TypeVar

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from medusa_conformance.claims_strategies import all_facts
from medusa_conformance.cost_strategies import workloads
from medusa_conformance.exactness_strategies import exactnesses
from medusa_conformance.learning_strategies import releases, trainings
from medusa_conformance.search_strategies import calibrations
from medusa_spec.arrays import FloatArray, RankPath
from medusa_spec.coordinate import (
    Acceptance,
    Coordinate,
    Exactness,
    Generation,
    ModelShape,
    Policy,
    Ranking,
    RetrievalOrder,
    RowPosterior,
    Source,
    canonical_order,
)
from medusa_spec.lawful import CURRENT_ONLY, LEGACY_ONLY
from medusa_spec.loading import source_pin

Value = TypeVar("Value")

MAX_PATHS = 7
"""Nodes below the root of a drawn tree: enough for any shape, and judged in milliseconds."""

_ONE_OF_SIX = (*(False,) * 5, True)
"""A round that is counted asks for two passes, and nothing of it depends on what is decoded."""

_RETRIEVAL_ORDERS: tuple[RetrievalOrder, ...] = ("canonical", "pinned")


@st.composite
def trees(
    draw: st.DrawFn, topk: int, heads: int, max_paths: int = MAX_PATHS, min_paths: int = 0
) -> tuple[RankPath, ...]:
    """A prefix-closed set of rank paths in canonical order, perhaps empty.

    Most trees grow freely, with ranks skipped and branches of unequal length; the others are a
    chain or one level. `min_paths` is kept as far as `topk` and `heads` have room for it.
    """
    anywhere, root, newest = st.integers(0, max_paths), st.just(0), st.just(-1)
    parents = draw(st.sampled_from((anywhere, anywhere, anywhere, root, newest)))
    ranks = st.sampled_from((0, topk - 1, *range(topk)))
    # Left to themselves, lists are short: most trees would be a root and little else.
    least = draw(st.sampled_from((0, 2, 4, 6, 8, 10))) if heads else 0
    growth = st.lists(st.tuples(parents, ranks), min_size=least, max_size=least + max_paths)
    nodes: list[RankPath] = [()]
    for parent, rank in draw(growth):
        path = (*nodes[parent % len(nodes)], rank)
        # What has no room is left out, and not moved to where it has: trees could not shrink.
        if len(nodes) <= max_paths and len(path) <= heads and path not in nodes:
            nodes.append(path)
    while len(nodes) <= min_paths and (path := _free_child(nodes, topk, heads)):
        nodes.append(path)
    return canonical_order(nodes[1:])


def _free_child(nodes: list[RankPath], topk: int, heads: int) -> RankPath:
    """A path that the tree lacks, or none."""
    children = ((*above, rank) for above in nodes for rank in range(topk))
    return next((path for path in children if len(path) <= heads and path not in nodes), ())


@st.composite
def branchings(
    draw: st.DrawFn, topk: int, heads: int, max_paths: int = MAX_PATHS
) -> tuple[int, ...]:
    """Branching factors of a regular tree, one a level, of at most `max_paths` paths."""
    kept: list[int] = []
    level, total = 1, 0
    for width in draw(st.lists(st.integers(1, topk), min_size=min(heads, 1), max_size=heads)):
        level *= width
        total += level
        if total > max_paths:
            break
        kept.append(width)
    return tuple(kept)


def regular_tree(branching: tuple[int, ...]) -> tuple[RankPath, ...]:
    """The paths of a tree whose nodes of one level have equally many children, ranks from 0."""
    levels = (branching[:depth] for depth in range(1, len(branching) + 1))
    return tuple(path for widths in levels for path in product(*map(range, widths)))


@st.composite
def policies(draw: st.DrawFn, vocabulary: int) -> Policy:
    """Greedy, or fast typical with either term of the threshold the smaller.

    For a vocabulary that is a power of two, epsilon may be exactly the probability of a uniform
    row: such an edge stands at its threshold, and `>` must reject it.
    """
    typical = draw(st.booleans())
    temperature, alpha, epsilon = 0.0, 0.3, 0.09
    if typical:
        temperature = draw(st.sampled_from((0.7, 1.0, 0.25, 1.5, 2.0, 0.1)))
        alpha = draw(st.sampled_from((0.3, 2.0, 0.09)))
        uniform = (1 / vocabulary,) if vocabulary & (vocabulary - 1) == 0 else ()
        epsilon = draw(st.sampled_from((0.09, *uniform, *uniform, 0.3)))
        if epsilon in uniform:
            alpha = 2.0
    return Policy(
        mode="fast-typical" if typical else "greedy",
        temperature=temperature,
        epsilon=epsilon,
        alpha=alpha,
        top_p=draw(st.sampled_from((0.8, 1.0))),
        entropy_guard=draw(st.sampled_from((1e-5, 1e-5, 1e-3, 0.0))),
        comparison=">",
        tie_rule="greatest-likelihood" if typical else "first-maximal-path",
        retrieval_order=draw(st.sampled_from(_RETRIEVAL_ORDERS)),
        sentinel=draw(st.sampled_from((-1, -2, -100))),
        seed=draw(st.integers(0, 31)),
    )


@st.composite
def model_shapes(draw: st.DrawFn) -> ModelShape:
    """A tiny decoder: every grouping of key/value heads, few tokens, so that they repeat."""
    grouped = ((8, 2, 1), (8, 2, 2), (8, 4, 2), (16, 4, 2), (16, 4, 1), (16, 4, 4), (32, 8, 4))
    hidden, heads, kv_heads = draw(st.sampled_from(grouped))
    return ModelShape(
        layers=draw(st.sampled_from((1, 2, 2, 2, 3, 3, 5))),
        hidden=hidden,
        attention_heads=heads,
        kv_heads=kv_heads,
        intermediate=2 * hidden,
        vocabulary=draw(st.sampled_from((4, 8, 16, 5, 11))),
        rope_theta=draw(st.sampled_from((10000.0, 100.0))),
        rms_epsilon=1e-5,
        head_blocks=draw(st.sampled_from((1, 2, 2, 2, 0, 3))),
        projection=draw(st.sampled_from(("independent", "shared"))),
        weight_seed=draw(st.integers(0, 7)),
    )


def logits(*shape: int) -> st.SearchStrategy[FloatArray]:
    """Finite logits of a shape, `[..., V]`: mostly equal, else in steps of one quarter.

    Some are so great that a softmax makes every other token impossible.
    """
    steps = [0.25 * step for step in range(9)]
    elements = st.sampled_from([*steps, *(-step for step in steps[1:]), 6.0, -6.0, 800.0, -800.0])
    return npst.arrays(np.float64, shape, elements=elements, fill=st.just(0.0))


@st.composite
def acceptances(draw: st.DrawFn, paths: tuple[RankPath, ...]) -> Acceptance:
    """A path of the tree, the deepest more often, accepted not at all, in part, or wholly.

    Often the rejected edge is one of several below the last accepted node: the paths tie.
    """
    inner = Counter(path[:-1] for path in paths if len(path) > 1)
    forks = [path for path in paths if inner[path[:-1]] > 1]
    if draw(st.booleans()) and forks:
        path = draw(st.sampled_from(forks))
        return Acceptance(path, len(path) - 1)
    deepest = max(paths, key=len, default=())
    path = draw(st.sampled_from(((), *paths, deepest, deepest)))
    return Acceptance(path, draw(st.integers(0, len(path))))


def rounds(paths: tuple[RankPath, ...]) -> st.SearchStrategy[tuple[Acceptance | None, ...]]:
    """One to three rounds over a tree, each steered or left to the engine's own logits."""
    return st.lists(st.none() | acceptances(paths), min_size=1, max_size=3).map(tuple)


@st.composite
def coordinates(draw: st.DrawFn, max_paths: int = MAX_PATHS) -> Coordinate:
    """A whole lawful coordinate. Mostly its cache has room for every round and a generation."""
    model = draw(model_shapes())
    tokens = st.integers(0, model.vocabulary - 1)
    topk = draw(st.sampled_from((1, 2, 3, 4, 2, 3, min(model.vocabulary, 5))))
    heads = draw(st.sampled_from((1, 2, 2, 3, 3, 3, 4, 4, 5, 0)))
    prefix = tuple(draw(st.lists(tokens, min_size=1, max_size=6)))
    regular = branchings(topk, heads, max_paths)
    branching = draw(st.none() | st.none() | st.none() | regular)
    grown = trees(topk, heads, max_paths)
    paths = draw(grown) if branching is None else regular_tree(branching)
    plan = draw(rounds(paths))
    ranking = draw(st.none() | _rankings(tokens, model.vocabulary, topk, heads))
    posterior = draw(st.just(()) | st.just(()) | _posteriors(paths, ranking, model.vocabulary))
    earlier = draw(st.none() | _generations(tokens, topk, heads, prefix, paths, max_paths))
    ends = _ends(tokens, ranking, plan[0])
    # Where it may stand inside what a round publishes, one is worth more. Hypothesis takes one
    # strategy that is named several times as one, so that chances are drawn by themselves.
    chances = (False, True, True, True, True) if ranking and plan[0] else (False, True)
    end_of_sequence = draw(ends) if draw(st.sampled_from(chances)) else None
    needed = [(len(prefix), len(paths))]
    if earlier is not None:
        needed.append((len(earlier.prefix), len(earlier.paths)))
    # A generation of 2*depth + 3 tokens needs as much as three rounds that accept everything.
    depth = max(map(len, paths), default=0)
    full = max(before + below + 1 for before, below in needed)
    roomy = full + 2 * (depth + 1)
    training = draw(st.none() | trainings(model.vocabulary, heads)) if heads else None
    return Coordinate(
        name="drawn",
        source=draw(_sources()),
        prefix=prefix,
        prefix_length=len(prefix),
        topk=topk,
        heads=heads,
        paths=paths,
        policy=draw(policies(model.vocabulary)),
        capacity=draw(st.sampled_from((roomy, roomy, roomy + 3, full + 1, full))),
        end_of_sequence=end_of_sequence,
        model=model,
        rounds=plan,
        ranking=ranking,
        posterior=posterior,
        earlier=earlier,
        branching=branching,
        training=training,
        search=draw(st.none() | calibrations(heads, topk)) if heads else None,
        release=draw(releases(training)) if heads else None,
        cost=draw(workloads(grown)) if draw(st.sampled_from(_ONE_OF_SIX)) else None,
        claims=draw(st.none() | st.none() | st.none() | all_facts()),
        # A law stands beside everything else, and one in three coordinates is enough.
        exactness=draw(st.sampled_from((False, False, True)).flatmap(_law_or_none)),
    )


def _law_or_none(chosen: bool) -> st.SearchStrategy[Exactness | None]:
    return exactnesses() if chosen else st.none()


@st.composite
def _sources(draw: st.DrawFn) -> Source:
    pin = source_pin()
    legacy = draw(st.booleans())
    foreign = CURRENT_ONLY if legacy else LEGACY_ONLY
    files = {name: digest for name, digest in pin["files"].items() if name not in foreign}
    return Source(pin["repository"], pin["commit"], "legacy" if legacy else "current", files)


@st.composite
def _rankings(
    draw: st.DrawFn, tokens: st.SearchStrategy[int], vocabulary: int, topk: int, heads: int
) -> Ranking:
    """Different tokens per head; often the same ones in every head."""
    ranked = st.lists(
        st.sampled_from(range(vocabulary)), min_size=topk, max_size=topk, unique=True
    ).map(tuple)
    if draw(st.booleans()):
        every = draw(ranked)
        return Ranking(draw(tokens), (every,) * heads)
    return Ranking(draw(tokens), tuple(draw(ranked) for _ in range(heads)))


@st.composite
def _posteriors(
    draw: st.DrawFn, paths: tuple[RankPath, ...], ranking: Ranking | None, vocabulary: int
) -> tuple[RowPosterior, ...]:
    """Some rows of the tree: uniform, or in favour of their children where those have a token."""
    every = ((), *paths)
    some = st.lists(st.sampled_from(every), min_size=1, unique=True)
    rows = []
    for path in canonical_order(draw(some | st.just(every))):
        below = [child for child in paths if child[:-1] == path]
        likely = [ranking.heads[len(path)][child[-1]] for child in below] if ranking else []
        tokens = likely or [draw(st.integers(0, vocabulary - 1))]
        named = draw(st.sampled_from(([], tokens[:2], tokens[1::-1], tokens[-1:])))
        shares = draw(st.sampled_from(((0.5, 0.375), (0.25, 0.25), (0.1875, 0.625))))
        probabilities = dict(zip(named, shares, strict=False))
        rows.append(RowPosterior(path, probabilities, 1.0 - sum(probabilities.values())))
    return tuple(rows)


@st.composite
def _generations(
    draw: st.DrawFn,
    tokens: st.SearchStrategy[int],
    topk: int,
    heads: int,
    prefix: tuple[int, ...],
    paths: tuple[RankPath, ...],
    max_paths: int,
) -> Generation:
    """An earlier generation that is often much like this one: little betrays the change.

    As many tokens, the first of them often the same; as many nodes, or the same rows under other
    parents.
    """
    least, most = (len(prefix),) * 2 if draw(st.booleans()) else (1, 6)
    before = tuple(draw(st.lists(tokens, min_size=least, max_size=most)))
    shared = draw(st.integers(0, len(prefix) - 1)) if draw(st.booleans()) else 0
    before = (*prefix[:shared], *(before[shared:] or before[:1]))
    if draw(st.booleans()):
        return Generation(before, draw(_reparented(paths)))
    least, most = (len(paths),) * 2 if draw(st.booleans()) else (0, max_paths)
    return Generation(before, draw(trees(topk, heads, most, least)))


@st.composite
def _reparented(draw: st.DrawFn, paths: tuple[RankPath, ...]) -> tuple[RankPath, ...]:
    """As many paths of every level and rank; the deepest hang elsewhere where there is room."""
    depth = max(map(len, paths), default=0)
    kept = [path for path in paths if len(path) < depth]
    above = [path for path in ((), *kept) if len(path) == depth - 1]
    for path in paths[len(kept) :]:
        free = [parent for parent in above if (*parent, path[-1]) not in kept]
        kept.append((*draw(st.sampled_from(free)), path[-1]))
    return canonical_order(kept)


@st.composite
def _ends(
    draw: st.DrawFn,
    tokens: st.SearchStrategy[int],
    ranking: Ranking | None,
    first: Acceptance | None,
) -> int:
    """An end of sequence; where the first round's tokens are known, mostly one before the last."""
    if ranking is None or first is None:
        return draw(tokens)
    path = first.path[: first.edges]
    written = [ranking.root, *(ranking.heads[head][rank] for head, rank in enumerate(path))]
    inside = st.sampled_from(written[:-1] or written)
    return draw(inside if draw(st.sampled_from((True, True, True, True, False))) else tokens)


def sample(strategy: st.SearchStrategy[Value], count: int, seed: int) -> list[Value]:
    """`count` values of a strategy, the same for one seed in any process.

    A smaller count gives the first of them.
    """
    values: list[Value] = []
    batch = 0
    while len(values) < count:
        drawn = _drawn(strategy, f"{seed}/{batch}")
        # Each batch begins with the simplest value; where there are others, once is enough.
        values += drawn[1:] if batch and len(drawn) == _BATCH else drawn
        batch += 1
    return values[:count]


_BATCH = 9
"""Behind its tenth example, hypothesis varies what it has drawn already instead of drawing anew."""


def _drawn(strategy: st.SearchStrategy[Value], seed: str) -> list[Value]:
    values: list[Value] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=_BATCH,
        phases=(hypothesis.Phase.generate,),
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values
