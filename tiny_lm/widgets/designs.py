"""Chapter 09: labs on designs."""

from __future__ import annotations

from tiny_lm.plots.designs import CurvesPicture, DepthsPicture, MeasurePicture
from tiny_lm.probes import compared, curves
from tiny_lm.probes.comparing import FULL
from tiny_lm.probes.designs import DESIGNS
from tiny_lm.widgets.controls import choice, slider
from tiny_lm.widgets.lab import Lab

_BY_TITLE = [(design.title, name) for name, design in DESIGNS.items()]


def compare() -> Lab:
    """How do two designs compare in one measure, among all of them?"""
    controls = {
        "measure": choice("measure", list(compared.MEASURES)),
        "first": choice("first, blue", _BY_TITLE, "pre"),
        "second": choice("second, orange", _BY_TITLE, "post"),
    }
    return Lab(compared.measured, MeasurePicture, controls)


def depths() -> Lab:
    """What does a design do to stream and gradients as the stack grows?"""
    blocks = [(str(n), n) for n in FULL.depths]
    controls = {
        "design": choice("design", _BY_TITLE, "post"),
        "blocks": choice("blocks", blocks, FULL.depths[-1]),
    }
    return Lab(compared.depths, DepthsPicture, controls)


def tanh() -> Lab:
    """When does a fixed curve do what a norm does?"""
    controls = {
        "others": slider("RMS of the others", 0.1, 8, 1, step=0.1),
        "alpha": slider("alpha", 0.05, 2, 0.5, step=0.05),
        "scale": slider("scale", 0.5, 8, 1, step=0.5),
    }
    return Lab(curves.curves, CurvesPicture, controls)
