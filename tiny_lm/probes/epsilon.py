"""Chapter 03: the numbers behind epsilon: its law, its gradients, and where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
import torch
from torch import Tensor

# Every curve runs over these input sizes (RMS), eight to a factor of ten.
SIZES = np.logspace(-8, 4, 97)
# The inputs are [r, r], whose RMS is r; this is the direction at right angles to them.
ACROSS = torch.tensor([-sqrt(0.5), sqrt(0.5)], dtype=torch.float64)


@dataclass(frozen=True)
class Law:
    """How large the output of RMSNorm is, by the size of its input (float64)."""

    eps: float
    size: float  # RMS of the input
    output: float  # RMS of the output
    half: float  # the sizes that come out at 1/2, 1/√2 and 0.99
    root: float
    nearly: float
    sizes: list[float]
    outputs: list[float]


def law(eps: float, size: float) -> Law:
    """Output RMS r / sqrt(r² + eps) at one size r, at all sizes, and three landmarks."""
    return Law(
        eps=eps,
        size=size,
        output=output_rms(size, eps),
        half=size_for(0.5, eps),
        root=size_for(sqrt(0.5), eps),
        nearly=size_for(0.99, eps),
        sizes=SIZES.tolist(),
        outputs=(SIZES / np.sqrt(SIZES**2 + eps)).tolist(),
    )


def output_rms(size: float, eps: float) -> float:
    """RMS of RMSNorm's output for an input of RMS `size`, gain 1."""
    return size / sqrt(size * size + eps)


def size_for(output: float, eps: float) -> float:
    """The input RMS that comes out at RMS `output` (below 1): the law, solved for r."""
    return output * sqrt(eps / (1 - output * output))


@dataclass(frozen=True)
class Parts:
    """What RMSNorm does backwards to the two parts of a gradient: across x and along x."""

    eps: float
    size: float
    across: float  # factor on the part at right angles to x: 1 / sqrt(r² + eps)
    along: float  # factor on the part along x: eps / (r² + eps)^1.5
    share: float  # along / across = eps / (r² + eps)
    angle: float  # between x and the returned gradient, degrees, for one that arrives at 45°
    at_zero: float  # both factors at x = 0: 1 / sqrt(eps)
    sizes: list[float]
    acrosses: list[float]
    alongs: list[float]


def parts(eps: float, size: float) -> Parts:
    """Send a gradient across and one along x = [r, r] through RMSNorm.

    Across by autograd. Along by its formula: where that factor is some 1e-16 of the other,
    autograd's answer is what rounding left over.
    """
    x = torch.tensor([[size, size], [0.0, 0.0]], dtype=torch.float64)
    across = _gradient(x, ACROSS, eps)
    square = SIZES**2 + eps
    a, b = float(across[0].norm()), eps * (size * size + eps) ** -1.5
    return Parts(
        eps=eps,
        size=size,
        across=a,
        along=b,
        share=b / a,
        angle=float(np.degrees(np.arctan2(a, b))),
        at_zero=float(across[1].norm()),
        sizes=SIZES.tolist(),
        acrosses=(square**-0.5).tolist(),
        alongs=(eps * square**-1.5).tolist(),
    )


def _gradient(x: Tensor, arriving: Tensor, eps: float, place: str = "inside") -> Tensor:
    x = x.clone().requires_grad_()
    y = PLACES[place](x, eps)
    return torch.autograd.grad(y, x, arriving.to(x.dtype).expand_as(x))[0]


# The same number eps in three places, and left out. The first is this book's RMSNorm.


def inside(x: Tensor, eps: float) -> Tensor:
    """eps added to the mean square, under the root: `[..., D] -> [..., D]`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def outside(x: Tensor, eps: float) -> Tensor:
    """eps added to the root."""
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


def floor(x: Tensor, eps: float) -> Tensor:
    """The root, but not less than eps."""
    return x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(eps)


def none(x: Tensor, eps: float) -> Tensor:
    """No eps at all."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


PLACES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "inside": inside,
    "outside": outside,
    "floor": floor,
    "left out": none,
}

# The sizes these outputs have for inputs of size r, written for numbers and for arrays.
OUTPUTS: dict[str, Callable] = {
    "inside": lambda r, eps: r / np.sqrt(r * r + eps),
    "outside": lambda r, eps: r / (r + eps),
    "floor": lambda r, eps: r / np.maximum(r, eps),
    "left out": lambda r, eps: r / r,
}


@dataclass(frozen=True)
class Place:
    """One place for eps: the size of the output and the factor on gradients across x."""

    outputs: list[float]
    slopes: list[float]
    output: float  # at the chosen size
    slope: float
    zero_output: float  # at the zero vector, as computed: NaN where it has no value
    zero_slope: float


@dataclass(frozen=True)
class Places:
    """The same eps inside the root, outside it, and as a floor under it (float64)."""

    eps: float
    size: float
    sizes: list[float]
    inside: Place
    outside: Place
    floor: Place


def places(eps: float, size: float) -> Places:
    """Compute the three at one size and at zero by autograd, at every size by their formulas."""
    found = {name: _place(name, eps, size) for name in ("inside", "outside", "floor")}
    return Places(eps=eps, size=size, sizes=SIZES.tolist(), **found)


def _place(name: str, eps: float, size: float) -> Place:
    x = torch.tensor([[size, size], [0.0, 0.0]], dtype=torch.float64)
    y = PLACES[name](x, eps)
    slope = _gradient(x, ACROSS, eps, name)
    outputs = OUTPUTS[name](SIZES, eps)
    return Place(
        outputs=outputs.tolist(),
        slopes=(outputs / SIZES).tolist(),
        output=float(y[0, 0]),
        slope=hypot(*slope[0].tolist()),
        zero_output=float(y[1, 0]),
        zero_slope=hypot(*slope[1].tolist()),
    )


def rows_gradient(x: Tensor, arriving: Tensor, eps: float, place: str = "inside") -> list[float]:
    """Length of the gradient that reaches each row of x: `[R, D], [R, D] -> R numbers`."""
    return _gradient(x, arriving, eps, place).norm(dim=-1).tolist()
