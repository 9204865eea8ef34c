"""Chapter 06: pictures of surprise, word by word and place by place."""

from __future__ import annotations

from typing import Any

from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, Picture

COLUMNS, ROWS = 11, 8  # words of the longest sentence, sentences of the longest story
FULL = 3.0  # nats: the height of a full bar
DECIDED = 1e-9  # nats


class StoryPicture(Picture):
    """A story, a line a sentence; above each word bars as high as it is surprising."""

    width, height = 780, 480

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, COLUMNS), ylim=(ROWS, -0.1))
        axes.set_axis_off()
        self.texts = [
            [axes.text(c + 0.5, r + 0.84, "", ha="center", va="center") for c in range(COLUMNS)]
            for r in range(ROWS)
        ]
        self.bars = [
            axes.add_collection(LineCollection([], colors=colour, linewidths=7))
            for colour in (BLUE, ORANGE)
        ]
        axes.plot([10.6, 10.6], [0.05, 0.05 + 0.6 * 2 / FULL], color=BLACK, lw=1.5)
        axes.text(10.5, 0.05 + 0.3 * 2 / FULL, "2 nats", ha="right", va="center", fontsize=9)
        handles = [Line2D([], [], color=BLUE, lw=7, label="to the grammar")]
        if numbers.model:
            handles.append(Line2D([], [], color=ORANGE, lw=7, label="to the trained model"))
        handles.append(Line2D([], [], lw=0, label="grey: decided by what was said"))
        self.figure.legend(handles=handles, loc="outside upper left", ncols=3)
        return [*self.bars, *(text for row in self.texts for text in row)]

    def update(self, numbers: Any) -> str:
        for r, row in enumerate(self.texts):
            words = numbers.words[r] if r < len(numbers.words) else []
            for c, text in enumerate(row):
                text.set_text(words[c].replace("\n", "↵") if c < len(words) else "")
                free = c < len(words) and numbers.grammar[r][c] > DECIDED
                text.set_color(BLACK if free else GREY)
        aside = 0.08 if numbers.model else 0.0
        self.bars[0].set_segments(_bars(numbers.grammar, -aside))
        self.bars[1].set_segments(_bars(numbers.model, aside))
        return self._says(numbers)

    def _says(self, numbers: Any) -> str:
        known = [nats for sentence in numbers.grammar for nats in sentence]
        decided = sum(nats <= DECIDED for nats in known)
        mean = sum(known) / len(known)
        if not numbers.model:
            return (
                f"Story {numbers.number} has {len(known)} words, and {decided} of them are decided "
                f"by what was said before. All together surprise the grammar by {sum(known):.2f} "
                f"nats, {mean:.3f} a word."
            )
        learned = [nats for sentence in numbers.model for nats in sentence]
        words = [word for sentence in numbers.words for word in sentence]
        worst = max(range(len(words)), key=lambda i: learned[i] - known[i])
        return (
            f"Story {numbers.number}: {mean:.3f} nats a word to the grammar, "
            f"{sum(learned) / len(learned):.3f} to the model. It is farthest behind at word "
            f"{worst + 1}, “{words[worst].replace(chr(10), '↵')}”: {learned[worst]:.2f} instead "
            f"of {known[worst]:.2f}."
        )


class PlacesPicture(Picture):
    """What the grammar expects at each place of a row: where it is sure and where it is not."""

    width, height = 720, 320

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        self.places = range(1, len(numbers.expected) + 1)
        axes.bar(self.places, numbers.expected, color=BLUE, alpha=0.55, label="at this place")
        axes.plot(self.places, numbers.running, color=ORANGE, label="mean of all up to here: floor")
        axes.axhline(numbers.rate, color=BLACK, ls="--", lw=1.5, label="entropy rate")
        axes.set(xlabel="place in the row", ylabel="expected surprise, nats")
        axes.set_xlim(0, len(self.places) + 1)
        axes.legend(loc="upper right")
        return []

    def update(self, numbers: Any) -> str:
        count = len(numbers.expected)
        return (
            f"The expected surprise at each of the first {count} places of a row. Its running mean "
            f"ends at {numbers.running[-1]:.4f} nats, above the entropy rate {numbers.rate:.4f}."
        )


def _bars(values: list[list[float]], aside: float) -> list:
    """A segment from the line of words up, for each value; none for a word that is sure."""
    return [
        [(c + 0.5 + aside, r + 0.68), (c + 0.5 + aside, r + 0.68 - 0.6 * min(nats, FULL) / FULL)]
        for r, sentence in enumerate(values)
        for c, nats in enumerate(sentence)
        if nats > 0.005
    ]
