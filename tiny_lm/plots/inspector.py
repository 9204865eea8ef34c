"""Chapter 04: a picture of one recorded value beside its pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from tiny_lm.plots.picture import BLACK, BLUE, ORANGE, Picture


class InspectorPicture(Picture):
    """Two maps, a row for each position; below, the RMS of each row of both, on a log scale."""

    width, height = 760, 410

    def build(self, numbers: Any) -> list:
        spots = self.figure.subplot_mosaic(
            [["one", "other"], ["sizes"] * 2], height_ratios=(1.3, 1)
        )
        rows, width = np.shape(numbers.maps[0])
        self.images = [_map(spots[name], rows, width) for name in ("one", "other")]
        bar = self.figure.colorbar(self.images[0], ax=spots["other"])
        bar.set_label("in units of the map's RMS")
        spots["one"].set_ylabel("position")
        # Titles whose words move, in the colours of the curves below.
        self.titles = [
            spots[name].text(0.5, 1.05, "", ha="center", color=c, transform=spots[name].transAxes)
            for name, c in (("one", BLUE), ("other", ORANGE))
        ]
        return [*self.images, *self.titles, *self._sizes(spots["sizes"], numbers)]

    def _sizes(self, axes: Axes, numbers: Any) -> list:
        positions, (least, most) = len(numbers.maps[0]), numbers.reach
        axes.set(yscale="log", ylim=(least / 2, most * 2), xlim=(0.5, positions + 0.5))
        axes.set(xlabel="position", ylabel="RMS of the row")
        axes.axhline(1, color=BLACK, lw=0.8)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 30 * least else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        self.curves = [
            axes.plot([], [], style, color=colour)[0]
            for colour, style in ((BLUE, "-o"), (ORANGE, "--s"))
        ]
        return self.curves

    def update(self, numbers: Any) -> str:
        least = numbers.reach[0] / 2
        words = []
        for i, (image, title, curve) in enumerate(
            zip(self.images, self.titles, self.curves, strict=True)
        ):
            there = i < len(numbers.names)
            for artist in (image, curve):
                artist.set_visible(there)
            title.set_text(f"{'●■'[i]} {numbers.names[i]}" if there else "nothing to compare with")
            if not there:
                continue
            rows, sizes = np.array(numbers.maps[i]), np.array(numbers.sizes[i])
            unit = np.sqrt(np.mean(rows**2))
            image.set_data(rows / unit if unit else rows)
            curve.set_data(np.arange(1, len(sizes) + 1), np.maximum(sizes, least))
            words.append(f"{numbers.names[i]} {_size(sizes.min())} to {_size(sizes.max())}")
        rows, width = np.shape(numbers.maps[0])
        return f"{rows} positions by {width} coordinates. RMS of a row: {', '.join(words)}."


def _map(axes: Axes, rows: int, width: int) -> Any:
    axes.grid(False)
    axes.set_xlabel("coordinate")
    axes.yaxis.get_major_locator().set_params(integer=True)
    extent = (0.5, width + 0.5, rows + 0.5, 0.5)
    look = {"cmap": "PuOr", "vmin": -3, "vmax": 3, "aspect": "auto", "interpolation": "nearest"}
    return axes.imshow(np.zeros((rows, width)), extent=extent, **look)


def _size(value: float) -> str:
    """Three digits: as many as a 32-bit model prints alike on every machine."""
    return f"{value:#.3g}".removesuffix(".")
