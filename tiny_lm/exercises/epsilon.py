"""Chapter 03: exercises on epsilon; those on 16 and 32 bits are in precision.py."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from tiny_lm.exercises import precision
from tiny_lm.exercises.core import Exercise
from tiny_lm.probes.epsilon import floor, inside, none, outside


def _row(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _mean_square(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True)


def _radial(x: Tensor, gain: Tensor, dy: Tensor, eps: float) -> Tensor:
    square = x.square().mean()
    y = gain * x / torch.sqrt(square + eps)
    return (y * dy).sum() * eps / (square + eps)


def _radial_without_share(x: Tensor, gain: Tensor, dy: Tensor, eps: float) -> Tensor:
    return (gain * x / torch.sqrt(x.square().mean() + eps) * dy).sum()


def _find_eps(x: Tensor, y: Tensor) -> float:
    return float(x.square().mean() / y.square().mean() - x.square().mean())


_SMALL = torch.tensor([[3e-3, 4e-3], [3e-6, 4e-6], [0.0, 0.0]], dtype=torch.float64)

EXERCISES = (
    Exercise(
        name="knee",
        chapter=3,
        title="An input as small as the root of epsilon",
        difficulty=1,
        minutes=2,
        reference=sqrt(0.5),
        rtol=2e-3,
        wrong={
            "That is the output when eps is 0. Here eps is as large as the mean square.": 1.0,
            "The sum under the root is twice eps: the root of 1/2, not 1/2.": 0.5,
            "The root stands in the denominator: 1 / √2, not √2.": sqrt(2),
            "That would be an output of nothing: r / sqrt(r² + eps) is not 0.": 0.0,
        },
        hints=["Put r² = eps into r / sqrt(r² + eps). What is left?"],
    ),
    Exercise(
        name="half_size",
        chapter=3,
        title="Which input comes out at half size?",
        difficulty=2,
        minutes=5,
        reference=lambda eps: sqrt(eps / 3),
        cases=[(1e-5,), (1e-6,), (0.04,), (1.0,)],
        wrong={
            "At r = √eps the output is 1/√2 = 0.707, not 1/2.": lambda eps: sqrt(eps),
            "eps is in units of x²: a root is missing.": lambda eps: eps / 3,
            "That is the answer for eps outside the root: r / (r + eps) = 1/2.": lambda eps: eps,
            "Half of √eps gives r / sqrt(r² + 4r²) = 0.447.": lambda eps: sqrt(eps) / 2,
            "The 3 is on the wrong side: this r gives 0.866.": lambda eps: sqrt(3 * eps),
        },
        hints=[
            "Square the law: r² / (r² + eps) = 1/4.",
            "So 4r² = r² + eps. Solve for r.",
        ],
        rtol=1e-6,
        atol=0.0,
    ),
    Exercise(
        name="same_eps",
        chapter=3,
        title="Change the units",
        difficulty=2,
        minutes=5,
        reference=lambda eps, c: eps * c * c,
        cases=[(1e-5, 10.0), (1e-6, 0.02), (1e-5, 1000.0), (1e-5, 1.0)],
        wrong={
            "eps is in units of x², so the factor comes in squared.": lambda eps, c: eps * c,
            "The wrong way round: larger numbers need a larger eps.": lambda eps, c: eps / c**2,
            "With the same eps the outputs change: it is a smaller part of c²·mean(x²).": (
                lambda eps, c: eps
            ),
            "eps is in units of x², not of the root of x.": lambda eps, c: eps * sqrt(c),
        },
        hints=[
            "You want c·x / sqrt(c²·mean(x²) + new) to equal x / sqrt(mean(x²) + eps).",
            "Divide the top and the bottom of the first fraction by c.",
        ],
        rtol=1e-6,
        atol=0.0,
    ),
    Exercise(
        name="zero_gradient",
        chapter=3,
        title="The gradient of a zero row",
        difficulty=1,
        minutes=5,
        reference=lambda gain, dy, eps: gain * dy / sqrt(eps),
        cases=[
            (_row(1, 1), _row(1, 1), 1e-5),
            (_row(1, 2), _row(1, 1), 1e-6),
            (_row(0.5, -2, 3), _row(0.1, 0.2, 0), 1e-5),
            (_row(1, 2), _row(0, 0), 1e-5),
        ],
        wrong={
            "The output is 0 there, its slope is not.": lambda gain, dy, eps: 0 * dy,
            "The root is missing: at x = 0 the denominator is √eps.": (
                lambda gain, dy, eps: gain * dy / eps
            ),
            "The gain is missing.": lambda gain, dy, eps: dy / sqrt(eps),
            "That is the gradient that arrives, times the gain: it is divided as well.": (
                lambda gain, dy, eps: gain * dy
            ),
        },
        hints=[
            "Near 0 the denominator hardly changes. What is RMSNorm if it is a constant?",
            "There y_i = g_i · x_i / sqrt(eps): a plain factor for each coordinate.",
        ],
        rtol=1e-6,
        atol=1e-12,
    ),
    Exercise(
        name="radial",
        chapter=3,
        title="The part of the gradient along x",
        difficulty=2,
        minutes=6,
        reference=_radial,
        cases=[
            (_row(3, 4), _row(1, 1), _row(1, 1), 1e-2),
            (_row(1e-3, -2e-3, 2e-3), _row(1, 2, 0.5), _row(1, 2, 3), 1e-5),
            (_row(3, 4), _row(1, 2), _row(5, -1), 0.0),
            (_row(0, 0), _row(1, 1), _row(1, 1), 1e-5),
        ],
        wrong={
            "Only with eps = 0 is nothing left along x.": lambda x, gain, dy, eps: 0 * x.sum(),
            "The share eps / (mean(x²) + eps) is missing.": _radial_without_share,
            "The denominator of the share is mean(x²) + eps, not mean(x²) alone.": (
                lambda x, gain, dy, eps: (
                    _radial_without_share(x, gain, dy, eps) * eps / x.square().mean()
                )
            ),
            "It is y · dy, with y the output, not x · dy.": lambda x, gain, dy, eps: (
                (x * dy).sum() * eps / (x.square().mean() + eps)
            ),
            "The gain is missing: y is the whole output.": lambda x, gain, dy, eps: _radial(
                x, torch.ones_like(gain), dy, eps
            ),
        },
        hints=[
            "First the output y, with its gain. Then y·dy, a single number.",
            "Then the share: eps over the whole that stands under the root.",
        ],
        rtol=1e-6,
        atol=1e-15,
    ),
    Exercise(
        name="eps_outside",
        chapter=3,
        title="Repair a norm whose epsilon stands outside",
        difficulty=2,
        minutes=5,
        reference=inside,
        cases=[(_row(3, 4), 1e-5), (_SMALL, 1e-5), (_SMALL, 1e-2)],
        wrong={
            "eps is still added to the root, not to the mean square.": outside,
            "This is a floor under the root. Ordinary rows agree; small rows do not.": floor,
            "Added to the root, only larger: √eps outside is not eps inside.": (
                lambda x, eps: x / (_mean_square(x).sqrt() + sqrt(eps))
            ),
            "Do not square eps: it is in units of x² already.": lambda x, eps: inside(x, eps**2),
            "This is what you get without eps.": none,
            "rsqrt is one over the root already: multiply by it.": lambda x, eps: (
                x / torch.rsqrt(_mean_square(x) + eps)
            ),
            "The sum needs a root.": lambda x, eps: x / (_mean_square(x) + eps),
        },
        hints=["Move eps by a few characters: first add it, then take the root."],
        rtol=1e-6,
        atol=1e-15,
    ),
    Exercise(
        name="nan_gradient",
        chapter=3,
        title="Who made the NaN?",
        difficulty=3,
        minutes=5,
        reference="c",
        wrong={
            "The forward pass divides 0 by eps, and gets 0. The output is fine.": "a",
            "316 is far from overflowing, and that factor belongs to eps inside the root.": "b",
            "The mask is there: it sends back 0, and 0 · Inf is NaN.": "d",
        },
        hints=["Go backwards from the loss, one operation at a time. Which slope is not a number?"],
    ),
    Exercise(
        name="find_eps",
        chapter=3,
        title="Which epsilon does this black box use?",
        difficulty=3,
        minutes=8,
        reference=_find_eps,
        cases=[
            (row, inside(row, eps))
            for row, eps in (
                (_row(3e-4, 4e-4), 1e-6),
                (_row(1e-3, 0, -2e-3), 1e-5),
                (_row(3, 4), 0.5),
                (_row(3e-4, 4e-4), 1.1920929e-7),
            )
        ],
        wrong={
            "That is eps as if it stood outside the root.": lambda x, y: float(
                x.square().mean().sqrt() / y.square().mean().sqrt() - x.square().mean().sqrt()
            ),
            "That is mean(x²) + eps: take mean(x²) away.": lambda x, y: float(
                x.square().mean() / y.square().mean()
            ),
            "Use means of squares: the entries of x and y, not their plain means.": (
                lambda x, y: float((x.mean() / y.mean()) - x.mean())
            ),
            "That is the share eps / (mean(x²) + eps), not eps.": lambda x, y: float(
                1 - y.square().mean()
            ),
        },
        hints=[
            "Square the law: mean(y²) = mean(x²) / (mean(x²) + eps).",
            "Solve for eps. Only mean(x²) and mean(y²) are needed.",
        ],
        rtol=1e-6,
        atol=0.0,
    ),
    *precision.EXERCISES,
)
