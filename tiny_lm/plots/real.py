"""Chapter 08: pictures of a real model's stream, of norms in 16 bits, and of what it survives."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, Picture
from tiny_lm.plots.streams import LARGEST_HALF, quoted, rms_map

FLOOR = 1e-4  # smaller entries are drawn here
WORST = 1e7  # larger perplexities are drawn here, as arrows
HOPELESS = 1e4  # perplexities are not told apart from here on
COLOURS = dict(zip(("story", "explanation", "letter", "program"), (BLUE, ORANGE, GREEN, PINK)))  # noqa: B905
MARKERS = dict(zip(COLOURS, "osD^"))  # noqa: B905


class ViewPicture(Picture):
    """The stream as a map; the row under the cross, entry by entry; its coordinate, tap by tap."""

    width, height = 780, 470

    def build(self, numbers: Any) -> list:
        spots = self.figure.subplot_mosaic([["map", "row"], ["map", "path"]], width_ratios=(1.1, 1))
        axes = spots["map"]
        image = rms_map(axes, numbers.taps, numbers.words, numbers.rms)
        self.figure.colorbar(image, ax=axes, label="RMS of the stream", location="top")
        self.across = axes.axhline(0, color="white", lw=1)
        self.down = axes.axvline(0, color="white", lw=1)
        self.cross = axes.plot([], [], "o", color="white", mec=BLACK, ms=9)[0]
        width, taps = len(numbers.row), len(numbers.taps)
        most = 10 ** np.ceil(np.log10(max(1.0, np.abs(numbers.rms).max()) * width**0.5))
        axes = spots["row"]
        axes.set(xlim=(-width / 50, width * 1.02), ylim=(FLOOR, most), yscale="log")
        axes.set(xlabel="coordinate", title="sizes of the row's entries")
        self.row = axes.plot([], [], ".", color=BLUE, ms=3)[0]
        self.chosen = axes.plot([], [], "o", color=RED, ms=8, clip_on=False)[0]
        axes.axhline(256, color=BLACK, lw=1, ls=":")
        axes.text(width, 300, "256", ha="right", fontsize=9)
        axes = spots["path"]
        axes.set(xlim=(-1, taps), xlabel="tap", title="size of the coordinate, at this position")
        axes.set(ylim=(FLOOR, most), yscale="log")
        self.path = axes.plot([], [], "-", color=RED)[0]
        self.here = axes.plot([], [], "o", color=RED, ms=8, clip_on=False)[0]
        for name in ("row", "path"):
            spots[name].yaxis.set_minor_locator(NullLocator())
        for dot in (self.chosen, self.here):
            dot.set_in_layout(False)  # it may stand on the edge, and takes no room of its own
        return [self.across, self.down, self.cross, self.row, self.chosen, self.path, self.here]

    def update(self, numbers: Any) -> str:
        tap, position, coordinate = numbers.tap, numbers.position, numbers.coordinate
        self.across.set_ydata([tap, tap])
        self.down.set_xdata([position, position])
        self.cross.set_data([position], [tap])
        row = np.maximum(np.abs(numbers.row), FLOOR)
        path = np.maximum(np.abs(numbers.path), FLOOR)
        self.row.set_data(np.arange(len(row)), row)
        self.chosen.set_data([coordinate], [row[coordinate]])
        self.path.set_data(np.arange(len(path)), path)
        self.here.set_data([tap], [path[tap]])
        largest = int(np.abs(numbers.row).argmax())
        return (
            f"{numbers.taps[tap]}, position {position}, {quoted(numbers.words[position])}: RMS "
            f"{_digits(numbers.rms[tap][position])}. Its largest entry is "
            f"{_digits(numbers.row[largest])}, in coordinate {largest}; half of its entries are "
            f"below {_digits(np.median(np.abs(numbers.row)))}. Coordinate {coordinate} holds "
            f"{_digits(numbers.row[coordinate])}."
        )


class StepsPicture(Picture):
    """One row through one norm in 16 bits: the steps below the root, and what comes out."""

    width, height = 800, 340
    NAMES = ("largest entry", "its square", "sum of squares", "mean of squares")

    def build(self, numbers: Any) -> list:
        left, right = self.figure.subplots(1, 2, width_ratios=(1.25, 1))
        left.set(xscale="log", xlim=(1e-3, 1e10), ylim=(3.6, -0.6))
        left.set_yticks(range(4), self.NAMES)
        left.xaxis.set_minor_locator(NullLocator())
        left.grid(False, axis="y")
        left.axvline(LARGEST_HALF, color=BLACK, lw=1.5, ls=":")
        left.text(LARGEST_HALF, -0.65, "65,504", ha="center", va="bottom", fontsize=9)
        self.bars = [left.plot([], [], "-", lw=12, solid_capstyle="butt")[0] for _ in self.NAMES]
        self.labels = [left.text(1e-3, k, "", va="center", fontsize=9) for k in range(4)]
        right.set_xscale("symlog", linthresh=0.01)
        right.set_yscale("symlog", linthresh=0.01)
        ends, ticks = (-50, 50), [-10, -0.1, 0, 0.1, 10]
        right.plot(ends, ends, color=GREY, lw=1, ls="--")
        right.set(xlim=ends, ylim=ends, xticks=ticks, yticks=ticks)
        right.set_xticks(ticks, ["−10", "−0.1", "0", "0.1", "10"])
        right.set_yticks(ticks, ["−10", "−0.1", "0", "0.1", "10"])
        right.xaxis.set_minor_locator(NullLocator())
        right.yaxis.set_minor_locator(NullLocator())
        right.set(xlabel="output in float64", ylabel="output in this way")
        self.points = right.plot([], [], "o", color=BLUE, ms=4, alpha=0.5)[0]
        return [*self.bars, *self.labels, self.points]

    def update(self, numbers: Any) -> str:
        values = (numbers.entry, numbers.square, numbers.total, numbers.mean)
        for k, (bar, label, value) in enumerate(zip(self.bars, self.labels, values, strict=True)):
            overflows = value is None
            unused = k == 2 and not numbers.forms_sum
            bar.set_data([1e-3, 1e10 if overflows else max(value, 1e-3)], [k, k])
            bar.set_color(SKY if unused else RED if overflows else BLUE)
            bar.set_linewidth(18 if overflows else 12)
            words = "Inf" if overflows else _digits(value)
            label.set_text(f"  {words}" + (", not formed in 16 bits" if unused else ""))
            label.set_color("white" if overflows else BLACK)
            label.set_x(1e-3 if overflows or value > 1e3 else max(value, 1e-3))
            label.set_color("white" if (overflows or value > 1e3) and not unused else BLACK)
        self.points.set_data(numbers.right, numbers.computed)
        right, computed = np.array(numbers.right), np.array(numbers.computed)
        error = np.linalg.norm(computed - right) / np.linalg.norm(right)
        end = (
            "Every output is 0."
            if numbers.is_zero
            else f"The output is off by {_percent(error)} of its length."
        )
        return (
            f"{numbers.norm} reads position {numbers.position}, {quoted(numbers.word)}; largest "
            f"entry {_digits(numbers.entry)}. {numbers.way[0].upper()}{numbers.way[1:]}: below the "
            f"root stands {'Inf' if numbers.mean is None else _digits(numbers.mean)}. {end}"
        )


class PerplexityPicture(Picture):
    """Perplexity on each paragraph after each operation, on a log scale."""

    width, height = 780, 420

    def build(self, numbers: Any) -> list:
        table, texts = numbers
        axes = self.figure.subplots()
        for k, values in enumerate(table.values()):
            for name, value in zip(texts, values, strict=True):
                off = value > WORST
                axes.plot(
                    [WORST if off else value], [k], ">" if off else MARKERS[name],
                    color=COLOURS[name], ms=8, clip_on=False,
                )  # fmt: skip
        for name, value in zip(texts, next(iter(table.values())), strict=True):
            axes.axvline(value, color=COLOURS[name], lw=1, ls=":")
        axes.set(xscale="log", xlim=(1, WORST), ylim=(len(table) - 0.5, -0.5))
        axes.set_xlabel("perplexity (arrows: more than 10,000,000)")
        axes.set_yticks(range(len(table)), list(table))
        axes.xaxis.set_minor_locator(NullLocator())
        self.figure.legend(handles=_legend(texts), loc="outside upper right", ncols=4)
        return []

    def update(self, numbers: Any) -> str:
        table, texts = numbers
        (_, whole), *others = table.items()
        twice = [
            name
            for name, values in others
            if all(value <= 2 * own for value, own in zip(values, whole, strict=True))
        ]
        return (
            f"Perplexity on {len(texts)} paragraphs. At most doubled on all of them: "
            f"{', '.join(twice)}. The other {len(others) - len(twice)} operations more than double "
            "it on at least one."
        )


class CutsPicture(Picture):
    """Perplexity on one paragraph with one kind of cut, at each block in turn."""

    width, height = 760, 330

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        blocks = len(numbers.after)
        axes.set(yscale="log", ylim=(1, WORST), xlim=(-0.7, blocks - 0.3))
        axes.set(xlabel="block", ylabel="perplexity")
        axes.yaxis.set_minor_locator(NullLocator())
        self.stems = axes.vlines(range(blocks), 1, 1, color=GREY, lw=1)
        self.dots = axes.plot([], [], "o", color=BLUE, ms=7, label="with the cut")[0]
        self.off = axes.plot([], [], "^", color=BLUE, ms=7, clip_on=False)[0]
        self.whole = axes.plot([], [], color=BLACK, lw=1.5, ls="--", label="the whole model")[0]
        self.here = axes.plot([], [], "o", mfc="none", color=RED, ms=13, mew=2, clip_on=False)[0]
        self.figure.legend(handles=[self.dots, self.whole], loc="outside upper right", ncols=2)
        for dot in (self.off, self.here):
            dot.set_in_layout(False)  # it may stand on the edge, and takes no room of its own
        return [self.stems, self.dots, self.off, self.whole, self.here]

    def update(self, numbers: Any) -> str:
        after, blocks = np.array(numbers.after), np.arange(len(numbers.after))
        shown = np.minimum(after, WORST)
        self.stems.set_segments(
            [[(b, numbers.whole), (b, value)] for b, value in zip(blocks, shown, strict=True)]
        )
        off = after > WORST
        self.dots.set_data(blocks[~off], after[~off])
        self.off.set_data(blocks[off], shown[off])
        self.whole.set_data([-0.7, len(after) - 0.3], [numbers.whole] * 2)
        self.here.set_data([numbers.block], [shown[numbers.block]])
        return (
            f"{numbers.kind[0].upper()}{numbers.kind[1:]}, on the {numbers.paragraph}: perplexity "
            f"{_perplexity(after[numbers.block])} at block {numbers.block}, "
            f"{_perplexity(numbers.whole)} for the whole model. At most doubled at "
            f"{numbers.survived} of {len(after)} blocks; the worst is block {after.argmax()}."
        )


def _legend(texts: list[str]) -> list[Line2D]:
    return [
        Line2D([], [], marker=MARKERS[name], color=COLOURS[name], lw=0, ms=8, label=name)
        for name in texts
    ]


def _digits(value: float) -> str:
    """Three digits, with a real minus sign: as many as every machine computes alike."""
    size = float(f"{abs(value):.3g}")
    text = f"{size:,.0f}" if size >= 1000 else f"{size:.3g}"
    return ("−" if value < 0 else "") + text


def _percent(share: float) -> str:
    return "less than 0.5 %" if share < 0.005 else f"{share:.0%}".replace("%", " %")


def _perplexity(value: float) -> str:
    return "above 10,000" if value > HOPELESS else _digits(value)
