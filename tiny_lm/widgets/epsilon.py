"""Chapter 03: labs on epsilon."""

from __future__ import annotations

from tiny_lm.plots import epsilon as plots
from tiny_lm.plots import precision as precision_plots
from tiny_lm.probes import epsilon as probes
from tiny_lm.probes import precision
from tiny_lm.widgets.controls import choice, scale
from tiny_lm.widgets.lab import Lab


def law() -> Lab:
    """How large is the output for an input of size r?"""
    controls = {"eps": scale("ε, eps", -12, 0, 1e-5), "size": scale("r, RMS of x", -8, 4, 1e-2)}
    return Lab(probes.law, plots.LawPicture, controls)


def parts() -> Lab:
    """Which part of a gradient does RMSNorm send back?"""
    controls = {"eps": scale("ε, eps", -12, 0, 1e-5), "size": scale("r, RMS of x", -8, 4, 1e-2)}
    return Lab(probes.parts, plots.PartsPicture, controls)


def places() -> Lab:
    """What changes when eps leaves the root?"""
    controls = {"eps": scale("ε, eps", -12, 0, 1e-5), "size": scale("r, RMS of x", -8, 4, 1e-3)}
    return Lab(probes.places, plots.PlacesPicture, controls)


def laboratory() -> Lab:
    """Where does a norm give 0, NaN or Inf, and why?"""
    controls = {
        "eps": scale("ε, eps", -12, 0, 1e-5),
        "size": scale("r, RMS of x", -6, 22, 1.0),
        "dtype": choice("type of number", list(precision.DTYPES), "float16"),
        "place": choice("place of ε", ["inside", "outside", "floor", "left out"]),
        "computed": choice("computed", [precision.PLAIN, precision.WIDE, precision.TORCH]),
    }
    return Lab(precision.laboratory, precision_plots.LaboratoryPicture, controls)
