"""Chapter 07: a picture of what one word takes from a whole story, in one head."""

from __future__ import annotations

from typing import Any

from matplotlib import colormaps
from matplotlib.patches import Rectangle

from tiny_lm.plots.picture import BLACK, GREY, RED, Picture
from tiny_lm.plots.stories import COLUMNS, ROWS

BLUES = colormaps["Blues"]


class StoryHeadPicture(Picture):
    """A story, a line a sentence; words that are looked at are dark, the one that looks framed."""

    width, height = 780, 330

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(0, COLUMNS), ylim=(ROWS, 0))
        axes.set_axis_off()
        spots = [(r, c) for r in range(ROWS) for c in range(COLUMNS)]
        self.boxes = {
            (r, c): axes.add_patch(Rectangle((c + 0.04, r + 0.08), 0.92, 0.84, fc="white", lw=0))
            for r, c in spots
        }
        self.texts = {
            (r, c): axes.text(c + 0.5, r + 0.5, "", ha="center", va="center") for r, c in spots
        }
        look = {"fill": False, "ec": RED, "lw": 2.5}
        self.frame = axes.add_patch(Rectangle((0, 0), 0.92, 0.84, **look))
        return [*self.boxes.values(), *self.texts.values(), self.frame]

    def update(self, numbers: Any) -> str:
        for box, text in zip(self.boxes.values(), self.texts.values(), strict=True):
            box.set_facecolor("white")
            text.set_text("")
        r = c = 0
        for i, word in enumerate(numbers.words):
            weight = numbers.weights[i] if i < numbers.at else 0.0
            self.boxes[r, c].set_facecolor(BLUES(weight))
            colour = "white" if weight > 0.55 else BLACK if i < numbers.at else GREY
            self.texts[r, c].set(text=word.replace("\n", "↵"), color=colour)
            if i == numbers.at - 1:
                self.frame.set_xy((c + 0.04, r + 0.08))
            ends = word == "." and numbers.words[i + 1 : i + 2] != ["\n"]
            r, c = (r + 1, 0) if ends else (r, c + 1)
        return self._says(numbers)

    def _says(self, numbers: Any) -> str:
        best = sorted(range(numbers.at), key=lambda j: -round(numbers.weights[j], 6))[:3]
        parts = [f"{numbers.weights[j]:.0%} from “{numbers.words[j]}” ({j + 1})" for j in best]
        word = numbers.words[numbers.at - 1]
        return (
            f"Block {numbers.block}, head {numbers.head}: “{word}”, word {numbers.at}, takes "
            f"{', '.join(parts)}; and {numbers.before:.0%} from the end before the story."
        ).replace("\n", "↵")
