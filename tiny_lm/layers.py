"""The layers of a block, the residual addition, and the block in three orders."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from tiny_lm.attention import CausalSelfAttention, KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.shapes import expect_same_shape, expect_width, fail
from tiny_lm.taps import Tap, ignore


class RMSNorm(nn.Module):
    """Divide each vector by its root mean square, then apply a gain: `[..., D] -> [..., D]`.

    y = scale · x / sqrt(mean(x²) + eps)

    `scale` is `[D]`, ones at first. `eps` is in units of x² and stands inside the root; 0 is
    allowed, and then the zero vector gives NaN. Computed in float32 or better, returned in the
    dtype of x. In float32 the squares of a vector longer than 1.8e19 overflow. Raises ValueError
    for another width, for numbers that are not floats, and for a negative eps.
    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        expect_norm_arguments("RMSNorm", width, eps)
        self.width, self.eps = width, eps
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        expect_width("RMSNorm", x, self.width)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = wide.square().mean(dim=-1, keepdim=True)
        y = wide * torch.rsqrt(mean_square + self.eps) * self.scale
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.width}, eps={self.eps:g}"


class LayerNorm(nn.Module):
    """Subtract the mean, divide by the standard deviation, gain, shift: `[..., D] -> [..., D]`.

    y = scale · (x − mean(x)) / sqrt(mean((x − mean(x))²) + eps) + shift

    `scale` is ones and `shift` zeros at first; dtypes and errors as in RMSNorm.
    Source: Ba, Kiros and Hinton 2016, arXiv 1607.06450.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        expect_norm_arguments("LayerNorm", width, eps)
        self.width, self.eps = width, eps
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        expect_width("LayerNorm", x, self.width)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        y = centred * torch.rsqrt(variance + self.eps) * self.scale + self.shift
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.width}, eps={self.eps:g}"


NORMS: dict[str, type[nn.Module]] = {"rms": RMSNorm, "layer": LayerNorm}


class SwiGLU(nn.Module):
    """A hidden layer whose units are multiplied by gates: `[..., D] -> [..., D]`.

    y = (silu(x Wgate) · (x Wup)) Wdown,  silu(u) = u · sigmoid(u);  the hidden width is F.

    No biases. Source: Shazeer 2020, arXiv 2002.05202.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.width = width
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        expect_width("SwiGLU", x, self.width)
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


def residual_add(x: Tensor, change: Tensor) -> Tensor:
    """The direct path plus a branch's output, a new tensor: `[...], [...] -> [...]`.

    Raises ValueError when the shapes differ: an axis of size 1 would broadcast unseen.
    """
    expect_same_shape("residual_add", x, change)
    return x + change


class Residual(nn.Module):
    """A direct path around any branch: `[..., D] -> [..., D]`, y = x + branch(x)."""

    def __init__(self, branch: nn.Module):
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return residual_add(x, self.branch(x))


class TransformerBlock(nn.Module):
    """The pre-norm block: `[B, T, D] -> [B, T, D]`.

    h = x + attention(norm1(x))
    y = h + ffn(norm2(h))

    The direct path is never normalised; only what enters a branch is.
    Source: Xiong et al. 2020, arXiv 2002.04745.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        norm = NORMS[config.norm]
        self.norm1 = norm(config.d_model, eps=config.norm_eps)
        self.attention = CausalSelfAttention(
            config.d_model, config.n_heads, config.rope_theta, n_kv_heads=config.n_kv_heads
        )
        self.norm2 = norm(config.d_model, eps=config.norm_eps)
        self.ffn = SwiGLU(config.d_model, config.d_ff)

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        h = residual_add(x, self.attention(normed, cache=cache, tap=tap))
        h = tap("resid.attn", h)
        normed = tap("norm.ffn", self.norm2(h))
        return tap("resid.ffn", residual_add(h, self.ffn(normed)))


class PostNormBlock(TransformerBlock):
    """The first transformer's order, norms on the direct path: `[B, T, D] -> [B, T, D]`.

    h = norm1(x + attention(x))
    y = norm2(h + ffn(h))
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        summed = tap("resid.attn", residual_add(x, self.attention(x, cache=cache, tap=tap)))
        h = tap("norm.attn", self.norm1(summed))
        summed = tap("resid.ffn", residual_add(h, self.ffn(h)))
        return tap("norm.ffn", self.norm2(summed))


class PlainBlock(TransformerBlock):
    """The pre-norm block without its direct path: `[B, T, D] -> [B, T, D]`.

    h = attention(norm1(x))
    y = ffn(norm2(h))

    `resid.*` name the values that stand where the sums would.
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        normed = tap("norm.attn", self.norm1(x))
        h = tap("resid.attn", self.attention(normed, cache=cache, tap=tap))
        normed = tap("norm.ffn", self.norm2(h))
        return tap("resid.ffn", self.ffn(normed))


BLOCKS: dict[str, type[TransformerBlock]] = {
    "pre": TransformerBlock,
    "post": PostNormBlock,
    "plain": PlainBlock,
}


def expect_norm_arguments(who: str, width: int, eps: float) -> None:
    """Raise ValueError unless width and eps are those that a norm can have."""
    if width < 1:
        fail(who, "width >= 1", width)
    if not isinstance(eps, int | float) or not eps >= 0:
        fail(who, "eps >= 0", eps)
