"""The picture of the whole book: one pre-norm block, its direct path and its two branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, ORANGE, PINK, Picture

PALE = {ORANGE: "#FBEBCB", BLUE: "#CFE4F2", GREEN: "#CDEBE1"}


class BlockMap(Picture):
    """A pre-norm block; it needs no numbers: `BlockMap()`."""

    width, height = 720, 310

    def __init__(self, numbers: Any = None):
        super().__init__(numbers)

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, 14.4), ylim=(-1.35, 4.85), aspect="equal")
        axes.axis("off")
        self.joins = [5.9, 11.9]
        _arrow(axes, (0.7, 0), (self.joins[0] - 0.32, 0), lw=5)
        _arrow(axes, (self.joins[0] + 0.32, 0), (self.joins[1] - 0.32, 0), lw=5)
        _arrow(axes, (self.joins[1] + 0.32, 0), (13.75, 0), lw=5)
        _branch(axes, 1.6, self.joins[0], "RMSNorm", "attention", BLUE)
        _branch(axes, 7.6, self.joins[1], "RMSNorm", "feed-forward", GREEN)
        for text, at in (("x", 0.4), ("y", 14.05)):
            axes.text(at, 0, text, ha="center", va="center", fontsize=15, style="italic")
        axes.text(6.75, 0.3, "h", ha="center", fontsize=15, style="italic")
        for at, text in (
            (3.4, "direct path: x itself"),
            (9.4, "direct path: h itself"),
        ):
            axes.text(at, -0.28, text, ha="center", va="top", fontsize=10)
        for at, text in (
            (self.joins[0], "h = x + attention(norm(x))"),
            (self.joins[1], "y = h + feed-forward(norm(h))"),
        ):
            axes.text(at, -0.95, text, ha="center", va="top", fontsize=10, color=BLACK)
            axes.plot([at, at], [-0.38, -0.85], color=BLACK, lw=0.8)
        axes.text(3.75, 4.55, "first branch", ha="center", fontsize=10, color=BLUE)
        axes.text(9.75, 4.55, "second branch", ha="center", fontsize=10, color=GREEN)
        return []

    def update(self, numbers: Any) -> str:
        return (
            "One pre-norm block. The direct path carries x to h and h to y untouched. Two branches "
            "leave it, each through an RMSNorm: attention and feed-forward. What they compute is "
            "added back."
        )


class WalkPicture(BlockMap):
    """The block with a frame around one station of a vector's way, and the vector there."""

    # centre, width and height of the frame
    PLACES = (
        ((0.4, 0), 0.7, 1.0),
        ((1.6, 1.9), 3.0, 1.4),
        ((3.75, 3.9), 3.0, 1.4),
        ((5.9, 0), 1.1, 1.1),
        ((7.6, 1.9), 3.0, 1.4),
        ((9.75, 3.9), 3.0, 1.4),
        ((11.9, 0), 1.1, 1.1),
    )

    def build(self, numbers: Any) -> list:
        super().build(numbers)
        axes = self.figure.axes[0]
        self.frame = axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, ec=PINK, lw=3, zorder=7))
        axes.text(13.25, 3.15, "here:", ha="center", fontsize=11, color=PINK)
        self.here = axes.text(13.25, 2.45, "", ha="center", fontsize=12)
        return [self.frame, self.here]

    def update(self, numbers: Any) -> str:
        (x, y), width, height = self.PLACES[numbers.step - 1]
        self.frame.set_bounds(x - width / 2, y - height / 2, width, height)
        self.here.set_text(_short(numbers.vector))
        return f"Step {numbers.step} of {len(self.PLACES)}. {self._says(numbers)}"

    @staticmethod
    def _says(numbers: Any) -> str:
        here, stream = _short(numbers.vector), _short(numbers.stream)
        wrote = _short(numbers.wrote)
        before = _short([s - w for s, w in zip(numbers.stream, numbers.wrote, strict=True)])
        return (
            f"x = {here} enters on the direct path.",
            f"The first norm makes a copy of standard size, {here}; the path still holds {stream}.",
            f"Attention reads that copy and writes {here}.",
            f"The sum: {before} + {wrote} = {here}. It is called h.",
            f"The second norm makes a copy of h of standard size, {here}; the path holds {stream}.",
            f"Feed-forward reads that copy and writes {here}.",
            f"The sum: {before} + {wrote} = {here}. It is y, and the next block's x.",
        )[numbers.step - 1]


def _short(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{round(value, 2):g}" for value in values) + "]"


def _arrow(axes: Axes, start: tuple, end: tuple, lw: float = 2, colour: str = BLACK) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=8 + 3 * lw,
            shrinkA=0,
            shrinkB=0,
            color=colour,
            lw=lw,
        )
    )


def _box(axes: Axes, centre: tuple[float, float], text: str, colour: str) -> None:
    width, height = 2.6, 1.0
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - width / 2, centre[1] - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=PALE[colour],
            edgecolor=colour,
            lw=2,
            zorder=3,
        )
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=11, zorder=4)


def _branch(axes: Axes, start: float, join: float, norm: str, name: str, colour: str) -> None:
    """Up from the stream, through the norm and the branch proper, and down into the addition."""
    middle = (start + join) / 2
    axes.plot([start, start], [0, 1.6], color=colour, lw=2)
    axes.plot([start, start, middle], [1.6, 3.9, 3.9], color=colour, lw=2)
    axes.plot([middle, join, join], [3.9, 3.9, 1.0], color=colour, lw=2)
    _arrow(axes, (join, 1.4), (join, 0.32), colour=colour)
    axes.plot(start, 0, "o", color=colour, ms=9, zorder=5)
    _box(axes, (start, 1.9), norm, ORANGE)
    _box(axes, (middle, 3.9), name, colour)
    axes.add_patch(Circle((join, 0), 0.32, facecolor="white", edgecolor=BLACK, lw=2, zorder=5))
    axes.text(join, 0, "+", ha="center", va="center", fontsize=16, zorder=6)
