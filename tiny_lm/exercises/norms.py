"""RMSNorm, the mistakes that people make in it, and the inputs that tell each of them apart.

The exercise `rms_norm` and the bug museum share this collection.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Norm = Callable[[Tensor, Tensor, float], Tensor]


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _mean_square(x: Tensor) -> Tensor:
    return x.square().mean(dim=-1, keepdim=True)


def _over(denominator: Callable[[Tensor, float], Tensor]) -> Norm:
    """The norm with this denominator, computed in float32 or better."""

    def norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        wide = _wide(x)
        return (gain * wide / denominator(wide, eps)).to(x.dtype)

    return norm


def _mean_over(mean_square: Callable[[Tensor], Tensor]) -> Norm:
    return _over(lambda x, eps: torch.sqrt(mean_square(x) + eps))


def _axes(x: Tensor, *axes: int) -> Tensor:
    """The mean square over those of the axes that x has."""
    return x.square().mean(dim=[a for a in axes if -a <= x.ndim], keepdim=True)


rms_norm: Norm = _mean_over(_mean_square)


def _in_its_own_dtype(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return gain * x / torch.sqrt(_mean_square(x) + eps)


def _in_place(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    x /= torch.sqrt(_mean_square(_wide(x)) + eps)
    return gain * x


def _viewed(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return rms_norm(x.view(-1, x.shape[-1]), gain, eps).view(x.shape)


def _three_axes(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    B, T, D = x.shape
    return rms_norm(x, gain, eps).reshape(B, T, D)


def _layer_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    wide = _wide(x)
    return rms_norm(wide - wide.mean(dim=-1, keepdim=True), gain, eps).to(x.dtype)


EPS_OUTSIDE = "This is what you get with eps outside the root."
EPS_FLOOR = "This uses eps as a floor, max(mean square, eps). It must be added."
NO_EPS = "This is what you get without eps."
ROOT_SQUARED = (
    "Taking the root, squaring it again and adding eps gives the same output. But at a zero row "
    "the inner root has an infinite slope: the gradient is NaN. Add eps to the mean square itself."
)
OWN_DTYPE = (
    "This squares in the type of x: in float16 the square of 256 is already infinite. Before the "
    "square go to float32, or stay in float64 if x is float64; at the end go back to the type of x."
)
FLOAT32 = (
    "This computes in float32 throughout: a float64 input loses half of its digits, and its range."
)
CLIPPED = "Large entries are cut off. A norm divides; it does not clip."
VIEWED = "view() needs numbers that lie side by side in memory; a transposed x does not have them."
ALL_POSITIONS = "The mean runs over all positions of a text: every position has one of its own."

MISTAKES: dict[str, Norm] = {
    EPS_OUTSIDE: _over(lambda x, eps: _mean_square(x).sqrt() + eps),
    NO_EPS: lambda x, gain, eps: rms_norm(x, gain, 0.0),
    "eps is there twice, inside the root and outside.": _over(
        lambda x, eps: (_mean_square(x) + eps).sqrt() + eps
    ),
    "eps was squared. It is in units of x² already.": (
        lambda x, gain, eps: rms_norm(x, gain, eps**2)
    ),
    EPS_FLOOR: _over(lambda x, eps: _mean_square(x).clamp(min=eps).sqrt()),
    ROOT_SQUARED: _mean_over(lambda x: _mean_square(x).sqrt().square()),
    ALL_POSITIONS: _mean_over(lambda x: _axes(x, -2, -1)),
    "The mean runs over the positions, not over the last axis.": _mean_over(
        lambda x: _axes(x, -2 if x.ndim > 1 else -1)
    ),
    "The mean runs over the whole tensor, not over the last axis of each row.": _mean_over(
        lambda x: x.square().mean()
    ),
    "The mean runs over the first axis, not over the last axis of each row.": _mean_over(
        lambda x: x.square().mean(0, keepdim=True)
    ),
    "The mean runs over axis 1 or -2, which a single vector does not have. Its entries are the "
    "last axis, -1, however many stand before it.": _mean_over(lambda x: x.square().mean(1, True)),
    "This takes the sum of the squares, not their mean.": _mean_over(
        lambda x: x.square().sum(-1, keepdim=True)
    ),
    "This divides by the mean of the absolute values: the squares are missing.": _mean_over(
        lambda x: x.abs().mean(-1, keepdim=True).square()
    ),
    "This is LayerNorm: the mean was subtracted.": _layer_norm,
    "var() and std() measure the spread around the mean, and divide by D − 1. RMS does neither.": (
        _mean_over(lambda x: x.var(-1, keepdim=True))
    ),
    "keepdim=True is missing: a mean of shape [2, 2] does not fit rows of [2, 2, 3].": _mean_over(
        lambda x: x.square().mean(-1)
    ),
    "This divides by the mean square: the root is missing.": _over(
        lambda x, eps: _mean_square(x) + eps
    ),
    "The gain is missing.": lambda x, gain, eps: rms_norm(x, torch.ones_like(gain), eps),
    "The gain came before the norm, which divides some of it out again.": lambda x, gain, eps: (
        rms_norm(gain * x, torch.ones_like(gain), eps)
    ),
    "This multiplies by 1 + gain.": lambda x, gain, eps: rms_norm(x, 1 + gain, eps),
    OWN_DTYPE: _in_its_own_dtype,
    "This returns float32 for a float16 input. Return the type that came in.": (
        lambda x, gain, eps: rms_norm(_wide(x), gain, eps)
    ),
    FLOAT32: lambda x, gain, eps: rms_norm(x.float(), gain, eps).to(x.dtype),
    "This writes into x, which belongs to the caller.": _in_place,
    "The denominator is cut off from the gradient (detach, no_grad or .item()). It depends on x, "
    "so gradients run through it too.": _over(
        lambda x, eps: torch.sqrt(_mean_square(x.detach()) + eps)
    ),
    CLIPPED: lambda x, gain, eps: rms_norm(x.clamp(-1000, 1000), gain, eps),
    VIEWED: _viewed,
    "This takes three axes for granted. [..., D] may be one vector, or have four axes.": (
        _three_axes
    ),
}

_ONES, _GAIN = torch.ones(3), torch.tensor([1.0, 2.0, 0.5])
_ROWS = [[[3.0, 4.0, 0.0], [30.0, 40.0, 5.0]], [[-2.0, 1.0, 7.0], [5.0, 5.0, -1.0]]]

# Each of these is the only one that catches some mistake; a test holds that.
CASES: list[tuple[Tensor, Tensor, float]] = [
    (torch.tensor([3.0, 4.0]), torch.ones(2), 1e-5),
    (torch.tensor(_ROWS, requires_grad=True), _GAIN, 1e-5),
    (torch.tensor([[[1e-3, -2e-3, 2e-3]]]), _ONES, 1e-5),
    (torch.zeros(1, 1, 3, requires_grad=True), _ONES, 1e-5),
    (torch.tensor([[[10003.0, 10004.0, 10000.0]]]), _ONES, 1e-5),
    (torch.tensor([[[300.0, 400.0]]]).half(), torch.ones(2).half(), 1e-5),
    (torch.tensor([[[3.0, 4], [5, 0]], [[6, 6], [0, 5]]]).transpose(0, 1), torch.ones(2), 1e-5),
    (torch.tensor([[[3.0, 4.0, 1.0]]]).double(), _ONES.double(), 0.0),
]
