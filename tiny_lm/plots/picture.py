"""Picture: a figure kept open, whose moving parts alone are drawn again when the numbers change."""

from __future__ import annotations

import base64
import io
import struct
import textwrap
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from tiny_lm.plots.stamps import Stamps

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

_THREAD = ThreadPoolExecutor(max_workers=1)  # zlib lets other threads of Python work beside it


class Picture(ABC):
    """A matplotlib figure that follows its numbers.

    A subclass writes two methods. `build(numbers)` draws what stays on `self.figure` and returns
    the artists that move; `update(numbers)` moves them and returns one sentence that says what is
    seen: the caption, the alternative text, and what a test compares. Whatever else `update`
    changes (limits, ticks, a title, a legend) is drawn again too, but a move then takes some
    three times longer: set only what must change.
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
        self._stamps = Stamps(dpi)
        self.sentence = self.show(numbers)
        self._lay_out()

    def _lay_out(self) -> None:
        """Place the axes once: they stay there, so that nothing jumps when limits change."""
        engine, before = self.figure.get_layout_engine(), None
        for _ in range(10 if engine else 0):  # a round leaves about a quarter of what was wrong
            with rc_context(STYLE):
                engine.execute(self.figure)
            places = np.array([axes.get_position().bounds for axes in self.figure.axes])
            if before is not None and np.abs(places - before).max() < 1e-3:
                break
            before = places
        self.figure.set_layout_engine("none")

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
        if self._background is None or self.figure.stale:  # animated artists do not make it stale
            with rc_context(STYLE):
                self._canvas.draw()  # leaves the animated artists out
            self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        self._canvas.restore_region(self._background)
        buffer = np.asarray(self._canvas.buffer_rgba())
        for artist in self._moving:
            if self._stamps.can_draw(artist):
                self._stamps.draw(artist, buffer)
            else:
                self.figure.draw_artist(artist)
        return buffer[..., :3]

    def png(self) -> str:
        """The picture alone, base64, encoded for speed."""
        return base64.b64encode(png_bytes(self.pixels())).decode()

    def still(self) -> str:
        """The picture with its sentence below it, base64, for readers without a kernel."""
        both = np.concatenate([self.pixels(), _strip(self.sentence, self.width)])
        # 64 colours are enough for lines and text, and make a stored notebook three times smaller.
        near = Image.Quantize.MAXCOVERAGE  # no pixel far off, in half the time of the median cut
        image = Image.fromarray(both).quantize(64, near, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        image.save(buffer, "png", compress_level=8)
        return base64.b64encode(buffer.getvalue()).decode()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        return (
            {"text/plain": self.sentence, "image/png": self.still()},
            {"image/png": {"width": self.width, "alt": self.sentence}},
        )


def y_limits(axes: Axes, low: float, high: float) -> None:
    """Set the limits if they are others: setting them at all makes a move draw everything again."""
    if axes.get_ylim() != (low, high):
        axes.set_ylim(low, high)


def number(value: float, digits: int = 2) -> str:
    """A number as a sentence shows it: rounded, with a real minus sign and never −0."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def vector(values: Sequence[float], digits: int = 2) -> str:
    """A vector as a sentence shows it: `[3.00, −4.00]`."""
    return "[" + ", ".join(number(value, digits) for value in values) + "]"


def png_bytes(pixels: np.ndarray) -> bytes:
    """A PNG file of `[height, width, 3]` bytes, in a sixth of the time that PIL takes.

    PIL tries five filters on every row; flat drawings pack as well without any. The upper half is
    packed while a thread packs the lower one. (Format: PNG specification, W3C 2003, chapters 5, 9
    and 11; zlib, RFC 1950, and two pieces of deflate in a row, RFC 1951.)
    """
    height, width, _ = pixels.shape
    no_filter = np.zeros((height, 1), np.uint8)  # the byte that each row begins with
    rows = np.concatenate([no_filter, pixels.reshape(height, -1)], axis=1)
    lower = _THREAD.submit(_deflated, rows[height // 2 :], zlib.Z_FINISH)
    upper = _deflated(rows[: height // 2], zlib.Z_FULL_FLUSH)
    packed = b"\x78\x01" + upper + lower.result() + struct.pack(">I", zlib.adler32(rows))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    chunks = (b"IHDR", header), (b"IDAT", packed), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def _deflated(rows: np.ndarray, end: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(rows) + packer.flush(end)


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
