"""Chapters 00 and 01: pictures of the residual addition."""

from __future__ import annotations

from math import isinf, pi
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, Picture, number, vector


class _Arrow:
    """An arrow that can be moved; a dot where it has no length."""

    def __init__(self, axes: Axes, colour: str, label: str, width: float = 2.5):
        look = {"arrowstyle": "-|>", "mutation_scale": 16, "shrinkA": 0, "shrinkB": 0, "lw": width}
        self.patch = FancyArrowPatch((0, 0), (1, 1), color=colour, **look)
        axes.add_patch(self.patch)
        (self.dot,) = axes.plot([], [], "o", color=colour, ms=6)
        axes.plot([], [], color=colour, lw=2.5, label=label)  # for the legend
        self.artists = [self.dot, self.patch]

    def move(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        long = (end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2 > 1e-6
        self.patch.set_visible(long)
        self.patch.set_positions(start, end)
        self.dot.set_data([end[0]], [end[1]])
        self.dot.set_visible(not long)


class AddPicture(Picture):
    """Two arrows, one put at the tip of the other, and the arrow to where they lead."""

    width, height = 560, 400

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-4, 10.5), ylim=(-3, 11), aspect="equal")
        axes.set(xlabel="first coordinate", ylabel="second coordinate")
        axes.plot(0, 0, "+", color=BLACK, ms=12)
        self.x = _Arrow(axes, BLACK, "x")
        self.total = _Arrow(axes, BLUE, "x + change")
        self.change = _Arrow(axes, ORANGE, "change")
        handles, _ = axes.get_legend_handles_labels()
        order = [handles[0], handles[2], handles[1]]  # the sum last, though drawn below the change
        axes.legend(handles=order, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [*self.x.artists, *self.total.artists, *self.change.artists]

    def update(self, numbers: Any) -> str:
        tip, end = tuple(numbers.x), tuple(numbers.total)
        self.x.move((0, 0), tip)
        self.change.move(tip, end)
        self.total.move((0, 0), end)
        x, change, total = (vector(v, 1) for v in (numbers.x, numbers.change, numbers.total))
        return f"The vector plus its change: {x} + {change} = {total}."


class StrengthPicture(Picture):
    """x, the branch and their sum as parallel arrows; beside them the slopes that add up."""

    width, height = 680, 360

    def build(self, numbers: Any) -> list:
        plane, slopes = self.figure.subplots(1, 2, width_ratios=(1.5, 1))
        plane.set(xlim=(-5, 11), ylim=(-5.5, 13.5), aspect="equal")
        plane.set(xlabel="side by side: only length and direction count", title="values")
        plane.tick_params(labelbottom=False, labelleft=False)
        self.x = _Arrow(plane, BLACK, "x")
        self.branch = _Arrow(plane, ORANGE, "F(x) = a · x")
        self.total = _Arrow(plane, BLUE, "x + F(x)")
        plane.legend(loc="lower right", fontsize=9)
        slopes.set(ylim=(-2.6, 3.5), title="slopes", axisbelow=True)
        slopes.grid(axis="x", visible=False)
        slopes.set_xticks([0, 1, 2], ["direct", "branch", "together"])
        slopes.axhline(0, color=BLACK, lw=0.8)
        self.bars = slopes.bar([0, 1, 2], [1, 0, 0], color=[BLACK, ORANGE, BLUE], width=0.6)
        self.labels = [slopes.text(at, 0, "", ha="center", color=BLACK) for at in (0, 1, 2)]
        arrows = self.x.artists + self.total.artists + self.branch.artists
        return [*arrows, *self.bars, *self.labels]

    def update(self, numbers: Any) -> str:
        x, total = np.array(numbers.x), np.array(numbers.total)
        aside = 0.7 * np.array([-x[1], x[0]]) / np.hypot(*x)  # three arrows, side by side
        self.x.move((0, 0), tuple(x))
        self.branch.move(tuple(x + aside), tuple(total + aside))
        self.total.move(tuple(-aside), tuple(total - aside))
        heights = (1.0, numbers.branch_slope, numbers.slope)
        for bar, label, height in zip(self.bars, self.labels, heights, strict=True):
            bar.set_height(height)
            label.set_text(number(height))
            label.set_y(height + (0.1 if height >= 0 else -0.35))
        return (
            f"F(x) = {number(numbers.a)} · x = {vector(numbers.branch, 1)}, and "
            f"x + F(x) = {vector(numbers.total, 1)}. "
            f"Slope: 1 {'+' if numbers.branch_slope >= 0 else '−'} "
            f"{abs(numbers.branch_slope):.2f} = {number(numbers.slope)}."
        )


class SlopePicture(Picture):
    """Direct path, branch and sum as curves, with the sum's tangent at one point."""

    width, height = 640, 360

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-2.1, 2.1), ylim=(-6.6, 6.6), xlabel="x", ylabel="value")
        axes.axhline(0, color=BLACK, lw=0.8)
        axes.plot([-2, 2], [-2, 2], "--", color=BLACK, lw=1.5, label="direct path: x")
        (self.branch,) = axes.plot([], [], "-.", color=ORANGE, label="branch: F(x)")
        (self.total,) = axes.plot([], [], color=BLUE, label="sum: x + F(x)")
        (self.tangent,) = axes.plot([], [], color=PINK, lw=3, label="slope of the sum")
        (self.point,) = axes.plot([], [], "o", color=BLACK, ms=7)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [self.branch, self.total, self.tangent, self.point]

    def update(self, numbers: Any) -> str:
        self.branch.set_data(numbers.grid, numbers.branch_values)
        self.total.set_data(numbers.grid, numbers.sums)
        run = 0.6 / (1 + (numbers.slope / 3) ** 2) ** 0.5  # about as long at any slope
        rise = run * numbers.slope
        ends = [numbers.x - run, numbers.x + run], [numbers.y - rise, numbers.y + rise]
        self.tangent.set_data(*ends)
        self.point.set_data([numbers.x], [numbers.y])
        return (
            f"F(x) = {numbers.branch} at x = {number(numbers.x)}: "
            f"slope {number(numbers.direct_slope)} through the direct path, "
            f"{number(numbers.branch_slope)} through the branch, "
            f"together {number(numbers.slope)}."
        )


class TwoPathsPicture(Picture):
    """The gradients of both paths as arrows, and every sum that the branch could make."""

    width, height = 640, 380

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-1.3, 3.3), ylim=(-2.2, 2.2), aspect="equal")
        axes.set(xlabel="first coordinate", ylabel="second coordinate")
        axes.plot(0, 0, "+", color=BLACK, ms=12)
        (self.circle,) = axes.plot([], [], ":", color=GREY, lw=1.5, label="all angles")
        self.direct = _Arrow(axes, BLACK, "direct path: g")
        self.total = _Arrow(axes, BLUE, "together: g + Jᵀg", width=7)  # seen behind the others
        self.branch = _Arrow(axes, ORANGE, "branch: Jᵀg")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [self.circle, *self.total.artists, *self.direct.artists, *self.branch.artists]

    def update(self, numbers: Any) -> str:
        tip, end = tuple(numbers.direct), tuple(numbers.total)
        self.direct.move((0, 0), tip)
        self.branch.move(tip, end)
        self.total.move((0, 0), end)
        around = np.linspace(0, 2 * pi, 181)
        circle = numbers.a * np.array([np.cos(around), np.sin(around)])
        self.circle.set_data(tip[0] + circle[0], tip[1] + circle[1])
        return (
            f"Through the branch, the gradient is {numbers.a:.2f} times as long as the direct one "
            f"and turned by {numbers.degrees:.0f}°. Together: length {numbers.length:.2f} "
            f"(between {numbers.least:.2f} and {numbers.most:.2f} over all angles)."
        )


class DepthPicture(Picture):
    """The size of a gradient layer by layer, on a log scale that ends where float32 ends."""

    width, height = 680, 380
    rail = 54.0  # where 0 and infinity are drawn, in powers of ten
    largest, smallest = 38.53, -44.85  # float32's, as powers of ten

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-2, 204), ylim=(-60, 60), xlabel="layers", ylabel="size of the gradient")
        powers = [-40, -20, 0, 20, 40]
        marks = ["0", *(f"$10^{{{power}}}$" for power in powers), "∞"]
        axes.set_yticks([-self.rail, *powers, self.rail], marks)
        axes.axhspan(self.largest, 60, color=GREY, alpha=0.15, lw=0)
        axes.axhspan(-60, self.smallest, color=GREY, alpha=0.15, lw=0)
        note = {"ha": "right", "color": BLACK, "fontsize": 9}
        axes.text(202, self.largest + 2, "too large for float32", va="bottom", **note)
        axes.text(202, self.smallest - 2, "too small for float32", va="top", **note)
        names = "$|a|^{\\,layers}$, no direct path", "$|1 + a|^{\\,layers}$, with direct path"
        (self.plain,) = axes.plot([], [], "-.", color=ORANGE, label=names[0])
        (self.residual,) = axes.plot([], [], color=BLUE, label=names[1])
        (self.ends,) = axes.plot([], [], "o", color=BLACK, ms=6)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2)
        return [self.plain, self.residual, self.ends]

    def _height(self, power: float) -> float:
        return (self.rail if power > 0 else -self.rail) if isinf(power) else power

    def update(self, numbers: Any) -> str:
        layers = list(range(numbers.layers + 1))
        curves = [list(map(self._height, logs)) for logs in (numbers.plain, numbers.residual)]
        self.plain.set_data(layers, curves[0])
        self.residual.set_data(layers, curves[1])
        self.ends.set_data([numbers.layers] * 2, [curve[-1] for curve in curves])
        return (
            f"After {numbers.layers} layers with a = {number(numbers.a)}: "
            f"{_size(numbers.residual_end, numbers.residual[-1])} with the direct path, "
            f"{_size(numbers.plain_end, numbers.plain[-1])} without it."
        )


def _size(exact: float, log_in_float32: float) -> str:
    """A size in words, and what float32 makes of it where that is not the same."""
    text = f"{exact:,.1f}" if 100 <= exact < 1e6 else f"{exact:.3g}".replace("-", "−")
    if exact and isinf(log_in_float32):
        text += f" ({'infinity' if log_in_float32 > 0 else '0'} in float32)"
    return text


class SwallowedPicture(Picture):
    """The share of many small updates that reaches the stream, in three dtypes."""

    width, height = 640, 360

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, numbers.steps), ylim=(-0.08, 2.12), xlabel="updates sent")
        axes.set_ylabel("arrived (1 = all of them)")
        styles = {"fp32": ("-", BLACK, 5), "fp16": ("--", GREEN, 2.5), "bf16": ("-.", ORANGE, 2.5)}
        self.lines = {
            name: axes.plot([], [], style, color=colour, lw=width, label=name)[0]
            for name, (style, colour, width) in styles.items()
        }
        self.lines["fp32"].set_alpha(0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return list(self.lines.values())

    def update(self, numbers: Any) -> str:
        for name, line in self.lines.items():
            line.set_data(range(numbers.steps + 1), numbers.received[name])
        ends = ", ".join(f"{name} {numbers.received[name][-1]:.0%}" for name in self.lines)
        return (
            f"{numbers.steps} updates of {numbers.update:.3g} to a stream of {numbers.start:.3g}. "
            f"Arrived: {ends}."
        )
