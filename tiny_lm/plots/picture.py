"""Picture: a figure kept open, whose moving parts alone are drawn again when the numbers change."""

from __future__ import annotations

import base64
import io
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

# Okabe and Ito's palette, told apart by colour-blind readers. Lines get a label or marker too.
BLUE, RED, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, BLACK = "#E69F00", "#56B4E9", "#7F7F7F", "#222222"

STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.edgecolor": GREY,
    "legend.frameon": False,
    "lines.linewidth": 2,
}
PIXELS_PER_INCH = 96
SHARPNESS = 2  # picture pixels per screen pixel: sharp on high-density screens


class Picture(ABC):
    """A matplotlib figure that follows its numbers.

    A subclass writes two methods. `build(numbers)` draws what stays on `self.figure` and returns
    the artists that move; `update(numbers)` moves them and returns one sentence that says what is
    seen: the caption, the alternative text, and what a test compares. Axis limits may change in
    `update`; everything else outside the moving artists is drawn once.
    """

    width, height = 560, 320  # screen pixels

    def __init__(self, numbers: Any):
        # A Figure without pyplot: nothing is registered globally, shown twice or kept alive.
        inches = (self.width / PIXELS_PER_INCH, self.height / PIXELS_PER_INCH)
        dpi = PIXELS_PER_INCH * SHARPNESS
        with rc_context(STYLE):
            self.figure = Figure(figsize=inches, dpi=dpi, layout="constrained")
            self._canvas = FigureCanvasAgg(self.figure)
            self._moving = list(self.build(numbers))
        for artist in self._moving:
            artist.set_animated(True)
        self._background: Any = None
        self._limits: Any = None
        self.sentence = self.show(numbers)

    @abstractmethod
    def build(self, numbers: Any) -> Sequence[Artist]:
        """Draw the axes and everything that stays; return the artists that move."""

    @abstractmethod
    def update(self, numbers: Any) -> str:
        """Move the artists to these numbers; return the sentence that describes the picture."""

    def show(self, numbers: Any) -> str:
        """Update the picture and return its sentence."""
        with rc_context(STYLE):
            self.sentence = self.update(numbers)
        return self.sentence

    def pixels(self) -> np.ndarray:
        """The picture as it stands: `[2 · height, 2 · width, 3]`, bytes."""
        limits = [(*axes.get_xlim(), *axes.get_ylim()) for axes in self.figure.axes]
        if limits != self._limits:
            with rc_context(STYLE):
                self._canvas.draw()  # leaves out the animated artists
            self._background = self._canvas.copy_from_bbox(self.figure.bbox)
            self._limits = limits
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            self.figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3]

    def png(self) -> str:
        """The picture alone, base64, encoded for speed."""
        return _encode(self.pixels(), compress_level=1)

    def still(self) -> str:
        """The picture with its sentence below it, base64, for readers without a kernel."""
        both = np.concatenate([self.pixels(), _strip(self.sentence, self.width)])
        # 64 colours are enough for lines and text, and make a stored notebook three times smaller.
        return _encode(both, colours=64, compress_level=9)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        return (
            {"text/plain": self.sentence, "image/png": self.still()},
            {"image/png": {"width": self.width, "alt": self.sentence}},
        )


def number(value: float, digits: int = 2) -> str:
    """A number as a sentence shows it: rounded, with a real minus sign and never −0."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def vector(values: Sequence[float], digits: int = 2) -> str:
    """A vector as a sentence shows it: `[3.00, −4.00]`."""
    return "[" + ", ".join(number(value, digits) for value in values) + "]"


def _encode(pixels: np.ndarray, compress_level: int, colours: int | None = None) -> str:
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if colours:
        image = image.quantize(colours, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, "png", compress_level=compress_level)
    return base64.b64encode(buffer.getvalue()).decode()


def _strip(sentence: str, width: int) -> np.ndarray:
    """The sentence as an image as wide as the picture."""
    lines = textwrap.wrap(sentence, width=int(width / 6.7))
    height = 17 * len(lines) + 12
    dpi = PIXELS_PER_INCH * SHARPNESS
    figure = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), dpi=dpi)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.02, 0.95, "\n".join(lines), va="top", fontsize=9, color=BLACK, linespacing=1.35)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
