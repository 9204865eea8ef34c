"""Words drawn from memory: without it, drawing the same words again is most of a move's time."""

from __future__ import annotations

from copy import copy
from math import ceil
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

MOST = 2_000  # stamps kept; a lab has some dozens


class Stamp(NamedTuple):
    """A word as pixels, and where its lower left corner lies from the place it stands at.

    255 · what is seen = colour + clear · what was there
    """

    colour: np.ndarray  # [height, width, 3], times its alpha: 0 … 255²
    clear: np.ndarray  # [height, width, 1], 255 less its alpha
    left: int
    below: int


class Stamps:
    """Draws `Text` artists at whole pixels, each word of one look only once."""

    def __init__(self, dpi: float):
        self._dpi = dpi
        self._kept: dict[tuple, Stamp] = {}

    def can_draw(self, artist: object) -> bool:
        """Whether it is plain text: no frame around it, and not cut off by its axes."""
        return type(artist) is Text and not artist.get_bbox_patch() and not artist.get_clip_on()

    def draw(self, text: Text, buffer: np.ndarray) -> None:
        """Put a text on `[height, width, 4]` bytes, the first row on top."""
        if not text.get_visible() or not text.get_text():
            return
        stamp = self._stamp(text)
        x, y = text.get_transform().transform(text.get_position())
        height, width, _ = stamp.colour.shape
        left = round(float(x)) + stamp.left
        top = len(buffer) - (round(float(y)) + stamp.below) - height
        cut_left, cut_top = max(0, -left), max(0, -top)
        under = buffer[
            top + cut_top : max(0, top + height), left + cut_left : max(0, left + width), :3
        ]
        here = np.s_[cut_top : cut_top + under.shape[0], cut_left : cut_left + under.shape[1]]
        mixed = stamp.clear[here] * under  # in 16 bits: at most 255²
        mixed += stamp.colour[here]
        mixed += 128
        mixed += mixed >> 8  # a division by 255, rounded, of whole numbers up to 255²
        mixed >>= 8
        under[...] = mixed

    def _stamp(self, text: Text) -> Stamp:
        look = (text.get_text(), text.get_color(), text.get_alpha(), text.get_rotation())
        look += (text.get_fontproperties(), text.get_ha(), text.get_va())
        if look not in self._kept:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[look] = self._drawn(text)
        return self._kept[look]

    def _drawn(self, text: Text) -> Stamp:
        word = copy(text)
        word.set_transform(IdentityTransform())
        word.set_position((0, 0))
        box = word.get_window_extent(RendererAgg(1, 1, self._dpi))
        left, below = int(box.x0) - 2, int(box.y0) - 2  # room for what leans out of the box
        renderer = RendererAgg(ceil(box.x1) + 2 - left, ceil(box.y1) + 2 - below, self._dpi)
        word.set_position((-left, -below))
        word.draw(renderer)
        rgba = np.asarray(renderer.buffer_rgba()).astype(np.uint16)
        alpha = rgba[..., 3:]
        return Stamp(rgba[..., :3] * alpha, 255 - alpha, left, below)
