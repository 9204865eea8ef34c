"""Chapter 02: exercises on RMS and RMSNorm."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from tiny_lm import plain
from tiny_lm.exercises import norms
from tiny_lm.exercises.core import Exercise


def _report(values: list[float], eps: float) -> float:
    return plain.rms(plain.rms_norm(values, eps=eps))


def _jacobian(x: Tensor, eps: float) -> Tensor:
    mean_square = x.square().mean() + eps
    identity = torch.eye(len(x), dtype=x.dtype)
    return (identity - torch.outer(x, x) / (len(x) * mean_square)) / mean_square.sqrt()


def _jacobian_diagonal_only(x: Tensor, eps: float) -> Tensor:
    return torch.eye(len(x), dtype=x.dtype) / (x.square().mean() + eps).sqrt()


def _jacobian_of_ones(x: Tensor, eps: float) -> Tensor:
    mean_square = x.square().mean() + eps
    return (1 - torch.outer(x, x) / (len(x) * mean_square)) / mean_square.sqrt()


def _jacobian_entrywise(x: Tensor, eps: float) -> Tensor:
    mean_square = x.square().mean() + eps
    identity = torch.eye(len(x), dtype=x.dtype)
    return (identity - x * x / (len(x) * mean_square)) / mean_square.sqrt()


def _jacobian_without_d(x: Tensor, eps: float) -> Tensor:
    mean_square = x.square().mean() + eps
    identity = torch.eye(len(x), dtype=x.dtype)
    return (identity - torch.outer(x, x) / mean_square) / mean_square.sqrt()


EXERCISES = (
    Exercise(
        name="rms",
        chapter=2,
        title="Write RMS",
        difficulty=1,
        minutes=3,
        reference=lambda x: sqrt(sum(value * value for value in x) / len(x)),
        cases=[([3.0, 4.0],), ([3.0, -3.0],), ([0.0, 0.0, 0.0],), ([2.5, -1.8, 4.2, 0.5],)],
        wrong={
            "This is the mean: signs cancel, so [3, -3] gets 0.": lambda x: sum(x) / len(x),
            "This is the mean of the absolute values.": lambda x: sum(map(abs, x)) / len(x),
            "The root of the sum: the mean is missing.": lambda x: sqrt(sum(v * v for v in x)),
            "The root is missing.": lambda x: sum(v * v for v in x) / len(x),
            "The squares are missing.": lambda x: sqrt(sum(x) / len(x)),
            "The root must cover all of the mean; here only the number of entries stands in it.": (
                lambda x: sum(v * v for v in x) / sqrt(len(x))
            ),
            "This takes the root before the mean.": lambda x: sqrt(sum(v * v for v in x)) / len(x),
        },
        hints=[
            "Three steps, from the inside out: square every entry, take the mean, take the root.",
            "sum(value * value for value in x) adds the squares; len(x) counts the entries.",
        ],
    ),
    Exercise(
        name="ten_times",
        chapter=2,
        title="Ten times as large",
        difficulty=1,
        minutes=3,
        reference=[10 * sqrt(12.5), 3 / sqrt(12.5), 4 / sqrt(12.5)],
        atol=6e-4,  # three decimals are asked for
        wrong={
            "The RMS is right. But the factor 10 is divided out again: a common factor leaves the "
            "direction alone.": [10 * sqrt(12.5), 30 / sqrt(12.5), 40 / sqrt(12.5)],
            "The two entries are right: they are those of [3, 4]. The RMS grows with the input.": [
                sqrt(12.5),
                3 / sqrt(12.5),
                4 / sqrt(12.5),
            ],
            "That is the mean. The RMS is a little larger.": [35.0, 30 / 35, 40 / 35],
            "That is the length: the root of the sum of the squares, not of their mean.": [
                50.0,
                0.6,
                0.8,
            ],
        },
        hints=["The squares of 30 and 40 are 900 and 1,600. Their mean, its root; then divide."],
    ),
    Exercise(
        name="misprint",
        chapter=2,
        title="Repair a report",
        difficulty=2,
        minutes=4,
        reference=_report,
        cases=[
            ([2.5, -1.8, 4.2, 0.5], 1e-6),
            ([3.0, 4.0], 1e-5),
            ([1e-3, 2e-3], 1e-6),
        ],
        wrong={
            "This is still the first entry of the output, not the output's RMS.": (
                lambda values, eps: plain.rms_norm(values, eps=eps)[0]
            ),
            "This is the RMS of the input.": lambda values, eps: plain.rms(values),
            "This is the sum of the output.": lambda values, eps: sum(
                plain.rms_norm(values, eps=eps)
            ),
            "This is the mean of the output.": lambda values, eps: (
                sum(plain.rms_norm(values, eps=eps)) / len(values)
            ),
        },
        hints=["The name of a thing and the thing itself: which function measures an RMS?"],
        rtol=1e-9,
    ),
    Exercise(
        name="rms_norm",
        chapter=2,
        title="Write RMSNorm",
        difficulty=2,
        minutes=8,
        reference=norms.rms_norm,
        cases=norms.CASES,
        wrong=norms.MISTAKES,
        hints=[
            "Every row needs a denominator of its own: over which axis does the mean run, and what "
            "does keepdim do? And in which type of number is the square taken?",
            "The order: widen, square, mean, add eps, root, divide, times the gain, back to the "
            "type of x. x.to(torch.promote_types(x.dtype, torch.float32)) is float32 or better.",
        ],
        rtol=None,
    ),
    Exercise(
        name="shift",
        chapter=2,
        title="Add 10 to both entries",
        difficulty=2,
        minutes=4,
        reference=[13 / sqrt(182.5), 14 / sqrt(182.5)],
        atol=6e-4,  # three decimals are asked for
        wrong={
            "That is divided by the mean, 13.5. The RMS is a little larger.": [
                13 / 13.5,
                14 / 13.5,
            ],
            "That is the answer for [3, 4]. Adding is not scaling: the ratio 3 : 4 is gone.": [
                3 / sqrt(12.5),
                4 / sqrt(12.5),
            ],
            "That is LayerNorm's answer: RMSNorm does not subtract the mean.": [-1.0, 1.0],
            "Divide by the root of the mean of the squares, not of their sum.": [
                13 / sqrt(365),
                14 / sqrt(365),
            ],
            "That is the input after adding. Now divide both by its RMS.": [13.0, 14.0],
        },
        hints=["The squares of 13 and 14 are 169 and 196. What is the root of their mean?"],
    ),
    Exercise(
        name="norm_parameters",
        chapter=2,
        title="Count the gains",
        difficulty=1,
        minutes=2,
        reference=9 * 128,
        wrong={
            "That is the eight norms of the blocks: the final norm is missing.": 8 * 128,
            "A block has two norms, one before each branch.": 5 * 128,
            "RMSNorm has no shift: 128 parameters each, not 256.": 9 * 256,
            "That is the number of norms. Each has a gain for every coordinate.": 9,
        },
        hints=["Two norms in each of four blocks, and one before the logits."],
    ),
    Exercise(
        name="rms_jacobian",
        chapter=2,
        title="Turn the formula into code",
        difficulty=2,
        minutes=8,
        reference=_jacobian,
        cases=[
            (torch.tensor([3.0, 4.0], dtype=torch.float64), 0.0),
            (torch.tensor([3.0, 4.0], dtype=torch.float64), 1e-5),
            (torch.tensor([0.1, -0.2, 0.4, 0.8], dtype=torch.float64), 1e-2),
            (torch.zeros(3, dtype=torch.float64), 1e-5),
        ],
        wrong={
            "The denominator depends on x too: the outer product of x with itself is missing.": (
                _jacobian_diagonal_only
            ),
            "The factor 1 / D of the mean is missing before the outer product.": (
                _jacobian_without_d
            ),
            "eps is missing.": lambda x, eps: _jacobian(x, 0.0),
            "δ is 1 on the diagonal and 0 beside it, torch.eye(D). This has 1 everywhere.": (
                _jacobian_of_ones
            ),
            "x * x has one number for each coordinate; the table of all products is "
            "torch.outer(x, x).": _jacobian_entrywise,
            "The sign: growing x_j makes the denominator larger, and every y smaller.": (
                lambda x, eps: 2 * _jacobian_diagonal_only(x, eps) - _jacobian(x, eps)
            ),
            "The root is missing in front: 1 / sqrt(s), not 1 / s.": (
                lambda x, eps: _jacobian(x, eps) / (x.square().mean() + eps).sqrt()
            ),
        },
        hints=[
            "Write s = mean(x²) + eps. Then y_i = x_i · s^(−1/2), and ds/dx_j = 2 x_j / D.",
            "The product rule gives two terms: δ_ij s^(−1/2) and −x_i x_j s^(−3/2) / D.",
        ],
        rtol=1e-9,
        atol=1e-12,
    ),
)
