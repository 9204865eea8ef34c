"""Chapter 02: pictures of RMS and RMSNorm."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from tiny_lm.plots.picture import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    RED,
    Picture,
    number,
    vector,
)


class PairPicture(Picture):
    """A pair in the plane, the circle that RMSNorm sends it to, and LayerNorm's answer."""

    height = 380

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-6.5, 6.5), ylim=(-6.5, 6.5), aspect="equal", xlabel="x₁", ylabel="x₂")
        around = np.linspace(0, 2 * pi, 200)
        axes.plot(sqrt(2) * np.cos(around), sqrt(2) * np.sin(around), "--", color=GREY, lw=1)
        axes.text(1.2, -1.7, "radius √2", color=GREY)
        (self.input,) = axes.plot([], [], "-o", color=BLACK, label="x")
        (self.rms,) = axes.plot([], [], "o", color=BLUE, ms=9, label="RMSNorm(x)")
        (self.layer,) = axes.plot([], [], "s", color=ORANGE, ms=9, label="LayerNorm(x)")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [self.input, self.layer, self.rms]

    def update(self, numbers: Any) -> str:
        x1, x2 = numbers.x
        self.input.set_data([0, x1], [0, x2])
        self.rms.set_data(*[[value] for value in numbers.rms_normed])
        self.layer.set_data(*[[value] for value in numbers.layer_normed])
        return (
            f"x = {vector(numbers.x, 1)}: mean {number(numbers.mean)}, "
            f"RMS {numbers.rms:.4f}. "
            f"RMSNorm gives {vector(numbers.rms_normed, 4)}, "
            f"LayerNorm {vector(numbers.layer_normed, 4)}."
        )


class GainPicture(Picture):
    """The circle that the division leads to, and the ellipse that the gain makes of it."""

    width, height = 620, 380

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-4.6, 4.6), ylim=(-4.6, 4.6), aspect="equal")
        axes.set(xlabel="first coordinate", ylabel="second coordinate")
        around = np.linspace(0, 2 * pi, 200)
        self.circle = sqrt(2) * np.cos(around), sqrt(2) * np.sin(around)
        axes.plot(*self.circle, "--", color=GREY, lw=1, label="RMS 1: the circle")
        (self.ellipse,) = axes.plot([], [], color=BLUE, lw=1, label="times the gain")
        (self.x,) = axes.plot([], [], "-o", color=BLACK, label="x, RMS 1")
        (self.rms,) = axes.plot([], [], "o", color=BLUE, ms=9, label="gain · RMSNorm(x)")
        (self.layer,) = axes.plot([], [], "s", color=ORANGE, ms=9, label="gain · LayerNorm(x)")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [self.ellipse, self.x, self.layer, self.rms]

    def update(self, numbers: Any) -> str:
        g1, g2 = numbers.gain
        self.ellipse.set_data(g1 * self.circle[0], g2 * self.circle[1])
        self.x.set_data([0, numbers.x[0]], [0, numbers.x[1]])
        self.rms.set_data(*[[value] for value in numbers.rms_normed])
        self.layer.set_data(*[[value] for value in numbers.layer_normed])
        low, high = sorted((abs(g1), abs(g2)))
        return (
            f"x = {vector(numbers.x)} has RMS 1. Times the gain {vector(numbers.gain, 1)} it is "
            f"{vector(numbers.rms_normed)}, RMS {numbers.rms:.2f} (between {low:.2f} and "
            f"{high:.2f} over all directions). LayerNorm gives {vector(numbers.layer_normed)}."
        )


SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of the height of the first axes


class ScaleShiftPicture(Picture):
    """Four entries before and after each norm, next to where the norm put them at the start."""

    width, height = 680, 300

    def build(self, numbers: Any) -> list:
        inputs, rms, layer = self.figure.subplots(1, 3)
        self.figure.get_layout_engine().set(rect=(0.03, 0, 0.97, 1))  # room for ticks like −600
        entries = np.arange(len(numbers.x))
        self.bars = [
            inputs.bar(entries, numbers.x, color=GREY),
            rms.bar(entries, numbers.rms_normed, color=BLUE),
            layer.bar(entries, numbers.layer_normed, color=ORANGE),
        ]
        for axes, normed in ((rms, numbers.rms_normed), (layer, numbers.layer_normed)):
            axes.set_ylim(-2.1, 2.1)
            for entry, value in zip(entries, normed, strict=True):
                axes.plot([entry - 0.45, entry + 0.45], [value, value], ":", color=BLACK, lw=1.5)
        for axes, title in (
            (inputs, "c · x + b"),
            (rms, "after RMSNorm"),
            (layer, "after LayerNorm"),
        ):
            axes.set_title(title)
            axes.set_xticks(entries, ["x₁", "x₂", "x₃", "x₄"])
            axes.axhline(0, color=BLACK, lw=0.8)
        # Words that move, as ticks: other limits would have the whole picture drawn again.
        inputs.set(ylim=(-1, 1), yticks=SHARES, yticklabels=[])
        beside = {"transform": inputs.get_yaxis_transform(), "ha": "right", "va": "center"}
        self.ticks = [inputs.text(-0.06, share, "", **beside) for share in SHARES]
        return [*(bar for bars in self.bars for bar in bars), *self.ticks]

    def update(self, numbers: Any) -> str:
        largest = max(abs(value) for value in numbers.x)
        reach = next(r for r in (6, 12, 20, 60, 120, 200, 600) if r > largest)
        for text, share in zip(self.ticks, SHARES, strict=True):
            text.set_text(number(share * reach, 0))
        of_reach = [value / reach for value in numbers.x]
        heights = (of_reach, numbers.rms_normed, numbers.layer_normed)
        for bars, values in zip(self.bars, heights, strict=True):
            for bar, value in zip(bars, values, strict=True):
                bar.set_height(value)
        return (
            f"Times {numbers.factor:.3g}, plus {numbers.offset:.1f}. Largest move of an entry: "
            f"{numbers.rms_change:.4f} after RMSNorm, {numbers.layer_change:.4f} after LayerNorm "
            "(dotted: where they stood)."
        )


class NudgePicture(Picture):
    """A nudge of the input and what RMSNorm lets through, with every possible answer behind it."""

    width, height = 620, 340

    def build(self, numbers: Any) -> list:
        before, after = self.figure.subplots(1, 2)
        x1, x2 = numbers.x
        length = sqrt(x1 * x1 + x2 * x2)
        for axes, reach, title in (
            (before, 1.3, "nudge dx, length 1"),
            (after, 0.39, "answer dy (enlarged)"),
        ):
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title=title)
            axes.set(xlabel="first coordinate", ylabel="second coordinate")
            along = (2 * x1 / length, 2 * x2 / length)
            axes.plot([-along[0], along[0]], [-along[1], along[1]], ":", color=BLACK, lw=1)
            axes.text(0.58 * reach, 0.9 * reach, "along x", ha="right")
        around = np.linspace(0, 2 * pi, 200)
        before.plot(np.cos(around), np.sin(around), "--", color=GREY, lw=1)
        across = (-x2 / length * numbers.largest_gain, x1 / length * numbers.largest_gain)
        after.plot([-across[0], across[0]], [-across[1], across[1]], "--", color=GREY, lw=1)
        after.text(-0.36, -0.3, "dashed: all\npossible answers", color=GREY, fontsize=9)
        (self.dx,) = before.plot([], [], "-o", color=RED, markevery=[1], ms=8)
        (self.dy,) = after.plot([], [], "-o", color=BLUE, markevery=[1], ms=8)
        return [self.dx, self.dy]

    def update(self, numbers: Any) -> str:
        self.dx.set_data([0, numbers.dx[0]], [0, numbers.dx[1]])
        self.dy.set_data([0, numbers.dy[0]], [0, numbers.dy[1]])
        return (
            f"The nudge is turned {numbers.degrees:.0f}° away from x: RMSNorm's output moves "
            f"{numbers.gain:.4f} times as far (most possible: {numbers.largest_gain:.4f})."
        )
