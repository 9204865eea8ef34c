"""Chapter 02: two labs, their numbers and what their pictures draw."""

from __future__ import annotations

from math import cos, hypot, pi, radians, sin, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_lm.plots.rms import SHARES, GainPicture, ScaleShiftPicture
from tiny_lm.probes.rms import gained, scaled_and_shifted

ROUNDING = 1e-12  # float64, numbers up to 10
GAINS = st.floats(-3, 3)


@given(st.floats(0, 360), GAINS, GAINS)
def test_the_gain_makes_an_ellipse_of_the_circle(degrees, g1, g2):
    numbers, angle = gained(degrees, g1, g2), radians(degrees)
    assert hypot(*numbers.x) == pytest.approx(sqrt(2), abs=ROUNDING)
    assert numbers.rms_normed == pytest.approx([g1 * numbers.x[0], g2 * numbers.x[1]], abs=ROUNDING)
    assert numbers.rms == pytest.approx(hypot(g1 * cos(angle), g2 * sin(angle)), abs=ROUNDING)
    low, high = sorted((abs(g1), abs(g2)))
    assert low - ROUNDING <= numbers.rms <= high + ROUNDING


@pytest.mark.parametrize("degrees", [10, 60, 100, 200, 300])
def test_layer_norm_has_two_places_whatever_the_direction(degrees):
    sign = 1.0 if cos(radians(degrees)) > sin(radians(degrees)) else -1.0
    expected = [2.0 * sign, -0.5 * sign]
    # eps 1e-5 beside half the squared distance of the two numbers, here 0.03 at least
    assert gained(degrees, 2.0, 0.5).layer_normed == pytest.approx(expected, rel=2e-4)


def test_equal_numbers_have_a_third_place():
    assert gained(45.0, 2.0, 0.5).layer_normed == pytest.approx([0, 0], abs=1e-10)


def test_the_picture_draws_the_ellipse_and_the_points():
    numbers = gained(90.0, 2.0, 0.5)
    picture = GainPicture(numbers)
    x, y = picture.ellipse.get_data()
    assert max(x) == pytest.approx(2 * sqrt(2), abs=1e-3)
    assert max(y) == pytest.approx(0.5 * sqrt(2) * sin(pi / 2), abs=1e-3)
    assert picture.rms.get_xydata()[0].tolist() == numbers.rms_normed
    assert picture.layer.get_xydata()[0].tolist() == numbers.layer_normed


@pytest.mark.parametrize(
    ("factor", "offset", "reach"),
    [(1, 0, 6), (1, 2, 12), (4, 0, 20), (10, -12.5, 60), (100, 20, 600)],
)
def test_the_bars_are_as_high_as_the_numbers_on_ticks_that_say_so(factor, offset, reach):
    picture = ScaleShiftPicture(scaled_and_shifted(1.0, 0.0))
    numbers = scaled_and_shifted(factor, offset)
    picture.show(numbers)
    inputs, rms, layer = ([bar.get_height() for bar in bars] for bars in picture.bars)
    assert [height * reach for height in inputs] == pytest.approx(numbers.x)
    assert (rms, layer) == (numbers.rms_normed, numbers.layer_normed)
    ticks = [text.get_text().replace("−", "-") for text in picture.ticks]
    assert [float(tick) for tick in ticks] == [reach * share for share in SHARES]
    assert [text.get_position()[1] for text in picture.ticks] == list(SHARES)
