"""A picture of how sure a reader was, beside how often the reader was right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_lm.plots.picture import BLUE, GREY, Picture

SURE = (25, 50, 75, 95)  # per cent, what a reader can choose


class CalibrationPicture(Picture):
    """For each degree of sureness, the share of predictions that came true.

    Its numbers are pairs (sure, right): per cent, and whether the prediction came true.
    """

    width, height = 420, 330

    def build(self, numbers: Sequence[tuple[int, bool]]) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(10, 110), ylim=(-8, 116), xlabel="how sure, %", ylabel="came true, %")
        axes.set(xticks=SURE, yticks=range(0, 101, 25))
        axes.plot([10, 110], [10, 110], "--", color=GREY, lw=1.5)
        axes.set_title("dashed: right as often as sure")
        (self.points,) = axes.plot([], [], "o", color=BLUE, ms=9)
        self.counts = [axes.text(sure, 0, "", ha="center", color=BLUE) for sure in SURE]
        return [self.points, *self.counts]

    def update(self, numbers: Any) -> str:
        at, shares, words = [], [], []
        for sure, count in zip(SURE, self.counts, strict=True):
            results = [right for said, right in numbers if said == sure]
            count.set_text(f"{sum(results)} of {len(results)}" if results else "")
            if results:
                at.append(sure)
                shares.append(100 * sum(results) / len(results))
                count.set_y(shares[-1] + 6)
                words.append(f"of those with {sure} %, {sum(results)} of {len(results)}")
        self.points.set_data(at, shares)
        if not numbers:
            return (
                "No prediction has met its outcome yet. On the dashed line, what you are 75 % sure "
                "of comes true three times in four."
            )
        return f"Of {len(numbers)} predictions, {sum(r for _, r in numbers)} came true; " + (
            "; ".join(words) + "."
        )
