"""Chapter 03: pictures of epsilon in 64, 32 and 16 bits."""

from __future__ import annotations

from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from tiny_lm.plots.epsilon import number, size_axis
from tiny_lm.plots.picture import BLACK, BLUE, RED, SKY, Picture

PLACE_WORDS = {
    "inside": "eps = {eps:.3g} inside the root",
    "outside": "eps = {eps:.3g} outside the root",
    "floor": "eps = {eps:.3g} as a floor",
    "left out": "eps left out",
}


class LaboratoryPicture(Picture):
    """Output and gradient as one type of number computes them, with everything that fails."""

    width, height = 760, 340

    def build(self, numbers: Any) -> list:
        panels = self.figure.subplots(1, 2)
        self.zero = 10**-7.3
        for axes in panels:
            size_axis(axes, -6, 22, 4, self.zero)
        panels[0].set(ylim=(-0.06, 1.5), title="RMS of the output")
        panels[1].set_yscale("log")
        panels[1].set(ylim=(1e-24, 1e16), title="factor on a gradient across x")
        self.zones = [_Zones(axes) for axes in panels]
        self.law, self.computed, self.here, self.at_zero, self.stems = [], [], [], [], []
        for axes in panels:
            self.law += axes.plot(numbers.sizes, numbers.law, "--", color=BLACK, lw=1, label="law")
            self.computed += axes.plot(
                numbers.sizes, numbers.law, color=BLUE, lw=3, alpha=0.7, label="computed"
            )
            self.stems.append(axes.axvline(1, color=BLACK, lw=1, ls=":"))
            self.here += axes.plot([], [], "o", color=BLACK, ms=8)
            self.at_zero += axes.plot([], [], "D", color=BLACK, ms=6)
        lines = [self.law[0], self.computed[0]]
        self.figure.legend(handles=lines, loc="outside upper right", ncols=2)
        artists = [artist for zones in self.zones for artist in zones.artists]
        return [
            *artists, *self.computed, *self.law, *self.stems, *self.here, *self.at_zero,
        ]  # fmt: skip

    def update(self, numbers: Any) -> str:
        slopes = [y / x for x, y in zip(numbers.sizes, numbers.law, strict=True)]
        curves = ((numbers.output, numbers.law), (numbers.slope, slopes))
        for k, (curve, law) in enumerate(curves):
            self.law[k].set_ydata(law)
            self.computed[k].set_ydata(curve.values)
            self.stems[k].set_xdata([numbers.size] * 2)
            self._point(k, numbers.size, curve.here)
            self.at_zero[k].set_data([self.zero], [curve.zero])
            self.zones[k].show(curve.zones, curve.zero, self.zero)
        output, slope = numbers.output, numbers.slope
        trouble = f" Here: {numbers.reason}." if numbers.reason else ""
        if numbers.zero_reason:
            trouble += f" At the zero vector: {numbers.zero_reason}."
        return (
            f"{numbers.dtype}, computed {numbers.computed}, "
            f"{PLACE_WORDS[numbers.place].format(eps=numbers.eps)}. "
            f"RMS {number(numbers.size)} comes out at RMS "
            f"{number(output.here)} (law: {number(numbers.law_here)}), a gradient is multiplied "
            f"by {number(slope.here)}. The zero vector: output {number(output.zero)}, gradient "
            f"times {number(slope.zero)}.{trouble}"
        )

    def _point(self, k: int, size: float, value: float) -> None:
        """The dot at the chosen size; an arrow at the edge where the value lies beyond it."""
        low, high = self.here[k].axes.get_ylim()
        marker = "^" if value > high else "v" if value < low else "o"
        inside = min(max(value, low), high) if isfinite(value) else value
        self.here[k].set_data([size], [inside])
        self.here[k].set(marker=marker, clip_on=marker == "o")


class _Zones:
    """Shaded bands, each with its name, over the sizes that fail."""

    def __init__(self, axes: Axes):
        across = axes.get_xaxis_transform()  # x in data, y from 0 to 1
        self.bands = PolyCollection(
            [], facecolor=RED, alpha=0.38, edgecolor="white", lw=1.5, transform=across
        )
        axes.add_collection(self.bands, autolim=False)
        look = {"rotation": 90, "weight": "bold", "ha": "center", "va": "top", "fontsize": 9}
        self.names = [axes.text(1, 0.97, "", transform=across, **look) for _ in range(6)]
        self.artists = [self.bands, *self.names]

    def show(self, zones: list[tuple[str, float, float]], at_zero: float, zero: float) -> None:
        if not isfinite(at_zero):
            zones = [(number(at_zero), zero / 10**0.7, zero * 10**0.7), *zones]
        self.bands.set_verts([[(a, 0), (a, 1), (b, 1), (b, 0)] for _, a, b in zones])
        named = [zone for zone in zones if zone[2] / zone[1] > 10]  # room for a letter
        for k, name in enumerate(self.names):
            kind, low, high = named[k] if k < len(named) else ("", 1.0, 1.0)
            name.set(text=kind, x=(low * high) ** 0.5)


class FormatsPicture(Picture):
    """Which numbers a type holds, and which of them it can also square."""

    width, height = 720, 220

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set_xscale("log")
        axes.set(xlim=(1e-47, 1e42), ylim=(-0.5, len(numbers) - 0.1), xlabel="size of an entry")
        powers = range(-40, 41, 10)
        axes.set_xticks(
            [10.0**power for power in powers], [f"$10^{{{p}}}$" if p else "1" for p in powers]
        )
        axes.minorticks_off()
        axes.grid(False, axis="y")
        axes.set_yticks(range(len(numbers)), [one.name for one in reversed(numbers)])
        for row, one in enumerate(reversed(numbers)):
            low, high = one.smallest_square, one.largest_square
            look = {"y": row, "height": 0.42}
            self.holds = axes.barh(
                width=one.largest - one.smallest, left=one.smallest, color=SKY, alpha=0.4, **look
            )
            self.squares = axes.barh(width=high - low, left=low, color=BLUE, alpha=0.9, **look)
            axes.text(low, row + 0.26, f"{low:.3g}", ha="right", fontsize=9)
            axes.text(high, row + 0.26, f"{high:.4g}", ha="left", fontsize=9)
        axes.legend(
            [self.holds, self.squares],
            ["holds it", "holds its square too"],
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
        return []

    def update(self, numbers: Any) -> str:
        ranges = [
            f"{one.name} holds {one.smallest:.2g} to {one.largest:.5g}, and squares from "
            f"{one.smallest_square:.2g} to {one.largest_square:.4g}"
            for one in numbers
        ]
        return "; ".join(ranges) + "."
