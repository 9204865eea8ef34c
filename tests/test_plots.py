"""Picture: what moves is drawn again, what stays is kept, and the words go with the drawing."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from tiny_lm.plots.picture import SHARPNESS, Picture


class Dot(Picture):
    width, height = 240, 160

    def build(self, numbers):
        self.axes = self.figure.subplots()
        self.axes.set(xlim=(0, 10), ylim=(-1, 1))
        (self.dot,) = self.axes.plot([], [], "o", ms=12)
        return [self.dot]

    def update(self, numbers):
        self.dot.set_data([numbers], [0.0])
        if numbers > 10:
            self.axes.set_xlim(0, 100)
        return f"The dot stands at {numbers}."


def test_moving_back_gives_the_same_pixels():
    picture = Dot(2)
    first = picture.pixels().copy()
    picture.show(8)
    moved = picture.pixels().copy()
    picture.show(2)
    assert not np.array_equal(first, moved)
    assert np.array_equal(first, picture.pixels())


def test_blitting_draws_what_a_full_redraw_draws():
    picture = Dot(2)
    picture.pixels()
    picture.show(8)
    assert np.array_equal(picture.pixels(), Dot(8).pixels())


def test_new_limits_redraw_the_background():
    picture = Dot(2)
    before = picture.pixels().copy()
    picture.show(50)
    after = picture.pixels()
    bottom = slice(-60, None)  # the tick labels
    assert not np.array_equal(before[bottom], after[bottom])


def test_sharpness_and_still():
    picture = Dot(2)
    assert picture.pixels().shape == (160 * SHARPNESS, 240 * SHARPNESS, 3)
    still = Image.open(io.BytesIO(base64.b64decode(picture.still())))
    assert still.width == 240 * SHARPNESS
    assert still.height > 160 * SHARPNESS  # the sentence stands below


def test_bundle_has_words_for_those_who_do_not_see_it():
    data, metadata = Dot(2)._repr_mimebundle_()
    assert data["text/plain"] == "The dot stands at 2."
    assert metadata["image/png"]["alt"] == "The dot stands at 2."
