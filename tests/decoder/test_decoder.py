"""What the decoder promises to a tree: masks per layer, positions apart from rows, exact cache."""

from __future__ import annotations

import math

import pytest
import torch

from medusa_reference_engine.decoder import Cache, Decoder, causal_mask

CPU = torch.device("cpu")

# Root, then paths (0) (1) (0,0) (0,1) (1,0) (0,1,0), written out by hand. Equal tokens stand under
# different parents, and token 0 is a real token.
TREE_TOKENS = [4, 0, 9, 3, 0, 3, 9]
DEPTHS = [0, 1, 1, 2, 2, 2, 3]
CHAINS = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 1, 4, 6]]
TREE_MASK = [
    [1, 0, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0, 0],
    [1, 0, 1, 0, 0, 0, 0],
    [1, 1, 0, 1, 0, 0, 0],
    [1, 1, 0, 0, 1, 0, 0],
    [1, 0, 1, 0, 0, 1, 0],
    [1, 1, 0, 0, 1, 0, 1],
]


def tree_pass(decoder: Decoder, prefix: torch.Tensor, capacity: int) -> tuple[torch.Tensor, Cache]:
    """Prefill, then all tree rows at once, staged behind the prefix."""
    device, dtype = decoder.lm_head.weight.device, decoder.lm_head.weight.dtype
    p, layers = len(prefix), decoder.shape.layers
    cache = Cache(decoder.shape, capacity, dtype, device)
    place = torch.arange(p, device=device)
    decoder(prefix.to(device), place, place, [causal_mask(p, device)] * layers, cache)
    packed = torch.tensor(TREE_TOKENS, device=device)
    positions = p + torch.tensor(DEPTHS, device=device)
    rows = p + torch.arange(len(packed), device=device)
    suffix = torch.tensor(TREE_MASK, dtype=torch.bool, device=device)
    seen = torch.ones(len(packed), p, dtype=torch.bool, device=device)
    mask = torch.cat((seen, suffix), dim=1)
    return decoder.logits(decoder(packed, positions, rows, [mask] * layers, cache)), cache


def test_tree_rows_equal_causal_passes_over_their_paths(decoder, causal, tokens):
    model, prefix = decoder(), tokens(5)
    logits, cache = tree_pass(model, prefix, capacity=5 + 7 + 2)
    for row, chain in enumerate(CHAINS):
        path = torch.tensor([TREE_TOKENS[u] for u in chain])
        expected, plain = causal(model, torch.cat((prefix, path)))
        torch.testing.assert_close(logits[row], expected[-1], atol=1e-10, rtol=0)
        staged = cache.kv[:, :, :, 5 + row]
        torch.testing.assert_close(staged, plain.kv[:, :, :, -1], atol=1e-10, rtol=0)


def test_only_the_given_rows_are_written_and_length_is_the_callers(decoder, tokens):
    logits, cache = tree_pass(decoder(), tokens(5), capacity=15)
    assert logits.shape == (7, 13)
    assert cache.kv.shape == (2, 2, 2, 15, 4)
    assert cache.capacity == 15
    assert cache.length == 0
    written = cache.kv.abs().amax(dim=-1) > 0  # [L, 2, H_kv, capacity]
    assert written[..., :12].all()
    assert not written[..., 12:].any()


def test_rows_are_physical_and_positions_logical(decoder, causal, tokens):
    """The same tokens in scattered rows, under the mask that says so, mean the same."""
    model, prompt = decoder(), tokens(6)
    expected, plain = causal(model, prompt)
    rows = torch.tensor([7, 2, 5, 0, 8, 3])
    mask = torch.zeros(6, 9, dtype=torch.bool)
    for i in range(6):
        mask[i, rows[: i + 1]] = True
    cache = Cache(model.shape, 9, torch.float64, CPU)
    observed = model.logits(model(prompt, torch.arange(6), rows, [mask, mask], cache))
    torch.testing.assert_close(observed, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(cache.kv[:, :, :, rows], plain.kv, atol=1e-10, rtol=0)


def test_incremental_equals_full_pass_in_float64(decoder, causal, tokens):
    model, prompt = decoder(), tokens(9)
    expected, plain = causal(model, prompt)
    cache = Cache(model.shape, 9, torch.float64, CPU)
    for i in range(9):
        place = torch.tensor([i])
        mask = torch.ones(1, i + 1, dtype=torch.bool)
        hidden = model(prompt[i : i + 1], place, place, [mask, mask], cache)
        torch.testing.assert_close(model.logits(hidden)[0], expected[i], atol=1e-12, rtol=0)
    torch.testing.assert_close(cache.kv, plain.kv, atol=1e-12, rtol=0)


def test_additive_mask_means_the_same_as_boolean(decoder, causal, tokens):
    model, prompt = decoder(), tokens(6)
    expected, _ = causal(model, prompt)
    additive = torch.zeros(6, 6, dtype=torch.float64)
    additive[~causal_mask(6, CPU)] = -torch.inf
    place = torch.arange(6)
    cache = Cache(model.shape, 6, torch.float64, CPU)
    observed = model.logits(model(prompt, place, place, [additive, additive], cache))
    torch.testing.assert_close(observed, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("layer", [0, 1])
def test_each_layer_obeys_its_own_mask(decoder, causal, tokens, layer):
    model, prompt = decoder(), tokens(6)
    expected, _ = causal(model, prompt)
    masks = [causal_mask(6, CPU), causal_mask(6, CPU)]
    masks[layer][5, 2] = False
    place = torch.arange(6)
    observed = model.logits(
        model(prompt, place, place, masks, Cache(model.shape, 6, torch.float64, CPU))
    )
    torch.testing.assert_close(observed[:5], expected[:5], atol=1e-12, rtol=0)
    assert (observed[5] - expected[5]).abs().max() > 1e-2


def test_one_mask_per_layer_is_needed(decoder, tokens):
    model, place = decoder(), torch.arange(3)
    cache = Cache(model.shape, 3, torch.float64, CPU)
    with pytest.raises(ValueError, match="zip"):
        model(tokens(3), place, place, [causal_mask(3, CPU)], cache)


def test_causal_mask_written_out():
    expected = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
    assert torch.equal(causal_mask(3, CPU), expected)


def test_float64_angles_are_float64(decoder):
    """RoPE by the formula, at a position where a float32 frequency would be off by 1e-4."""
    position, theta, width = 100_003, 10_000.0, 4
    cos, sin = decoder().rotary(torch.tensor([position]))
    frequencies = torch.tensor([1.0, theta ** (-2 / width)], dtype=torch.float64)
    angles = (position * frequencies).repeat(2)
    torch.testing.assert_close(cos[0], angles.cos(), atol=1e-10, rtol=0)
    torch.testing.assert_close(sin[0], angles.sin(), atol=1e-10, rtol=0)


def test_float64_norm_is_float64(decoder):
    """RMSNorm by the formula, in plain floats: `w * x / sqrt(mean(x^2) + epsilon)`."""
    norm = decoder().model.norm
    row = [0.1 * (i - 5) ** 2 - 1.7 for i in range(16)]
    scale = (math.fsum(x * x for x in row) / 16 + 1e-5) ** -0.5
    expected = [w * x * scale for w, x in zip(norm.weight.tolist(), row, strict=True)]
    assert norm(torch.tensor([row], dtype=torch.float64))[0].tolist() == pytest.approx(
        expected, rel=1e-14
    )


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_narrow_dtypes_stay_near_float64(decoder, tokens, dtype, most):
    """Root mean square error over the spread of the logits; bfloat16 keeps 8 bits."""
    exact, _ = tree_pass(decoder(), tokens(5), capacity=12)
    observed, cache = tree_pass(decoder(dtype=dtype), tokens(5), capacity=12)
    assert observed.dtype == cache.kv.dtype == dtype
    error = (observed.double() - exact).square().mean().sqrt() / exact.std()
    assert error < most


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.05)]
)
def test_cuda_agrees_with_float64_on_cpu(decoder, tokens, dtype, most):
    exact, _ = tree_pass(decoder(), tokens(5), capacity=12)
    on_card = decoder(dtype=dtype, device=torch.device("cuda"))
    observed, cache = tree_pass(on_card, tokens(5), capacity=12)
    assert observed.device.type == cache.kv.device.type == "cuda"
    assert observed.dtype == dtype
    error = (observed.cpu().double() - exact).square().mean().sqrt() / exact.std()
    assert error < most


def test_building_draws_nothing_and_asks_for_no_gradient(shape):
    before = torch.get_rng_state()
    built = Decoder(shape(), dtype=torch.float64, device=CPU)
    assert torch.equal(torch.get_rng_state(), before)
    assert [p for p in built.parameters() if p.requires_grad] == []
