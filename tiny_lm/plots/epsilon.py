"""Chapter 03: pictures of epsilon's law, its gradients, and its places."""

from __future__ import annotations

from math import cos, isfinite, isnan, radians, sin
from typing import Any

from matplotlib.axes import Axes

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, Picture


def number(value: float) -> str:
    """Four digits that count."""
    return "NaN" if isnan(value) else f"{value:.4g}" if isfinite(value) else "Inf"


def size_axis(axes: Axes, low: int, high: int, step: int, zero: float | None = None) -> None:
    """A log axis for the RMS of x, with room for the zero vector at its left end."""
    powers = [power for power in range(low, high + 1) if power % step == 0]
    ticks = [10.0**power for power in powers]
    labels = [f"$10^{{{power}}}$" if power else "1" for power in powers]
    left = 10.0**low
    if zero:
        left = zero / 10**0.7
        ticks, labels = [zero, *ticks], ["0", *labels]
        axes.axvline(zero * 10**0.7, color=GREY, lw=1, ls=":")
    axes.set_xscale("log")
    axes.set(xlim=(left, 10.0**high), xlabel="RMS of x")
    axes.set_xticks(ticks, labels)
    axes.minorticks_off()


class LawPicture(Picture):
    """Output size by input size, with three landmarks that move with epsilon."""

    width, height = 600, 320

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        size_axis(axes, -8, 4, 2)
        axes.set(ylim=(0, 1.12), ylabel="RMS of the output")
        (self.curve,) = axes.plot(numbers.sizes, numbers.outputs, color=BLUE)
        self.marks, self.labels = [], []
        for name, height in (("half", 0.5), ("1/√2", 0.5**0.5), ("1 % short", 0.99)):
            (mark,) = axes.plot([1.0], [height], "D", color=ORANGE, ms=7)
            self.marks.append(mark)
            # Left of its mark and above it: nothing is drawn over the curve.
            self.labels.append(axes.text(1.0, height + 0.06, name, ha="right", va="center"))
        (self.stem,) = axes.plot([], [], ":", color=BLACK, lw=1)
        (self.point,) = axes.plot([], [], "o", color=BLACK, ms=9, clip_on=False)
        return [self.curve, self.stem, *self.marks, *self.labels, self.point]

    def update(self, numbers: Any) -> str:
        self.curve.set_ydata(numbers.outputs)
        places = (numbers.half, numbers.root, numbers.nearly)
        for mark, label, place in zip(self.marks, self.labels, places, strict=True):
            mark.set_xdata([place])
            label.set_x(place / 1.3)
        self.point.set_data([numbers.size], [numbers.output])
        self.stem.set_data([numbers.size] * 2, [0, numbers.output])
        return (
            f"eps = {numbers.eps:.3g}: an input of RMS {number(numbers.size)} comes out at RMS "
            f"{number(numbers.output)}. Half comes out at RMS {number(numbers.half)}, 1/√2 at "
            f"{number(numbers.root)}, all but 1 % at {number(numbers.nearly)}."
        )


class PartsPicture(Picture):
    """A gradient on its way back through RMSNorm: its direction, and the factors on its parts."""

    width, height = 680, 320

    def build(self, numbers: Any) -> list:
        plane, axes = self.figure.subplots(1, 2, width_ratios=(2, 3))
        plane.set(xlim=(-1.3, 1.3), ylim=(-1.1, 1.3), aspect="equal", title="directions only")
        plane.set_axis_off()
        plane.plot([-0.9, 1.1], [-0.9, 1.1], ":", color=BLACK, lw=1)
        plane.text(1.0, 0.82, "x", ha="left")
        plane.plot([0, 0], [0, 1], "--o", color=GREY, markevery=[1])
        plane.text(0.08, 0.85, "arrives", color=GREY)
        (self.returned,) = plane.plot([], [], "-o", color=BLUE, markevery=[1])
        self.name = plane.text(0, 0, "goes back", color=BLUE, ha="right", va="bottom")
        size_axis(axes, -8, 4, 2)
        axes.set_yscale("log")
        axes.set(ylim=(1e-25, 1e9), title="factor on each part of the gradient")
        (self.across,) = axes.plot(numbers.sizes, numbers.acrosses, color=BLUE, label="across x")
        (self.along,) = axes.plot(
            numbers.sizes, numbers.alongs, "--", color=ORANGE, label="along x"
        )
        (self.points,) = axes.plot([], [], "o", color=BLACK, ms=7, clip_on=False)
        axes.legend(loc="lower left")
        return [self.returned, self.name, self.across, self.along, self.points]

    def update(self, numbers: Any) -> str:
        turn = radians(45 + numbers.angle)
        self.returned.set_data([0, cos(turn)], [0, sin(turn)])
        self.name.set_position((cos(turn) + 0.25, sin(turn) + 0.07))
        self.across.set_ydata(numbers.acrosses)
        self.along.set_ydata(numbers.alongs)
        self.points.set_data([numbers.size] * 2, [numbers.across, numbers.along])
        return (
            f"eps = {numbers.eps:.3g}, RMS of x {number(numbers.size)}: the part across x is "
            f"multiplied by {number(numbers.across)}, the part along x by "
            f"{number(numbers.along)} ({number(numbers.share)} of that). What arrived at 45° to x "
            f"goes back at {numbers.angle:.0f}°. At x = 0 both factors are "
            f"{number(numbers.at_zero)}."
        )


class PlacesPicture(Picture):
    """One eps in three places: what comes out, and what a gradient is multiplied by."""

    width, height = 720, 330
    STYLES = (("inside", BLUE, "-"), ("outside", ORANGE, "--"), ("floor", GREEN, "-."))

    def build(self, numbers: Any) -> list:
        output, slope = self.figure.subplots(1, 2)
        zero = 10**-9.1
        size_axis(output, -8, 4, 3, zero)
        output.set(ylim=(-0.06, 1.2), title="RMS of the output")
        size_axis(slope, -8, 4, 3, zero)
        slope.set_yscale("log")
        slope.set(ylim=(1e-5, 1e14), title="factor on a gradient across x")
        self.lines, self.points, self.zeros, self.nans = [], [], [], []
        for row, (name, color, style) in enumerate(self.STYLES):
            for axes in (output, slope):
                look = {"color": color, "clip_on": False}
                self.lines += axes.plot(
                    numbers.sizes, numbers.sizes, style, color=color, label=name
                )
                self.points += axes.plot([], [], "o", ms=9 - 2 * row, **look)
                self.zeros += axes.plot([zero], [zero], "D", ms=9 - 2 * row, **look)
                label = axes.text(zero, 1 - 0.07 * row, "NaN", color=color, weight="bold")
                label.set(transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=8)
                self.nans.append(label)
        slope.legend(loc="upper right")
        return [*self.lines, *self.points, *self.zeros, *self.nans]

    def update(self, numbers: Any) -> str:
        found = [numbers.inside, numbers.outside, numbers.floor]
        shown = []
        for place in found:
            shown.append((place.outputs, place.output, place.zero_output))
            shown.append((place.slopes, place.slope, place.zero_slope))
        for k, (values, here, at_zero) in enumerate(shown):
            self.lines[k].set_ydata(values)
            self.points[k].set_data([numbers.size], [here])
            self.zeros[k].set_ydata([at_zero])
            self.nans[k].set_visible(isnan(at_zero))
        names = [name for name, _, _ in self.STYLES]
        words = [
            f"{name} {number(place.output)} (gradient × {number(place.slope)})"
            for name, place in zip(names, found, strict=True)
        ]
        zeros = [
            f"{name} {number(place.zero_slope)}" for name, place in zip(names, found, strict=True)
        ]
        return (
            f"eps = {numbers.eps:.3g}, RMS of x {number(numbers.size)}, RMS of the output: "
            f"{', '.join(words)}. The zero vector's gradient is multiplied by: {', '.join(zeros)}."
        )
