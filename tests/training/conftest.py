"""Lawful steps of training, and what makes them wrong."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import medusa_manifests
from medusa_spec import Coordinate, Tolerance, Trace

WITHIN = Tolerance(1e-9, 1e-9, "one dtype")


@pytest.fixture(scope="session")
def wrong(module: Callable[[str], ModuleType]) -> ModuleType:
    """The literal steps and their corruptions."""
    return module("literal_training")


@pytest.fixture(scope="session")
def lawful(coordinate: Any, wrong: ModuleType) -> Callable[..., Trace]:
    """A builder: the step of a manifest's training, by a model of random numbers."""

    def build(name: str, step: int, shared: bool = False) -> Trace:
        training = medusa_manifests.load(name).training
        assert training is not None
        heads = len(training.head_weights)
        planned: Coordinate = coordinate(
            tuple((0,) * depth for depth in range(1, heads + 1)),
            projection="shared" if shared else "independent",
            training=training,
        )
        return Trace(planned, WITHIN, WITHIN, *wrong.observed(planned, training, step, shared))

    return build
