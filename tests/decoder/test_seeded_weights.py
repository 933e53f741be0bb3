"""Seeded weights: a function of shape, seed and name alone, and a sensitive instrument."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from medusa_reference_engine.decoder import Cache, causal_mask
from medusa_reference_engine.weights import head_state, seeded_weights

CPU = torch.device("cpu")
SEEDS = range(8)


def test_each_tensor_comes_from_its_seed_and_name(shape):
    """NumPy's own generator, written out for one tensor of each kind."""
    weights = seeded_weights(shape(weight_seed=3), heads=1)

    def normal(crc32: int, size: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng([3, crc32]).standard_normal(size)

    # CRC-32 of the names, from `python -c "import zlib; print(zlib.crc32(b'...'))"`.
    norm = 1 + 0.1 * normal(605_179_714, (16,))
    query = 1.5 / 4 * normal(2_860_660_309, (16, 16))
    bias = 0.5 * normal(3_488_257_529, (16,))
    np.testing.assert_allclose(weights["model.norm.weight"], norm, rtol=1e-15)
    np.testing.assert_allclose(weights["model.layers.0.self_attn.q_proj.weight"], query, rtol=1e-15)
    np.testing.assert_allclose(weights["medusa_head.0.0.linear.bias"], bias, rtol=1e-15)
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float64)}


def test_the_seed_changes_every_tensor(shape):
    first, second = (seeded_weights(shape(weight_seed=s), heads=2) for s in (1, 2))
    assert [name for name in first if np.array_equal(first[name], second[name])] == []


def test_no_two_tensors_are_alike(shape):
    weights = seeded_weights(shape(head_blocks=2), heads=3)
    contents = {array.tobytes() for array in weights.values()}
    assert len(contents) == len(weights)


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        pytest.param(({}, 1), ({}, 4), id="heads"),
        pytest.param(({"layers": 1}, 2), ({"layers": 3}, 2), id="layers"),
    ],
)
def test_more_of_something_leaves_the_rest_as_it_was(shape, fewer, more):
    small = seeded_weights(shape(**fewer[0]), heads=fewer[1])
    large = seeded_weights(shape(**more[0]), heads=more[1])
    assert len(large) > len(small)
    for name, array in small.items():
        np.testing.assert_array_equal(large[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"head_blocks": 2},
            {
                "medusa_head.0.0.linear.weight": (16, 16),
                "medusa_head.0.0.linear.bias": (16,),
                "medusa_head.0.1.linear.weight": (16, 16),
                "medusa_head.0.1.linear.bias": (16,),
                "medusa_head.0.2.weight": (13, 16),
            },
        ),
        ({"head_blocks": 0}, {"medusa_head.0.0.weight": (13, 16)}),
        (
            {"head_blocks": 1, "projection": "shared"},
            {"medusa_head.0.0.linear.weight": (16, 16), "medusa_head.0.0.linear.bias": (16,)},
        ),
        ({"head_blocks": 0, "projection": "shared"}, {}),
    ],
)
def test_head_names(shape, changes, expected):
    weights = seeded_weights(shape(**changes), heads=1)
    heads = {name: array.shape for name, array in weights.items() if "medusa" in name}
    assert heads == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("projection", ["independent", "shared"])
def test_heads_are_stacked_by_number(shape, projection, dtype):
    model = shape(head_blocks=2, projection=projection)
    weights = {n: torch.from_numpy(w).to(dtype) for n, w in seeded_weights(model, 3).items()}
    state = head_state(model, weights)

    def same(array: np.ndarray, tensor: torch.Tensor) -> bool:
        return np.array_equal(array, tensor.double().numpy())

    assert state.weight.shape == (3, 2, 16, 16)
    assert state.bias.shape == (3, 2, 16)
    assert state.weight.dtype == state.bias.dtype == state.lm_head.dtype == np.float64
    for j in range(3):
        for i in range(2):
            block = f"medusa_head.{j}.{i}.linear"
            assert same(state.weight[j, i], weights[f"{block}.weight"])
            assert same(state.bias[j, i], weights[f"{block}.bias"])
    assert same(state.lm_head, weights["lm_head.weight"])
    if projection == "shared":
        assert state.projection is None
    else:
        own = [weights[f"medusa_head.{j}.2.weight"] for j in range(3)]
        assert same(state.projection, torch.stack(own))


@pytest.mark.parametrize(("heads", "expected"), [(None, 0), (3, 3)])
def test_heads_without_tensors_are_counted_by_the_caller(shape, heads, expected):
    model = shape(head_blocks=0, projection="shared")
    weights = {name: torch.from_numpy(w) for name, w in seeded_weights(model, 3).items()}
    state = head_state(model, weights, heads)
    assert state.weight.shape == (expected, 0, 16, 16)
    assert state.bias.shape == (expected, 0, 16)
    assert state.projection is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="two-layers"),
        pytest.param({"layers": 1, "attention_heads": 2}, id="one-layer"),
        pytest.param({"hidden": 8, "attention_heads": 2, "kv_heads": 1}, id="hidden-eight"),
        pytest.param({"vocabulary": 7}, id="vocabulary-seven"),
        pytest.param({"vocabulary": 32, "rope_theta": 500_000.0}, id="vocabulary-32-theta-500000"),
    ],
)
def test_a_hidden_key_or_a_shifted_position_shows(shape, decoder, tokens, changes):
    """Six committed rows and three staged: each corruption moves some staged logit clearly."""
    p, n = 6, 9
    place, mask = torch.arange(n), causal_mask(n, CPU)
    hidden_key, shifted, spread = [], [], []
    for seed in SEEDS:
        model_shape = shape(weight_seed=seed, **changes)
        model, prompt = decoder(model_shape), tokens(n, model_shape.vocabulary, seed)

        def logits(positions, seen, model=model, prompt=prompt):
            cache = Cache(model.shape, n, torch.float64, CPU)
            hidden = model(prompt, positions, place, [seen] * model.shape.layers, cache)
            return model.logits(hidden)[p:]

        whole = logits(place, mask)
        spread.append(whole.std())
        for key in range(p):
            blind = mask.clone()
            blind[p:, key] = False
            hidden_key.append((logits(place, blind) - whole).abs().max())
        later = torch.where(place >= p, place + 1, place)
        shifted.append((logits(later, mask) - whole).abs().max())
    assert torch.stack(hidden_key).median() > 0.1
    assert torch.stack(hidden_key).min() > 1e-2
    assert torch.stack(shifted).median() > 0.1
    assert torch.stack(shifted).min() > 1e-2
    assert 1.5 < torch.stack(spread).mean() < 2.5
