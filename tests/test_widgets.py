"""Every lab: each control moves picture and sentence, Reset brings both back, all can be read.

They stand in one file, for a lab is built once in it: its first picture takes the longest.
"""

from __future__ import annotations

import base64
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
    lab = made(request.param)
    lab.reset()
    return lab


def image(lab):
    return lab.box.children[-1].value


class Seen(NamedTuple):
    """What a lab shows at one setting of one control."""

    image: str
    sentence: str
    error: str
    whole: bool  # is the picture what a full redraw gives?


def seen(lab, name):
    """What is shown while one control goes through its settings: `{value: Seen}`."""
    found = {}
    for value in settings(lab.controls[name]):
        lab.controls[name].value = value
        kept = lab.picture.pixels().copy()
        lab.picture._background = None
        whole = np.array_equal(kept, lab.picture.pixels())
        found[value] = Seen(image(lab), lab.sentence, lab.error, whole)
    return found


@cache
def walk(lab):
    """Every control alone through its settings: `{name: {value: Seen}}`; drawn once."""
    found = {}
    for name in lab.controls:
        lab.reset()
        found[name] = seen(lab, name)
    lab.reset()
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


def positions(lab, extra=12):
    """Each setting of each control alone, then some of all together, always the same ones."""
    for name, control in lab.controls.items():
        for value in settings(control):
            yield lab.values | {name: value}
    draw = random.Random(0)
    for _ in range(extra):
        yield {name: draw.choice(settings(control)) for name, control in lab.controls.items()}


def test_no_words_are_cut_off_by_the_edge(lab):
    width, height = lab.picture.figure.bbox.size
    for position in positions(lab):
        lab.picture.show(lab.probe(**position))
        for text in drawn_texts(lab.picture):
            box = text.get_window_extent()
            assert min(box.x0, box.y0) > -1, (text, position)
            assert box.x1 < width + 1 and box.y1 < height + 1, (text, position)


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


def test_no_point_leaves_its_axes(lab):
    """A dot says where the reader is; outside the axes it would be seen nowhere."""
    for position in positions(lab):
        lab.picture.show(lab.probe(**position))
        for line in lab.picture.figure.findobj(Line2D):
            if line.get_animated() and line.get_marker() not in ("None", "", None):
                points = line.get_transform().transform(line.get_xydata())
                points = points[np.isfinite(points).all(axis=1)]
                box = line.axes.bbox.padded(1)
                assert all(box.contains(*point) for point in points), position


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
