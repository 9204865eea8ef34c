"""Chapters 00 and 01: labs on the residual addition."""

from __future__ import annotations

from tiny_lm.plots import residual as plots
from tiny_lm.probes import residual as probes
from tiny_lm.widgets.controls import choice, slider, whole
from tiny_lm.widgets.lab import Lab


def add() -> Lab:
    """Where does a change take a vector?"""
    controls = {
        "c1": slider("change₁", -6, 6, 2.0, step=0.5),
        "c2": slider("change₂", -6, 6, -1.0, step=0.5),
    }
    return Lab(probes.added, plots.AddPicture, controls)


def strength() -> Lab:
    """What do a branch's size and sign do to the sum and to its slope?"""
    controls = {"a": slider("a, strength", -2, 2, 0.5)}
    return Lab(probes.strength, plots.StrengthPicture, controls)


def slope() -> Lab:
    """How do the slopes of the direct path and of the branch add up?"""
    controls = {
        "branch": choice("F(x)", list(probes.BRANCHES), "2x"),
        "x": slider("x", -2, 2, 1.0, step=0.05),
    }
    return Lab(probes.slope, plots.SlopePicture, controls)


def two_paths() -> Lab:
    """How long is the sum of two gradients?"""
    controls = {
        "a": slider("a, length", 0, 2, 1.0),
        "degrees": slider("angle, °", 0, 360, 60.0, step=5),
    }
    return Lab(probes.two_paths, plots.TwoPathsPicture, controls)


def depth() -> Lab:
    """What is left of a gradient after many equal layers?"""
    controls = {
        "a": slider("a, slope of a branch", -2.5, 2, 0.1, step=0.01),
        "layers": whole("layers", 1, 200, 100),
    }
    return Lab(probes.depth, plots.DepthPicture, controls)


def swallowed() -> Lab:
    """Which updates of a stream get lost in 16 bits?"""
    controls = {"update": slider("size of an update", 0.0002, 0.02, 0.003, step=0.0002)}
    return Lab(probes.swallowed, plots.SwallowedPicture, controls)
