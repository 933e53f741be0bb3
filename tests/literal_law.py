"""Output laws a third time: every draw that a round may make, all at once, in fractions.

Where engine and oracle look at a draw only when something depends on it, here a round draws at
every row, or at every path and position, whether it is looked at or not. Rows are fractions where
the temperature makes whole powers of the weights, and floats elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, NamedTuple

Path = tuple[int, ...]
Law = dict[Path, Any]


class Round(NamedTuple):
    """What one round published, the root that it left, and how probably."""

    tokens: Path
    carried: int | None
    chance: Any


def threshold(row: Sequence[Any], sampling: Any) -> float:
    """`min(epsilon, alpha exp(-H))` (0x04E)."""
    entropy = -sum(float(p) * math.log(float(p) + sampling.entropy_guard) for p in row)
    return float(min(sampling.epsilon, sampling.alpha * math.exp(-entropy)))


def tempered(weights: Sequence[int], temperature: float) -> list[Any]:
    """Weights to the power of one over the temperature, and a sum of 1."""
    power = 1 / temperature
    powers = [Fraction(w) ** int(power) if power.is_integer() else w**power for w in weights]
    return [weight / sum(powers) for weight in powers]


def processed(weights: Sequence[int], sampling: Any) -> list[Any]:
    """A row as it is drawn from."""
    tokens = range(len(weights))
    if sampling.temperature == 0:
        return [Fraction(token == weights.index(max(weights))) for token in tokens]
    row = tempered(weights, sampling.temperature)
    if "typical" in sampling.mode:
        least = threshold(row, sampling)
        kept = [t for t in tokens if row[t] >= least or t == row.index(max(row))]
    else:
        order = sorted(tokens, key=lambda token: (-row[token], token))
        kept = [t for t in tokens if sum(row[u] for u in order[: order.index(t)]) <= sampling.top_p]
    left = sum(row[token] for token in kept)
    return [row[token] / left if token in kept else 0 * row[token] for token in tokens]


def plain_law(given: Any) -> Law:
    """Every sequence, one token after the other."""
    rows = [processed(weights, given.sampling) for weights in given.model]
    law = {}
    for sequence in product(range(len(rows[0])), repeat=given.length):
        law[sequence] = rows[0][sequence[0]]
        for before, token in pairwise(sequence):
            law[sequence] *= rows[1 + before][token]
    return law


def output_law(given: Any) -> Law:
    """Every sequence that a mode publishes, by every way to publish it."""
    law = dict.fromkeys(product(range(len(given.model[0])), repeat=given.length), Fraction(0))
    places: list[tuple[Path, int | None, Any]] = [((), None, Fraction(1))]
    while places:
        written, carried, weight = places.pop()
        if len(written) >= given.length:
            law[written[: given.length]] += weight
            continue
        for tokens, after, chance in rounds(given, 1 + written[-1] if written else 0, carried):
            if chance:
                places.append((written + tokens, after, weight * chance))
    return law


def rounds(given: Any, context: int, carried: int | None) -> Iterator[Round]:
    """Every outcome of a round behind a context, under each root that it may have."""
    mode = given.sampling.mode
    row = processed(given.model[context], given.sampling)
    roots = [(root, chance) for root, chance in enumerate(row) if chance]
    if carried is not None:
        roots = [(carried, Fraction(1))]
    elif mode == "fast-typical":
        roots = [(row.index(max(row)), Fraction(1))]
    below = by_row
    if mode == "fast-typical":
        below = by_threshold
    elif mode.endswith("per-path"):
        below = by_path
    elif mode.startswith("rejection"):
        below = by_rejection
    for root, first in roots:
        for tokens, after, chance in below(given, context, root):
            yield Round((root, *tokens), after, first * chance)


def head_rows(given: Any, context: int) -> list[list[Fraction]]:
    """What each head says behind a context."""
    return [[Fraction(w, sum(rows[context])) for w in rows[context]] for rows in given.drafts]


def candidates(given: Any, context: int) -> dict[Path, int]:
    """The token of each path: a rank of its head, of equal weights the lower token first."""
    heads = head_rows(given, context)
    ranked = [sorted(range(len(q)), key=lambda token: (-q[token], token)) for q in heads]
    return {path: ranked[len(path) - 1][path[-1]] for path in given.paths}


def leaves(paths: Sequence[Path]) -> list[Path]:
    """Paths that begin no other one."""
    return [u for u in paths if not any(v != u and v[: len(u)] == u for v in paths)]


def by_row(given: Any, context: int, root: int) -> Iterator[Round]:
    """One draw at the root and at each path, and then the walk that they make."""
    known = candidates(given, context)
    nodes = {(): root} | known
    rows = {node: processed(given.model[1 + t], given.sampling) for node, t in nodes.items()}
    for answers in product(range(len(given.model[0])), repeat=len(nodes)):
        drawn = dict(zip(nodes, answers, strict=True))
        node: Path = ()
        tokens: Path = ()
        while below := [p for p in known if p[:-1] == node and known[p] == drawn[node]]:
            node = below[0]
            tokens = (*tokens, known[node])
        yield Round(tokens, drawn[node], math.prod(rows[n][drawn[n]] for n in nodes))


def by_path(given: Any, context: int, root: int) -> Iterator[Round]:
    """A draw for each path and position, and then the first of the longest matches."""
    known = candidates(given, context)
    tops = leaves(given.paths)
    places = [(leaf, edge) for leaf in tops for edge in range(len(leaf))]
    before = {(leaf, edge): known[leaf[:edge]] if edge else root for leaf, edge in places}
    rows = {p: processed(given.model[1 + t], given.sampling) for p, t in before.items()}
    for answers in product(range(len(given.model[0])), repeat=len(places)):
        drawn = dict(zip(places, answers, strict=True))
        best: Path = ()
        for leaf in tops:
            hits = [drawn[leaf, edge] == known[leaf[: edge + 1]] for edge in range(len(leaf))]
            length = (*hits, False).index(False)
            best = leaf[:length] if length > len(best) else best
        tokens = tuple(known[best[: edge + 1]] for edge in range(len(best)))
        yield Round(tokens, None, math.prod(rows[place][drawn[place]] for place in places))


def by_threshold(given: Any, context: int, root: int) -> Iterator[Round]:
    """The longest path above the threshold, of equal ones the likeliest, of these the first."""
    known = candidates(given, context)
    best: tuple[int, Any, Path] = 0, Fraction(1), ()
    for leaf in leaves(given.paths):
        tokens: Path = ()
        likely: Any = Fraction(1)
        for edge in range(len(leaf)):
            row = tempered(given.model[1 + (root, *tokens)[-1]], given.sampling.temperature)
            token = known[leaf[: edge + 1]]
            if not row[token] > threshold(row, given.sampling):
                break
            tokens, likely = (*tokens, token), likely * row[token]
        if tokens and (len(tokens), likely) > best[:2]:
            best = len(tokens), likely, tokens
    yield Round(best[2], None, Fraction(1))


def by_rejection(given: Any, context: int, root: int) -> Iterator[Round]:
    """Every chain of drafts, and every place in it at which one is rejected first, or none."""
    heads = head_rows(given, context)[: len(given.paths)]
    for drafts in product(range(len(given.model[0])), repeat=len(heads)):
        passed: Any = math.prod(q[token] for q, token in zip(heads, drafts, strict=True))
        if not passed:
            continue
        before = root
        for depth, token in enumerate(drafts):
            p, q = processed(given.model[1 + before], given.sampling), heads[depth]
            accepted = min(1, p[token] / q[token])
            instead = p
            if given.sampling.mode == "rejection" and accepted < 1:
                more = [max(0, mine - other) for mine, other in zip(p, q, strict=True)]
                instead = [weight / sum(more) for weight in more]
            for after, chance in enumerate(instead):
                yield Round(drafts[:depth], after, passed * (1 - accepted) * chance)
            passed, before = passed * accepted, token
        for after, chance in enumerate(processed(given.model[1 + before], given.sampling)):
            yield Round(drafts, after, passed * chance)


def distance(given: Any) -> Any:
    """Half the sum of absolute differences."""
    law, plain = output_law(given), plain_law(given)
    return sum(abs(law[sequence] - plain[sequence]) for sequence in law) / 2


def path_probability(given: Any) -> list[list[float]]:
    """Behind each context, how probably the target goes along each path behind any root."""
    rows = [processed(weights, given.sampling) for weights in given.model]
    found = []
    for context, row in enumerate(rows):
        known = candidates(given, context)
        behind = []
        for path in given.paths:
            tokens = [known[path[: edge + 1]] for edge in range(len(path))]
            ways = [
                chance * math.prod(rows[1 + u][v] for u, v in pairwise([root, *tokens]))
                for root, chance in enumerate(row)
            ]
            behind.append(float(sum(ways)))
        found.append(behind)
    return found


def frozen(coordinate: Any) -> dict[str, Any]:
    """What the `expected` block of a manifest holds of a law, rounded to 12 places."""
    given = coordinate.exactness
    if given is None:
        return {}
    law = output_law(given)
    return {
        "law": [round(float(law[sequence]), 12) for sequence in sorted(law)],
        "distance": round(float(distance(given)), 12),
    }
