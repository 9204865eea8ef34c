"""Colours that colour-blind readers can tell apart: simulated, and in lightness."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tiny_lm.plots import picture
from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, RED

# Machado, Oliveira and Fernandes 2009, table 1, severity 1, on linear RGB.
SEEN_BY = {
    "full colour": np.eye(3),
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(  # sRGB, IEC 61966-2-1, white D65
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
TOLD_APART = 9  # CIE 1976 colour difference; 2.3 is just noticeable on large patches


def cie_lab(colour, matrix=SEEN_BY["full colour"]):
    """Lightness 0 … 100 and two chromatic coordinates of a colour as seen with some cones."""
    c = np.array(to_rgb(colour))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(matrix) @ linear, 0, 1)
    ratio = TO_XYZ @ linear / TO_XYZ.sum(axis=1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(a, b, matrix=SEEN_BY["full colour"]):
    return float(np.linalg.norm(cie_lab(a, matrix) - cie_lab(b, matrix)))


def lightness_apart(a, b):
    return abs(cie_lab(a)[0] - cie_lab(b)[0])


def test_the_scale_of_differences():
    assert cie_lab("white") == pytest.approx([100, 0, 0], abs=0.01)
    assert cie_lab("black") == pytest.approx([0, 0, 0], abs=0.01)
    assert cie_lab("#ff0000") == pytest.approx([53.24, 80.09, 67.2], abs=0.1)  # a known value
    pair = "#b04040", "#608020"  # a red and a green
    assert difference(*pair, SEEN_BY["no red cones"]) < 0.7 * difference(*pair)


@pytest.mark.parametrize("matrix", SEEN_BY.values(), ids=SEEN_BY)
def test_every_two_colours_of_the_palette_differ(matrix):
    names = ["BLUE", "RED", "GREEN", "PINK", "ORANGE", "SKY", "GREY", "BLACK"]
    for a, b in combinations(names, 2):
        apart = difference(getattr(picture, a), getattr(picture, b), matrix)
        assert apart > TOLD_APART, f"{a} and {b}: {apart:.1f}"


def test_the_colours_that_carry_the_story_differ_in_lightness_too():
    """Printed in grey, these can still be told apart; so can each from the white ground."""
    for a, b in [(BLUE, ORANGE), (BLACK, BLUE), (BLACK, ORANGE), (RED, ORANGE), (GREEN, ORANGE)]:
        assert lightness_apart(a, b) > 10
    for colour in (BLUE, RED, GREEN, ORANGE, GREY, BLACK):
        assert lightness_apart(colour, "white") > 25
