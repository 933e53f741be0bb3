"""What a mode publishes over a table model, in closed form a round (chapter `spec/exactness.md`).

No draw is enumerated here. A round is a sum of masses, each with the tokens that it publishes and
the next root where it is known; the law of the first tokens follows backwards from shorter ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from medusa_spec.arrays import BoolArray, FloatArray, RankPath
from medusa_spec.coordinate import Exactness

EXACT_MODES = ("greedy", "row-draw", "rejection")
"""The modes whose law is the target's, whatever the tables."""

TYPICAL_MODES = ("fast-typical", "typical-per-path")


class Mass(NamedTuple):
    """A part of a round: its probability, the tokens behind the root, the next root if known."""

    probability: float
    tokens: tuple[int, ...]
    carried: int | None


class Cut(NamedTuple):
    """Which tokens of a row stay, and how near any other choice was."""

    kept: BoolArray
    margin: float


@dataclass(frozen=True, slots=True)
class Tables:
    """The probabilities of a coordinate's tables, processed, and the tightest choice in them.

    `tempered` and `processed` are `[1 + V, V]`: the start's row, and the one behind each token.
    `margin` is how far the nearest value lies from a threshold or a tie that decides something.
    """

    given: Exactness
    tempered: FloatArray
    processed: FloatArray
    drafts: FloatArray
    margins: list[float] = field(default_factory=list)

    @property
    def margin(self) -> float:
        """The least margin of all choices."""
        return min(self.margins, default=np.inf)


def derive_tables(given: Exactness) -> Tables:
    """Clause X1, at every row."""
    sampling = given.sampling
    weights = np.array(given.model, np.float64)
    if sampling.temperature == 0:
        single = np.eye(given.vocabulary)[weights.argmax(axis=1)]
        return Tables(given, single, single, derive_drafts(given))
    # A softmax of logarithms over a temperature is a power of the weights.
    powers = (weights / weights.max(axis=1, keepdims=True)) ** (1 / sampling.temperature)
    tempered = powers / powers.sum(axis=1, keepdims=True)
    typical = sampling.mode in TYPICAL_MODES
    cuts = [typical_cut(row, given) if typical else nucleus_cut(row, given) for row in tempered]
    processed = tempered * [cut.kept for cut in cuts]
    processed /= processed.sum(axis=1, keepdims=True)
    return Tables(
        given, tempered, processed, derive_drafts(given), [float(cut.margin) for cut in cuts]
    )


def derive_threshold(row: FloatArray, given: Exactness) -> float:
    """Clause P4 of the posterior, for one row."""
    sampling = given.sampling
    some = row[row > 0]
    entropy = -(some * np.log(some + sampling.entropy_guard)).sum()
    return float(min(sampling.epsilon, sampling.alpha * np.exp(-entropy)))


def typical_cut(row: FloatArray, given: Exactness) -> Cut:
    """Tokens at or above the threshold, and the likeliest whatever it is."""
    threshold = derive_threshold(row, given)
    kept = row >= threshold
    kept[row.argmax()] = True
    return Cut(kept, np.abs(row - threshold).min())


def nucleus_cut(row: FloatArray, given: Exactness) -> Cut:
    """Tokens before which no more than `top_p` stands, counted from the likeliest."""
    tokens = np.arange(len(row))
    # Before a token stand those that are likelier, and of equal ones the lower ids.
    earlier = (row > row[:, None]) | ((row == row[:, None]) & (tokens < tokens[:, None]))
    before = (earlier * row).sum(axis=1)
    top_p = given.sampling.top_p
    # At 1 nothing is cut but what is impossible already, however a sum is rounded.
    margin = np.inf if top_p >= 1 else float(np.abs(before - top_p)[row > 0].min())
    return Cut((before <= top_p) | (top_p >= 1), margin)


def derive_drafts(given: Exactness) -> FloatArray:
    """The heads' probabilities, `[K, 1 + V, V]`."""
    size = given.vocabulary
    weights = np.array(given.drafts, np.float64).reshape(-1, 1 + size, size)
    drafts: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return drafts


def derive_target(tables: Tables) -> FloatArray:
    """Clause X2: `[V**T]`, one token after the other from the processed rows."""
    size = tables.given.vocabulary
    law: FloatArray = tables.processed[0]
    for _ in range(tables.given.length - 1):
        # The last token is the fastest digit of the index.
        law = (law.reshape(-1, size)[:, :, None] * tables.processed[1:]).ravel()
    return law


def derive_greedy(given: Exactness) -> tuple[int, ...]:
    """Clause X3: the sequence of plain greedy decoding."""
    tokens: list[int] = []
    for _ in range(given.length):
        row = given.model[1 + tokens[-1] if tokens else 0]
        tokens.append(row.index(max(row)))
    return tuple(tokens)


def derive_distance(law: FloatArray, target: FloatArray) -> float:
    """Clause X6."""
    return float(0.5 * np.abs(law - target).sum())


def derive_law(tables: Tables) -> FloatArray:
    """Clauses X4 and X5: `[V**T]`, the probability of each published sequence."""
    given = tables.given
    size = given.vocabulary
    rounds: dict[tuple[int, int], list[Mass]] = {}
    known: dict[tuple[int, int | None, int], FloatArray] = {}

    def behind(context: int, carried: int | None, left: int) -> FloatArray:
        """The law of the next `left` tokens, of which the first may be known."""
        if left == 0:
            return np.ones(1)
        key = context, carried, left
        if key not in known:
            if carried is None:
                roots = derive_roots(tables, context)
                shares = [
                    roots[root] * behind(context, root, left)
                    for root in range(size)
                    if roots[root] > 0
                ]
                known[key] = np.sum(shares, axis=0)
            else:
                known[key] = with_root(context, carried, left)
        return known[key]

    def with_root(context: int, root: int, left: int) -> FloatArray:
        if (context, root) not in rounds:
            rounds[context, root] = [*derive_round(tables, context, root)]
        law = np.zeros((size,) * left)
        for mass in rounds[context, root]:
            tokens = (root, *mass.tokens)[:left]
            rest = behind(1 + tokens[-1], mass.carried, left - len(tokens))
            law[tokens] += mass.probability * rest.reshape((size,) * (left - len(tokens)))
        return law.ravel()

    return behind(0, None, given.length)


def derive_roots(tables: Tables, context: int) -> FloatArray:
    """The law of a root that is not known yet."""
    if tables.given.sampling.mode == "fast-typical":
        single: FloatArray = np.eye(tables.given.vocabulary)[tables.processed[context].argmax()]
        return single
    row: FloatArray = tables.processed[context]
    return row


def derive_round(tables: Tables, context: int, root: int) -> Iterator[Mass]:
    """One round from a frontier with a root, as masses that add up to 1."""
    mode = tables.given.sampling.mode
    if mode == "fast-typical":
        yield Mass(1.0, _longest_typical(tables, context, root), None)
    elif mode in ("typical-per-path", "nucleus-per-path"):
        yield from _longest_match(tables, context, root)
    elif mode in ("greedy", "row-draw"):
        yield from _walk(tables, context, root, ())
    else:
        yield from _chain(tables, context, root)


def token_of(tables: Tables, context: int, path: RankPath) -> int:
    """The token of a node: a rank of its head's row; of equal ones the lower id first."""
    row = tables.drafts[len(path) - 1, context]
    return int(np.argsort(-row, kind="stable")[path[-1]])


def tokens_along(tables: Tables, context: int, path: RankPath) -> list[int]:
    """The tokens of a path from a frontier, behind the root."""
    return [token_of(tables, context, path[: edge + 1]) for edge in range(len(path))]


def maximal(paths: tuple[RankPath, ...]) -> list[RankPath]:
    """The paths with nothing below them, in canonical order."""
    return [path for path in paths if not any(other[:-1] == path for other in paths)]


def _walk(tables: Tables, context: int, token: int, node: RankPath) -> Iterator[Mass]:
    """Below a node: each token of its row is followed where a child has it, or carried on."""
    children = [path for path in tables.given.paths if path[:-1] == node]
    below = {token_of(tables, context, child): child for child in children}
    for drawn, chance in enumerate(tables.processed[1 + token]):
        if chance > 0 and drawn not in below:
            yield Mass(float(chance), (), drawn)
        elif chance > 0:
            for rest in _walk(tables, context, drawn, below[drawn]):
                yield Mass(float(chance) * rest.probability, (drawn, *rest.tokens), rest.carried)


def _longest_match(tables: Tables, context: int, root: int) -> Iterator[Mass]:
    """Each path matches for itself, so that it wins is a product over the paths.

    It wins with `n` edges where those before it match fewer, and those behind it no more.
    """
    chances, written = [], []
    for leaf in maximal(tables.given.paths):
        tokens = tokens_along(tables, context, leaf)
        matches = [tables.processed[1 + u, v] for u, v in pairwise([root, *tokens])]
        # At least n edges, for n = 0 up to the path's length, and beyond it never.
        at_least = np.concatenate([[1.0], np.cumprod(matches), [0.0]])
        chances.append(at_least)
        written.append(tokens)

    def fewer(path: int, edges: int) -> float:
        """That a path matches fewer edges."""
        return 1.0 - float(chances[path][min(edges, len(chances[path]) - 1)])

    nothing = 1.0
    for path, tokens in enumerate(written):
        for edges in range(1, len(tokens) + 1):
            exactly = float(chances[path][edges] - chances[path][edges + 1])
            before = np.prod([fewer(other, edges) for other in range(path)])
            behind = np.prod([fewer(o, edges + 1) for o in range(path + 1, len(written))])
            yield Mass(exactly * float(before * behind), tuple(tokens[:edges]), None)
        nothing *= fewer(path, 1)
    yield Mass(nothing, (), None)


def _longest_typical(tables: Tables, context: int, root: int) -> tuple[int, ...]:
    """The tokens of the longest path above the threshold, the likeliest of the longest."""
    found: list[tuple[tuple[float, ...], tuple[int, ...]]] = []
    for leaf in maximal(tables.given.paths):
        tokens = tokens_along(tables, context, leaf)
        chances: list[float] = []
        for before, token in pairwise([root, *tokens]):
            row = tables.tempered[1 + before]
            threshold = derive_threshold(row, tables.given)
            tables.margins.append(float(abs(row[token] - threshold)))
            if row[token] <= threshold:
                break
            chances.append(float(row[token]))
        found.append((tuple(chances), tuple(tokens[: len(chances)])))
    length = max((len(chances) for chances, _ in found), default=0)
    if length == 0:
        return ()
    longest = [one for one in found if len(one[0]) == length]
    likelihoods = [float(np.log(chances).sum()) for chances, _ in longest]
    best = int(np.argmax(likelihoods))
    for one, likelihood in zip(longest, likelihoods, strict=True):
        # The same factors at the same places have the same product however it is rounded.
        if one[0] != longest[best][0] and one[1] != longest[best][1]:
            tables.margins.append(likelihoods[best] - likelihood)
    return longest[best][1]


def _chain(tables: Tables, context: int, root: int) -> Iterator[Mass]:
    """A chain of drafts: what is accepted, and what is drawn in place of a rejected one.

    A token is drafted and accepted with mass `min(p, q)`, so a rejection and a draw from the
    residual that then follows have the mass `(p - q)+` together: no ratio is ever formed.
    """
    corrected = tables.given.sampling.mode == "rejection"
    reached: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
    for depth in range(len(tables.given.paths)):
        proposal = tables.drafts[depth, context]
        longer = []
        for mass, tokens in reached:
            target = tables.processed[1 + (root, *tokens)[-1]]
            accepted = np.minimum(target, proposal)
            rejected = 1.0 - float(accepted.sum())
            instead = np.maximum(target - proposal, 0.0) if corrected else rejected * target
            for token in range(len(target)):
                yield Mass(mass * float(instead[token]), tokens, token)
                longer.append((mass * float(accepted[token]), (*tokens, token)))
        reached = [one for one in longer if one[0] > 0]
    for mass, tokens in reached:
        yield Mass(mass, tokens, None)


def derive_path_probability(tables: Tables) -> FloatArray:
    """Clause X9: `[1 + V, U]`, the target's own probability of the tokens of each path.

    The root is any token; head products are something else, since no head knows what stands
    before its token.
    """
    given = tables.given
    found = np.zeros((1 + given.vocabulary, len(given.paths)))
    for context in range(1 + given.vocabulary):
        for place, path in enumerate(given.paths):
            tokens = tokens_along(tables, context, path)
            chance = tables.processed[context] @ tables.processed[1:, tokens[0]]
            for before, token in pairwise(tokens):
                chance *= tables.processed[1 + before, token]
            found[context, place] = chance
    return found


def derive_products(tables: Tables) -> FloatArray:
    """`[1 + V, U]`, the product of head probabilities along each path: a ranking, and no more."""
    given = tables.given
    found = np.ones((1 + given.vocabulary, len(given.paths)))
    for context in range(1 + given.vocabulary):
        for place, path in enumerate(given.paths):
            for depth, token in enumerate(tokens_along(tables, context, path)):
                found[context, place] *= tables.drafts[depth, context, token]
    return found
