"""The statistics of X10: exact tails, false alarms that are bounded, and a power that is not 0."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest

import medusa_manifests
from medusa_mutations import mutations
from medusa_oracles.exactness import derived
from medusa_oracles.tails import FALSE_ALARM, derive_tail, derive_unlikely
from medusa_reference_engine.exactness import ExactnessStage
from medusa_spec.coordinate import Exactness


@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(1, 7), Fraction(99, 100)])
@pytest.mark.parametrize("of", [1, 6, 40])
def test_tails_are_sums_of_binomial_terms(of: int, probability: Fraction) -> None:
    terms = [comb(of, n) * probability**n * (1 - probability) ** (of - n) for n in range(of + 1)]
    for count in range(of + 1):
        above = count >= of * probability
        exact = sum(terms[count:]) if above else sum(terms[: count + 1])
        assert derive_tail(count, of, float(probability)) == pytest.approx(float(exact))


def test_what_is_certain_or_impossible_has_no_tail() -> None:
    assert derive_tail(5, 5, 1.0) == derive_tail(0, 5, 0.0) == 1.0
    assert derive_tail(4, 5, 1.0) == derive_tail(1, 5, 0.0) == 0.0
    assert derive_unlikely(np.array([5, 0]), np.array([1.0, 0.0])) is None
    assert derive_unlikely(np.array([5, 1]), np.array([1.0, 0.0])) == (1, 0.0)


@pytest.mark.parametrize("law", [(0.5, 0.5), (0.9, 0.1), (0.7, 0.2, 0.1)])
def test_the_right_law_is_blamed_no_more_often_than_said(law: tuple[float, ...]) -> None:
    """Every count there may be, with its own probability: the exact rate of false alarms.

    With a limit of a fifth it is also seen to be heard at all.
    """
    of = 30
    rates = dict.fromkeys((FALSE_ALARM, 0.2), 0.0)
    for first in product(range(of + 1), repeat=len(law) - 1):
        counts = np.array([*first, of - sum(first)])
        if counts[-1] < 0:
            continue
        chance, left = 1.0, of
        for count, p in zip(counts.tolist(), law, strict=True):
            chance *= comb(left, count) * p**count
            left -= count
        tails = [derive_tail(int(n), of, p) for n, p in zip(counts, law, strict=True)]
        for limit in rates:
            rates[limit] += chance * (min(tails) < limit / (2 * len(law)))
        heard = derive_unlikely(counts, np.array(law)) is not None
        assert heard == (min(tails) < FALSE_ALARM / (2 * len(law)))
    assert rates[FALSE_ALARM] <= FALSE_ALARM
    assert 0 < rates[0.2] <= 0.2


SEEDS = 40


def heard(stage: ExactnessStage, given: Exactness) -> int:
    """At how many seeds the manifest's own number of sequences is no chance."""
    law, found = derived(given).law, 0
    digits = given.vocabulary ** np.arange(given.length)[::-1]
    for seed in range(SEEDS):
        places = stage.sample(given, seed, given.samples).tokens @ digits
        found += derive_unlikely(np.bincount(places, minlength=len(law)), law) is not None
    return found


def test_a_biased_sampler_is_heard_and_a_right_one_is_not() -> None:
    """The chapter says 95% at the manifest's size; half of 40 seeds is far below chance of that."""
    given = medusa_manifests.load("law-row-draw").exactness
    assert given is not None
    assert given.samples == 1000
    assert heard(mutations()["path-draws-for-row-draws"].stage(), given) > SEEDS / 2
    assert heard(ExactnessStage(), given) == 0


def test_the_power_that_was_measured_is_that_of_the_likeliest_alarm() -> None:
    """The exact chance that 00 alone is heard, .5 for .4; other sequences can only add to it."""
    law, biased = (
        derived(exactness).law
        for exactness in (
            medusa_manifests.load(name).exactness
            for name in ("law-row-draw", "law-nucleus-per-path")
        )
        if exactness is not None
    )
    for size, measured in ((250, 0.039), (500, 0.366), (1000, 0.953), (2000, 1.0)):
        possible = int((law > 0).sum())
        alone = sum(
            comb(size, n)
            * Fraction(float(biased[0])) ** n
            * Fraction(1 - float(biased[0])) ** (size - n)
            for n in range(size + 1)
            if derive_tail(n, size, float(law[0])) < FALSE_ALARM / (2 * possible)
        )
        # Three standard errors of a rate over a thousand seeds.
        error = 3 * np.sqrt(max(measured * (1 - measured), 1e-3) / 1000)
        assert float(alone) <= measured + error
        assert measured - error <= 2 * float(alone)
