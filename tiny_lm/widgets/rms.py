"""Chapter 02: labs on RMS and RMSNorm."""

from __future__ import annotations

from tiny_lm.plots import rms as plots
from tiny_lm.probes import rms as probes
from tiny_lm.widgets.controls import scale, slider
from tiny_lm.widgets.lab import Lab


def pair() -> Lab:
    """Where do RMSNorm and LayerNorm send a pair of numbers?"""
    controls = {"x1": slider("x₁", -6, 6, 3.0), "x2": slider("x₂", -6, 6, 4.0)}
    return Lab(probes.pair, plots.PairPicture, controls)


def gain() -> Lab:
    """What does the gain make of the circle that the division leads to?"""
    controls = {
        "degrees": slider("direction of x, °", 0, 360, 50.0, step=5),
        "g1": slider("g₁", -3, 3, 2.0),
        "g2": slider("g₂", -3, 3, 0.5),
    }
    return Lab(probes.gained, plots.GainPicture, controls)


def scale_and_shift() -> Lab:
    """Which changes of the input does a norm not see?"""
    controls = {
        "factor": scale("c, factor", -4, 2, 1.0),
        "offset": slider("b, offset", -20, 20, 0.0, step=0.5),
    }
    return Lab(probes.scaled_and_shifted, plots.ScaleShiftPicture, controls)


def nudge() -> Lab:
    """In which directions does RMSNorm pass a small change on?"""
    controls = {"degrees": slider("from x to dx, °", 0, 360, 45.0, step=1)}
    return Lab(probes.nudge, plots.NudgePicture, controls)
