"""Accuracies and losses by a literal loop over labels, and the tree that they are worth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from medusa_reference_engine.training_run import Recipe
from medusa_reference_engine.training_run.backbone import new_decoder
from medusa_reference_engine.training_run.calibration import RANKS, Measured, measure, searched
from medusa_reference_engine.training_run.decoding import engine_of
from medusa_reference_engine.training_run.heads import begin, new_heads, train_heads

WINDOWS, LENGTH = 5, 9


def test_measures_are_those_of_a_loop_over_labels(tiny: Recipe) -> None:
    random = np.random.default_rng(0)
    # Few different tokens, so that ranks below ten hold labels.
    tokens = random.integers(97, 105, (WINDOWS, LENGTH))
    learner = begin(new_heads(new_decoder(tiny.shape, 0), tiny.heads, 0), tiny)
    train_heads(learner, iter([tokens] * 3), 3, 1e-2, lambda step: None)
    found = measure(learner, tokens, batch=2)

    weights = {name: leaf.detach() for name, leaf in learner.parameters.items()}
    engine = engine_of(tiny, weights)
    for row in range(tiny.heads + 1):
        ranks, losses = [], []
        for window in tokens.tolist():
            seen = engine.forward(window)
            for t in range(LENGTH):
                if t + row + 1 >= LENGTH:
                    continue
                logits = (seen.head_logits[row - 1] if row else seen.logits)[t].tolist()
                label = window[t + row + 1]
                ranks.append(sum(other > logits[label] for other in logits))
                total = sum(math.exp(other) for other in logits)
                losses.append(-math.log(math.exp(logits[label]) / total))
        count = WINDOWS * (LENGTH - row - 1)
        assert found.labels[row] == len(ranks) == count
        assert found.losses[row] == pytest.approx(sum(losses) / count, rel=1e-5)
        for rank in range(RANKS):
            share = sum(other <= rank for other in ranks) / count
            assert found.top[row, rank] == pytest.approx(share)
    assert 0 < found.top[:, 0].max() < 1


@pytest.mark.parametrize("nodes", [1, 2, 5, 9])
def test_a_tree_holds_the_likeliest_paths_there_are(nodes: int) -> None:
    increments = np.array([[0.5, 0.21, 0.11], [0.4, 0.23, 0.07], [0.3, 0.13, 0.05]])
    worth = {
        path: math.prod(increments[head, rank] for head, rank in enumerate(path))
        for depth in (1, 2, 3)
        for path in itertools.product(range(3), repeat=depth)
    }
    likeliest = sorted(worth, key=lambda path: -worth[path])[:nodes]
    # The ordinary head's row is no head's of the tree.
    top = np.concatenate([[[0.9, 0.95, 0.99]], increments.cumsum(axis=1)])
    plan = searched(Measured(np.ones(4, np.int64), np.zeros(4), top), nodes)
    assert set(plan.paths) == set(likeliest)
    assert plan.objective == pytest.approx(sum(worth[path] for path in likeliest))


def test_only_heads_are_trained(tiny: Recipe) -> None:
    decoder = new_decoder(tiny.shape, 0)
    learner = begin(new_heads(decoder, tiny.heads, 0), tiny)
    before = {name: leaf.detach().clone() for name, leaf in learner.parameters.items()}
    batch = np.random.default_rng(0).integers(0, 256, (4, 12))
    train_heads(learner, iter([batch] * 9), 2, 1e-2, lambda step: None)
    assert learner.steps == 2
    for name, leaf in learner.parameters.items():
        assert torch.equal(before[name], leaf) != name.startswith("medusa_head."), name
