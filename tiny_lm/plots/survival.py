"""Chapter 06: pictures of many runs and of what became of them."""

from __future__ import annotations

from math import isfinite, isinf
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap

from tiny_lm.plots.picture import BLACK, BLUE, GREY, RED, Picture
from tiny_lm.plots.training import LOOKS, bound

# From none to all seeds; one hue, so that it reads without colours too.
SHADES = ListedColormap(["#F4F4F4", "#C6DBEF", "#6BAED6", BLUE])


class SurvivalPicture(Picture):
    """A map an order: depth down, learning rate across, in each cell the seeds that survived."""

    width, height = 800, 290

    def build(self, numbers: Any) -> list:
        panels = self.figure.subplots(1, len(numbers), sharey=True)
        for axes, order in zip(panels, numbers, strict=True):
            rows, columns = range(len(order.blocks)), range(len(order.rates))
            counts = [[order.survived(r, c) for c in columns] for r in rows]
            axes.imshow(counts, cmap=SHADES, vmin=-0.5, vmax=3.5, aspect="auto")
            for r in rows:
                for c in columns:
                    known, count = order.is_known(r, c), counts[r][c]
                    colour = "white" if count == 3 else BLACK
                    axes.text(c, r, count if known else "–", ha="center", va="center", color=colour)
            axes.set(title=order.order, xlabel="learning rate")
            axes.set_xticks(columns, [f"{rate:g}" for rate in order.rates], fontsize=8)
            axes.set_yticks(rows, order.blocks)
            axes.grid(False)
        panels[0].set_ylabel("blocks")
        return []

    def update(self, numbers: Any) -> str:
        cells = len(numbers[0].blocks) * len(numbers[0].rates)
        counts = ", ".join(f"{order.order} {order.whole}" for order in numbers)
        unknown = sum(
            not order.is_known(r, c)
            for order in numbers
            for r in range(len(order.blocks))
            for c in range(len(order.rates))
        )
        left = f" Not run yet: {unknown} cells." if unknown else ""
        return f"Cells of {cells} in which all three seeds survive: {counts}.{left}"


class RatePicture(Picture):
    """Where three seeds ended at each learning rate, for one order at one depth."""

    width, height = 620, 340
    TOP = 4.2  # nats: where a run that blew up is drawn

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xscale="log", xlim=(5e-4, 0.15), ylim=(1.0, 4.5), xlabel="learning rate")
        axes.set_xticks(numbers.rates, [f"{rate:g}" for rate in numbers.rates])
        axes.minorticks_off()
        axes.set_ylabel("loss at the end, nats")
        bound(axes, numbers.start, numbers.floor)
        axes.axhline((numbers.start + numbers.floor) / 2, color=GREY, ls=":", lw=1.5)
        axes.text(0.13, 2.36, "survives below", ha="right", color=GREY, fontsize=9)
        (self.ends,) = axes.plot([], [], "o", ms=8, alpha=0.7)
        (self.blown,) = axes.plot([], [], "x", color=RED, ms=9, mew=2.5, label="blew up")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 1.02))
        return [self.ends, self.blown]

    def update(self, numbers: Any) -> str:
        spread = (0.94, 1.0, 1.065)  # beside each other
        pairs = [
            (rate * aside, loss)
            for rate, losses in zip(numbers.rates, numbers.losses, strict=True)
            for aside, loss in zip(spread, losses, strict=True)
        ]
        self.ends.set_data(*_columns([pair for pair in pairs if isfinite(pair[1])]))
        self.blown.set_data(*_columns([(rate, self.TOP) for rate, end in pairs if isinf(end)]))
        colour, marker, _ = LOOKS[numbers.order]
        self.ends.set(color=colour, marker=marker)
        counts = ", ".join(str(count) for count in numbers.survived)
        return (
            f"{numbers.order} at {numbers.blocks} blocks: of three seeds survive {counts} at "
            "learning rates " + ", ".join(f"{rate:g}" for rate in numbers.rates) + "."
        )


class TablePicture(Picture):
    """Where three seeds of each setting ended: a row a setting, between the floor and ln V."""

    width, height = 800, 560

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        rows = range(len(numbers.rows))
        for row, losses in enumerate(numbers.rows.values()):
            there = [loss for loss in losses if isfinite(loss)]
            axes.plot(there, [row] * len(there), "o", color=BLUE, ms=7, alpha=0.6)
            if any(map(isinf, losses)):
                axes.plot([4.1], [row], "x", color=RED, ms=8, mew=2.5)
        axes.set_yticks(rows, list(numbers.rows), fontsize=9)
        axes.set(xlim=(1.0, 4.4), ylim=(len(rows) - 0.5, -0.5), xlabel="loss at the end, nats")
        for level, name in ((numbers.floor, "floor"), (numbers.start, "ln V")):
            axes.axvline(level, color=BLACK, ls="--", lw=1)
            axes.annotate(name, (level, 1.0), xycoords=("data", "axes fraction"), va="bottom")
        axes.axvline((numbers.start + numbers.floor) / 2, color=GREY, ls=":", lw=1.5)
        axes.annotate("× blew up", (4.1, 1.0), xycoords=("data", "axes fraction"), va="bottom")
        return []

    def update(self, numbers: Any) -> str:
        halfway = (numbers.start + numbers.floor) / 2
        counts = [sum(loss < halfway for loss in losses) for losses in numbers.rows.values()]
        return (
            f"{len(counts)} settings: in {counts.count(3)} all three seeds end below halfway "
            f"between ln V and the floor, in {counts.count(0)} none."
        )


def _columns(pairs: list[tuple[float, float]]) -> np.ndarray:
    return np.reshape(pairs, (-1, 2)).T
