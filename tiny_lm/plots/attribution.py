"""Chapters 07 and 08: pictures of the residual ledger, and of shares beside removals."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.transforms import offset_copy

from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, RED, Picture, number, y_limits

PARTS = {"embed": GREY, "attn": BLUE, "ffn": ORANGE}
MARKERS = {GREY: "D", BLUE: "s", ORANGE: "o"}
SMALLEST = 0.01  # RMS: smaller writes are drawn here
NAMED = 13  # more writes than these are named by their blocks


def colour_of(name: str) -> str:
    """The colour of a write: one for embeddings, attentions, FFNs."""
    return PARTS[name.split()[0]]


def name_writes(axes: Axes, names: Sequence[str]) -> None:
    """Tick labels for the writes along x; with many, a number every few blocks."""
    if len(names) <= NAMED:
        axes.set_xticks(range(len(names)), names)
        return
    every = 2 * ceil(len(names) / 2 / 10)
    axes.set_xticks(range(1, len(names), every), [n.split()[1] for n in names[1::every]])
    axes.set_xlabel("block")


class LedgerPicture(Picture):
    """An account of one position: the shares in a logit, stacked; the size of each write; its
    cosine with the stream it was added to."""

    width, height = 760, 540

    def build(self, numbers: Any) -> list:
        shares, sizes, cosines = self.figure.subplots(3, 1, sharex=True, height_ratios=(1.7, 1, 1))
        names = [entry.name for entry in numbers.ledger.entries]
        places, colours = range(len(names)), [colour_of(name) for name in names]
        self.top = shares
        shares.set(title="its share in the logit, stacked: each bar begins where the last one ends")
        shares.set(xlim=(-0.6, len(names) - 0.4), ylabel="logit")
        shares.axhline(0, color=BLACK, lw=0.8)
        self.shares = shares.bar(places, [0.0] * len(names), color=colours)
        self.total = shares.axhline(0, color=RED, ls="--", lw=1.5)
        above = offset_copy(shares.transData, self.figure, y=2, units="points")
        self.numbers = [
            shares.text(i, 0, "", transform=above, ha="center", fontsize=8)
            for i in (places if len(names) <= NAMED else ())
        ]
        parts = [Patch(color=colour, label=part) for part, colour in PARTS.items()]
        handles, labels = [*parts, self.total], [*PARTS, "the logit"]
        self.figure.legend(handles, labels, loc="outside upper center", ncols=4)
        sizes.set(yscale="log", ylabel="RMS", title="size of the write; line: the stream after it")
        self.middle = sizes
        (self.stream,) = sizes.plot(places, [1.0] * len(names), "-", color=BLACK, lw=1.5)
        look = {"ms": 8 if self.numbers else 4}
        self.sizes = [
            sizes.plot([i], [1.0], MARKERS[c], color=c, **look)[0]
            for i, c in zip(places, colours, strict=True)
        ]
        cosines.set(ylim=(-1.05, 1.05), ylabel="cosine", title="cosine with the stream before it")
        cosines.axhline(0, color=BLACK, lw=0.8)
        self.cosines = cosines.bar(places, [0.0] * len(names), color=colours)
        name_writes(cosines, names)
        bars = [*self.shares, *self.sizes, *self.cosines]
        return [*bars, *self.numbers, self.total, self.stream]

    def update(self, numbers: Any) -> str:
        found, reached = numbers.ledger, [0.0]
        for entry in found.entries:
            reached.append(reached[-1] + entry.share)
        for i, entry in enumerate(found.entries):
            self.shares[i].set(y=min(reached[i : i + 2]), height=abs(entry.share))
            self.sizes[i].set_ydata([max(entry.size, SMALLEST)])
            self.cosines[i].set_height(entry.cosine)
        for i, text in enumerate(self.numbers):
            text.set_position((i, max(reached[i : i + 2])))
            text.set_text(number(found.entries[i].share))
        self.total.set_ydata([found.logit] * 2)
        self.stream.set_ydata([entry.stream for entry in found.entries])
        lowest, highest = 10 * floor(min(reached) / 10), 10 * ceil(max(reached) / 10 + 0.1)
        y_limits(self.top, min(-10, lowest), max(20, highest))
        y_limits(self.middle, SMALLEST / 2, max(100, 2 * max(e.stream for e in found.entries)))
        return self._says(numbers)

    def _says(self, numbers: Any) -> str:
        found = numbers.ledger
        lead = f"“{numbers.target}”" + (f" leads “{numbers.other}” by" if numbers.other else " has")
        largest = sorted(found.entries, key=lambda entry: -abs(entry.share))[:3]
        parts = ", ".join(f"{entry.name} {number(entry.share)}" for entry in largest)
        return (
            f"After “{numbers.after}” {lead} {number(found.logit)} logits. Largest shares: "
            f"{parts}. The stream ends at RMS {number(found.entries[-1].stream)}; the final norm "
            f"divides by {number(found.denominator)}."
        )


class ComparedPicture(Picture):
    """For several questions: the share of each write in a lead, and the drop when it is removed.

    `numbers` maps the name of a question to what was compared.
    """

    width, height = 780, 380

    def build(self, numbers: Any) -> list:
        panels = self.figure.subplots(1, len(numbers), sharey=True, squeeze=False)[0]
        for axes, (question, found) in zip(panels, numbers.items(), strict=True):
            places = range(len(found))
            for i, one in enumerate(found):
                axes.plot([i, i], [one.share, one.drop], color=GREY, lw=1.5, zorder=1)
            axes.plot(places, [c.share for c in found], "o", color=BLUE, label="share in the lead")
            drop = {"color": ORANGE, "label": "drop of the lead without it"}
            axes.plot(places, [c.drop for c in found], "s", **drop)
            axes.axhline(0, color=BLACK, lw=0.8)
            axes.set_title(question)
            axes.set_xticks(places, [c.name for c in found], rotation=60)
        panels[0].set_ylabel("logits")
        handles, labels = panels[0].get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="outside upper center", ncols=2)
        return []

    def update(self, numbers: Any) -> str:
        parts = []
        for question, found in numbers.items():
            apart = max((c for c in found if "attn" in c.name), key=lambda c: c.drop - c.share)
            parts.append(
                f"{question}: {apart.name}, {number(apart.share)} and {number(apart.drop)}"
            )
        return (
            "Share of each write in the lead of the right word, and drop of the lead when the "
            f"write is removed. Farthest apart among attentions: {'; '.join(parts)}."
        )
