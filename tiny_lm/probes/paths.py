"""Chapter 05: a gradient split by how many branches its paths go through, and along a line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import comb, sqrt

import torch
from torch import Tensor

from tiny_lm.probes import depth
from tiny_lm.probes.depth_laws import GAINS, SEEDS
from tiny_lm.shapes import fail

LONGEST = 64  # layers for which Jacobians are kept: 2 MB a stack
PATHS = ("path, no norm", "pre-norm")  # wirings x + …, whose paths can be counted


@lru_cache(maxsize=8)
def jacobians(wiring: str, init: str, seed: int) -> tuple[Tensor, ...]:
    """Each layer's Jacobian `[D, D]` without its direct path, at one random input (float64)."""
    x, _ = depth.inputs(seed)
    made = depth.branches("ReLU", init, seed)[:LONGEST]
    with torch.no_grad():
        streams = depth.run(x[:, :1], wiring, made)
    identity = torch.eye(depth.WIDTH, dtype=torch.float64)
    found = []
    for branch, point in zip(made, streams, strict=False):
        # The same point 64 times, one gradient for each output coordinate: the rows of I + J.
        many = point[0].expand(depth.WIDTH, -1)[None].clone().requires_grad_()
        (rows,) = torch.autograd.grad(
            depth.WIRINGS[wiring](many, branch, LONGEST), many, identity[None]
        )
        found.append(rows[0] - identity)
    return tuple(found)


def split(wiring: str, init: str, layers: int, seed: int) -> Tensor:
    """A gradient at the input by number of branches passed: `[layers + 1, D]`, exact.

    The product of all I + t J, multiplied out as a polynomial in t: row k is its coefficient of
    t^k, applied to the gradient that was sent. The rows sum to the whole gradient.
    """
    _, gradient = depth.inputs(seed)
    parts = gradient.new_zeros(layers + 1, depth.WIDTH)
    parts[0] = gradient[0, 0]
    for jacobian in reversed(jacobians(wiring, init, seed)[:layers]):
        through = parts @ jacobian  # Jᵀ applied to every row
        parts = parts + torch.cat([torch.zeros_like(through[:1]), through[:-1]])
    return parts


@dataclass(frozen=True)
class Lengths:
    """Paths and gradient by length: the number of branches passed, 0 … `layers`.

    `paths` counts paths as shares; `gradient` has each length's share of squared length, and
    `law` what it should be.
    """

    wiring: str
    init: str
    layers: int
    seed: int
    paths: list[float]
    gradient: list[float]
    law: list[float]
    mean_paths: float
    mean_gradient: float
    mean_law: float


def lengths(
    wiring: str = "pre-norm", init: str = "He / fan-in", layers: int = 54, seed: int = 0
) -> Lengths:
    """Split the gradient of one random residual stack by path length.

    After Veit et al. 2016, arXiv 1605.06431, who sampled the paths of a trained network. Raises
    ValueError for another wiring and for a depth outside 1 … 64.
    """
    if wiring not in PATHS:
        fail("lengths", f"one of {', '.join(PATHS)}", repr(wiring))
    if not 1 <= layers <= LONGEST:
        fail("lengths", f"1 to {LONGEST} layers", layers)
    squares = split(wiring, init, layers, seed).square().sum(dim=-1)
    paths = [comb(layers, k) / 2**layers for k in range(layers + 1)]
    gradient, law = (squares / squares.sum()).tolist(), length_law(wiring, init, layers)
    return Lengths(
        wiring=wiring,
        init=init,
        layers=layers,
        seed=seed,
        paths=paths,
        gradient=gradient,
        law=law,
        mean_paths=mean_length(paths),
        mean_gradient=mean_length(gradient),
        mean_law=mean_length(law),
    )


def length_law(wiring: str, init: str, layers: int) -> list[float]:
    """Expected shares of the squared gradient by length, for branches at right angles.

    In layer j the branch brings g² / s² beside the direct path's 1; s² is the stream's mean
    square there, by which a norm divides: 1 + g² j, and 1 without a norm.
    """
    gain, shares = GAINS[init], [1.0]
    for at in range(layers):
        ratio = gain / (1 + gain * at) if wiring == "pre-norm" else gain
        by, past = ratio / (1 + ratio), 1 / (1 + ratio)
        shares = [
            past * here + by * below
            for here, below in zip([*shares, 0.0], [0.0, *shares], strict=True)
        ]
    return shares


def mean_length(shares: list[float]) -> float:
    """Mean length, with shares that sum to 1 as weights."""
    return sum(length * share for length, share in enumerate(shares))


POINTS, LAG = 128, 32
_STEP = 4 / POINTS  # from −2 to 2


@dataclass(frozen=True)
class Line:
    """The slope of a stack's output along a straight line of inputs, and how it resembles itself.

    `slopes` are in units of their RMS; `resemblance[k]` is the cosine between them and themselves
    k steps of 1/32 further on, the mean over seeds.
    """

    wiring: str
    layers: int
    places: list[float]
    slopes: list[float]
    resemblance: list[float]


@lru_cache(maxsize=64)
def line(wiring: str, layers: int = 50, seeds: tuple[int, ...] = SEEDS) -> Line:
    """Walk along x = a + t b, t from −2 to 2, and record d(output)/dt at every step.

    After Balduzzi et al. 2017, arXiv 1702.08591. Drawn is the first seed.
    """
    all_slopes = [_slopes(wiring, layers, seed) for seed in seeds]
    curves = torch.stack([_resemblance(slopes) for slopes in all_slopes])
    first = all_slopes[0] / all_slopes[0].square().mean().sqrt()
    return Line(
        wiring=wiring,
        layers=layers,
        places=_places().tolist(),
        slopes=first.tolist(),
        resemblance=curves.mean(dim=0).tolist(),
    )


@cache
def _places() -> Tensor:
    return torch.arange(POINTS, dtype=torch.float64) * _STEP - 2


def _slopes(wiring: str, layers: int, seed: int) -> Tensor:
    (start, along, *_), gradient = (part[0] for part in depth.inputs(seed))
    x = (start + _places()[:, None] * along)[None]
    streams = depth.run(x, wiring, depth.branches("ReLU", "He / fan-in", seed)[:layers])
    (at_input,) = torch.autograd.grad(streams[-1], streams[:1], gradient[0].expand_as(x))
    return at_input[0] @ along / sqrt(depth.WIDTH)


def _resemblance(slopes: Tensor) -> Tensor:
    """Cosine between the slopes and the same slopes 0, 1, … LAG steps further on."""
    pairs = [(slopes[: POINTS - lag], slopes[lag:]) for lag in range(LAG + 1)]
    return torch.stack([torch.nn.functional.cosine_similarity(*pair, dim=0) for pair in pairs])
