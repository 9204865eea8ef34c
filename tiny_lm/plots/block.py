"""Chapter 04: pictures of the wiring of a block, and of the stream."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from matplotlib.patches import Circle, FancyBboxPatch

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, ORANGE, RED, Picture


def _short(value: float) -> str:
    """Three digits that count, and never a power of ten for a large number."""
    value = round(value, 9) + 0.0
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _vector(values: list[float]) -> str:
    return "[" + ", ".join(map(_short, values)) + "]"


def _rms(values: list[float]) -> float:
    return sqrt(sum(value * value for value in values) / len(values))


class WiringPicture(Picture):
    """A block as a diagram: the direct path below, the two branches above, with their values."""

    width, height = 760, 270
    MAIN, BRANCH = 1.1, 3.3  # heights of the two paths
    STARTS, ENDS = (1.6, 8.9), (5.5, 12.8)  # where a branch leaves the direct path and comes back

    def build(self, numbers: Any) -> list:
        self.figure.set_layout_engine("none")  # a drawing fills the figure to its edges
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 16), ylim=(0, 5))
        axes.axis("off")
        axes.plot([15.8], [self.MAIN], ">", color=BLACK, ms=10)
        line = {"solid_capstyle": "butt", "zorder": 1}
        (self.direct,) = axes.plot([], [], color=BLACK, lw=4, **line)
        self.branches, self.boxes, self.sums, self.texts = [], [], [], {}
        for color, name, start in zip(
            (BLUE, GREEN), ("attention", "FFN"), self.STARTS, strict=True
        ):
            (path,) = axes.plot([], [], color=color, lw=2.5, **line)
            self.branches.append(path)
            self.boxes += [self._box(axes, start + 1.95, self.BRANCH, name, color)]
        self.norms = [self._box(axes, 0, 0, name, ORANGE) for name in ("norm1", "norm2")]
        for _ in range(2):
            circle = axes.add_patch(Circle((0, self.MAIN), 0.3, fc="white", ec=BLACK, zorder=3))
            sign = axes.text(0, self.MAIN, "+", ha="center", va="center", fontsize=15, zorder=4)
            self.sums.append((circle, sign))
        for name in ("x", "read1", "wrote1", "sum1", "h", "read2", "wrote2", "sum2", "y"):
            self.texts[name] = axes.text(0, 0, "", ha="center", va="center", fontsize=9.5)
        parts = [self.direct, *self.branches]
        parts += [part for pair in (*self.boxes, *self.norms, *self.sums) for part in pair]
        return parts + list(self.texts.values())

    def _box(self, axes: Any, x: float, y: float, name: str, color: str) -> tuple:
        box = FancyBboxPatch((x - 0.75, y - 0.32), 1.5, 0.64, boxstyle="round,pad=0.05")
        box.set(facecolor="white", edgecolor=color, linewidth=2, zorder=3)
        axes.add_patch(box)
        return box, axes.text(x, y, name, ha="center", va="center", zorder=4)

    def update(self, numbers: Any) -> str:
        plain, post = numbers.order == "plain", numbers.order == "post"
        (start1, start2), (end1, end2) = self.STARTS, self.ENDS
        direct = [0.2, 15.8]
        if plain:  # no way past a branch
            direct = [0.2, start1, np.nan, end1, start2, np.nan, end2, 15.8]
        self.direct.set_data(direct, [self.MAIN] * len(direct))
        for k, (start, end) in enumerate(zip(self.STARTS, self.ENDS, strict=True)):
            on = (numbers.attention_on, numbers.ffn_on)[k]
            path, (circle, sign), norm = self.branches[k], self.sums[k], self.norms[k]
            path.set_data(
                [start, start, end, end], [self.MAIN, self.BRANCH, self.BRANCH, self.MAIN]
            )
            path.set(linestyle="-" if on else ":", alpha=1.0 if on else 0.6)
            circle.set(center=(end, self.MAIN), visible=not plain)
            sign.set(x=end, visible=not plain)
            where = (end + 1.25, self.MAIN) if post else (start, self.BRANCH - 1.0)
            for part in norm:
                part.set_visible(numbers.norms)
            norm[0].set_bounds(where[0] - 0.75, where[1] - 0.32, 1.5, 0.64)
            norm[1].set_position(where)
        self._write_values(numbers, post, plain)
        stream = [_rms(value) for value in (numbers.x, self._h(numbers), numbers.y)]
        norms = "" if numbers.norms else ", norms left out"
        return (
            f"{self.ORDERS[numbers.order]}{norms}, x = {_vector(numbers.x)}: attention reads "
            f"{_vector(numbers.attention[0])} and writes {_vector(numbers.attention[1])}; the FFN "
            f"reads {_vector(numbers.ffn[0])} and writes {_vector(numbers.ffn[1])}; "
            f"y = {_vector(numbers.y)}. RMS of x, h and y: "
            f"{', '.join(map(_short, stream))}."
        )

    ORDERS = {"pre": "Pre-norm", "post": "Post-norm", "plain": "No direct path"}  # noqa: RUF012

    @staticmethod
    def _h(numbers: Any) -> list[float]:
        post = numbers.order == "post" and numbers.norms
        return numbers.taps["norm.attn" if post else "resid.attn"]

    def _write_values(self, numbers: Any, post: bool, plain: bool) -> None:
        taps, above, below = numbers.taps, self.BRANCH + 0.95, self.MAIN - 0.7
        (start1, start2), (end1, end2) = self.STARTS, self.ENDS
        post = post and numbers.norms
        places = {
            "x": (1.0, below, f"x\n{_vector(numbers.x)}"),
            "read1": (start1, above, f"reads\n{_vector(numbers.attention[0])}"),
            "wrote1": (end1, above, f"writes\n{_vector(numbers.attention[1])}"),
            "sum1": (end1, below, f"sum\n{_vector(taps['resid.attn'])}" if post else ""),
            "h": (8.2, below, f"h\n{_vector(self._h(numbers))}"),
            "read2": (start2, above, f"reads\n{_vector(numbers.ffn[0])}"),
            "wrote2": (end2, above, f"writes\n{_vector(numbers.ffn[1])}"),
            "sum2": (end2, below, f"sum\n{_vector(taps['resid.ffn'])}" if post else ""),
            "y": (15.1, below, f"y\n{_vector(numbers.y)}"),
        }
        for name, (x, y, text) in places.items():
            self.texts[name].set(x=x, y=y, text=text)


class StreamPicture(Picture):
    """The size of the stream at each position, block after block, on a log scale."""

    width, height = 660, 330

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        sizes = np.array(numbers.sizes)
        passed = np.arange(len(sizes))
        end = passed[-1] + 0.5  # the labels stand beyond it, outside the axes
        axes.set(yscale="log", xlim=(-0.5, end), ylim=(0.03, 3000))
        axes.set(xlabel="blocks passed (0: after the embedding)", ylabel="RMS of the stream")
        axes.plot(passed, sizes[:, 1:], "-", color=BLUE, lw=1)
        axes.plot(passed, sizes[:, 0], "-o", color=RED, ms=4)
        axes.text(end + 0.3, sizes[-1, 0], "first\nposition", color=RED, va="center")
        axes.text(end + 0.3, sizes[-1, 1:].mean(), "the others", color=BLUE, va="center")
        return []

    def update(self, numbers: Any) -> str:
        sizes = np.array(numbers.sizes)
        top = int(sizes[:, 0].argmax())
        return (
            f"RMS of the stream at the first position: {sizes[0, 0]:.2f} after the embedding, "
            f"{sizes[3, 0]:.1f} after 3 blocks, {sizes[12, 0]:.0f} after 12 (most after {top}), "
            f"{sizes[-1, 0]:.0f} after {len(sizes) - 1}. At the other positions the last value is "
            f"{sizes[-1, 1:].min():.0f} to {sizes[-1, 1:].max():.0f}."
        )
