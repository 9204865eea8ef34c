"""Chapters 00 and 01: the numbers behind the residual addition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, inf, log10, radians, sin

import torch
from torch import Tensor

from tiny_lm import plain
from tiny_lm.layers import residual_add

X = (3.0, 4.0)


@dataclass(frozen=True)
class Added:
    """A vector, a change and their sum."""

    x: list[float]
    change: list[float]
    total: list[float]


def added(c1: float, c2: float, x: tuple[float, float] = X) -> Added:
    """Add the change [c1, c2] to x = [3, 4]."""
    return Added(x=list(x), change=[c1, c2], total=plain.residual_add(x, [c1, c2]))


@dataclass(frozen=True)
class Strength:
    """The branch F(x) = a·x, what x + F(x) is, and the slope of the sum (float64)."""

    a: float
    x: list[float]
    branch: list[float]
    total: list[float]
    branch_slope: float
    slope: float


def strength(a: float, x: tuple[float, float] = X) -> Strength:
    """Add a branch that writes `a` times its input."""
    point = torch.tensor(x, dtype=torch.float64)
    _, branch_slope, slope = slopes(lambda u: a * u, x[0])
    return Strength(
        a=a,
        x=list(x),
        branch=(a * point).tolist(),
        total=residual_add(point, a * point).tolist(),
        branch_slope=branch_slope,
        slope=slope,
    )


def slopes(branch: Callable[[Tensor], Tensor], x: float) -> tuple[float, float, float]:
    """Slope of y = x + F(x) at x through the direct path, through the branch, and together.

    By automatic differentiation (float64), each path alone by cutting the other one.
    """
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    sums = (
        residual_add(point, branch(point).detach()),
        residual_add(point.detach(), branch(point)),
        residual_add(point, branch(point)),
    )
    direct, through_branch, both = (_derivative(y, point) for y in sums)
    return direct, through_branch, both


def _derivative(y: Tensor, x: Tensor) -> float:
    if not y.requires_grad:  # the branch does not use x
        return 0.0
    (slope,) = torch.autograd.grad(y, x, allow_unused=True)
    return 0.0 if slope is None else float(slope)


BRANCHES: dict[str, Callable[[Tensor], Tensor]] = {
    "0": torch.zeros_like,
    "2x": lambda x: 2 * x,
    "−x": lambda x: -x,
    "−2 tanh(x)": lambda x: -2 * torch.tanh(x),
    "sin(3x)": lambda x: torch.sin(3 * x),
}


@dataclass(frozen=True)
class Slope:
    """A branch on an interval, and the slopes of both paths at one point (float64)."""

    branch: str
    x: float
    y: float
    direct_slope: float
    branch_slope: float
    slope: float
    grid: list[float]
    branch_values: list[float]
    sums: list[float]


def slope(branch: str, x: float, reach: float = 2.0, points: int = 161) -> Slope:
    """Measure y = x + F(x) for one of BRANCHES, from −reach to reach and at x."""
    function = BRANCHES[branch]
    grid = torch.linspace(-reach, reach, points, dtype=torch.float64)
    values = function(grid)
    direct_slope, branch_slope, both = slopes(function, x)
    return Slope(
        branch=branch,
        x=x,
        y=x + float(function(torch.tensor(x, dtype=torch.float64))),
        direct_slope=direct_slope,
        branch_slope=branch_slope,
        slope=both,
        grid=grid.tolist(),
        branch_values=values.tolist(),
        sums=residual_add(grid, values).tolist(),
    )


@dataclass(frozen=True)
class TwoPaths:
    """A gradient of length 1 on its way back through y = x + J x (float64)."""

    a: float
    degrees: float
    direct: list[float]
    branch: list[float]
    total: list[float]
    length: float
    least: float  # over all angles: |1 − a|
    most: float  # over all angles: 1 + a


def two_paths(a: float, degrees: float) -> TwoPaths:
    """Send [1, 0] back through a branch that turns it by an angle and makes it `a` times as long.

    By automatic differentiation.
    """
    turn = radians(degrees)
    back = a * torch.tensor([[cos(turn), -sin(turn)], [sin(turn), cos(turn)]], dtype=torch.float64)
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    gradient = torch.tensor([1.0, 0.0], dtype=torch.float64)
    (total,) = torch.autograd.grad(residual_add(x, back.T @ x), x, gradient)
    (branch,) = torch.autograd.grad(back.T @ x, x, gradient)
    return TwoPaths(
        a=a,
        degrees=degrees,
        direct=gradient.tolist(),
        branch=branch.tolist(),
        total=total.tolist(),
        length=float(total.norm()),
        least=abs(1 - a),
        most=1 + a,
    )


FP32_LARGEST = torch.finfo(torch.float32).max
FP32_SMALLEST = 2.0**-149  # the smallest positive float32, a subnormal


@dataclass(frozen=True)
class Depth:
    """Size of a gradient after 0, 1, … `layers` layers of slope a, with and without direct path."""

    a: float
    layers: int
    plain: list[float]  # log10 |a|^l; inf and −inf where a float32 holds infinity and 0
    residual: list[float]  # the same for |1 + a|^l
    plain_end: float  # |a|^layers, exact up to float64
    residual_end: float  # |1 + a|^layers


def depth(a: float, layers: int) -> Depth:
    """Multiply the slopes of equal layers: a each, or 1 + a each."""
    a = round(a, 6)  # a slider may say −0.9999999999999998 for −1
    factors = (abs(a), abs(round(1 + a, 6)))
    plain_logs, residual_logs = (
        [_log10_in_float32(factor**layer) for layer in range(layers + 1)] for factor in factors
    )
    return Depth(
        a=a,
        layers=layers,
        plain=plain_logs,
        residual=residual_logs,
        plain_end=factors[0] ** layers,
        residual_end=factors[1] ** layers,
    )


def _log10_in_float32(size: float) -> float:
    """log10 of a size, with what float32 cannot hold as inf or −inf."""
    if size > FP32_LARGEST:
        return inf
    return log10(size) if size > FP32_SMALLEST / 2 else -inf


@dataclass(frozen=True)
class Swallowed:
    """A stream that gets the same small update again and again, in three dtypes."""

    update: float
    start: float
    steps: int
    received: dict[str, list[float]]  # share of all updates that has arrived, after each step


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def swallowed(update: float, start: float = 1.0, steps: int = 128) -> Swallowed:
    """Add `update` to `start` again and again, rounding to the dtype after every addition."""
    received = {}
    for name, dtype in DTYPES.items():
        stream, change = torch.tensor(start, dtype=dtype), torch.tensor(update, dtype=dtype)
        states = [stream]
        for _ in range(steps):
            states.append(residual_add(states[-1], change))
        arrived = torch.stack(states).double() - start
        received[name] = (arrived / (steps * update)).tolist()
    return Swallowed(update=update, start=start, steps=steps, received=received)


def right_angles(width: int, pairs: int = 2000, seed: int = 0) -> float:
    """Typical |cosine| (root mean square) between random vectors: close to 1 / sqrt(width)."""
    generator = torch.Generator().manual_seed(seed)
    x, change = torch.randn(2, pairs, width, generator=generator, dtype=torch.float64)
    cosines = torch.nn.functional.cosine_similarity(x, change, dim=-1)
    return float(cosines.square().mean().sqrt())


def random_stack(
    gain: float, layers: int, *, seed: int = 0, backwards: bool = False, width: int = 512
) -> float:
    """How many times longer a stream is after layers that add `gain` times a random map of it.

    Each layer adds W x with entries of W drawn from Normal(0, gain² / width), so that W x is
    about `gain` times as long as x (float64). `backwards` sends a gradient through them instead.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(width, generator=generator, dtype=torch.float64)
    start = x.norm()
    for _ in range(layers):
        weight = torch.randn(width, width, generator=generator, dtype=torch.float64)
        weight = weight.T if backwards else weight
        x = residual_add(x, gain / width**0.5 * weight @ x)
    return float(x.norm() / start)
