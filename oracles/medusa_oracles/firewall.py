"""The firewall as numbers: the smallest tables over which a mode's law is not the target's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from medusa_oracles.output_law import derive_distance, derive_law, derive_tables, derive_target
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Exactness, Sampling, SamplingMode

ROWS = ((1, 0), (0, 1), (1, 1))
"""A row of two tokens: one that is certain, or a fair coin."""


def derive_smallest(mode: SamplingMode) -> Exactness | None:
    """The first of `small_tables` whose law is not the target's; `None` where there is none."""
    for given in small_tables(mode):
        tables = derive_tables(given)
        if derive_distance(derive_law(tables), derive_target(tables)) > 1e-9:
            return given
    return None


def small_tables(mode: SamplingMode) -> Iterator[Exactness]:
    """Every table of two tokens whose rows are certain or fair, the smallest first.

    Fewer published tokens come before fewer heads, and these before fewer fair rows. At most two
    tokens are published, at most one candidate is verified, and nothing is cut: a fair row lies
    above every threshold.
    """
    temperature = 0.0 if mode == "greedy" else 1.0
    sampling = Sampling(mode, temperature, 0.09, 0.3, 1e-5, 1.0)
    chain: tuple[RankPath, ...] = ((0,),)
    # No head is read behind the first frontier before two tokens are published.
    drafts = [(), *(((row,) * 3,) for row in ROWS)]
    every = [
        Exactness(model, heads, chain[: len(heads)], sampling, length, 200, 0)
        for length, heads, model in product((1, 2), drafts, product(ROWS, repeat=3))
    ]
    yield from sorted(every, key=_size)


def _size(given: Exactness) -> tuple[int, int, int]:
    rows = (*given.model, *(rows[0] for rows in given.drafts))
    return given.length, len(given.drafts), rows.count((1, 1))
