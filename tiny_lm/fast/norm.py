"""RMSNorm with a backward of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from tiny_lm.layers import RMSNorm
from tiny_lm.shapes import expect_width

layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default


class Normalise(Function):
    """RMSNorm with a backward of its own: autograd would keep and walk seven operations.

    torch has one kernel for the backward of LayerNorm. Told that the mean is 0 and the deviation is
    the RMS, it gives the slopes of RMSNorm, centred; what it took off each row is put back.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        wide, gain = _widened(x, scale)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()  # [..., 1], 1 / rms
        ctx.save_for_backward(x, scale, inverse)
        ctx.eps = eps
        y = (wide * inverse).mul_(gain)
        return y if y.dtype == x.dtype else y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scale, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate these slopes once more
            return *_slopes(x, scale, slope, ctx.eps), None
        D, (wide, gain) = x.shape[-1], _widened(x, scale)
        slope = slope if slope.dtype == wide.dtype else slope.to(wide.dtype)
        zero, wanted = torch.zeros_like(inverse), (True, True, False)
        d_x, d_scale, _ = layer_norm_backward(slope, wide, (D,), zero, inverse, gain, None, wanted)
        taken = slope.reshape(-1, D).mv(gain).view_as(inverse).mul_(inverse)
        d_x.add_(taken, alpha=1 / D)
        return d_x, d_scale, None  # autograd gives them the dtypes of x and scale


def _widened(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float32, or in float64 where x is."""
    wide = x if x.dtype.itemsize > 2 else x.float()
    return wide, scale if scale.dtype == wide.dtype else scale.to(wide.dtype)


def _slopes(x: Tensor, scale: Tensor, slope: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same slopes in operations that autograd can differentiate."""
    rows, gain = _widened(x, scale)
    slopes = slope.to(rows.dtype)
    inverse = (rows.square().mean(dim=-1, keepdim=True) + eps).rsqrt()
    turned = slopes * gain
    along = (turned * rows).mean(dim=-1, keepdim=True)
    d_x = inverse * turned - inverse.pow(3) * along * rows
    d_scale = (slopes * rows * inverse).reshape(-1, x.shape[-1]).sum(dim=0)
    return d_x.to(x.dtype), d_scale.to(scale.dtype)


class FastRMSNorm(RMSNorm):
    """RMSNorm that keeps one number a row for its backward: `[..., D] -> [..., D]`.

    The forward of RMSNorm, rounding apart. Its backward, for v = slope · scale and r = 1 / rms:

    dx = r v − r³ mean(v · x) x,  dscale = sum of slope · x · r

    Up to `few` numbers take a shorter way.
    """

    few = 8192

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return super().forward(x)
        expect_width("RMSNorm", x, self.width)
        scale = self.scale
        if x.numel() <= self.few and x.dtype == scale.dtype and x.dtype.itemsize > 2:
            # A call costs more than the arithmetic here.
            return x * ((x * x).mean(dim=-1, keepdim=True) + self.eps).rsqrt() * scale
        return Normalise.apply(x, scale, self.eps)

    def one(self, row: Tensor) -> Tensor:
        """The same for one row on a CPU, where nothing is learned: `[D] -> [D]`."""
        wide, gain = _widened(row, self.scale)
        square = float(wide.dot(wide)) / self.width + self.eps
        if not square > 0:  # eps is 0 and so is the row, or it has a NaN
            return self(row)
        y = (wide * square**-0.5).mul_(gain)
        return y if y.dtype == row.dtype else y.to(row.dtype)
