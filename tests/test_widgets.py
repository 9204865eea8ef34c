"""Every lab: each control moves picture and sentence, Reset brings both back, faults are shown."""

from __future__ import annotations

import base64
import importlib
import inspect
import pkgutil
from math import log

import ipywidgets
import pytest

import tiny_lm.widgets
from tiny_lm.plots.picture import Picture
from tiny_lm.widgets.lab import WIDGET_MIME, Lab


def all_labs():
    """Each public function in tiny_lm.widgets that makes a Lab, by name."""
    for module in pkgutil.iter_modules(tiny_lm.widgets.__path__):
        found = importlib.import_module(f"tiny_lm.widgets.{module.name}")
        for name, function in inspect.getmembers(found, inspect.isfunction):
            if function.__module__ == found.__name__ and "Lab" in str(
                function.__annotations__.get("return")
            ):
                yield pytest.param(function, id=f"{module.name}.{name}")


def settings(control):
    """Values to try on a control: its options, or both ends and the middle."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if hasattr(control, "options"):
        return [option[1] if isinstance(option, tuple) else option for option in control.options]
    values = [control.min, (control.min + control.max) // 2, control.max]
    if isinstance(control, ipywidgets.FloatLogSlider):
        return [control.base**value for value in values]
    return values


def elsewhere(control):
    """A value other than the one the control has."""
    return next(value for value in settings(control) if value != control.value)


@pytest.fixture(params=list(all_labs()))
def lab(request):
    return request.param()


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


def test_every_slider_starts_on_one_of_its_stops(lab):
    """Else the browser moves it to the nearest stop, and shows other numbers than are stored."""
    for name, control in lab.controls.items():
        if isinstance(control, ipywidgets.FloatSlider | ipywidgets.FloatLogSlider):
            value = control.value
            if isinstance(control, ipywidgets.FloatLogSlider):
                value = log(value, control.base)
            steps = (value - control.min) / control.step
            assert abs(steps - round(steps)) < 1e-6, name


def test_reset_brings_back_the_same_picture_and_words(lab):
    before = image(lab)
    for control in lab.controls.values():
        control.value = elsewhere(control)
    lab.box.children[-2].click()
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


class Dot(Picture):
    def build(self, numbers):
        (self.dot,) = self.figure.subplots().plot([numbers], [0.0], "o")
        return [self.dot]

    def update(self, numbers):
        self.dot.set_xdata([numbers])
        return f"The dot stands at {numbers:g}, on a line from nowhere to nowhere."


def half(x):
    if x == 3:
        raise ZeroDivisionError("planted")
    return x / 2


def test_a_fault_in_a_move_is_shown_and_the_next_move_recovers():
    control = ipywidgets.FloatSlider(1.0, min=0, max=4)
    lab = Lab(half, Dot, {"x": control})
    control.value = 3
    assert "ZeroDivisionError: planted" in lab.error
    assert "ZeroDivisionError: planted" in image(lab)
    control.value = 2
    assert lab.error == "" and "stands at 1," in image(lab)


def test_a_fault_in_the_first_picture_is_raised():
    with pytest.raises(ZeroDivisionError, match="planted"):
        Lab(half, Dot, {"x": ipywidgets.FloatSlider(3.0, min=0, max=4)})
