"""Chapters 01 and 02: exercises on Jacobians, measured slopes, and gradients that add up."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import torch
from torch import Tensor

from tiny_lm.exercises.compare import Named
from tiny_lm.exercises.core import Exercise

Function = Callable[[float], float]
_CUBE = Named("x³", lambda x: x**3)
_EXP = Named("exp", exp)


def _measured(f: Function, x: float, step: float) -> float:
    return (f(x + step) - f(x - step)) / (2 * step)


def _normed(x: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()


def _gain_gradient(g: Tensor, x: Tensor, eps: float) -> Tensor:
    return (g * _normed(x, eps)).sum(dim=0)


_X = torch.tensor([[3.0, 4.0], [30.0, 40.0], [1.0, -1.0]], dtype=torch.float64)
_GRADIENT = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)

EXERCISES = (
    Exercise(
        name="turned",
        chapter=1,
        title="A hundred small turns",
        difficulty=3,
        minutes=5,
        reference=1.01**50,
        rtol=3e-3,  # two digits after the point are asked for
        wrong={
            "That adds lengths: 1 + 0.1. But the two parts stand at right angles.": 1.1**100,
            "That is the square of the length: Pythagoras ends with a root.": 1.01**100,
            "A turn alone keeps the length. Here it is added to the direct path.": 1.0,
            "That is one layer. There are a hundred.": 1.01**0.5,
            "That is the branch without its direct path.": 0.1**100,
        },
        hints=[
            "In one layer: a vector, and at right angles to it one that is 0.1 times as long.",
            "Pythagoras gives sqrt(1 + 0.01) a layer. Now a hundred of them.",
        ],
    ),
    Exercise(
        name="measured_slope",
        chapter=2,
        title="Measure a slope",
        difficulty=2,
        minutes=5,
        reference=_measured,
        cases=[(_CUBE, 2.0, 0.1), (_CUBE, -1.0, 0.01), (_EXP, 1.0, 0.1)],
        wrong={
            "This nudges up only. Up and down, most of the error cancels.": lambda f, x, step: (
                (f(x + step) - f(x)) / step
            ),
            "This nudges down only. Up and down, most of the error cancels.": lambda f, x, step: (
                (f(x) - f(x - step)) / step
            ),
            "The two points are 2 · step apart: this is twice the slope.": lambda f, x, step: (
                (f(x + step) - f(x - step)) / step
            ),
            "The sign is turned around: up minus down.": lambda f, x, step: -_measured(f, x, step),
            "This is how far the value moves. Divide by how far x moved.": lambda f, x, step: (
                f(x + step) - f(x - step)
            ),
            "Brackets are missing: / 2 * step divides by 2 and multiplies by step.": (
                lambda f, x, step: (f(x + step) - f(x - step)) / 2 * step
            ),
            "Brackets are missing: division comes before subtraction.": lambda f, x, step: (
                f(x + step) - f(x - step) / (2 * step)
            ),
        },
        hints=[
            "Slope is rise over run. The rise is f(x + step) − f(x − step).",
            "And the run, from x − step to x + step?",
        ],
        rtol=1e-9,
    ),
    Exercise(
        name="gain_gradient",
        chapter=2,
        title="The gradient of the gain",
        difficulty=3,
        minutes=8,
        reference=_gain_gradient,
        cases=[
            (_GRADIENT[:1], _X[:1], 0.0),
            (_GRADIENT, _X, 1e-5),
            (_GRADIENT.flip(0), 1e-3 * _X, 1e-5),
        ],
        wrong={
            "The same gain is used in every row: the rows' gradients add up.": lambda g, x, eps: (
                g * _normed(x, eps)
            ),
            "They add up. A mean would make the gradient depend on how the text was cut.": (
                lambda g, x, eps: (g * _normed(x, eps)).mean(dim=0)
            ),
            "The gain multiplies the normalised x, not x.": lambda g, x, eps: (g * x).sum(dim=0),
            "y = gain · n has the slope n, and this leaves it out.": lambda g, x, eps: g.sum(dim=0),
            "eps is missing.": lambda g, x, eps: _gain_gradient(g, x, 0.0),
            "The mean of the squares runs over all rows. Each row has a denominator of its own "
            "(section 4).": lambda g, x, eps: (g * x / (x.square().mean() + eps).sqrt()).sum(dim=0),
            "The mean of the squares runs over the rows (dim=0). It must run along each row, over "
            "dim=-1.": lambda g, x, eps: (
                g * x / (x.square().mean(dim=0, keepdim=True) + eps).sqrt()
            ).sum(dim=0),
            "keepdim=True is missing: one mean a row, of shape [N], does not fit rows [N, D].": (
                lambda g, x, eps: (g * x / (x.square().mean(dim=-1) + eps).sqrt()).sum(dim=0)
            ),
            "This sums over the coordinates. Each has a gain of its own: add up the rows.": (
                lambda g, x, eps: (g * _normed(x, eps)).sum(dim=-1)
            ),
        },
        hints=[
            "In one row y_i = gain_i · n_i, n = x / sqrt(mean(x²) + eps). Its slope in gain_i?",
            "Multiply it by the gradient of y_i. All rows use the same gain: add over dim=0.",
        ],
        rtol=1e-9,
    ),
)
