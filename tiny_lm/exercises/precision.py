"""Chapter 03: exercises on epsilon in 16 and 32 bits."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from tiny_lm.exercises.core import Exercise
from tiny_lm.probes.epsilon import inside


def _half(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float16)


def _mean_square(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True)


def _fp16_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return (gain.float() * inside(x.float(), eps)).to(x.dtype)


def _fp16_norm_late(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return (gain * x * torch.rsqrt(x.square().float().mean(-1, keepdim=True) + eps)).to(x.dtype)


def _fp16_norm_sum(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    mean_square = x.square().sum(-1, keepdim=True) / x.shape[-1]
    return gain * x * torch.rsqrt(mean_square + eps)


def _fp16_norm_rounded_eps(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return _fp16_norm(x, gain, float(torch.tensor(eps, dtype=x.dtype)))


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax(dim=-1, keepdim=True)


def _safe_norm(x: Tensor, eps: float) -> Tensor:
    c = _largest(x).clamp(min=1.0)
    return x / c * torch.rsqrt(_mean_square(x / c) + eps / c**2)


def _safe_norm_old_eps(x: Tensor, eps: float) -> Tensor:
    return inside(x / _largest(x).clamp(min=1e-30), eps)


def _safe_norm_eps(power: int):
    """eps divided by another power of c than the second."""

    def norm(x: Tensor, eps: float) -> Tensor:
        c = _largest(x).clamp(min=1.0)
        return x / c * torch.rsqrt(_mean_square(x / c) + eps / c**power)

    return norm


def _safe_norm_zero(x: Tensor, eps: float) -> Tensor:
    c = _largest(x)
    return x / c * torch.rsqrt(_mean_square(x / c) + eps / c**2)


def _safe_norm_shared(x: Tensor, eps: float) -> Tensor:
    c = x.abs().max().clamp(min=1.0)
    return x / c * torch.rsqrt(_mean_square(x / c) + eps / c**2)


_MIXED = torch.tensor([[3e19, -4e19], [3e-4, 4e-4], [3.0, 4.0]])

EXERCISES = (
    Exercise(
        name="fp16_largest",
        chapter=3,
        title="The largest entry float16 can square",
        difficulty=2,
        minutes=4,
        reference=255.875,
        rtol=1e-6,
        wrong={
            "256² is 65,536, just too large.": 256.0,
            "That number is no float16: between 128 and 256 they are 1/8 apart.": sqrt(65504),
            "That is the largest float16. Its square is far too large.": 65504.0,
            "A little larger still fits: these numbers are 1/8 apart here.": 255.0,
            "That is rounded: 255.9 is no float16.": 255.9,
        },
        hints=[
            "The largest float16 is 65,504. Its root is 255.937…; which float16 is just below?",
            "Between 128 and 256 neighbouring float16 numbers are 0.125 apart.",
        ],
    ),
    Exercise(
        name="fp16_eps",
        chapter=3,
        title="Which epsilon is zero?",
        difficulty=1,
        minutes=2,
        reference=1e-8,
        rtol=1e-6,
        atol=0.0,
        wrong={
            "1e-5 becomes 1.0014e-5: nearly itself.": 1e-5,
            "1e-6 becomes 1.0133e-6: one digit is lost, no more.": 1e-6,
            "1e-7 becomes 1.19e-7, twice the smallest step.": 1e-7,
            "5e-8 becomes 5.96e-8, the smallest positive float16.": 5e-8,
        },
        hints=["The smallest positive float16 is 5.96e-8. What is below half of it becomes 0."],
    ),
    Exercise(
        name="fp16_norm",
        chapter=3,
        title="Repair RMSNorm for 16 bits",
        difficulty=3,
        minutes=8,
        reference=_fp16_norm,
        cases=[
            (_half(300, 400), _half(1, 1), 1e-5),
            (torch.full((512,), 200.0, dtype=torch.float16), torch.ones(512).half(), 1e-5),
            (_half(0, 0), _half(1, 1), 1e-8),
            (_half(1e-3, -1e-3), _half(1, 2), 1e-6),
        ],
        wrong={
            "The squares still overflow: float32 must come before them.": (
                lambda x, gain, eps: gain * inside(x, eps)
            ),
            "Too late: square() ran in float16, and its Inf stays Inf in float32.": (
                _fp16_norm_late
            ),
            "The sum of the squares overflows, although their mean would not.": _fp16_norm_sum,
            "Return the type that came in: .to(x.dtype) at the end.": (
                lambda x, gain, eps: gain.float() * inside(x.float(), eps)
            ),
            "eps was rounded to float16 first: 1e-8 became 0.": _fp16_norm_rounded_eps,
            "bfloat16 has float32's range but only three digits.": lambda x, gain, eps: (
                gain * inside(x.bfloat16(), eps).to(x.dtype)
            ),
        },
        hints=[
            "Widen x before the first square, and let everything run in float32.",
            "At the end go back once: .to(x.dtype).",
        ],
        rtol=6e-4,
        atol=1e-7,
    ),
    Exercise(
        name="beyond_float32",
        chapter=3,
        title="Norm what cannot be squared",
        difficulty=4,
        minutes=12,
        reference=_safe_norm,
        cases=[
            (torch.tensor([3.0, 4.0]), 1e-5),
            (torch.tensor([3e-4, 4e-4]), 1e-5),
            (torch.tensor([3e19, 4e19]), 1e-5),
            (torch.tensor([-3e19, -4e19]), 1e-5),
            (torch.tensor([3.0, 4.0]), 1.0),
            (torch.zeros(2), 1e-5),
            (_MIXED, 1e-5),
        ],
        wrong={
            "The square still overflows: divide x before you square it.": inside,
            "x was divided by c, so eps must be divided by c²: small rows came out too large.": (
                _safe_norm_old_eps
            ),
            "x is divided by c, and eps is in units of x²: divide it by c², not by c.": (
                _safe_norm_eps(1)
            ),
            "x is divided by c, so eps must be divided too, by c².": _safe_norm_eps(0),
            "The zero row was divided by its largest entry, 0.": _safe_norm_zero,
            "One c for all rows: the small row drowned beside the large one.": _safe_norm_shared,
            "Cutting large entries off changes the direction of the row.": (
                lambda x, eps: inside(x.clamp(-1e19, 1e19), eps)
            ),
        },
        hints=[
            "Section 3: scaling x by 1/c and eps by 1/c² leaves the output as it is.",
            "Take c = x.abs().amax(dim=-1, keepdim=True), and never let it fall below 1.",
        ],
        rtol=1e-5,
    ),
)
