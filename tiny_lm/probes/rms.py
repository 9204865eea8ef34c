"""Chapter 02: the numbers behind RMS and RMSNorm."""

from __future__ import annotations

from dataclasses import dataclass
from math import atan2, cos, radians, sin, sqrt

import torch
from torch import Tensor

from tiny_lm.layers import LayerNorm, RMSNorm


def _normed(x: list[float], eps: float, norm: type = RMSNorm) -> list[float]:
    layer = norm(len(x), eps=eps).double()
    with torch.no_grad():
        return layer(torch.tensor(x, dtype=torch.float64)).tolist()


@dataclass(frozen=True)
class Pair:
    """Two numbers, their RMS and mean, and what the two norms make of them (float64)."""

    x: list[float]
    rms: float
    mean: float
    rms_normed: list[float]
    layer_normed: list[float]


def pair(x1: float, x2: float, eps: float = 1e-5) -> Pair:
    """Measure and normalise the vector [x1, x2]."""
    x = [x1, x2]
    return Pair(
        x=x,
        rms=((x1 * x1 + x2 * x2) / 2) ** 0.5,
        mean=(x1 + x2) / 2,
        rms_normed=_normed(x, eps),
        layer_normed=_normed(x, eps, LayerNorm),
    )


@dataclass(frozen=True)
class Gained:
    """A pair of RMS 1, and what the two norms with gain [g1, g2] make of it (float64).

    RMSNorm without eps; LayerNorm with 1e-5, since it meets pairs of two equal numbers.
    """

    degrees: float  # direction of x, counter-clockwise from the first axis
    gain: list[float]
    x: list[float]
    rms_normed: list[float]
    layer_normed: list[float]
    rms: float  # of RMSNorm's output


def gained(degrees: float, g1: float, g2: float) -> Gained:
    """Send a pair on the circle of radius √2 through both norms, with a gain."""
    angle = radians(degrees)
    x = [sqrt(2) * cos(angle), sqrt(2) * sin(angle)]
    rms_normed, layer_normed = (
        [g * value for g, value in zip((g1, g2), _normed(x, eps, norm), strict=True)]
        for eps, norm in ((0.0, RMSNorm), (1e-5, LayerNorm))
    )
    return Gained(
        degrees=degrees,
        gain=[g1, g2],
        x=x,
        rms_normed=rms_normed,
        layer_normed=layer_normed,
        rms=sqrt(sum(value * value for value in rms_normed) / 2),
    )


@dataclass(frozen=True)
class ScaledAndShifted:
    """A vector times `factor` plus `offset`, before and after each norm (float64)."""

    factor: float
    offset: float
    x: list[float]
    rms_normed: list[float]
    layer_normed: list[float]
    rms_change: float  # largest change of an RMSNorm entry against factor 1, offset 0
    layer_change: float


def scaled_and_shifted(
    factor: float,
    offset: float,
    base: tuple[float, ...] = (3.0, 4.0, -1.0, 2.0),
    eps: float = 1e-5,
) -> ScaledAndShifted:
    """Multiply `base` by `factor`, add `offset` to every entry, then normalise."""
    x = [factor * value + offset for value in base]
    rms_normed, layer_normed = _normed(x, eps), _normed(x, eps, LayerNorm)
    return ScaledAndShifted(
        factor=factor,
        offset=offset,
        x=x,
        rms_normed=rms_normed,
        layer_normed=layer_normed,
        rms_change=_largest_change(rms_normed, _normed(list(base), eps)),
        layer_change=_largest_change(layer_normed, _normed(list(base), eps, LayerNorm)),
    )


def _largest_change(a: list[float], b: list[float]) -> float:
    return max(abs(p - q) for p, q in zip(a, b, strict=True))


def jacobian(x: Tensor, eps: float) -> Tensor:
    """Exact Jacobian of RMSNorm with gain 1, by automatic differentiation: `[D] -> [D, D]`."""
    norm = RMSNorm(x.shape[-1], eps=eps).to(x.dtype)
    return torch.autograd.functional.jacobian(norm, x)


@dataclass(frozen=True)
class Nudge:
    """A small step dx of length 1 away from x, and the step dy = J dx of RMSNorm's output."""

    x: list[float]
    dx: list[float]
    dy: list[float]
    degrees: float  # from x to dx, counter-clockwise
    gain: float  # |dy| / |dx|
    largest_gain: float  # over all directions: 1 / RMS(x) when eps is 0


def nudge(degrees: float, x: tuple[float, float] = (3.0, 4.0), eps: float = 1e-5) -> Nudge:
    """Push x = [3, 4] in a direction given in degrees from x itself."""
    point = torch.tensor(x, dtype=torch.float64)
    matrix = jacobian(point, eps)
    angle = atan2(x[1], x[0]) + radians(degrees)
    dx = torch.tensor([cos(angle), sin(angle)], dtype=torch.float64)
    dy = matrix @ dx
    return Nudge(
        x=list(x),
        dx=dx.tolist(),
        dy=dy.tolist(),
        degrees=degrees,
        gain=float(dy.norm()),
        largest_gain=float(torch.linalg.matrix_norm(matrix, 2)),
    )
