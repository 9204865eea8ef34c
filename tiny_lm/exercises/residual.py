"""Chapters 00 and 01: exercises on the residual addition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import cosh, prod, tanh
from operator import add, mul, sub

import torch
from torch import Tensor

from tiny_lm import plain
from tiny_lm.exercises.core import Exercise
from tiny_lm.layers import residual_add as _add


def _ledger(x: Tensor, changes: Tensor) -> Tensor:
    return torch.stack(list(accumulate(changes, _add, initial=x)))


def _ledger_in_place(add: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    return lambda x, changes: torch.stack([x, *(x.copy_(add(x, change)) for change in changes)])


def _ledger_unchecked(x: Tensor, changes: Tensor) -> Tensor:
    return torch.stack(list(accumulate(changes, initial=x)))


def _each(operation: Callable[[float, float], float]) -> Callable:
    """Entry by entry, as far as the shorter list goes."""
    return lambda x, change: list(map(operation, x, change))


_STREAM = torch.tensor([[3.0, 4.0], [1.0, -2.0]])
_CHANGES = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 2.0], [-1.0, 0.5]]])
_J = torch.tensor([[0.5, 2.0], [0.0, -1.0]], dtype=torch.float64)
_J3 = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0], [0.0, 4.0, -1.0]], dtype=torch.float64)
_SQUASHED = 1 - tanh(1.0) ** 2  # the slope of tanh at 1

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        name="add_vectors",
        chapter=0,
        title="Add two vectors",
        difficulty=1,
        minutes=2,
        reference=_each(add),
        cases=[([3.0, 4.0], [1.0, -2.0]), ([0.0, 0.5, 5.0], [1.0, 2.0, -9.0]), ([2.0], [-2.0])],
        wrong={
            "On lists, + does not add: it puts one list behind the other.": add,
            "This multiplies the entries.": _each(mul),
            "This subtracts the change.": _each(sub),
            "This is the change alone: x is gone.": lambda x, change: change,
        },
        hints=[
            "for a, b in zip(x, change) walks through both lists at once.",
            "[a + b for a, b in zip(x, change)] is a list of sums.",
        ],
    ),
    Exercise(
        name="residual_add",
        chapter=1,
        title="An addition that refuses",
        difficulty=1,
        minutes=4,
        reference=plain.residual_add,
        cases=[
            ([3.0, 4.0], [0.0, 0.0]),
            ([3.0, 4.0], [1.0, -6.5]),
            ([3.0, 4.0], [1.0]),
            ([1.0, 2.0], [1.0, 2.0, 3.0]),
        ],
        wrong={
            "This replaces the stream by the change: x is gone.": lambda x, change: change,
            "On lists, + puts one list behind the other.": add,
            "zip stops at the end of the shorter list: a wrong length passes unseen.": _each(add),
            "Too short is noticed (as an IndexError), but too long passes unseen.": (
                lambda x, change: [x[i] + change[i] for i in range(len(x))]
            ),
        },
        hints=[
            "Compare len(x) with len(change) first, and raise ValueError(...) if they differ.",
            "zip(x, change, strict=True) raises a ValueError by itself when the lengths differ.",
        ],
    ),
    Exercise(
        name="ledger",
        chapter=1,
        title="Repair a ledger",
        difficulty=3,
        minutes=6,
        reference=_ledger,
        cases=[
            (torch.tensor([3.0, 4.0]), torch.eye(2)),
            (_STREAM, _CHANGES),
            (_STREAM, torch.tensor([[[1.0], [2.0]]])),
            (_STREAM, torch.tensor([[[1.0, 2.0]]])),
        ],
        wrong={
            "x += change alters the tensor that is already in the ledger: all rows are the last "
            "one. And a change of another shape still passes.": _ledger_in_place(add),
            "x is still altered in place: all rows are the last.": _ledger_in_place(_add),
            "The rows are right now. But a change with an axis of size 1 is still broadcast "
            "without a word.": _ledger_unchecked,
            "Every change is added to the first x. It belongs on top of the changes before it.": (
                lambda x, changes: torch.stack([x, *(_add(x, c) for c in changes)])
            ),
            "The first row, the start, is missing.": lambda x, changes: _ledger(x, changes)[1:],
        },
        hints=[
            "x += change does not make a new tensor. Which tensor is in `history` by then?",
            "residual_add(x, change) makes a new tensor, and refuses shapes that differ.",
        ],
    ),
    Exercise(
        name="minus_half",
        chapter=1,
        title="Minus one half",
        difficulty=1,
        minutes=3,
        reference=[3.0, -1.0, 0.5],
        wrong={
            "That is the branch alone. The direct path is missing.": [-3.0, 1.0, -0.5],
            "The vector is right. The direct path adds 1 to the slope.": [3.0, -1.0, -0.5],
            "The sign of the branch is lost.": [9.0, -3.0, 1.5],
            "The vector is right. The slope is 1 + F′, not 1 − F′.": [3.0, -1.0, 1.5],
        },
        hints=["The branch writes [−3, 1]. Its slope is −1/2 everywhere."],
    ),
    Exercise(
        name="dead_slope",
        chapter=1,
        title="Kill the gradient",
        difficulty=3,
        minutes=5,
        reference=-(cosh(1.0) ** 2),
        rtol=2e-3,
        wrong={
            "−1 does it for F(x) = a · x. Here the slope at 1 is a · (1 − tanh²(1)), not a.": -1.0,
            "That makes the sum x + F(x) zero at x = 1, not its slope.": -1 / tanh(1.0),
            "The size is right. Which sign cancels the 1 of the direct path?": cosh(1.0) ** 2,
            "That is minus the slope of tanh. Solve 1 + a · (1 − tanh²(1)) = 0 for a.": -_SQUASHED,
        },
        hints=[
            "Which value must F′(1) have, so that 1 + F′(1) = 0?",
            "a = −1 / (1 − tanh²(1)), and tanh(1) is about 0.7616.",
        ],
    ),
    Exercise(
        name="residual_gradient",
        chapter=1,
        title="Send a gradient back",
        difficulty=1,
        minutes=6,
        reference=lambda g, J: g + J.T @ g,
        cases=[
            (torch.tensor([1.0, 0.0], dtype=torch.float64), _J),
            (torch.tensor([2.0, -3.0], dtype=torch.float64), _J),
            (torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), _J3),
        ],
        wrong={
            "This uses J g. On the way back it is Jᵀ g.": lambda g, J: g + J @ g,
            "The direct path is missing: its gradient is g itself.": lambda g, J: J.T @ g,
            "This is the direct path alone.": lambda g, J: g,
            "This multiplies J only entry by entry; each input acts on every output.": (
                lambda g, J: g + J.diagonal() * g
            ),
        },
        hints=[
            "Two paths, two gradients, one sum.",
            "Input j reaches output i with J[i, j]. So it collects the sum over i of J[i, j]·g[i].",
        ],
        rtol=1e-9,
    ),
    Exercise(
        name="gradient_factor",
        chapter=1,
        title="A product over the depth",
        difficulty=2,
        minutes=4,
        reference=lambda slopes: prod(1 + a for a in slopes),
        cases=[(s,) for s in ([2.0], [0.1] * 100, [-0.1] * 100, [0.5, -1.0, 7.0], [-3.0], [])],
        wrong={
            "This is the product of the branches alone: the direct path is missing.": prod,
            "The 1 belongs into every factor.": lambda slopes: 1 + prod(slopes),
            "Only the paths through at most one branch are here. Paths through several branches "
            "count too.": lambda slopes: 1 + sum(slopes),
            "Layers one after the other multiply.": lambda slopes: sum(1 + a for a in slopes),
        },
        hints=[
            "Start with 1.0 and multiply by (1 + a) for each layer.",
            "With no layer at all the gradient is unchanged: a factor of 1.",
        ],
    ),
    Exercise(
        name="overflow",
        chapter=1,
        title="Where float32 ends",
        difficulty=2,
        minutes=4,
        reference=128,
        rtol=1e-9,
        wrong={
            "2 to the 127th is 1.7e38: it still fits.": 127,
            "81 is right for factors of 3. Here they are 2.": 81,
            "Up to 2 to the 24th float32 has every whole number. It goes on far beyond.": 24,
            "That is where 64 bits end.": 1024,
        },
        hints=[
            "The largest float32 is just below 2 to the 128th.",
            "2.0**127 is about 1.7e38, and the largest float32 is about 3.4e38.",
        ],
    ),
    Exercise(
        name="opposition",
        chapter=1,
        title="How little opposition is enough?",
        difficulty=2,
        minutes=5,
        reference=lambda depth, left: left ** (1 / depth) - 1,
        cases=[(1, 0.25), (100, 1e-6), (20, 0.5)],
        wrong={
            "That is the slope of a layer, 1 + a. What is a?": lambda n, left: left ** (1 / n),
            "The sign: for a > 0 a gradient grows.": lambda n, left: 1 - left ** (1 / n),
            "Layers multiply, they do not add: take a root.": lambda n, left: (left - 1) / n,
        },
        hints=["(1 + a) to the power `depth` is left. Solve that for a."],
    ),
    Exercise(
        name="swallowed",
        chapter=1,
        title="In which order?",
        difficulty=2,
        minutes=4,
        reference=[512.0, 516.0],
        rtol=1e-9,
        wrong={
            "In bf16 the next number after 512 is 516, so 512 + 1 has no room.": [516.0, 516.0],
            "The first is right. But 1 + 1 + 1 + 1 = 4 fits, and so does 516.": [512.0, 512.0],
            "513 is nearer to 512 than to 516: it isn't rounded up.": [528.0, 516.0],
        },
        hints=[
            "Between 512 and 1024, bf16 has only every fourth whole number.",
            "One at a time: 513 is rounded, then the next 1 is added to the rounded number.",
        ],
    ),
)
