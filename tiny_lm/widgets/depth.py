"""Chapter 05: labs on depth."""

from __future__ import annotations

from tiny_lm.plots import depth as plots
from tiny_lm.probes import depth, depth_laws, paths
from tiny_lm.widgets.controls import choice, whole
from tiny_lm.widgets.lab import Lab


def stack() -> Lab:
    """What does depth do to the stream, to the gradient and to different inputs?"""
    controls = {
        "layers": whole("L, layers", 1, depth.DEEPEST, 64),
        "wiring": choice("wiring", list(depth.WIRINGS), "path, no norm"),
        "init": choice("initialisation", list(depth.INITS)),
        "branch": choice("branches", list(depth.BRANCHES)),
        "seed": whole("seed", 0, 9, 0),
    }
    return Lab(depth_laws.measure, plots.DepthPicture, controls)


def lengths() -> Lab:
    """How long are the paths that carry the gradient?"""
    controls = {
        "layers": whole("L, layers", 1, paths.LONGEST, 54),
        "wiring": choice("wiring", paths.PATHS),
        "init": choice("initialisation", list(depth.INITS)),
        "seed": whole("seed", 0, 9, 0),
    }
    return Lab(paths.lengths, plots.LengthsPicture, controls)
