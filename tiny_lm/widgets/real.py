"""Chapter 08: labs on a real model's stream, on 16 bits, and on what it survives."""

from __future__ import annotations

from functools import partial

from tiny_lm.plots import real as plots
from tiny_lm.probes import explorer, half_norms, real
from tiny_lm.probes.streams import Reading
from tiny_lm.widgets.controls import choice, whole
from tiny_lm.widgets.lab import Lab


def stream(reading: Reading, tap: int = 0, coordinate: int = 0) -> Lab:
    """Where in a recorded stream are the large numbers?"""
    taps, positions, width = reading.stream.shape
    controls = {
        "tap": whole("tap", 0, taps - 1, tap),
        "position": whole("position", 0, positions - 1, 0),
        "coordinate": whole("coordinate", 0, width - 1, coordinate),
    }
    return Lab(partial(explorer.view, reading), plots.ViewPicture, controls)


def sixteen_bits(reading: Reading, norm: int = 0) -> Lab:
    """What do norms make of the rows that they read, in 16 bits?"""
    controls = {
        "norm": whole("norm", 0, len(reading.read) - 1, norm),
        "position": whole("position", 0, len(reading.ids) - 1, 0),
        "way": choice("computed in", list(half_norms.WAYS), "float16, mean of squares"),
    }
    return Lab(partial(half_norms.steps, reading), plots.StepsPicture, controls)


def cuts() -> Lab:
    """Which blocks, and which additions, can the real model do without?"""
    names = list(real.paragraphs())
    controls = {
        "kind": choice("operation", list(real.PARTS)),
        "paragraph": choice("paragraph", names),
        "block": whole("block", 0, len(real.cuts(next(iter(real.PARTS)), names[0]).after) - 1, 11),
    }
    return Lab(real.cuts, plots.CutsPicture, controls)
