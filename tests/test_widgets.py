"""Every lab: each control moves picture and sentence, Reset brings both back, faults are shown."""

from __future__ import annotations

import base64
import importlib
import inspect
import pkgutil
import random
from functools import cache, partial

import ipywidgets
import numpy as np
import pytest
import torch
from matplotlib.lines import Line2D
from matplotlib.text import Text

import tiny_lm.widgets
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import streams
from tiny_lm.widgets.controls import NumberControl, ScaleControl
from tiny_lm.widgets.lab import WIDGET_MIME


def recording():
    """A text in a small model, with a row that float16 cannot square."""
    sizes = {"vocab_size": 50, "n_layers": 3, "d_model": 16, "d_ff": 32}
    model = TinyLM(ModelConfig(**sizes), init="fan_in").eval()
    with torch.no_grad():
        model.embedding.weight[3] *= 5000.0
    return streams.read(model, [3, 1, 4, 1, 5])


# Labs of a chapter that are given what they look at.
GIVEN = {"real.stream": recording, "real.sixteen_bits": recording}


def all_labs():
    """Each public function in tiny_lm.widgets that makes a Lab, by name."""
    for module in pkgutil.iter_modules(tiny_lm.widgets.__path__):
        found = importlib.import_module(f"tiny_lm.widgets.{module.name}")
        for name, function in inspect.getmembers(found, inspect.isfunction):
            makes = str(function.__annotations__.get("return"))
            if function.__module__ != found.__name__ or "Lab" not in makes:
                continue
            lab_name = f"{module.name}.{name}"
            if lab_name in GIVEN:
                yield pytest.param(partial(function, GIVEN[lab_name]()), id=lab_name)
            elif not inspect.signature(function).parameters:  # else not a lab of a chapter
                yield pytest.param(function, id=lab_name)


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


made = cache(lambda make: make())  # one of each: drawing the first picture takes the longest


@pytest.fixture(params=list(all_labs()))
def lab(request):
    lab = made(request.param)
    lab.reset()
    return lab


def image(lab):
    return lab.box.children[-1].value


def pictures(lab, name):
    """The pictures seen while one control goes through its settings."""
    seen = set()
    for value in settings(lab.controls[name]):
        lab.controls[name].value = value
        seen.add(image(lab))
        assert lab.error == "", f"{name} = {value}"
    return seen


def test_each_control_moves_the_picture(lab):
    """If not where the others stand at first, then with one of them moved."""
    for name in lab.controls:
        seen = len(pictures(lab, name))
        for other in lab.controls.keys() - {name}:
            if seen == 1:
                lab.reset()
                lab.controls[other].value = elsewhere(lab.controls[other])
                seen = len(pictures(lab, name))
        assert seen > 1, f"{name} changes nothing"
        lab.reset()


def test_every_setting_is_drawn_and_described(lab):
    for name, control in lab.controls.items():
        for value in settings(control):
            control.value = value
            assert lab.error == "", f"{name} = {value}"
            assert len(lab.sentence) > 30
        lab.reset()


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
    for control in lab.controls.values():
        for value in settings(control):
            control.value = value
            kept = lab.picture.pixels().copy()
            lab.picture._background = None
            assert np.array_equal(kept, lab.picture.pixels())
        lab.reset()


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
