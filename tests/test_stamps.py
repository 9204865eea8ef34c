"""Words drawn from memory look as matplotlib draws them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import IdentityTransform

from tiny_lm.plots import stamps as module
from tiny_lm.plots.stamps import Stamps

WIDTH, HEIGHT = 240, 120
LOOKS = [
    {"s": "norm1"},
    {"s": "reads\n[0.85, 1.13]", "ha": "center", "va": "center"},
    {"s": "$10^{-3}$", "color": "#D55E00", "fontsize": 14, "va": "top"},
    {"s": "grey", "alpha": 0.4, "rotation": 60, "ha": "right"},
]


class Page:
    """An empty page, and a text on it at pixels from the lower left corner."""

    def __init__(self):
        self.figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="#fff4dd")
        self.canvas = FigureCanvasAgg(self.figure)
        self.canvas.draw()
        self.empty = self.pixels().copy()

    def pixels(self):
        return np.asarray(self.canvas.buffer_rgba())

    def text(self, x, y, **look):
        return self.figure.text(x, y, transform=IdentityTransform(), **look)

    def by_matplotlib(self, text):
        self.pixels()[:] = self.empty
        self.figure.draw_artist(text)
        return self.pixels()[..., :3].copy()

    def by_stamp(self, text, stamps=None):
        self.pixels()[:] = self.empty
        (stamps or Stamps(100)).draw(text, self.pixels())
        return self.pixels()[..., :3].copy()


def apart(a, b):
    return np.abs(a.astype(int) - b.astype(int)).max()


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look["s"].split("\n")[0])
def test_at_whole_pixels_it_is_what_matplotlib_draws(look):
    page = Page()
    text = page.text(120, 60, **look)
    theirs = page.by_matplotlib(text)
    assert apart(theirs, page.empty[..., :3]) > 60, "something is drawn"
    assert apart(page.by_stamp(text), theirs) <= 2  # two ways to round a mixture of two colours


def test_between_pixels_it_is_drawn_at_the_nearest():
    page = Page()
    between, near = page.text(100.4, 59.7, s="word"), page.text(100, 60, s="word")
    assert (page.by_stamp(between) == page.by_stamp(near)).all()


@pytest.mark.parametrize("place", [(-9, 60), (225, 60), (60, -4), (60, 112), (500, 60), (60, -90)])
def test_at_an_edge_the_rest_is_cut_off(place):
    page = Page()
    text = page.text(*place, s="over the edge")
    assert apart(page.by_stamp(text), page.by_matplotlib(text)) <= 2


def test_a_word_is_drawn_once_and_another_look_is_another_word(monkeypatch):
    page, stamps, drawn = Page(), Stamps(100), []
    original = Stamps._drawn
    monkeypatch.setattr(Stamps, "_drawn", lambda self, t: drawn.append(t) or original(self, t))
    text = page.text(50, 50, s="one")
    first = page.by_stamp(text, stamps)
    assert (page.by_stamp(text, stamps) == first).all() and len(drawn) == 1
    changes = {"color": "red", "fontsize": 15, "text": "two", "alpha": 0.5, "rotation": 5}
    changes |= {"ha": "right", "va": "top", "fontweight": "bold", "fontstyle": "italic"}
    for count, (name, value) in enumerate(changes.items(), 2):
        text.set(**{name: value})
        assert not (page.by_stamp(text, stamps) == first).all(), name
        assert len(drawn) == count
        assert apart(page.by_stamp(text, stamps), page.by_matplotlib(text)) <= 2


def test_what_is_hidden_or_empty_leaves_nothing():
    page = Page()
    for text in (page.text(50, 50, s=""), page.text(50, 50, s="hidden", visible=False)):
        assert (page.by_stamp(text) == page.empty[..., :3]).all()


def test_what_it_cannot_draw_is_left_to_matplotlib():
    page, stamps = Page(), Stamps(100)
    axes = page.figure.subplots()
    assert stamps.can_draw(axes.text(0, 0, "plain"))
    assert not stamps.can_draw(axes.text(0, 0, "framed", bbox={"facecolor": "white"}))
    assert not stamps.can_draw(axes.text(0, 0, "cut", clip_on=True))
    assert not stamps.can_draw(axes.annotate("arrow", (0, 0)))
    assert not stamps.can_draw(axes.plot([0], [0])[0])


def test_memory_has_an_end(monkeypatch):
    monkeypatch.setattr(module, "MOST", 20)
    page, stamps = Page(), Stamps(100)
    text = page.text(50, 50, s="")
    for number in range(20 + 3):
        text.set_text(str(number))
        stamps.draw(text, page.pixels())
    assert len(stamps._kept) == 3
