"""Blocks whose norms stand elsewhere, or nowhere."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tiny_lm.attention import KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.layers import NORMS, PostNormBlock, TransformerBlock, residual_add
from tiny_lm.taps import Tap, ignore


class BareBlock(TransformerBlock):
    """A direct path and no norms: `[B, T, D] -> [B, T, D]`.

    h = x + attention(x)
    y = h + ffn(h)

    `norm.*` name what the branches read. The model's final norm stays.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.norm1, self.norm2 = nn.Identity(), nn.Identity()


class SandwichBlock(TransformerBlock):
    """A norm before and one after each branch, the stream itself untouched: `[B, T, D] -> same`.

    h = x + norm3(attention(norm1(x)))
    y = h + norm4(ffn(norm2(h)))

    Source: Ding et al. 2021, arXiv 2105.13290; Kim et al. 2025 (peri-LN), arXiv 2502.02732.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.norm3 = NORMS[config.norm](config.d_model, eps=config.norm_eps)
        self.norm4 = NORMS[config.norm](config.d_model, eps=config.norm_eps)

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        change = self.norm3(self.attention(normed, cache=cache, tap=tap))
        h = tap("resid.attn", residual_add(x, change))
        normed = tap("norm.ffn", self.norm2(h))
        return tap("resid.ffn", residual_add(h, self.norm4(self.ffn(normed))))


class DeepNormBlock(PostNormBlock):
    """Post-norm with a louder direct path and quieter branches: `[B, T, D] -> [B, T, D]`.

    h = norm1(alpha x + attention(x))
    y = norm2(alpha h + ffn(h)),  alpha = (2N)^(1/4) for N blocks

    The weights of v, of the output projection and of the FFN begin smaller by (8N)^(-1/4).
    Source: Wang et al. 2022, arXiv 2203.00555, the values for a decoder alone.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.alpha = (2 * config.n_layers) ** 0.25
        self.beta = (8 * config.n_layers) ** -0.25

    @torch.no_grad()
    def after_drawing(self) -> None:
        for linear in (self.attention.v_proj, self.attention.out_proj, *self.ffn.children()):
            linear.weight *= self.beta

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        change = self.attention(x, cache=cache, tap=tap)
        h = tap("norm.attn", self.norm1(tap("resid.attn", residual_add(self.alpha * x, change))))
        summed = tap("resid.ffn", residual_add(self.alpha * h, self.ffn(h)))
        return tap("norm.ffn", self.norm2(summed))


class ReZeroBlock(BareBlock):
    """No norms, and branches that are faded in from nothing: `[B, T, D] -> [B, T, D]`.

    h = x + fade1 · attention(x)
    y = h + fade2 · ffn(h),  both fades zero at first

    Source: Bachlechner et al. 2020, arXiv 2003.04887.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.fade1 = nn.Parameter(torch.zeros(1))
        self.fade2 = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        x = tap("norm.attn", x)
        h = tap("resid.attn", residual_add(x, self.fade1 * self.attention(x, cache=cache, tap=tap)))
        h = tap("norm.ffn", h)
        return tap("resid.ffn", residual_add(h, self.fade2 * self.ffn(h)))
