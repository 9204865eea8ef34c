"""Chapter 06: exercises on one step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

from tiny_lm.exercises.core import Exercise


def _rate(step: int, steps: int, warmup: int, lr: float, lr_end: float) -> float:
    if step < warmup:
        return lr * (step + 1) / warmup
    done = (step - warmup) / (steps - warmup)
    return lr * (lr_end + (1 - lr_end) * (1 + cos(pi * done)) / 2)


def _rate_by(shape: Callable[[float], float]) -> Callable[..., float]:
    """A schedule whose second part follows another shape, from 1 at 0 to 0 at 1."""

    def rate(step: int, steps: int, warmup: int, lr: float, lr_end: float) -> float:
        if step < warmup:
            return lr * (step + 1) / warmup
        return lr * (lr_end + (1 - lr_end) * shape((step - warmup) / (steps - warmup)))

    return rate


def _rate_from_zero(step: int, steps: int, warmup: int, lr: float, lr_end: float) -> float:
    return lr * step / warmup if step < warmup else _rate(step, steps, warmup, lr, lr_end)


def _rate_of_all_steps(step: int, steps: int, warmup: int, lr: float, lr_end: float) -> float:
    return _rate(step, steps, warmup if step < warmup else 0, lr, lr_end)


def _rate_to_number(step: int, steps: int, warmup: int, lr: float, lr_end: float) -> float:
    return _rate(step, steps, warmup, lr, lr_end if step < warmup else lr_end / lr)


EXERCISES = (
    Exercise(
        name="decays",
        chapter=6,
        title="What decays?",
        difficulty=2,
        minutes=4,
        reference=lambda name, shape: len(shape) >= 2,
        cases=[
            ("embedding.weight", (45, 48)),
            ("blocks.0.ffn.up_proj.weight", (128, 48)),
            ("blocks.0.norm1.scale", (48,)),
            ("norm.weight", (48,)),
            ("blocks.3.fade1", (1,)),
            ("convolution.weight", (8, 3, 5, 5)),
        ],
        wrong={
            "That lets the gains decay too, towards 0: a norm that starts at 1 is pulled away "
            "from it.": lambda name, shape: True,
            "A gain need not have `norm` in its name, nor need it be called `scale`.": (
                lambda name, shape: "norm" not in name
            ),
            "PyTorch's own norms call their gain `weight` too. Look at the shape.": (
                lambda name, shape: name.endswith("weight")
            ),
            "The embedding is a matrix, and tied it is the output matrix too.": (
                lambda name, shape: len(shape) >= 2 and "embedding" not in name
            ),
            "The wrong way round: this lets the gains decay.": lambda name, shape: len(shape) < 2,
        },
        hints=["How many axes has a gain? How many has anything that multiplies a vector?"],
    ),
    Exercise(
        name="learning_rate",
        chapter=6,
        title="Up, then down a cosine",
        difficulty=3,
        minutes=8,
        reference=_rate,
        cases=[
            (step, 100, 10, lr, end)
            for lr, end in ((3e-3, 0.1), (0.5, 0.0))
            for step in (0, 4, 9, 10, 40, 99)
        ],
        wrong={
            "The first step would have a rate of 0 and do nothing: count from step + 1.": (
                _rate_from_zero
            ),
            "The cosine begins when the warm-up ends: its part done is (step − warmup) / (steps − "
            "warmup).": _rate_of_all_steps,
            "lr_end is a part of lr, not a rate of its own.": _rate_to_number,
            "That falls in a straight line.": _rate_by(lambda done: 1 - done),
            "A quarter of a wave: cos(π/2 · done) falls fastest at the end. (1 + cos(π · done)) / "
            "2 is flat at both ends.": _rate_by(lambda done: cos(pi / 2 * done)),
        },
        hints=[
            "Two cases: while step < warmup, lr · (step + 1) / warmup.",
            "Later done = (step − warmup) / (steps − warmup) runs from 0 to 1, and (1 + cos(π · "
            "done)) / 2 from 1 to 0. Stretch that to run from lr to lr_end · lr.",
        ],
    ),
)
