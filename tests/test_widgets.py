"""Every lab: each control moves picture and sentence, Reset brings both back, all can be read.

They stand in one file, for a lab is built once in it: its first picture takes the longest.
"""

from __future__ import annotations

import base64
import io
import random
from functools import cache
from itertools import combinations
from typing import NamedTuple

import ipywidgets
import numpy as np
import pytest
from lab_labels import stored, words
from labs import all_labs
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image
from test_palette import lightness_apart

from tiny_lm.widgets.controls import NumberControl, ScaleControl
from tiny_lm.widgets.lab import WIDGET_MIME


def settings(control):
    """Values to try on a control: its options, or both ends and the middle."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if hasattr(control, "options"):
        return [option[1] if isinstance(option, tuple) else option for option in control.options]
    if isinstance(control, ScaleControl):
        return [control.min, control.nearest((control.min * control.max) ** 0.5), control.max]
    return [control.min, (control.min + control.max) // 2, control.max]


def elsewhere(control):
    """A value other than the one the control has."""
    return next(value for value in settings(control) if value != control.value)


made = cache(lambda make: make())


@pytest.fixture(params=list(all_labs()))
def lab(request):
    """A lab as it is at first; every test leaves its picture where its controls stand."""
    lab = made(request.param)
    if lab.values != lab._defaults:
        lab.reset()
    return lab


def image(lab):
    return lab.box.children[-1].value


class Seen(NamedTuple):
    """What a lab shows at one setting of one control."""

    image: str
    sentence: str
    error: str
    whole: bool
    hidden: list  # words and points that are drawn where nobody sees them


def seen(lab, name):
    """What is shown while one control goes through its settings: `{value: Seen}`."""
    found = {}
    for value in settings(lab.controls[name]):
        lab.controls[name].value = value
        said = image(lab), lab.sentence, lab.error
        found[value] = Seen(*said, whole=is_whole(lab), hidden=hidden(lab.picture))
    return found


def is_whole(lab):
    """Is the image that is shown what a full redraw gives?"""
    _, _, rest = image(lab).partition("base64,")
    shown = Image.open(io.BytesIO(base64.b64decode(rest.partition('"')[0])))
    lab.picture._background = None
    return np.array_equal(shown, lab.picture.pixels())


def hidden(picture):
    """Words beyond the picture's edge, and points outside their axes."""
    width, height = picture.figure.bbox.size
    found, stale = [], picture.figure.stale
    for text in drawn_texts(picture):
        box = text.get_window_extent()
        if min(box.x0, box.y0) <= -1 or box.x1 >= width + 1 or box.y1 >= height + 1:
            found.append(text)
    for line in picture.figure.findobj(Line2D):
        if line.get_animated() and line.get_marker() not in ("None", "", None):
            points = line.get_transform().transform(line.get_xydata())
            points = points[np.isfinite(points).all(axis=1)]
            box = line.axes.bbox.padded(1)
            found += [(line, point) for point in points if not box.contains(*point)]
    picture.figure.stale = stale  # asking for ticks alone would have the next move redraw all
    return found


def drawn_texts(picture):
    """Every text that is seen; matplotlib also keeps the labels of ticks beyond the limits."""
    beyond = set()
    for axes in picture.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = axis._update_ticks() if axes.axison else []
            ticks = axis.get_major_ticks() + axis.get_minor_ticks()
            beyond |= {t for tick in ticks if tick not in shown for t in (tick.label1, tick.label2)}
    for text in picture.figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in beyond:
            yield text


@cache
def walk(lab):
    """Every control alone through its settings: `{name: {value: Seen}}`; drawn once."""
    found = {}
    for name, control in lab.controls.items():
        found[name] = seen(lab, name)
        control.value = lab._defaults[name]
    return found


def test_each_control_moves_the_picture(lab):
    """If not where the others stand at first, then with one of them moved."""
    for name, alone in walk(lab).items():
        images = {at.image for at in alone.values()}
        for other in lab.controls.keys() - {name}:
            if len(images) == 1:
                lab.reset()
                lab.controls[other].value = elsewhere(lab.controls[other])
                images = {at.image for at in seen(lab, name).values()}
        assert len(images) > 1, f"{name} changes nothing"


def test_every_setting_is_drawn_and_described(lab):
    for name, alone in walk(lab).items():
        for value, at in alone.items():
            assert at.error == "", f"{name} = {value}"
            assert len(at.sentence) > 30


def numbers(lab):
    return {n: c for n, c in lab.controls.items() if isinstance(c, NumberControl)}


def test_every_slider_starts_on_one_of_its_steps(lab):
    """Else it stands beside the number it shows."""
    for name, control in numbers(lab).items():
        assert control.nearest(control.value) == control.value, name


def test_every_control_has_a_name_that_can_be_read_out(lab):
    """A slider's handle has none in ipywidgets; the field beside it must."""
    for control in lab.controls.values():
        named = getattr(control, "field", control)
        assert named.description
    assert len({getattr(c, "field", c).description for c in lab.controls.values()}) == len(
        lab.controls
    )


def test_what_stays_is_drawn_as_a_full_redraw_would_draw_it(lab):
    """Limits, ticks, titles and legends follow, and the axes stay where they are."""
    for name, alone in walk(lab).items():
        for value, at in alone.items():
            assert at.whole, f"{name} = {value}"


def test_no_words_and_no_points_are_hidden(lab):
    """A dot says where the reader is; it and all words are seen wherever the controls stand."""
    for name, alone in walk(lab).items():
        for value, at in alone.items():
            assert at.hidden == [], f"{name} = {value}"
    draw = random.Random(0)
    for _ in range(12):
        values = {name: draw.choice(settings(c)) for name, c in lab.controls.items()}
        lab.picture.show(lab.probe(**values))
        assert hidden(lab.picture) == [], values
    lab.draw()


def test_reset_brings_back_the_same_picture_and_words(lab):
    before = image(lab)
    for control in lab.controls.values():
        control.value = elsewhere(control)
    lab.box.children[-2].children[0].click()
    assert image(lab) == before
    assert lab.values == lab._defaults


def test_without_a_kernel_the_default_picture_and_sentence_stay(lab):
    data, metadata = lab._repr_mimebundle_()
    default = lab.sentence
    assert data["text/plain"] == default
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data[WIDGET_MIME]["model_id"] == lab.box.model_id
    assert metadata["image/png"]["alt"] == default


def test_the_sentence_is_the_alternative_text(lab):
    assert f'alt="{lab.sentence[:20]}' in image(lab).replace("&lt;", "<").replace("&gt;", ">")


def test_labels_are_what_they_were(lab, request):
    name = request.node.callspec.id
    assert list(words(lab)) == stored().get(name), "python tests/lab_labels.py, and read"


def look(line):
    """What tells a line apart besides its colour."""
    return line.get_linestyle(), line.get_marker(), line.get_linewidth(), line.get_markersize()


def test_lines_in_one_picture_differ_by_more_than_their_hue(lab):
    for axes in lab.picture.figure.axes:
        lines = [line for line in axes.findobj(Line2D) if line in axes.lines]
        for a, b in combinations(lines, 2):
            same = to_rgb(a.get_color()) == to_rgb(b.get_color())
            if not same and look(a) == look(b):
                assert lightness_apart(a.get_color(), b.get_color()) > 10, (a, b)


def test_pictures_stand_on_white_in_a_dark_theme_too(lab):
    pixels = lab.picture.pixels()
    assert pixels.shape[-1] == 3, "no transparency"
    assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
