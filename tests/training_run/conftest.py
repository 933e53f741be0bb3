"""A run small enough for a test, and what it gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from medusa_reference_engine.training_run import SMOKE, Recipe, train


class Run(NamedTuple):
    folder: Path
    document: dict[str, Any]
    progress: list[tuple[str, int, int]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    shape = replace(
        SMOKE.shape, layers=1, hidden=16, attention_heads=2, kv_heads=1, intermediate=32
    )
    return replace(
        SMOKE,
        name="tiny",
        shape=shape,
        heads=3,
        corpus_bytes=400_000,
        batch=4,
        length=32,
        backbone_steps=6,
        head_steps=4,
        windows=6,
        prompts=2,
        prompt_length=12,
        new_tokens=10,
        nodes=5,
    )


@pytest.fixture(scope="session")
def ran(tiny: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run") / "made" / "trained"
    heard: list[tuple[str, int, int]] = []
    document = train(folder, tiny, 3, "again", lambda *told: heard.append(told))
    return Run(folder, document, heard)
