"""Chapters 07 and 08: pictures of the logit lens."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from tiny_lm.plots.attribution import name_writes
from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, RED, Picture

DARK = 0.55  # a probability from which on a cell's word is written in white


class LensPicture(Picture):
    """What the stream would say at each tap, from top to bottom, after each word of a text."""

    width, height = 780, 420

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        rows, columns = np.shape(numbers.probability)
        edges = (np.arange(size + 1) - 0.5 for size in (columns, rows))
        # A mesh of few large cells is drawn in a third of the time that an image takes.
        self.map = axes.pcolormesh(*edges, np.zeros((rows, columns)), cmap="Blues", vmin=0, vmax=1)
        axes.set_ylim(rows - 0.5, -0.5)
        self.figure.colorbar(self.map, ax=axes, label="probability of the word shown", pad=0.01)
        axes.set_yticks(range(rows), numbers.names)
        axes.set_xticks([])
        axes.set(ylabel="stream after")
        axes.set_xlabel("read, and below it what comes", labelpad=32)
        axes.grid(False)
        centre = {"ha": "center", "va": "center", "fontsize": 9}
        self.cells = [[axes.text(c, r, "", **centre) for c in range(columns)] for r in range(rows)]
        self.frames = [
            axes.add_patch(Rectangle((c - 0.48, 0), 0.96, 0, fill=False, ec=RED, lw=2))
            for c in range(columns)
        ]
        below = {"ha": "center", "va": "top", "fontsize": 9}
        self.words = [axes.text(c, rows - 0.4, "", **below) for c in range(columns)]
        cells = [cell for row in self.cells for cell in row]
        return [self.map, *self.frames, *cells, *self.words]

    def update(self, numbers: Any) -> str:
        rows = len(numbers.names)
        self.map.set_array(np.array(numbers.probability))
        for cells, words, sure in zip(self.cells, numbers.says, numbers.probability, strict=True):
            for cell, word, p in zip(cells, words, sure, strict=True):
                cell.set(text=_shown(word), color="white" if p > DARK else BLACK)
        for frame, first in zip(self.frames, numbers.settled, strict=True):
            frame.set(y=first - 0.5, height=rows - first)
        for text, read, comes in zip(self.words, numbers.read, numbers.comes, strict=True):
            text.set_text(f"{_shown(read)}\n{_shown(comes)}")
        parts = [
            f"“{_shown(word)}” " + (f"from {numbers.names[first]}" if first < rows else "never")
            for word, first in zip(numbers.comes, numbers.settled, strict=True)
        ]
        return (
            f"Words {numbers.first} to {numbers.first + len(parts) - 1}. Framed: from where on the "
            f"word that comes is the likeliest: {', '.join(parts)}."
        )


class DepthPicture(Picture):
    """How unsure early readings are, and how wrong."""

    width, height = 680, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        places = range(len(numbers.names))
        axes.plot(places, numbers.surprise, "-s", color=ORANGE, label="loss of the reading")
        axes.plot(places, numbers.entropy, "-o", color=BLUE, label="its entropy: how unsure it is")
        axes.axhline(numbers.loss, color=GREY, ls="--", lw=1.5, label="loss of the whole model")
        axes.set(yscale="log", ylabel="nats a word", xlabel="stream after")
        axes.yaxis.set_major_formatter("{x:g}")
        name_writes(axes, numbers.names)
        axes.legend(loc="upper right")
        return []

    def update(self, numbers: Any) -> str:
        return (
            f"Read right after the embedding, the stream is sure (entropy "
            f"{numbers.entropy[0]:.2f} nats) and wrong (loss {numbers.surprise[0]:.1f}). At the "
            f"end its entropy is {numbers.entropy[-1]:.2f} and its loss {numbers.surprise[-1]:.2f}."
        )


def _shown(word: str) -> str:
    return word.replace("\n", "↵")
