"""Chapters 01, 02 and 04: labs that look inside a derivative and inside a forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tiny_lm.plots.graph import GraphPicture
from tiny_lm.plots.inspector import InspectorPicture
from tiny_lm.plots.jacobian import MicroscopePicture
from tiny_lm.probes import graph as graph_probes
from tiny_lm.probes import inspector as inspector_probes
from tiny_lm.probes import jacobian as jacobian_probes
from tiny_lm.widgets.controls import choice, slider, whole
from tiny_lm.widgets.lab import Lab


def two_paths_back() -> Lab:
    """How does a gradient come back through x + F(x)?"""
    controls = {
        "step": whole("step", 0, 3, 0),
        "x": slider("x", -3, 3, 3.0, step=0.5),
        "factor": slider("w", -2, 2, 2.0, step=0.5),
    }
    return Lab(graph_probes.residual, GraphPicture, controls)


def norm_back() -> Lab:
    """How does a gradient come back through RMSNorm, one operation at a time?"""
    controls = {
        "step": whole("step", 0, 7, 0),
        "result": choice("gradient of", list(graph_probes.SEEDS)),
    }
    return Lab(graph_probes.rms_norm, GraphPicture, controls)


def microscope(branch: str = "x") -> Lab:
    """What do the direct path and a branch make of a gradient, in one layer and in many?"""
    controls = {
        "branch": choice("F(x)", list(jacobian_probes.BRANCHES), branch),
        "gain": slider("gain", -1, 2, 0.5, step=0.05),
        "layers": whole("layers", 1, 64, 20),
    }
    return Lab(jacobian_probes.microscope, MicroscopePicture, controls)


def inspector(recorded: Mapping[str, Any] | None = None, name: str | None = None) -> Lab:
    """What does a value inside a forward pass look like, and what does a norm make of it?

    `recorded` is a Recorder after a pass, of the NumPy or the torch model; an example if None.
    `name` is the value that is shown first.
    """
    recorded = inspector_probes.example() if recorded is None else recorded
    controls = {"name": choice("value", inspector_probes.tap_names(recorded), name)}
    return Lab(partial(inspector_probes.inspect, recorded), InspectorPicture, controls)
