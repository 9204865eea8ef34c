"""Norms, each one idea away from RMSNorm.

All are computed in float32 or better and returned in the dtype of x, and take the arguments of
RMSNorm; errors are those of RMSNorm too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tiny_lm.layers import RMSNorm, expect_norm_arguments
from tiny_lm.shapes import expect_width


class PureRMSNorm(RMSNorm):
    """RMSNorm without a gain, and so without parameters: `[..., D] -> [..., D]`.

    y = x / sqrt(mean(x²) + eps)

    The matrix that follows can hold the gain (chapter 02). Source: OLMo, arXiv 2402.00838, which
    does the same to LayerNorm.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__(width, eps)
        del self.scale

    def forward(self, x: Tensor) -> Tensor:
        wide = _widened(self, x)
        y = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return y.to(x.dtype)


class OffsetRMSNorm(RMSNorm):
    """RMSNorm whose gain is 1 + offset: `[..., D] -> [..., D]`.

    y = (1 + offset) · x / sqrt(mean(x²) + eps)

    `offset` is zeros at first, so weight decay would pull the gain to 1 and not to 0. The sum is
    made in float32: in bfloat16, 1 + 0.0025 is 1. Source: Gemma, arXiv 2403.08295, its code.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__(width, eps)
        del self.scale
        self.offset = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = _widened(self, x)
        inverse = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * inverse * (1 + self.offset.to(wide.dtype))).to(x.dtype)


class FloorRMSNorm(RMSNorm):
    """RMSNorm whose eps is a floor instead of an addition: `[..., D] -> [..., D]`.

    y = scale · x / sqrt(max(mean(x²), eps))

    Exactly free of scale above the floor, exactly linear below it. Source: the length clamped as in
    torch.nn.functional.normalize, times sqrt(D).
    """

    def forward(self, x: Tensor) -> Tensor:
        wide = _widened(self, x)
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        return (wide * torch.rsqrt(mean_square.clamp_min(self.eps)) * self.scale).to(x.dtype)


class DynamicTanh(nn.Module):
    """A curve in place of a norm; no entry sees another: `[..., D] -> [..., D]`.

    y = scale · tanh(alpha x) + shift

    One `alpha` for all entries, 0.5 at first; `scale` ones and `shift` zeros, `[D]`. There is no
    eps to use. Source: Zhu et al. 2025, arXiv 2503.10622.
    """

    def __init__(self, width: int, eps: float = 0.0):
        super().__init__()
        expect_norm_arguments("DynamicTanh", width, eps)
        self.width, self.eps = width, eps
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = _widened(self, x)
        return (self.scale * torch.tanh(self.alpha * wide) + self.shift).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.width}"


def _widened(norm: nn.Module, x: Tensor) -> Tensor:
    expect_width(type(norm).__name__, x, norm.width)
    return x.to(torch.promote_types(x.dtype, torch.float32))
