"""The engine of the labs: controls that take exact values, faults that are shown, a busy mark."""

from __future__ import annotations

import time
from math import isclose

import ipywidgets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_lm.plots.picture import Picture
from tiny_lm.widgets.controls import scale, slider, switch, whole
from tiny_lm.widgets.lab import PATIENCE, Lab


class Dot(Picture):
    width, height = 240, 160

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


def image(lab):
    return lab.box.children[-1].value


# Controls: field and slider are set here as the browser sets them.


@pytest.mark.parametrize(
    ("control", "typed", "value", "shown"),
    [
        (lambda: scale("eps", -12, 0, 1e-5), "3e-7", 3e-7, "3e-7"),
        (lambda: scale("eps", -12, 0, 1e-5), "0.00012345678", 0.00012345678, "0.000123457"),
        (lambda: scale("eps", -12, 0, 1e-5), "5", 1.0, "1"),
        (lambda: scale("eps", -12, 0, 1e-5), "0", 1e-12, "1e-12"),
        (lambda: scale("eps", -12, 0, 1e-5), "-1", 1e-12, "1e-12"),
        (lambda: scale("eps", -12, 0, 1e-5), "inf", 1.0, "1"),
        (lambda: scale("eps", -12, 0, 1e-5), "nan", 1e-5, "1e-5"),
        (lambda: scale("eps", -12, 0, 1e-5), "small", 1e-5, "1e-5"),
        (lambda: scale("eps", -12, 0, 1e-5), "", 1e-5, "1e-5"),
        (lambda: slider("x", -6, 6, 3.0), "2.345", 2.345, "2.345"),
        (lambda: slider("x", -6, 6, 3.0), " \u22121.5 ", -1.5, "-1.5"),
        (lambda: slider("x", -6, 6, 3.0), "99", 6.0, "6"),
        (lambda: slider("x", -6, 6, 3.0), "[3, 4]", 3.0, "3"),
        (lambda: whole("n", 1, 128, 8), "100", 100, "100"),
        (lambda: whole("n", 1, 128, 8), "7.6", 8, "8"),
        (lambda: whole("n", 1, 128, 8), "1e99", 128, "128"),
        (lambda: whole("n", 1, 128, 8), "nan", 8, "8"),
    ],
)
def test_typing_a_number(control, typed, value, shown):
    control = control()
    control.field.value = typed
    assert control.value == value and type(control.value) is type(value)
    assert control.field.value == shown
    assert control.slider.value == control.nearest(value)


@given(st.floats(-12, 0))
def test_a_log_slider_keeps_an_exact_value_that_is_typed(power):
    control = scale("eps", -12, 0, 1e-5)
    control.field.value = repr(10**power)
    assert control.value == min(max(10**power, 1e-12), 1.0)
    assert isclose(control.slider.value, 10 ** (round(power * 4) / 4), rel_tol=1e-8)


def test_the_echo_of_a_slider_does_not_round_what_was_typed():
    control = scale("eps", -12, 0, 1e-5)
    control.field.value = "3e-7"
    control.slider.value = 10**-6.5 * (1 + 1e-15)  # what the browser makes of it
    assert control.value == 3e-7
    moves = []
    control.slider.observe(lambda change: moves.append(change["new"]), names="value")
    control.slider.value = 10**-6.25  # a move by the reader, and no move back
    assert moves == [10**-6.25]
    assert isclose(control.value, 10**-6.25, rel_tol=1e-8)
    assert control.field.value == "5.62341e-7"


def test_a_slider_is_moved_in_clean_steps():
    control = slider("x", -6, 6, 3.0)
    control.slider.value = 0.1 + 0.2
    assert control.value == 0.3 and control.field.value == "0.3"


def test_setting_the_value_moves_field_and_slider_and_is_seen_once():
    control, seen = whole("n", 0, 10, 2), []
    control.observe(lambda change: seen.append(change["new"]), names="value")
    control.value = 7
    assert (control.field.value, control.slider.value, seen) == ("7", 7, [7])
    control.field.value = "9"
    control.slider.value = 4
    assert seen == [7, 9, 4]


# Lab


def test_a_fault_in_a_move_is_shown_and_the_next_move_recovers():
    lab = Lab(half, Dot, {"x": slider("x", 0, 4, 1.0)})
    lab.controls["x"].value = 3
    assert "ZeroDivisionError: planted" in lab.error
    assert "ZeroDivisionError: planted" in image(lab)
    lab.controls["x"].value = 2
    assert lab.error == "" and "stands at 1," in image(lab)


def test_a_fault_in_the_first_picture_is_raised():
    with pytest.raises(ZeroDivisionError, match="planted"):
        Lab(half, Dot, {"x": slider("x", 0, 4, 3.0)})


def test_a_plain_widget_is_a_control_too():
    lab = Lab(half, Dot, {"x": ipywidgets.IntSlider(2, min=0, max=4)})
    lab.controls["x"].value = 4
    assert "stands at 2," in lab.sentence


def test_reset_draws_once():
    calls = []

    def probe(x, on):
        calls.append((x, on))
        return x

    lab = Lab(probe, Dot, {"x": slider("x", 0, 4, 1.0), "on": switch("on")})
    lab.controls["x"].value, lab.controls["on"].value = 2, False
    calls.clear()
    lab.reset()
    assert calls == [(1.0, True)]


@pytest.mark.parametrize("slow", [True, False])
def test_a_slow_move_says_that_it_is_busy_while_it_computes(slow):
    said = []

    def probe(x):
        time.sleep(3 * PATIENCE if slow and x != 1 else 0)
        said.append(("computed", x))
        return x

    lab = Lab(probe, Dot, {"x": slider("x", 0, 4, 1.0)})
    said.clear()
    busy = lab.box.children[-2].children[1]
    busy.observe(lambda change: said.append("computing" in change["new"]), names="value")
    for value in (2.0, 3.0):
        lab.controls["x"].value = value
    if slow:
        assert said == [True, ("computed", 2), False, True, ("computed", 3), False]
    else:
        assert said == [("computed", 2), ("computed", 3)]


def test_a_slow_move_that_fails_is_not_busy_for_ever():
    def probe(x):
        if x == 3:
            time.sleep(2 * PATIENCE)
            raise ZeroDivisionError("planted")
        return x

    lab = Lab(probe, Dot, {"x": slider("x", 0, 4, 1.0)})
    lab.controls["x"].value = 3
    assert "planted" in lab.error and lab.box.children[-2].children[1].value == ""
