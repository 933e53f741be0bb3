"""How unlikely counts are under a law: exact binomial tails (chapter `spec/exactness.md`, X10)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from medusa_spec.arrays import FloatArray, IntArray

FALSE_ALARM = 1e-6
"""How often an engine with the right law is judged wrong, at most: a sample, not a sequence."""


def derive_tail(count: int, of: int, probability: float) -> float:
    """`P(X >= count)` where the count is above its mean, else `P(X <= count)`; `X` is binomial."""
    if probability <= 0 or probability >= 1:
        return float(count == of * probability)
    above = count >= of * probability
    values = np.arange(count, of + 1) if above else np.arange(count + 1)
    factorials = _log_factorials(of)
    chosen = factorials[of] - factorials[values] - factorials[of - values]
    logs = chosen + values * np.log(probability) + (of - values) * np.log1p(-probability)
    return float(min(1.0, np.exp(logs).sum()))


def derive_unlikely(counts: IntArray, law: FloatArray) -> tuple[int, float] | None:
    """The sequence whose count is least likely, and its tail; `None` where that may be chance.

    What is impossible and was drawn comes first. All possible sequences share `FALSE_ALARM`, each
    for two tails. A law whose sum was rounded to a little more than 1 is taken as it is.
    """
    of = int(counts.sum())
    impossible = np.flatnonzero((law <= 0) & (counts > 0))
    if len(impossible):
        return int(impossible[0]), 0.0
    possible = np.flatnonzero(law > 0)
    tails = [derive_tail(int(counts[i]), of, min(1.0, float(law[i]))) for i in possible]
    least = int(np.argmin(tails))
    if tails[least] < FALSE_ALARM / (2 * len(possible)):
        return int(possible[least]), tails[least]
    return None


@lru_cache(maxsize=16)
def _log_factorials(up_to: int) -> FloatArray:
    logs = np.log(np.arange(1, up_to + 1))
    return np.concatenate([[0.0], np.cumsum(logs)])
