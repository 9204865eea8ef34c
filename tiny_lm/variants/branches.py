"""Pre-norm blocks with one thing more, or with one thing elsewhere."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from tiny_lm.attention import KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.layers import NORMS, TransformerBlock, residual_add
from tiny_lm.taps import Tap, ignore


class PlacedBlock(TransformerBlock):
    """A block that knows its place in the stack, counted from 0: `[B, T, D] -> [B, T, D]`."""

    def __init__(self, config: ModelConfig, index: int = 0):
        super().__init__(config)
        self.index = index


class ParallelBlock(TransformerBlock):
    """Both branches read the same stream, each through its own norm: `[B, T, D] -> [B, T, D]`.

    y = x + attention(norm1(x)) + ffn(norm2(x))

    Source: Wang and Komatsuzaki 2021 (GPT-J, with one norm for both); with two norms GPT-NeoX,
    Black et al. 2022, arXiv 2204.06745.
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        h = residual_add(x, self.attention(normed, cache=cache, tap=tap))
        h = tap("resid.attn", h)
        normed = tap("norm.ffn", self.norm2(x))
        return tap("resid.ffn", residual_add(h, self.ffn(normed)))


class LayerScaleBlock(TransformerBlock):
    """Every coordinate of a branch has a learned volume, low at first: `[B, T, D] -> [B, T, D]`.

    h = x + scale1 · attention(norm1(x))
    y = h + scale2 · ffn(norm2(h))

    Both scales are `[D]` and begin at 0.1 in up to 18 blocks, 1e-5 in up to 24, 1e-6 beyond.
    Source: Touvron et al. 2021, arXiv 2103.17239.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        start = 0.1 if config.n_layers <= 18 else 1e-5 if config.n_layers <= 24 else 1e-6
        self.scale1 = nn.Parameter(torch.full((config.d_model,), start))
        self.scale2 = nn.Parameter(torch.full((config.d_model,), start))

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        change = self.scale1 * self.attention(normed, cache=cache, tap=tap)
        h = tap("resid.attn", residual_add(x, change))
        normed = tap("norm.ffn", self.norm2(h))
        return tap("resid.ffn", residual_add(h, self.scale2 * self.ffn(normed)))


class InverseRootBlock(PlacedBlock):
    """What a branch reads is made smaller with depth: `[B, T, D] -> [B, T, D]`.

    h = x + attention(norm1(x) / sqrt(l))
    y = h + ffn(norm2(h) / sqrt(l)),  l = 1, 2, … the number of the block

    Source: Sun et al. 2025 (LayerNorm scaling), arXiv 2502.05795.
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        root = sqrt(self.index + 1)
        normed = tap("norm.attn", self.norm1(x) / root)
        h = residual_add(x, self.attention(normed, cache=cache, tap=tap))
        h = tap("resid.attn", h)
        normed = tap("norm.ffn", self.norm2(h) / root)
        return tap("resid.ffn", residual_add(h, self.ffn(normed)))


class EmbedNormBlock(PlacedBlock):
    """Pre-norm on a stream that begins with a norm: `[B, T, D] -> [B, T, D]`.

    x ← norm0(x) in the first block only, then as in the pre-norm block

    Source: the embedding LayerNorm of BLOOM, arXiv 2211.05100.
    """

    def __init__(self, config: ModelConfig, index: int = 0):
        super().__init__(config, index)
        if index == 0:
            self.norm0 = NORMS[config.norm](config.d_model, eps=config.norm_eps)

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        if self.index == 0:
            x = tap("norm.embed", self.norm0(x))
        return super().forward(x, cache=cache, tap=tap)


class NormedHeads(nn.Linear):
    """A projection whose heads are normalised one by one: `[..., D] -> [..., D']`.

    y = merge(norm(head)) for each head of x Wᵀ; all heads share one norm of width d.
    """

    def __init__(self, linear: nn.Linear, norm: nn.Module):
        super().__init__(linear.in_features, linear.out_features, bias=False)
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        heads = super().forward(x).unflatten(-1, (-1, self.norm.width))
        return self.norm(heads).flatten(-2)


class QKNormBlock(TransformerBlock):
    """Pre-norm, and a norm on every query and key before RoPE: `[B, T, D] -> [B, T, D]`.

    q = norm_q(split(x Wq)),  k = norm_k(split(x Wk)),  one norm of width d for all heads

    So a score is at most sqrt(d) times the gains, however large the weights become.
    Source: Henry et al. 2020, arXiv 2010.04245; with LayerNorm Dehghani et al. 2023, 2302.05442.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        for name in ("q_proj", "k_proj"):
            norm = NORMS[config.norm](config.d_head, eps=config.norm_eps)
            linear = getattr(self.attention, name)
            setattr(self.attention, name, NormedHeads(linear, norm))
