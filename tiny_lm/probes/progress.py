"""Chapter 06: the plan of a training run, and how far a run has come."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from tiny_lm.config import TrainConfig
from tiny_lm.history import History


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step, as a part of its peak."""

    steps: int
    warmup: int
    lr_end: float
    rates: list[float]
    mean: float


def schedule(steps: int, warmup: int, lr_end: float) -> Schedule:
    """Warm-up, then a cosine, as `TrainConfig.lr_at` has it."""
    plan = TrainConfig(steps=steps, warmup=warmup, lr_end=lr_end, lr=1.0)
    rates = [plan.lr_at(step) for step in range(steps)]
    return Schedule(steps, warmup, lr_end, rates, fmean(rates))


@dataclass(frozen=True)
class Progress:
    """The losses so far of a run of `steps` steps, in nats, between `start` and `floor`."""

    steps: int
    start: float
    floor: float
    losses: list[float]
    checked: list[tuple[int, float]]  # step, validation loss


def progress(history: History, steps: int, start: float, floor: float) -> Progress:
    """How far a run has come."""
    checked = [(e.step, e.loss) for e in history.evaluations]
    return Progress(steps, start, floor, list(history.loss), checked)
