"""Causal self-attention in explicit arithmetic, and the cache that spares re-computing keys.

Source: Vaswani et al. 2017, arXiv 1706.03762; grouped key/value heads: Ainslie et al. 2023,
arXiv 2305.13245.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from tiny_lm.rope import apply_rope
from tiny_lm.shapes import expect_axes, expect_floats, expect_width, fail, shape_of
from tiny_lm.taps import Tap, ignore


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Cut the width into heads: `[B, T, D] -> [B, H, T, d]`.

    Raises ValueError when D / H is not whole.
    """
    expect_axes("split_heads", x, "B T D")
    if heads < 1 or x.shape[-1] % heads:
        fail("split_heads", f"a width divisible by {heads} heads", shape_of(x))
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads side by side again, the inverse of split_heads: `[B, H, T, d] -> [B, T, D]`."""
    expect_axes("merge_heads", x, "B H T d")
    return x.transpose(1, 2).flatten(-2)


def attention_weights(q: Tensor, k: Tensor, causal: bool = True) -> Tensor:
    """How much each query takes from each key: `[..., T, d], [..., S, d] -> [..., T, S]`.

    weights = softmax(q · k / sqrt(d)); every row sums to 1.

    With `causal`, the last query lines up with the last key and no query sees a later key.
    Scores and softmax are computed in float32 or better. Raises ValueError for widths that differ,
    for a query or a key without its axis of positions, and for more queries than keys when causal
    (the first queries would see nothing).
    """
    for name, x in (("queries [..., T, d]", q), ("keys [..., S, d]", k)):
        expect_floats("attention_weights", x)
        if x.ndim < 2:
            fail("attention_weights", name, shape_of(x))
    if q.shape[-1] != k.shape[-1]:
        fail("attention_weights", f"keys [..., {q.shape[-1]}]", shape_of(k))
    queries, keys = q.shape[-2], k.shape[-2]
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).transpose(-2, -1) / sqrt(q.shape[-1])
    if causal:
        if queries > keys:
            fail("attention_weights", f"at least {queries} keys for {queries} queries", keys)
        future = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(future.triu(keys - queries + 1), float("-inf"))
    return scores.softmax(dim=-1).to(q.dtype)


def attention_2d(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> tuple[Tensor, Tensor]:
    """Weighted means of the values: `[..., T, d], [..., S, d], [..., S, d] -> [..., T, d]`.

    context = weights @ v

    Returns (context, weights), weights `[..., T, S]`. Raises ValueError as attention_weights does,
    and when there are not as many values as keys.
    """
    weights = attention_weights(q, k, causal)
    expect_floats("attention_2d", v)
    if v.ndim < 2:
        fail("attention_2d", "values [..., S, d]", shape_of(v))
    if k.shape[-2] != v.shape[-2]:
        fail("attention_2d", f"{k.shape[-2]} values", v.shape[-2])
    return weights @ v, weights


class KVCache:
    """The keys and values of the positions seen so far, for one attention layer.

    For inference: what it holds is detached from the graph. `len(cache)` is how many positions it
    holds. Room grows by doubling, so that a long generation copies an entry only a few times.
    """

    def __init__(self) -> None:
        self._room: tuple[Tensor, Tensor] | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add T positions and return all S of them: `[B, H, T, d] x 2 -> [B, H, S, d] x 2`.

        Raises ValueError when keys and values differ in shape, and when batch, heads, width or
        dtype differ from what is held.
        """
        if k.shape != v.shape or k.dtype != v.dtype:
            fail("KVCache", f"values {shape_of(k)} {k.dtype}", f"{shape_of(v)} {v.dtype}")
        if self._room is not None:
            held = self._room[0]
            if (held.shape[:2], held.shape[3]) != (k.shape[:2], k.shape[3]):
                expected = f"[{held.shape[0]}, {held.shape[1]}, T, {held.shape[3]}]"
                fail("KVCache", expected, shape_of(k), "start a new cache for a new batch")
            if held.dtype != k.dtype:
                fail("KVCache", held.dtype, k.dtype, "start a new cache for another dtype")
        start, self._length = self._length, self._length + k.shape[2]
        if self._room is None or self._length > self._room[0].shape[2]:
            self._room = (self._grown(k, 0), self._grown(v, 1))
        for room, new in zip(self._room, (k, v), strict=True):
            room.narrow(2, start, new.shape[2]).copy_(new.detach())
        keys, values = self._room
        return keys.narrow(2, 0, self._length), values.narrow(2, 0, self._length)

    def _grown(self, like: Tensor, which: int) -> Tensor:
        batch, heads, new, width = like.shape
        with torch.inference_mode(False):  # else it could be filled in inference mode only
            grown = like.new_empty(batch, heads, max(2 * self._length, 64), width)
        if self._room is not None:
            held = self._room[which][:, :, : self._length - new]
            grown[:, :, : held.shape[2]] = held
        return grown


class CausalSelfAttention(nn.Module):
    """Each position reads itself and the positions before it: `[B, T, D] -> [B, T, D]`.

    q, k, v = split(x Wq), split(x Wk), split(x Wv);  RoPE on q and k;  y = merge(weights @ v) Wo

    No biases. With `n_kv_heads` below `heads`, neighbouring query heads share a key/value head.
    Raises ValueError when the heads do not divide the width, or the width of a head is odd.
    """

    def __init__(
        self, width: int, heads: int, theta: float = 10_000.0, *, n_kv_heads: int | None = None
    ):
        super().__init__()
        kv_heads = heads if n_kv_heads is None else n_kv_heads
        if heads < 1 or width % heads:
            fail("CausalSelfAttention", "width divisible by heads", f"{width} and {heads}")
        if (width // heads) % 2:
            fail("CausalSelfAttention", "an even head width", width // heads, "RoPE turns pairs")
        if kv_heads < 1 or heads % kv_heads:
            fail("CausalSelfAttention", "heads divisible by n_kv_heads", f"{heads} and {kv_heads}")
        self.width, self.heads, self.kv_heads, self.theta = width, heads, kv_heads, theta
        kv_width = kv_heads * (width // heads)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        expect_axes("CausalSelfAttention", x, "B T D")
        expect_width("CausalSelfAttention", x, self.width)
        q = split_heads(self.q_proj(x), self.heads)  # [B, H, T, d]
        k = split_heads(self.k_proj(x), self.kv_heads)
        v = split_heads(self.v_proj(x), self.kv_heads)
        start = 0 if cache is None else len(cache)
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        q, k = apply_rope(q, k, positions, self.theta)
        if cache is not None:
            k, v = cache.append(k, v)  # [B, H, S, d]
        k, v = self._one_each(k), self._one_each(v)
        weights = tap("attn.weights", attention_weights(q, k))
        return self.out_proj(merge_heads(weights @ v))

    def _one_each(self, x: Tensor) -> Tensor:
        """A key/value head for every query head: heads 0, 1 of 2 become 0, 0, 1, 1 of 4."""
        shared = self.heads // self.kv_heads
        return x if shared == 1 else x.repeat_interleave(shared, dim=1)

    def extra_repr(self) -> str:
        return f"{self.width}, {self.heads}, theta={self.theta:g}, n_kv_heads={self.kv_heads}"
