"""Chapter 06: pictures of a training run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, Picture

# One look for an order in every picture: colour, marker and dashes.
LOOKS = {
    "pre": (BLUE, "o", "-"),
    "post": (ORANGE, "s", "--"),
    "bare": (GREEN, "^", "-."),
    "plain": (PINK, "D", ":"),
}


class SchedulePicture(Picture):
    """The learning rate of every step, as a part of its peak."""

    width, height = 620, 280

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, 3000), ylim=(0, 1.08), xlabel="step", ylabel="learning rate / peak")
        (self.mean,) = axes.plot([], [], ":", color=GREY, lw=1.5, label="mean")
        (self.curve,) = axes.plot([], [], color=BLUE, label="learning rate")
        axes.legend(loc="upper right")
        return [self.mean, self.curve]

    def update(self, numbers: Any) -> str:
        self.curve.set_data(range(numbers.steps), numbers.rates)
        self.mean.set_data([0, numbers.steps], [numbers.mean, numbers.mean])
        top, rising = max(numbers.rates), min(numbers.warmup, numbers.steps)
        return (
            f"{numbers.steps} steps, the first {rising} of them upwards. The highest rate "
            f"is {top:.2f} of the peak, the last {numbers.rates[-1]:.3f}, the mean "
            f"{numbers.mean:.3f}."
        )


class CurvePicture(Picture):
    """The loss of every step so far, between knowing nothing and knowing everything."""

    width, height = 680, 320
    SENTENCE = (
        "The loss of each step of training as it is made, in nats a word, and the validation loss "
        "now and then. Dashed above: ln V, knowing nothing. Dashed below: the floor."
    )

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, numbers.steps), ylim=(0, numbers.start * 1.25))
        axes.set(xlabel="step", ylabel="loss, nats a word")
        bound(axes, numbers.start, numbers.floor)
        (self.loss,) = axes.plot([], [], color=BLUE, lw=1.2, label="rows of this step")
        (self.checked,) = axes.plot([], [], "o", color=ORANGE, ms=6, label="validation rows")
        axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))
        return [self.loss, self.checked]

    def update(self, numbers: Any) -> str:
        self.loss.set_data(range(1, len(numbers.losses) + 1), numbers.losses)
        self.checked.set_data(*np.reshape(numbers.checked, (-1, 2)).T)
        return self.SENTENCE


class HistoryPicture(Picture):
    """What a History holds besides the loss."""

    width, height = 780, 300

    def build(self, numbers: Any) -> list:
        gradient, ratio, stream = self.figure.subplots(1, 3)
        gradient.plot(numbers.grad_norm, color=BLUE, lw=1)
        gradient.axhline(1.0, color=BLACK, ls="--", lw=1)
        gradient.set(title="gradient's length, clipped at 1", xlabel="step", yscale="log")
        steps = [e.step for e in numbers.evaluations]
        ratio.plot(steps, [e.update_ratio for e in numbers.evaluations], "-o", color=BLUE, ms=4)
        ratio.set(title="update / weights", xlabel="step", yscale="log")
        for axes in (gradient, ratio):
            axes.yaxis.set_minor_formatter(NullFormatter())
        for e, look in ((numbers.evaluations[0], "--s"), (numbers.evaluations[-1], "-o")):
            colour = ORANGE if look == "--s" else BLUE
            stream.plot(e.stream_rms, look, color=colour, ms=4, label=f"after step {e.step}")
        stream.set(title="RMS of the stream", xlabel="blocks passed", ylim=(0, None))
        stream.legend(loc="upper left")
        return []

    def update(self, numbers: Any) -> str:
        largest = max(e.update_ratio for e in numbers.evaluations)
        clipped = sum(length > 1.0 for length in numbers.grad_norm) > len(numbers.grad_norm) / 2
        first, *_, last = numbers.evaluations[-1].stream_rms
        return (
            f"Gradient's length, update-to-weight ratio and stream during {len(numbers.loss)} "
            f"steps. Most gradients were longer than 1: {_yes(clipped)}. Every update that was "
            f"looked at moved the weights by less than 5 %: {_yes(largest < 0.05)}. The stream "
            f"grows with depth: {_yes(last > first)}."
        )


class OrdersPicture(Picture):
    """Loss curves of several orders, and which of them ended below halfway."""

    width, height = 680, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        for order, losses in numbers.losses.items():
            colour, _, dashes = LOOKS[order]
            axes.plot(losses, dashes, color=colour, lw=1.8, label=order)
        steps = max(map(len, numbers.losses.values()))
        axes.set(xlim=(0, steps), ylim=(0.8, numbers.start * 1.3), xlabel="step")
        axes.set_ylabel("loss, nats a letter")
        bound(axes, numbers.start, numbers.floor)
        axes.legend(loc="upper right", ncols=2, title=f"{numbers.blocks} blocks")
        return []

    def update(self, numbers: Any) -> str:
        alive = [order for order in numbers.losses if numbers.survives(order)]
        dead = [order for order in numbers.losses if order not in alive]
        return (
            f"Loss of {', '.join(numbers.losses)} at {numbers.blocks} blocks. At the end below "
            f"halfway between ln V and the floor: {', '.join(alive) or 'none'}. Not: "
            f"{', '.join(dead) or 'none'}."
        )


class StoriesOrdersPicture(Picture):
    """Validation losses on the stories, a curve a seed, a panel an order."""

    width, height = 780, 290

    def build(self, numbers: Any) -> list:
        panels = self.figure.subplots(1, len(numbers.runs), sharey=True)
        for axes, (order, runs) in zip(panels, numbers.runs.items(), strict=True):
            for run in runs:
                axes.plot(run.steps, run.losses, color=LOOKS[order][0], lw=1.2)
            axes.set(title=order, xlabel="step", ylim=(0, 4.2))
            bound(axes, numbers.start, numbers.floor, words=axes is panels[0])
        panels[0].set_ylabel("validation loss, nats")
        return []

    def update(self, numbers: Any) -> str:
        ends = {order: [run.losses[-1] for run in runs] for order, runs in numbers.runs.items()}
        spans = [f"{order} {min(end):.2f} to {max(end):.2f}" for order, end in ends.items()]
        return (
            f"Validation loss at the end, lowest to highest seed: {', '.join(spans)}. "
            f"The floor is {numbers.floor:.2f}."
        )


def bound(axes: Axes, start: float, floor: float, words: bool = True) -> None:
    """Dashed lines at the loss of knowing nothing and of knowing everything."""
    for level, name in ((start, "ln V"), (floor, "floor")):
        axes.axhline(level, color=BLACK, ls="--", lw=1)
        if words:
            axes.annotate(
                name, (0.01, level), xycoords=("axes fraction", "data"), va="bottom", fontsize=9
            )


def _yes(what: bool) -> str:
    return "yes" if what else "no"
