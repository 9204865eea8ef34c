"""Chapter 09: pictures of the comparison of designs."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, Picture, number
from tiny_lm.plots.training import bound

LINES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (PINK, ":"))


class MeasurePicture(Picture):
    """One measure of every design, two of them in colour: a dot, and a bar from low to high."""

    width, height = 780, 470

    def build(self, numbers: Any) -> list:
        self.axes = self.figure.subplots()
        self.titles = list(numbers.spans)
        rows = range(len(self.titles))
        # Titles as words that move, or another measure would have them drawn anew.
        self.axes.set_yticks(rows, [""] * len(rows))
        beside = {"transform": self.axes.get_yaxis_transform(), "ha": "right", "va": "center"}
        titles = [
            self.axes.text(-0.012, row, title, **beside) for row, title in enumerate(self.titles)
        ]
        self.axes.set_ylim(len(rows) - 0.5, -0.5)
        self.bars = [self.axes.plot([], [], "-", color=GREY, lw=3)[0] for _ in rows]
        self.dots = [self.axes.plot([], [], "o", color=GREY, ms=8)[0] for _ in rows]
        (self.beyond,) = self.axes.plot([], [], "x", color=RED, ms=9, mew=2.5)
        self.shown: Any = None
        return [*titles, *self.bars, *self.dots, self.beyond]

    def update(self, numbers: Any) -> str:
        measure, spans = numbers.measure, numbers.spans
        if self.shown is not measure:
            self._rescale(measure, spans)
        for row, (title, span) in enumerate(spans.items()):
            low, middle, high = span
            there = all(map(isfinite, span)) and (middle > 0 or not measure.is_log)
            chosen = {numbers.first: (BLUE, "o", 10), numbers.second: (ORANGE, "s", 9)}
            colour, marker, size = chosen.get(title, (GREY, "o", 6))
            self.bars[row].set(color=colour, linewidth=size / 2)
            self.dots[row].set(color=colour, marker=marker, markersize=size)
            self.bars[row].set_data([low, high] if there else [], [row, row] if there else [])
            self.dots[row].set_data([middle] if there else [], [row] if there else [])
        lost = [row for row, span in enumerate(spans.values()) if not self._fits(measure, span)]
        self.beyond.set_data([self.axes.get_xlim()[1] * 0.999] * len(lost), lost)
        said = f"{self._said(numbers, numbers.first)}, {self._said(numbers, numbers.second)}."
        if numbers.verdict:
            is_clear = numbers.verdict != "not told apart"
            apart = f"the first is {numbers.verdict}" if is_clear else "they cannot be told apart"
            said += f" Seed by seed, {apart}."
        return f"{measure.label[0].upper()}{measure.label[1:]}: {said}"

    def _rescale(self, measure: Any, spans: Any) -> None:
        self.shown = measure
        there = [v for span in spans.values() if self._fits(measure, span) for v in span]
        low, high = min(there), max(there)
        if measure.is_log:
            limits = low / 1.6, high * 1.6
        else:
            room = 0.1 * (high - low)
            limits = low - room, high + room
        self.axes.set(xscale="log" if measure.is_log else "linear", xlim=limits)
        if not measure.is_log:
            self.axes.xaxis.set_major_locator(MaxNLocator(4))
        self.axes.set_xlabel(f"{measure.label}  (× not finite, or none)")

    @staticmethod
    def _fits(measure: Any, span: tuple[float, float, float]) -> bool:
        return all(map(isfinite, span)) and (span[1] > 0 or not measure.is_log)

    def _said(self, numbers: Any, title: str) -> str:
        value = numbers.spans[title][1]
        if not self._fits(numbers.measure, numbers.spans[title]):
            return f"{title} {'none' if value == 0 else 'not finite'}"
        return f"{title} {value:.{numbers.measure.digits}g}"


class DepthsPicture(Picture):
    """Stream and gradients of a stack before training, beside those of RMSNorm, pre."""

    width, height = 780, 320

    def build(self, numbers: Any) -> list:
        stream, gradient = self.figure.subplots(1, 2)
        stream.set(yscale="log", ylim=(0.05, 100), xlim=(0, 32), xlabel="blocks passed")
        stream.set_title("RMS of the stream")
        gradient.set(yscale="log", ylim=(0.002, 2), xlim=(1, 32), xlabel="block")
        gradient.set_title("gradient of a block / the longest")
        self.curves = []
        for axes in (stream, gradient):
            (base,) = axes.plot([], [], "--", color=GREY, label="RMSNorm, pre")
            (mine,) = axes.plot([], [], "-o", color=BLUE, ms=4, label="this design")
            self.curves.append((mine, base))
        stream.legend(loc="upper left")
        return [line for pair in self.curves for line in pair]

    def update(self, numbers: Any) -> str:
        (mine, base), (ours, theirs) = self.curves
        passed, blocks = range(numbers.blocks + 1), range(1, numbers.blocks + 1)
        for line, places, values in (
            (mine, passed, numbers.stream),
            (base, passed, numbers.base_stream),
            (ours, blocks, numbers.gradient),
            (theirs, blocks, numbers.base_gradient),
        ):
            low, high = line.axes.get_ylim()
            line.set_data(places, [v if low <= v <= high else np.nan for v in values])
        end, shortest = numbers.stream[-1], np.min(numbers.gradient)
        grown = f"{end:.2g}" if isfinite(end) else "beyond float64"
        part = f"{shortest:.2g} of the longest" if isfinite(shortest) else "not finite"
        return (
            f"{numbers.title}, {numbers.blocks} blocks, before training: the stream's RMS is "
            f"{numbers.stream[0]:.2g} at the start and {grown} at the end; the shortest gradient "
            f"of a block is {part}. RMSNorm, pre: {numbers.base_stream[-1]:.2g} and "
            f"{min(numbers.base_gradient):.2g}."
        )


class CurvesPicture(Picture):
    """One coordinate through RMSNorm and through Dynamic Tanh."""

    width, height = 620, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-20, 20), ylim=(-8.5, 8.5), xlabel="the coordinate x")
        axes.set_ylabel("what comes out")
        (self.norm,) = axes.plot([], [], "-", color=BLUE, label="RMSNorm, 63 others as chosen")
        (self.tanh,) = axes.plot([], [], "--", color=ORANGE, label="scale · tanh(alpha x)")
        for level in (-numbers.bound, numbers.bound):
            axes.axhline(level, color=GREY, ls=":", lw=1.5)
        axes.text(-19.5, numbers.bound - 0.75, "√64: RMSNorm never exceeds it", color=GREY)
        axes.legend(loc="lower right")
        return [self.norm, self.tanh]

    def update(self, numbers: Any) -> str:
        self.norm.set_data(numbers.x, numbers.norm)
        self.tanh.set_data(numbers.x, numbers.tanh)
        return (
            f"Slope at 0: RMSNorm {number(numbers.norm_slope)} with the others at RMS "
            f"{number(numbers.others)}, tanh {number(numbers.tanh_slope)}. At x = 20: RMSNorm "
            f"{number(numbers.norm[-1])}, tanh {number(numbers.tanh[-1])}."
        )


class LivePicture(Picture):
    """Loss curves of a few designs, trained just now: one line a seed."""

    width, height = 680, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        for (title, runs), (colour, dashes) in zip(numbers.losses.items(), LINES, strict=False):
            for seed, losses in enumerate(runs):
                label = title if seed == 0 else None
                axes.plot(losses, dashes, color=colour, lw=1.5, label=label)
        axes.set(xlim=(0, numbers.steps), ylim=(0.8, numbers.start * 1.3), xlabel="step")
        axes.set_ylabel("loss, nats a letter")
        bound(axes, numbers.start, numbers.floor)
        axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.92))
        return []

    def update(self, numbers: Any) -> str:
        alive = ", ".join(f"{title} {n} of {len(numbers.losses[title])}"
                          for title, n in numbers.survivors.items())  # fmt: skip
        return (
            f"Losses of {' and '.join(numbers.losses)} at {numbers.blocks} blocks, three seeds "
            f"each, {numbers.steps} steps. Below halfway at the end: {alive}."
        )


class SpeedPicture(Picture):
    """Time of RMSNorm / time of LayerNorm made in the same way, by width."""

    width, height = 720, 330

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        looks = zip(numbers.items(), "os^Dv*", (BLUE, SKY, ORANGE, RED, GREEN, PINK), strict=False)
        for (name, by_width), marker, colour in looks:
            axes.plot(
                list(by_width), list(by_width.values()), marker + "-", color=colour, label=name
            )
        axes.axhline(1, color=BLACK, lw=1)
        axes.axhline(0.7, color=GREY, ls=":", lw=1.5)
        axes.annotate("30 % less", (0.01, 0.7), xycoords=("axes fraction", "data"), va="bottom")
        widths = sorted({w for by_width in numbers.values() for w in by_width})
        axes.set(xscale="log", yscale="log", xlabel="width D")
        axes.set_ylabel("time of RMSNorm / LayerNorm")
        axes.set_xticks(widths, [str(w) for w in widths])
        axes.set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
        axes.minorticks_off()
        self.figure.legend(loc="outside right upper")
        return []

    def update(self, numbers: Any) -> str:
        spans = [
            f"{name} {min(by.values()):.2f} to {max(by.values()):.2f}"
            for name, by in numbers.items()
        ]
        return f"Time of RMSNorm / time of LayerNorm over the widths: {'; '.join(spans)}."
