"""How time and memory grow: one line for each thing that grows, on logarithmic axes."""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import NullFormatter

from tiny_lm.plots.picture import BLUE, GREEN, GREY, ORANGE, PINK, RED, Picture, number

LOOKS = {
    "depth": ("depth", BLUE, "o", "-"),
    "width": ("width", RED, "s", "--"),
    "prompt": ("length of a row", GREEN, "^", "-."),
    "batch": ("batch", PINK, "D", ":"),
    "written": ("tokens written", ORANGE, "v", "-"),
}


class GrowthPicture(Picture):
    """Time and memory as multiples of what the smallest size takes. Numbers: a list of Growth."""

    width, height = 860, 360

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots(1, 2)
        self.lines = {}
        for one, what in zip(axes, ("time", "memory"), strict=True):
            one.set(xscale="log", yscale="log", xlabel="size, the smallest = 1")
            one.set_ylabel(f"{what}, the smallest = 1")
            one.plot([1, 32], [1, 32], color=GREY, lw=1, label="in proportion")
            for axis in (one.xaxis, one.yaxis):
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter(NullFormatter())
            one.set_xticks([1, 2, 4, 8, 16, 32])
            for growth in numbers:
                label, color, marker, dashes = LOOKS[growth.name]
                line = one.plot([], [], dashes, color=color, marker=marker, ms=5, label=label)
                self.lines[what, growth.name] = line[0]
        self.axes = axes
        return []

    def update(self, numbers: Any) -> str:
        words = []
        for growth in numbers:
            sizes = [size / growth.sizes[0] for size in growth.sizes]
            label = LOOKS[growth.name][0]
            time, memory = number(growth.time_exponent), number(growth.memory_exponent)
            for what, values, p in (
                ("time", growth.seconds, time),
                ("memory", growth.bytes, memory),
            ):
                line = self.lines[what, growth.name]
                line.set_data(sizes, [value / values[0] for value in values])
                line.set_label(f"{label}: size^{p}")
            words.append(f"{label} {time} and {memory}")
        for one in self.axes:
            one.relim()
            one.autoscale_view()
            one.legend(fontsize=8, loc="upper left")
        return "Exponents of time and of memory: " + "; ".join(words) + "."
