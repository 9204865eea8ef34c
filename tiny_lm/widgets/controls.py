"""The few kinds of control the labs use; all work in ipywidgets 7.7 (Colab) and 8."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, log10
from typing import Any

import ipywidgets
import traitlets

_STYLE = {"description_width": "140px"}
_LAYOUT = {"width": "480px"}


class NumberControl(ipywidgets.HBox):
    """A number on a plain scale: a labelled field for its exact value and a slider for steps.

    `value` is what counts, a number from `min` to `max`. Typed into the field it is taken as it
    is, moved into the range if it lies outside; what is no number is replaced by the last value.
    The slider stands on the step nearest to it. (A slider's handle has no name that a screen
    reader could say; the field has.)
    """

    value = traitlets.Any()
    _kind = float

    def __init__(self, label: str, low: float, high: float, value: float, step: float):
        self.min, self.max, self.step = low, high, step
        # A text field: a number field's own arrow keys would add 1 to an eps of 1e-5.
        self.field = ipywidgets.Text(
            description=label, continuous_update=False, style=_STYLE, layout={"width": "240px"}
        )
        self.slider = self._slider(readout=False, layout={"width": "280px"})
        super().__init__([self.field, self.slider])
        self.value = value
        self.field.observe(self._typed, names="value")
        self.slider.observe(self._slid, names="value")

    def nearest(self, value: float) -> float:
        """The slider's step nearest to a value."""
        steps = round((value - self.min) / self.step)
        return min(float(f"{self.min + steps * self.step:.9g}"), self.max)

    def _slider(self, **look: Any) -> ipywidgets.Widget:
        return ipywidgets.FloatSlider(self.min, min=self.min, max=self.max, step=self.step, **look)

    def notify_change(self, change: dict) -> None:
        super().notify_change(change)  # first to whoever draws: that is where the reader looks
        if change["name"] == "value":
            self._show()

    @traitlets.validate("value")
    def _into_range(self, proposal: dict) -> float:
        return self._kind(min(max(proposal["value"], self.min), self.max))

    def _typed(self, change: dict) -> None:
        if change["new"] == self._text():  # put there by _show, perhaps rounded
            return
        try:
            value = float(change["new"].replace("−", "-"))
        except ValueError:
            value = self.value
        if not isnan(value):
            self.value = value
        self._show()

    def _slid(self, change: dict) -> None:
        # The browser repeats a move that was made from here, perhaps off in the last digit.
        step = self.nearest(change["new"])
        if step != self.nearest(self.value):
            self.value = step

    def _show(self) -> None:
        self.field.value = self._text()
        step = self.nearest(self.value)
        if self.nearest(self.slider.value) != step:  # else the browser would have to answer again
            self.slider.value = step

    def _text(self) -> str:
        digits, e, power = f"{self.value:.6g}".partition("e")
        return digits + (f"e{int(power)}" if e else "")


class WholeControl(NumberControl):
    """A whole number."""

    _kind = staticmethod(round)

    def nearest(self, value: float) -> int:
        """The slider's step nearest to a value."""
        return round(value)

    def _slider(self, **look: Any) -> ipywidgets.Widget:
        return ipywidgets.IntSlider(self.min, min=self.min, max=self.max, **look)


class ScaleControl(NumberControl):
    """A positive number on a log scale; `step` is in powers of ten."""

    def nearest(self, value: float) -> float:
        """The slider's step nearest to a value."""
        low = log10(self.min)
        steps = round((log10(value) - low) / self.step)
        return min(float(f"{10 ** (low + steps * self.step):.9g}"), self.max)

    def _slider(self, **look: Any) -> ipywidgets.Widget:
        low, high = log10(self.min), log10(self.max)
        return ipywidgets.FloatLogSlider(self.min, min=low, max=high, step=self.step, **look)


def slider(label: str, low: float, high: float, value: float, step: float = 0.1) -> NumberControl:
    """A number on a plain scale."""
    return NumberControl(label, low, high, value, step)


def whole(label: str, low: int, high: int, value: int) -> WholeControl:
    """A whole number."""
    return WholeControl(label, low, high, value, 1)


def scale(label: str, low: int, high: int, value: float, step: float = 0.25) -> ScaleControl:
    """A positive number on a log scale, from 10^low to 10^high."""
    return ScaleControl(label, 10.0**low, 10.0**high, value, step)


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
