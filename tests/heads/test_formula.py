"""Heads a second time: one head, one block, one output channel, one label at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_oracles.heads import (
    derive_alignment,
    derive_logits,
    derive_parameter_count,
    derive_residual,
)
from medusa_spec.stages import HeadState


def _times(matrix: Any, vector: list[float]) -> list[float]:
    return [math.fsum(w * x for w, x in zip(row, vector, strict=True)) for row in matrix]


def _block(weight: Any, bias: Any, z: list[float]) -> list[float]:
    """`z + SiLU(Wz + b)`, channel by channel (0x02A)."""
    inner = [a + b for a, b in zip(_times(weight, z), bias, strict=True)]
    return [a + b / (1 + math.exp(-b)) for a, b in zip(z, inner, strict=True)]


SIZES = st.tuples(*(st.integers(low, 3) for low in (0, 0, 1, 1, 1)))


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(2, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_residual_and_logits(
    sizes: tuple[int, int, int, int, int], vocabulary: int, shared: bool, seed: int
) -> None:
    heads, blocks, d, batch, length = sizes
    generator = np.random.default_rng(seed)
    weight = generator.normal(size=(heads, blocks, d, d))
    bias = generator.normal(size=(heads, blocks, d))
    lm_head = generator.normal(size=(vocabulary, d))
    own = None if shared else generator.normal(size=(heads, vocabulary, d))
    hidden = generator.normal(size=(batch, length, d))
    residual = derive_residual(weight, bias, hidden)
    logits = derive_logits(residual, HeadState(weight, bias, lm_head, own))
    assert residual.shape == (heads, batch, length, d)
    assert logits.shape == (heads, batch, length, vocabulary)
    for head in range(heads):
        for b in range(batch):
            for t in range(length):
                z = hidden[b, t].tolist()
                for block in range(blocks):
                    z = _block(weight[head, block], bias[head, block], z)
                assert residual[head, b, t].tolist() == pytest.approx(z, abs=1e-12)
                projection = lm_head if own is None else own[head]
                expected = _times(projection, z)
                assert logits[head, b, t].tolist() == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 4), st.data())
def test_alignment(batch: int, length: int, heads: int, data: st.DataObject) -> None:
    tokens = np.arange(batch * length).reshape(batch, length)
    flags = st.lists(st.booleans(), min_size=length, max_size=length)
    owned = np.array(data.draw(st.lists(flags, min_size=batch, max_size=batch)))
    derived = derive_alignment(tokens, owned, heads)
    for j in range(heads):
        labels = [(b, t, t + j + 2) for b in range(batch) for t in range(length - j - 2)]
        assert int(derived.coverage[j]) == len(labels) == batch * max(length - j - 2, 0)
        assert int(derived.masked_coverage[j]) == sum(bool(owned[b, s]) for b, _, s in labels)
        expected = np.full((batch, length), -100)
        kept = np.zeros((batch, length), np.bool_)
        for b, t, label in labels:
            expected[b, t], kept[b, t] = tokens[b, label], owned[b, label]
        assert derived.labels[j].tolist() == expected.tolist()
        assert derived.owned[j].tolist() == kept.tolist()
    assert len(derived.coverage) == len(derived.masked_coverage) == len(derived.labels) == heads


@pytest.mark.parametrize("projection", ["independent", "shared"])
@pytest.mark.parametrize("heads", [0, 1, 4])
def test_parameters_are_those_of_the_arrays(coordinate: Any, projection: str, heads: int) -> None:
    """By allocating every parameter and counting it."""
    shape = coordinate(projection=projection).model
    d, blocks = shape.hidden, shape.head_blocks
    own = [np.empty((d, d)), np.empty(d)] * blocks
    if projection == "independent":
        own.append(np.empty((shape.vocabulary, d)))
    assert derive_parameter_count(shape, heads) == heads * sum(a.size for a in own)
