"""Picture: what moves is drawn again, what stays is kept, and the words go with the drawing."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tiny_lm.plots.picture import SHARPNESS, Picture, png_bytes


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


class Named(Dot):
    """Its title, ticks and legend follow the numbers, not only its limits."""

    def build(self, numbers):
        moving = super().build(numbers)
        self.legend = self.axes.legend([self.dot], ["dot"])
        self.axes.set_title("small")
        return moving

    def update(self, numbers):
        if numbers > 5:
            self.axes.set_title("large")
            self.axes.set_xticks([0, 5, 10], ["none", "half", "all"])
            self.legend.get_texts()[0].set_text("large dot")
        self.dot.set_data([numbers], [0.0])
        return f"The dot stands at {numbers}."


def test_titles_ticks_and_legends_follow():
    picture = Named(2)
    before = picture.pixels().copy()
    picture.show(8)
    after = picture.pixels().copy()
    for part in (slice(0, 40), slice(-60, None)):
        assert not np.array_equal(before[part], after[part])
    picture._background = None
    assert np.array_equal(after, picture.pixels())


def test_a_move_does_not_draw_again_what_stays(monkeypatch):
    picture = Named(2)
    picture.pixels()
    monkeypatch.setattr(picture._canvas, "draw", lambda: pytest.fail("drawn again"))
    picture.show(3)
    picture.pixels()


@given(st.integers(1, 9), st.integers(1, 9), st.randoms())
def test_png_bytes_are_read_back_as_they_were(height, width, random):
    pixels = np.frombuffer(random.randbytes(3 * height * width), np.uint8)
    pixels = pixels.reshape(height, width, 3)
    image = Image.open(io.BytesIO(png_bytes(pixels)))
    assert image.mode == "RGB" and np.array_equal(np.asarray(image), pixels)


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
