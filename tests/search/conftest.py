"""Calibrations of the tests, and what a search shows of a tree that was found by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from medusa_spec import Coordinate, Tolerance, Trace
from medusa_spec.coordinate import Calibration

WITHIN = Tolerance(1e-7, 1e-5, "one dtype")


@pytest.fixture(scope="session")
def calibrated() -> Callable[..., Calibration]:
    """A builder: a table of exact masses unless told so."""

    def build(*rows: tuple[float, ...], nodes: int, **changes: Any) -> Calibration:
        given = Calibration(
            form="incremental",
            accuracy=rows,
            nodes=nodes,
            max_rank=len(rows[0]),
            model="a model",
            data_set="a data set",
            prompts="its prompts",
            policy="greedy",
            evidence="synthetic",
        )
        return replace(given, **changes)

    return build


@pytest.fixture(scope="session")
def searching(coordinate: Any, literal: ModuleType) -> Callable[[Calibration], Trace]:
    """A builder: the trace of a search by the literal formula."""

    def build(calibration: Calibration) -> Trace:
        planned: Coordinate = coordinate((), heads=len(calibration.accuracy), topk=48)
        record = literal.search(calibration)
        arrays = {
            "search.increments": np.array(
                [[float(mass) for mass in row] for row in literal.increments(calibration)]
            ),
            "search.weights": np.array([float(decision["weight"]) for decision in record]),
            "search.objective": np.array(float(sum(decision["weight"] for decision in record))),
        }
        documents = {
            "search.paths": tuple(decision["path"] for decision in record),
            "search.decisions": tuple(
                {k: float(v) if k.endswith("weight") and v is not None else v for k, v in d.items()}
                for d in record
            ),
            "search.identity": {
                "model": "a model",
                "data_set": "a data set",
                "prompts": "its prompts",
                "policy": "greedy",
                "nodes": calibration.nodes,
            },
            "search.claim": {
                "quantity": "accepted-edges-per-round",
                "assumption": "independent-heads",
                "evidence": "synthetic",
            },
        }
        return Trace(replace(planned, search=calibration), WITHIN, WITHIN, arrays, documents)

    return build
