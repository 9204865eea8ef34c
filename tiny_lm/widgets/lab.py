"""Lab: controls above a picture; moving a control runs a probe and moves the picture."""

from __future__ import annotations

import html
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ipywidgets

from tiny_lm.plots.picture import Picture

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
PATIENCE = 0.1  # seconds that a move may take before the lab says that it is busy


class Lab:
    """A probe, a picture of what it returns, and the controls that are its arguments.

    `probe(**values)` returns numbers, `picture` is the Picture class that draws them, and
    `controls` maps an argument of the probe to its widget. Without a kernel the cell still shows
    the picture and its sentence for the default position. What goes wrong in a move is shown in
    the lab and kept in `error`.

    Moves need no queue here: the browser holds back what a control does until its last move has
    been answered, and then sends the newest only.
    """

    def __init__(
        self,
        probe: Callable[..., Any],
        picture: type[Picture],
        controls: Mapping[str, ipywidgets.Widget],
    ):
        self.probe, self.controls, self.error = probe, dict(controls), ""
        self._defaults = self.values
        self._resetting = False
        self.picture = picture(probe(**self.values))
        self._image = ipywidgets.HTML()
        reset = ipywidgets.Button(description="Reset", layout={"width": "80px"})
        reset.on_click(lambda _: self.reset())
        for control in self.controls.values():
            control.observe(lambda _: self.draw(), names="value")
        self._busy = ipywidgets.HTML()
        below = ipywidgets.HBox([reset, self._busy])
        self.box = ipywidgets.VBox([*self.controls.values(), below, self._image])
        self._paint()
        self._still = self.picture.still()

    @property
    def values(self) -> dict[str, Any]:
        """Where the controls stand."""
        return {name: control.value for name, control in self.controls.items()}

    @property
    def sentence(self) -> str:
        """What the picture shows, in words."""
        return self.picture.sentence

    def reset(self) -> None:
        """Put every control back where it was and draw once."""
        self._resetting = True
        try:
            for name, control in self.controls.items():
                control.value = self._defaults[name]
        finally:
            self._resetting = False
        self.draw()

    def draw(self) -> None:
        """Run the probe where the controls stand and show what it returns, or what went wrong."""
        if self._resetting:
            return
        try:
            with self._saying_busy():
                self.picture.show(self.probe(**self.values))
        except Exception as problem:  # shown to the reader below, and kept
            self.error = "".join(traceback.format_exception(problem))
            self._image.value = f"<pre>{html.escape(self.error)}</pre>"
        else:
            self.error = ""
            self._paint()

    @contextmanager
    def _saying_busy(self) -> Iterator[None]:
        def say() -> None:
            self._busy.value = "<i role='status'>computing …</i>"

        timer = threading.Timer(PATIENCE, say)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # else it could say so after the end
            self._busy.value = ""

    def _paint(self) -> None:
        picture, text = self.picture, html.escape(self.sentence)
        self._image.value = (
            f'<img alt="{text}" width="{picture.width}" height="{picture.height}" '
            f'src="data:image/png;base64,{picture.png()}"><p>{text}</p>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return (
            {"text/plain": self.sentence, "image/png": self._still, WIDGET_MIME: view},
            {"image/png": {"width": self.picture.width, "alt": self.sentence}},
        )
