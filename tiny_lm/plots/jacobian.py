"""Chapters 01 and 02: a picture of a Jacobian, of I + J, and of the product over the depth."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, Picture, number


class _Table:
    """A 2 × 2 matrix as coloured cells with their numbers."""

    def __init__(self, axes: Axes, title: str):
        axes.set_title(title)
        axes.grid(False)
        axes.set_xticks([0, 1], ["x₁", "x₂"])
        axes.set_yticks([0, 1], ["y₁", "y₂"])
        axes.set(xlim=(-0.5, 1.5), ylim=(1.5, -0.5), aspect="equal")
        places = [(i, j) for i in (0, 1) for j in (0, 1)]
        # Four rectangles: drawn ten times faster than an image of four pixels.
        self.cells = [axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1)) for i, j in places]
        self.texts = [axes.text(j, i, "", ha="center", va="center", fontsize=12) for i, j in places]
        self.artists = [*self.cells, *self.texts]

    def show(self, rows: list[list[float]]) -> None:
        for cell, text, value in zip(self.cells, self.texts, np.ravel(rows), strict=True):
            cell.set_facecolor(colormaps["PuOr"](0.5 + value / 8))  # white at 0, strongest at ±4
            text.set_text(number(value, 3))


class MicroscopePicture(Picture):
    """J of a branch, I + J, the eigenvalues of both in the plane, and a stack's singular values."""

    width, height = 760, 440

    def build(self, numbers: Any) -> list:
        spots = self.figure.subplot_mosaic(
            [["J", "total", "plane"], ["depth"] * 3],
            width_ratios=(1, 1, 1.4),
            height_ratios=(1.1, 1),
        )
        self.figure.get_layout_engine().set(w_pad=0.08)
        self.jacobian = _Table(spots["J"], "J, the branch")
        self.total = _Table(spots["total"], "I + J, the sum")
        moving = self._plane(spots["plane"]) + self._depth(spots["depth"])
        self._reach(32)
        self.figure.draw_without_rendering()  # lays it out around the widest labels, for good:
        self.figure.set_layout_engine("none")  # else new limits would move all axes
        return [*self.jacobian.artists, *self.total.artists, *moving]

    def _plane(self, axes: Axes) -> list:
        axes.set(xlim=(-2.3, 3.4), ylim=(-2.4, 2.4), aspect="equal", title="eigenvalues")
        axes.set(xlabel="real part", ylabel="imaginary part")
        around = np.linspace(0, 2 * pi, 100)
        axes.plot(np.cos(around), np.sin(around), "--", color=GREY, lw=1)
        axes.plot(0, 0, "+", color=BLACK, ms=10)
        axes.text(0, -1.15, "size 1", ha="center", va="top", color=GREY, fontsize=9)
        (self.of_branch,) = axes.plot(
            [], [], "s", color=ORANGE, ms=11, mfc="none", mew=2, label="J"
        )
        (self.of_total,) = axes.plot([], [], "o", color=BLUE, ms=8, label="I + J")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        words = "singular values\nof I + J:\n1.000\n1.000"  # as wide as they will be
        self.singular = axes.text(1.06, 0.05, words, transform=axes.transAxes, fontsize=10)
        return [self.of_branch, self.of_total, self.singular]

    def _depth(self, axes: Axes) -> list:
        self.depth = axes
        axes.set(yscale="log", xlim=(-1, 65), xlabel="layers")
        axes.set_ylabel("a gradient becomes\n… times as long")
        axes.axhline(1, color=BLACK, lw=0.8)
        (self.most,) = axes.plot([], [], "-", color=BLUE, lw=4, alpha=0.5, label="at most")
        (self.least,) = axes.plot([], [], "-.", color=GREEN, label="at least")
        self.zeros = [axes.text(0, 1, " 0", color=c, va="bottom") for c in (BLUE, GREEN)]
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return [self.most, self.least, *self.zeros]

    def _reach(self, power: int) -> None:
        self.depth.set_ylim(10.0**-power, 10.0**power)
        self.depth.set_yticks([10.0**p for p in {-power, -power // 2, 0, power // 2, power}])
        self.depth.yaxis.set_minor_locator(NullLocator())

    def update(self, numbers: Any) -> str:
        self.jacobian.show(numbers.jacobian)
        self.total.show(numbers.total)
        for points, values in (
            (self.of_branch, numbers.eigenvalues),
            (self.of_total, numbers.total_eigenvalues),
        ):
            points.set_data([v.real for v in values], [v.imag for v in values])
        curves = np.array([numbers.largest, numbers.smallest])
        sizes = np.abs(np.log10(curves[curves > 0])).max()
        self._reach(next((p for p in (1, 2, 4, 8, 16) if p > sizes), 32))
        bottom = self.depth.get_ylim()[0]  # where 0 is drawn, and what is smaller still
        for line, zero, curve in zip((self.most, self.least), self.zeros, curves, strict=True):
            line.set_data(range(numbers.layers + 1), np.maximum(curve, bottom))
            zero.set(x=numbers.layers, y=bottom, visible=bool(curve[-1] == 0))
        singular = [number(value, 3) for value in numbers.singular_values]
        self.singular.set_text("\n".join(["singular values", "of I + J:", *singular]))
        return (
            f"Branch: {numbers.branch}, times {number(numbers.gain)}, at [3, 4]. Eigenvalues of J: "
            f"{' and '.join(map(_complex, numbers.eigenvalues))}; of I + J: "
            f"{' and '.join(map(_complex, numbers.total_eigenvalues))}; its singular values "
            f"{' and '.join(singular)}. After {numbers.layers} layers a gradient is at most "
            f"{_times(numbers.largest[-1])}, at least {_times(numbers.smallest[-1])} times as long."
        )


def _complex(value: complex) -> str:
    real = number(value.real, 3)
    if abs(value.imag) < 5e-4:
        return real
    return f"{real} {'+' if value.imag > 0 else '−'} {number(abs(value.imag), 3)}i"


def _times(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}".replace("-", "−")
