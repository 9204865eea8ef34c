"""Chapters 07 and 08: pictures of what a model does without some of its parts."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from tiny_lm.plots.picture import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    Picture,
    number,
)

VERDICTS = {"exact": GREEN, "harmless": SKY, "hurts": ORANGE, "fatal": RED}
CELL = {"ha": "center", "va": "center", "fontsize": 8}
LINE, LINES = 92, 5  # letters in a line, lines of a text


class ResultPicture(Picture):
    """The loss after an operation, between what it was and knowing nothing; and what is written."""

    width, height = 780, 250

    def build(self, numbers: Any) -> list:
        bar, page = self.figure.subplots(2, 1, height_ratios=(1, 1.9))
        bar.set(xlim=(0, 8), ylim=(-0.6, 1.2), yticks=[], xlabel="loss, nats a word")
        self.bar = bar.barh([0], [0.0], height=0.8, color=SKY)[0]
        for value, name in ((numbers.before, "as it was"), (numbers.nothing, "knows nothing")):
            bar.axvline(value, color=BLACK, lw=1.5, ls="--")
            bar.text(value + 0.06, 0.62, name, fontsize=9)
        page.set_axis_off()
        self.text = page.text(0, 1, "", va="top", fontsize=10, transform=page.transAxes)
        return [self.bar, self.text]

    def update(self, numbers: Any) -> str:
        self.bar.set(width=min(numbers.loss, 8), color=VERDICTS[numbers.verdict])
        lines = textwrap.wrap(numbers.text, LINE, max_lines=LINES, placeholder=" …")
        self.text.set_text("\n".join(lines))
        before, after = f"{numbers.before:.3f}", f"{numbers.loss:.3f}"
        change = f"goes from {before} to {after}" if before != after else f"stays at {after}"
        return f"{numbers.done}: {numbers.verdict}. The loss {change} nats a word."


class RemovalsPicture(Picture):
    """What the loss rises by when a write is missing for the output alone, and for all."""

    width, height = 700, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        places = np.arange(len(numbers))
        for aside, colour, hatch, label, values in (
            (-0.2, BLUE, "", "missing for the output alone", [r.direct for r in numbers]),
            (0.2, ORANGE, "//", "missing for all that comes after", [r.total for r in numbers]),
        ):
            bars = axes.bar(
                places + aside, values, 0.4, color=colour, hatch=hatch, ec="white", label=label
            )
            for bar, value in zip(bars, values, strict=True):
                middle, top = bar.get_x() + bar.get_width() / 2, max(value, 0) + 0.03
                axes.text(middle, top, number(value), ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, [r.name for r in numbers])
        axes.set(ylabel="rise of the loss, nats a word")
        axes.legend(loc="upper right")
        return []

    def update(self, numbers: Any) -> str:
        direct = max(numbers, key=lambda r: r.direct)
        total = max(numbers, key=lambda r: r.total)
        return (
            f"Each write removed in turn. Missing for the output alone, {direct.name} costs most, "
            f"{number(direct.direct)} nats; missing for all that comes after, {total.name}, "
            f"{number(total.total)}."
        )


class PatchPicture(Picture):
    """How far one write at one word, taken from another story, moves the answer towards it."""

    width, height = 780, 430

    def build(self, numbers: Any) -> list:
        self.axes = axes = self.figure.subplots()
        rows, columns = np.shape(numbers.patching.moved)
        look = {"cmap": "Blues", "vmin": 0, "vmax": 1, "interpolation": "nearest"}
        self.map = axes.imshow(np.zeros((rows, columns)), aspect="auto", **look)
        self.drawn = None
        self.figure.colorbar(self.map, ax=axes, label="way to the other answer", pad=0.01)
        axes.set_yticks(range(rows), numbers.patching.names)
        axes.set_xticks(range(columns), [""] * columns, rotation=60)
        axes.set(ylabel="write swapped", xlabel="at this word (here → in the other story)")
        axes.grid(False)
        self.cells: list = []
        self.frame = axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, ec=RED, lw=2.5, zorder=5))
        return [self.frame]

    def _draw_map(self, numbers: Any) -> None:
        self.map.set_data(numbers.patching.moved)
        for cell in self.cells:
            cell.remove()
        self.cells = [
            self.axes.text(c, r, number(moved, 1), color="white" if moved > 0.55 else BLACK, **CELL)
            for r, row in enumerate(numbers.patching.moved)
            for c, moved in enumerate(row)
            if abs(moved) >= 0.05
        ]
        pairs = zip(numbers.words, numbers.others, strict=True)
        self.axes.set_xticklabels([a if a == b else f"{a} → {b}" for a, b in pairs])

    def update(self, numbers: Any) -> str:
        found = numbers.patching
        if found is not self.drawn:  # another question; else the frame alone moves
            self._draw_map(numbers)
            self.drawn = found
        self.frame.set_xy((numbers.column - 0.5, numbers.row - 0.5))
        ours, theirs = numbers.answers
        write, word = found.names[numbers.row], numbers.words[numbers.column]
        moved = round(100 * found.moved[numbers.row][numbers.column]) + 0
        return (
            f"Our answer is “{ours}”, the other story's “{theirs}”. With its {write} at word "
            f"{numbers.column + 1}, “{word}”, we are {moved}% of the way there, and the likeliest "
            f"word is “{numbers.says}”."
        )


class BenchPicture(Picture):
    """All operations: the loss after each, coloured by its verdict."""

    width, height = 780, 380

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        places = range(len(numbers))
        colours = [VERDICTS[result.verdict] for result in numbers]
        axes.barh(places, [result.loss for result in numbers], color=colours)
        axes.set_yticks(places, [result.done for result in numbers])
        axes.set(xlabel="loss, nats a word", xlim=(0, 9), ylim=(len(numbers) - 0.4, -0.6))
        for i, result in enumerate(numbers):
            text = f"{result.loss:.3f}  {result.verdict}"
            white = {"fc": "white", "ec": "none", "pad": 1}
            axes.text(result.loss + 0.15, i, text, va="center", bbox=white)
        for value in (numbers[0].before, numbers[0].nothing):
            axes.axvline(value, color=BLACK, lw=1.2, ls="--")
        return []

    def update(self, numbers: Any) -> str:
        parts = []
        for verdict in VERDICTS:
            there = [result.done for result in numbers if result.verdict == verdict]
            parts += [f"{verdict}: {', '.join(there)}"] if there else []
        return (
            f"Loss after each operation; dashed: before ({numbers[0].before:.3f}) and knowing "
            f"nothing ({numbers[0].nothing:.2f}). {'; '.join(parts)}."
        )


class WiringsPicture(Picture):
    """Block by block: the loss without a branch, and without the direct path beside one."""

    width, height = 760, 360

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        blocks = np.arange(len(numbers.losses[0]))
        looks = zip((BLUE, SKY, GREEN, RED, PINK), ("", "", "//", "", "\\\\"), strict=True)
        for i, (name, losses, (colour, hatch)) in enumerate(
            zip(numbers.names, numbers.losses, looks, strict=True)
        ):
            places = blocks + 0.16 * (i - 2)
            bars = axes.bar(places, losses, 0.16, color=colour, hatch=hatch, ec="white", label=name)
            axes.bar_label(bars, [f"{loss:.1f}" for loss in losses], fontsize=7, padding=1)
        for value, name in ((numbers.before, "as it was"), (numbers.nothing, "knows nothing")):
            axes.axhline(value, color=GREY, ls="--", lw=1.2)
            axes.text(len(blocks) - 0.45, value + 0.08, name, fontsize=9, ha="left")
        axes.set(xlim=(-0.5, len(blocks) + 0.15), ylim=(0, 8), ylabel="loss, nats a word")
        axes.set_xticks(blocks, [f"block {i}" for i in blocks])
        self.figure.legend(loc="outside upper center", ncols=5, fontsize=9)
        return []

    def update(self, numbers: Any) -> str:
        parts = [
            f"{name} {', '.join(f'{loss:.2f}' for loss in losses)}"
            for name, losses in zip(numbers.names, numbers.losses, strict=True)
        ]
        return f"Loss by block, {numbers.before:.2f} before. {'; '.join(parts)}."
