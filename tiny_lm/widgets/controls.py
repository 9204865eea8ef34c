"""The few kinds of control the labs use; all work in ipywidgets 7.7 (Colab) and 8."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

import ipywidgets

_LAYOUT = {"width": "480px"}
_STYLE = {"description_width": "140px"}


def slider(
    label: str, low: float, high: float, value: float, step: float = 0.1
) -> ipywidgets.FloatSlider:
    """A slider for a number on a plain scale, shown with as many digits as its step has."""
    return ipywidgets.FloatSlider(
        value,
        min=low,
        max=high,
        step=step,
        description=label,
        readout_format=f".{max(0, -floor(log10(step)))}f",
        style=_STYLE,
        layout=_LAYOUT,
    )


def whole(label: str, low: int, high: int, value: int) -> ipywidgets.IntSlider:
    """A slider for a whole number."""
    return ipywidgets.IntSlider(
        value, min=low, max=high, description=label, style=_STYLE, layout=_LAYOUT
    )


def scale(
    label: str, low: int, high: int, value: float, step: float = 0.25
) -> ipywidgets.FloatLogSlider:
    """A slider for a positive number on a log scale, from 10^low to 10^high."""
    return ipywidgets.FloatLogSlider(
        value,
        min=low,
        max=high,
        step=step,
        description=label,
        readout_format=".2e",
        style=_STYLE,
        layout=_LAYOUT,
    )


def choice(label: str, options: Sequence[str], value: str | None = None) -> ipywidgets.Dropdown:
    """One of a few names."""
    return ipywidgets.Dropdown(
        options=list(options),
        value=value if value is not None else options[0],
        description=label,
        style=_STYLE,
        layout=_LAYOUT,
    )


def switch(label: str, value: bool = True) -> ipywidgets.Checkbox:
    """On or off."""
    return ipywidgets.Checkbox(value, description=label, style=_STYLE, layout=_LAYOUT)
