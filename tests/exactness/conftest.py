"""Tables of the tests, and what an engine shows whose law was found by the literal formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from medusa_spec import Tolerance, Trace
from medusa_spec.coordinate import Exactness, Sampling, SamplingMode

WITHIN = Tolerance(1e-7, 1e-5, "arithmetic on given numbers")

COIN = (1, 1)
HEADS = (1, 0)


@pytest.fixture(scope="session")
def exactness() -> Callable[..., Exactness]:
    """A builder: a coin behind a certain root, and one candidate, unless told otherwise."""

    def build(mode: SamplingMode, **changes: Any) -> Exactness:
        sampling = Sampling(mode, 0.0 if mode == "greedy" else 1.0, 0.09, 0.3, 1e-5, 1.0)
        numbers = {n: changes.pop(n) for n in ("temperature", "epsilon", "top_p") if n in changes}
        given = Exactness(
            model=(HEADS, COIN, HEADS),
            drafts=((HEADS,) * 3,),
            paths=((0,),),
            sampling=replace(sampling, **numbers),
            length=2,
            samples=300,
            seed=5,
        )
        return replace(given, **changes)

    return build


@pytest.fixture(scope="session")
def published(coordinate: Any, literal_law: ModuleType) -> Callable[[Exactness], Trace]:
    """A builder: the trace of a law by the literal formula, and of samples that fit it well."""

    def build(given: Exactness) -> Trace:
        mode = given.sampling.mode
        law, plain = literal_law.output_law(given), literal_law.plain_law(given)
        sequences = sorted(law)
        rows = np.array(
            [[float(p) for p in literal_law.processed(w, given.sampling)] for w in given.model]
        )
        found = [np.array([float(laws[s]) for s in sequences]) for laws in (law, plain)]
        counts = np.floor(found[0] * given.samples).astype(int)
        counts[np.argmax(counts)] += given.samples - counts.sum()
        # In an order that chance could have given; exact quotas in a row are no draws.
        tokens, other = (
            np.random.default_rng(seed).permutation(np.repeat(np.array(sequences), counts, axis=0))
            for seed in (1, 2)
        )
        exact = {"greedy": "greedy-exact", "row-draw": "target-law", "rejection": "target-law"}
        claim: dict[str, Any] = {
            "mode": mode,
            "claim": exact.get(mode, "heuristic"),
            "scores": "ranking",
            "rejects": mode.startswith("rejection"),
        }
        arrays = {
            "exactness.roots": rows,
            "exactness.rows": rows[1:],
            "exactness.law": found[0],
            "exactness.target": found[1],
            "exactness.distance": np.array(float(literal_law.distance(given))),
            "exactness.path_probability": np.array(literal_law.path_probability(given)).reshape(
                len(given.model), len(given.paths)
            ),
            "exactness.tokens": tokens,
            "exactness.again": tokens.copy(),
            "exactness.other": other,
        }
        if claim["rejects"]:
            drafts = np.array(given.drafts, np.float64)
            arrays["exactness.proposal"] = drafts / drafts.sum(axis=-1, keepdims=True)
            words = ("proposal_law", "stored_probabilities", "randomness", "residual")
            claim["correction"] = dict.fromkeys(words, "said")
        lawful = replace(coordinate((), heads=1), exactness=given)
        return Trace(lawful, WITHIN, WITHIN, arrays, {"exactness.claim": claim})

    return build
