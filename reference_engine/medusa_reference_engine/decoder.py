"""A LLaMA decoder in plain torch: batch one, a preallocated cache, one explicit mask a layer.

Module and parameter names are those of a Hugging Face LLaMA checkpoint, so that its tensors load
by name. Shapes: `n` packed rows, `S` visible cache rows, `d` hidden width, `H` attention heads,
`H_kv` key/value heads of width `d_h`, `V` vocabulary, `L` layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from medusa_spec.coordinate import ModelShape


class Cache:
    """Keys and values of every layer, `kv [L, 2, H_kv, capacity, d_h]`, allocated once.

    `length` counts the committed, visible rows. The decoder never changes it: rows staged behind
    it come into being only by a commit (0x06).
    """

    def __init__(
        self, shape: ModelShape, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        size = (shape.layers, 2, shape.kv_heads, capacity, shape.head_dim)
        self.kv = torch.zeros(size, dtype=dtype, device=device)
        self.length = 0

    @property
    def capacity(self) -> int:
        """Rows that the backing holds, committed or not."""
        return self.kv.shape[3]


def causal_mask(n: int, device: torch.device) -> Tensor:
    """Boolean `[n, n]`, true where row `i` sees column `j <= i`."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on `x [heads, n, d_h]` by `cos`, `sin` `[n, d_h]`: pairs are `(i, i + d_h/2)`."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def wide(dtype: torch.dtype) -> torch.dtype:
    """A dtype for sums: half types are too narrow for them, and float64 must stay float64."""
    return torch.promote_types(dtype, torch.float32)


class Linear(nn.Module):
    """A projection without bias. Left unset: initialising would draw from the global generator."""

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """`x [..., inputs]` to `[..., outputs]`."""
        return F.linear(x, self.weight)


class Embedding(nn.Module):
    """A row per token, left unset like `Linear`."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        size = (shape.vocabulary, shape.hidden)
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device))

    def forward(self, tokens: Tensor) -> Tensor:
        """`tokens [n]` to `[n, d]`."""
        return F.embedding(tokens, self.weight)


class Rotary(nn.Module):
    """Cosines and sines of logical positions; holds no parameter."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.dtype = dtype
        even = torch.arange(0, shape.head_dim, 2, dtype=wide(dtype), device=device)
        frequencies = 1.0 / shape.rope_theta ** (even / shape.head_dim)  # [d_h/2]
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Positions `[n]` to cosines and sines `[n, d_h]`."""
        angles = positions[:, None] * self.frequencies  # [n, d_h/2]
        angles = torch.cat((angles, angles), dim=-1)  # [n, d_h]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


class Norm(nn.Module):
    """RMSNorm, scaled after the cast back, which is the order that LLaMA's weights expect."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.epsilon = shape.rms_epsilon
        self.weight = nn.Parameter(torch.ones(shape.hidden, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """`x [n, d]` to `[n, d]`."""
        exact = x.to(wide(x.dtype))
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * exact.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention over cache rows."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        d, d_h = shape.hidden, shape.head_dim
        self.q_proj = Linear(d, shape.attention_heads * d_h, dtype, device)
        self.k_proj = Linear(d, shape.kv_heads * d_h, dtype, device)
        self.v_proj = Linear(d, shape.kv_heads * d_h, dtype, device)
        self.o_proj = Linear(shape.attention_heads * d_h, d, dtype, device)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, rows: Tensor, mask: Tensor, kv: Tensor
    ) -> Tensor:
        """`x [n, d]` to `[n, d]`; writes `rows [n]` of this layer's `kv [2, H_kv, capacity, d_h]`.

        Attends over rows `[0, S)` under `mask [n, S]`.
        """
        d_h = self.shape.head_dim
        q = self.q_proj(x).unflatten(-1, (-1, d_h)).transpose(0, 1)  # [H, n, d_h]
        k = self.k_proj(x).unflatten(-1, (-1, d_h)).transpose(0, 1)  # [H_kv, n, d_h]
        v = self.v_proj(x).unflatten(-1, (-1, d_h)).transpose(0, 1)  # [H_kv, n, d_h]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        kv[:, :, rows] = torch.stack((k, v))

        groups = self.shape.attention_heads // self.shape.kv_heads
        keys, values = kv[:, :, : mask.shape[1]].repeat_interleave(groups, dim=1)  # [H, S, d_h]
        seen = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)  # [H, n, d_h]
        out: Tensor = self.o_proj(seen.transpose(0, 1).flatten(1))
        return out


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden, shape.intermediate, dtype, device)
        self.up_proj = Linear(shape.hidden, shape.intermediate, dtype, device)
        self.down_proj = Linear(shape.intermediate, shape.hidden, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """`x [n, d]` to `[n, d]`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Attention and MLP, each behind its norm and around a residual."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape, dtype, device)
        self.self_attn = Attention(shape, dtype, device)
        self.post_attention_layernorm = Norm(shape, dtype, device)
        self.mlp = MLP(shape, dtype, device)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, rows: Tensor, mask: Tensor, kv: Tensor
    ) -> Tensor:
        """`x [n, d]` to `[n, d]`; see `Attention`."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, rows, mask, kv)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Backbone(nn.Module):
    """What a checkpoint calls `model`: everything below the language-model head."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.embed_tokens = Embedding(shape, dtype, device)
        self.layers = nn.ModuleList(Layer(shape, dtype, device) for _ in range(shape.layers))
        self.norm = Norm(shape, dtype, device)


class Decoder(nn.Module):
    """The target model. Its parameters are unset until `load_state_dict`, and frozen."""

    def __init__(self, shape: ModelShape, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape, dtype, device)
        self.lm_head = Linear(shape.hidden, shape.vocabulary, dtype, device)
        self.rotary = Rotary(shape, dtype, device)
        # Decoding needs no gradient, and one through the cache would keep every round alive.
        self.requires_grad_(False)

    def forward(
        self, tokens: Tensor, positions: Tensor, rows: Tensor, masks: Sequence[Tensor], cache: Cache
    ) -> Tensor:
        """Hidden states `[n, d]`, after the final norm, of `tokens [n]` (0x03C to 0x03F).

        `positions [n]` are logical and feed RoPE only; `rows [n]` are the physical cache rows that
        receive each layer's K (rotated) and V. Layer `l` then attends over cache rows `[0, S)`
        under `masks[l] [n, S]`: boolean with true for visible, or additive in the decoder's dtype.
        `cache.length` is neither read nor changed.
        """
        cos, sin = self.rotary(positions)
        x: Tensor = self.model.embed_tokens(tokens)  # [n, d]
        for layer, mask, kv in zip(self.model.layers, masks, cache.kv, strict=True):
            x = layer(x, cos, sin, rows, mask, kv)
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states `[..., d]` to vocabulary logits `[..., V]`."""
        out: Tensor = self.lm_head(hidden)
        return out
