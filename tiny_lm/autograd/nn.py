"""The layers of a block and a small decoder, built from Tensor operations alone.

Names of modules and weights are those of the torch model; `copy_weights` moves weights between the
two. No derivative stands here: every operation has its own, and that is enough.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from tiny_lm.autograd.module import Embedding, Linear, Module, Seed, copy_weights
from tiny_lm.autograd.tensor import Tensor, where
from tiny_lm.shapes import expect_axes, expect_same_shape, expect_width, fail, shape_of
from tiny_lm.taps import Tap, ignore, under

__all__ = [
    "Block", "CausalSelfAttention", "Decoder", "Embedding", "Linear", "Module", "RMSNorm",
    "SwiGLU", "copy_weights", "cross_entropy", "descend", "residual_add", "rotate", "silu",
]  # fmt: skip


class RMSNorm(Module):
    """Divide each vector by its root mean square, then apply a gain: `[..., D] -> [..., D]`.

    y = x / sqrt(mean(x²) + eps) · gamma

    `gamma` is `[D]`, ones at first; `eps` is in units of x² and stands inside the root. Computed
    in the dtype of x and gamma. Raises ValueError for another width and for a negative eps.
    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """

    other_names = {"gamma": "scale"}  # noqa: RUF012

    def __init__(self, width: int, eps: float = 1e-6, dtype: Any = np.float64):
        if not eps >= 0:
            fail("RMSNorm", "eps >= 0", eps)
        self.eps = eps
        self.gamma = Tensor(np.ones(width, dtype))

    def __call__(self, x: Tensor) -> Tensor:
        expect_width("RMSNorm", x, self.gamma.shape[0])
        mean_square = (x * x).mean(axis=-1, keepdims=True)
        return x / (mean_square + self.eps).sqrt() * self.gamma


def residual_add(x: Tensor, change: Tensor) -> Tensor:
    """The direct path plus what a branch writes: `[...], [...] -> [...]`.

    Raises ValueError when the shapes differ: an axis of size 1 would broadcast unseen.
    """
    expect_same_shape("residual_add", x, change)
    return x + change


def rotate(x: Tensor, theta: float) -> Tensor:
    """RoPE: turn each pair of neighbours by position · theta^(−2i/d): `[..., T, d] -> [..., T, d]`.

    (a, b) -> (a·cos − b·sin, b·cos + a·sin). Source: Su et al. 2021, arXiv 2104.09864.
    """
    positions, width = x.shape[-2:]
    speeds = theta ** (-np.arange(0, width, 2) / width)
    angles = np.repeat(np.arange(positions)[:, None] * speeds, 2, axis=-1)  # [T, d]
    neighbour = np.arange(width) ^ 1  # 1, 0, 3, 2, …
    sign = np.where(neighbour % 2, -1.0, 1.0)
    cos, sin = (f.astype(x.dtype) for f in (np.cos(angles), sign * np.sin(angles)))
    return x * cos + x[..., neighbour] * sin


class CausalSelfAttention(Module):
    """Each position reads itself and the positions before it: `[B, T, D] -> [B, T, D]`.

    weights = softmax(q · k / sqrt(d)), later positions left out;  y = merge(weights @ v) Woᵀ

    Raises ValueError when the heads do not divide the width, or the width of a head is odd.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        theta: float = 10_000.0,
        *,
        dtype: Any = np.float64,
        seed: Seed = 0,
    ):
        if heads < 1 or width % (2 * heads):
            fail("CausalSelfAttention", "heads of an even width", f"{width} and {heads}")
        self.heads, self.theta, rng = heads, theta, np.random.default_rng(seed)
        self.q_proj = Linear(width, width, dtype=dtype, seed=rng)
        self.k_proj = Linear(width, width, dtype=dtype, seed=rng)
        self.v_proj = Linear(width, width, dtype=dtype, seed=rng)
        self.out_proj = Linear(width, width, dtype=dtype, seed=rng)

    def __call__(self, x: Tensor, *, tap: Tap = ignore) -> Tensor:
        expect_axes("CausalSelfAttention", x, "B T D")
        batch, positions, width = x.shape
        q, k, v = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, self.theta), rotate(k, self.theta)
        scores = q @ k.swapaxes(-1, -2) / sqrt(width // self.heads)  # [B, H, T, T]
        past = np.tri(positions, dtype=bool)
        weights = tap("attn.weights", where(past, scores, float("-inf")).softmax())
        merged = (weights @ v).swapaxes(1, 2).reshape(batch, positions, width)
        return self.out_proj(merged)

    def _split(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        return x.reshape(batch, positions, self.heads, width // self.heads).swapaxes(1, 2)


def silu(u: Tensor) -> Tensor:
    """u · sigmoid(u), with an exp that never overflows: `[...] -> [...]`."""
    small = where(u.data > 0, -u, u).exp()  # exp(−|u|)
    return u * where(u.data > 0, 1.0, small) / (1 + small)


class SwiGLU(Module):
    """A hidden layer whose units are multiplied by gates: `[..., D] -> [..., D]`.

    y = (silu(x Wgate) · (x Wup)) Wdown. Source: Shazeer 2020, arXiv 2002.05202.
    """

    def __init__(self, width: int, hidden: int, *, dtype: Any = np.float64, seed: Seed = 0):
        rng = np.random.default_rng(seed)
        self.gate_proj = Linear(width, hidden, dtype=dtype, seed=rng)
        self.up_proj = Linear(width, hidden, dtype=dtype, seed=rng)
        self.down_proj = Linear(hidden, width, dtype=dtype, seed=rng)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(Module):
    """The pre-norm block: `[B, T, D] -> [B, T, D]`.

    h = x + attention(norm1(x));  y = h + ffn(norm2(h))

    Source: Xiong et al. 2020, arXiv 2002.04745 (who analyse it with LayerNorm).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        eps: float = 1e-6,
        theta: float = 10_000.0,
        dtype: Any = np.float64,
        seed: Seed = 0,
    ):
        rng = np.random.default_rng(seed)
        self.norm1 = RMSNorm(width, eps, dtype)
        self.attention = CausalSelfAttention(width, heads, theta, dtype=dtype, seed=rng)
        self.norm2 = RMSNorm(width, eps, dtype)
        self.ffn = SwiGLU(width, hidden, dtype=dtype, seed=rng)

    def __call__(self, x: Tensor, *, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        h = tap("resid.attn", residual_add(x, self.attention(normed, tap=tap)))
        normed = tap("norm.ffn", self.norm2(h))
        return tap("resid.ffn", residual_add(h, self.ffn(normed)))


class Decoder(Module):
    """A causal language model in NumPy: `tokens [B, T] -> logits [B, T, V]`.

    x = embedding[tokens];  x = block_i(x) for every block;  logits = norm_final(x) Eᵀ

    The same arithmetic, names and starting spread as the torch model with `order="pre"`. With its
    four blocks of width 128 it has 9 norms, of 1,152 gains.
    """

    def __init__(
        self,
        vocab_size: int = 256,
        *,
        n_layers: int = 4,
        d_model: int = 128,
        n_heads: int = 4,
        d_ff: int = 352,
        eps: float = 1e-6,
        theta: float = 10_000.0,
        dtype: Any = np.float64,
        seed: int = 0,
    ):
        rng = np.random.default_rng(seed)
        sizes, rest = (d_model, n_heads, d_ff), {"eps": eps, "theta": theta, "dtype": dtype}
        self.embedding = Embedding(vocab_size, d_model, dtype=dtype, seed=rng)
        self.blocks = [Block(*sizes, **rest, seed=rng) for _ in range(n_layers)]
        self.norm_final = RMSNorm(d_model, eps, dtype)
        for block in self.blocks:  # what writes to the stream starts smaller, as in GPT-2
            block.attention.out_proj.weight.data /= sqrt(2 * n_layers)
            block.ffn.down_proj.weight.data /= sqrt(2 * n_layers)

    def __call__(self, tokens: Any, *, tap: Tap = ignore) -> Tensor:
        tokens = np.asarray(tokens)
        expect_axes("Decoder", tokens, "B T")
        x = tap("embed", self.embedding(tokens))
        for i, block in enumerate(self.blocks):
            x = block(x, tap=under(f"blocks.{i}", tap))
        x = tap("norm.final", self.norm_final(x))
        return x @ self.embedding.weight.swapaxes(0, 1)


def cross_entropy(logits: Tensor, targets: Any) -> Tensor:
    """Mean surprise at the right token, in nats: `[..., V], whole numbers [...] -> one number`.

    log(sum(exp(logits))) − logit of the target, averaged. Raises ValueError for other shapes.
    """
    targets = np.asarray(targets)
    if logits.shape[:-1] != targets.shape:
        fail("cross_entropy", f"targets {list(logits.shape[:-1])}", shape_of(targets))
    rows = logits.reshape(-1, logits.shape[-1])
    rows = rows - rows.data.max(axis=-1, keepdims=True)  # changes nothing, keeps exp finite
    right = rows[np.arange(targets.size), targets.reshape(-1)]
    return (rows.exp().sum(axis=-1).log() - right).mean()


def descend(model: Module, rate: float) -> None:
    """One step of gradient descent, weight −= rate · gradient, after which gradients are None."""
    for _, weight in model.parameters():
        if weight.grad is not None:
            weight.data -= rate * weight.grad
        weight.grad = None
