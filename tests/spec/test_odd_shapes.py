"""A trace may come from anybody: an array of another shape is a finding, never a traceback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# The first three retrieval rows are padded.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))
TREE = ("slots", "mask", "depths", "retrieval")
PROPOSAL = ("table", "packed", "candidates")
VERIFICATION = ("logits", "head_logits", "path_logits", "mask", "positions", "rows", "kv")
SELECTION = ("passes", "lengths")
COMMIT = ("tokens", "source", "destination", "frontier.target", "frontier.heads")
POLICY = ("selection.probability", "selection.entropy", "selection.threshold")
"""What a greedy selection does not have."""
OBSERVED = (
    *(f"tree.{name}" for name in TREE),
    *(f"proposal.{name}" for name in PROPOSAL),
    *(f"verification.{name}" for name in VERIFICATION),
    *(f"selection.{name}" for name in SELECTION),
    *(f"commit.{name}" for name in COMMIT),
    "cache.after",
    "round.visible_kv",
)
CASES = [(mode, name) for mode in ("greedy", "fast-typical") for name in OBSERVED]
CASES += [("fast-typical", name) for name in POLICY]


def _shorter(array: Any, axis: int) -> Any:
    return np.delete(array, -1, axis=axis)


def _longer(array: Any, axis: int) -> Any:
    return np.concatenate([array, array.take([-1], axis=axis)], axis=axis)


def _empty(array: Any, axis: int) -> Any:
    return array.take([], axis=axis)


@pytest.fixture(scope="module")
def traces(coordinate: Any, lawful_trace: Any, literal: Any) -> dict[str, Any]:
    return {
        mode: lawful_trace(coordinate(PATHS, mode), literal, ((0, 2), (2, 6)))
        for mode in ("greedy", "fast-typical")
    }


@pytest.mark.parametrize("resize", [_shorter, _longer, _empty])
@pytest.mark.parametrize(("mode", "name"), CASES)
def test_another_shape_is_a_finding(
    mode: str, name: str, resize: Any, traces: dict[str, Any], fired: Any
) -> None:
    array = traces[mode][name]
    for axis in range(array.ndim):
        assert fired(traces[mode], {name: resize(array, axis)}), f"axis {axis}"
