"""Workloads of the tests, and the trace of a ledger that was counted by the literal formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from medusa_spec import Coordinate, Tolerance, Trace
from medusa_spec.coordinate import CostProfile, Workload
from medusa_spec.cost import COUNTS

WITHIN = Tolerance(1e-7, 1e-5, "one dtype")


@pytest.fixture(scope="session")
def workload() -> Workload:
    """Five rows, one path shorter than the others: every count is another number."""
    return Workload(
        prefix=7,
        paths=((0,), (1,), (0, 0), (0, 1)),
        heads=3,
        head_rows="all",
        layers=2,
        hidden=16,
        attention_heads=4,
        kv_heads=2,
        intermediate=24,
        vocabulary=11,
        head_blocks=2,
        projection="independent",
        scalar_bytes=4,
        published=2,
        batch=1,
        profile=CostProfile(2.0, 3.0, "made up", 4, 9, "synthetic"),
    )


@pytest.fixture(scope="session")
def counting(coordinate: Any, literal: ModuleType) -> Callable[[Workload], Trace]:
    """A builder: the trace of a ledger by the literal formula."""

    def build(workload: Workload) -> Trace:
        planned: Coordinate = coordinate(())
        ledger, profile = literal.ledger(workload), workload.profile
        arrays = {f"cost.{name}": np.array(ledger[name]) for name in COUNTS}
        if profile is not None:
            rates = literal.rates(profile)
            arrays |= {f"cost.{name}": np.array(rate) for name, rate in rates.items()}
        evidence = None if profile is None else profile.evidence
        claim = {"counts": "derived", "profile": evidence, "batch": 1}
        planned = replace(planned, cost=workload)
        return Trace(planned, WITHIN, WITHIN, arrays, {"cost.claim": claim})

    return build
