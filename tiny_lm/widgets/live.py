"""LiveCurve: a loss curve that grows while a model trains."""

from __future__ import annotations

import html
import time
from typing import Any

import ipywidgets
from IPython.display import display

from tiny_lm.plots.training import CurvePicture
from tiny_lm.probes.progress import progress
from tiny_lm.widgets.lab import WIDGET_MIME


class LiveCurve:
    """A picture of a run of `steps` steps, to be given to `train` as `on_step`.

        with LiveCurve(steps, start, floor) as curve:
            history = train(model, corpus, config, on_step=curve)

    It is shown where the `with` begins, drawn again a few times a second, and left as the run
    ended, also for readers without a kernel. What it says in words does not depend on the run.
    `start` and `floor` are losses in nats: of knowing nothing and of knowing everything.
    """

    SECONDS = 0.3  # between two pictures: drawing is not to slow the training down

    def __init__(self, steps: int, start: float, floor: float):
        self._scale = (steps, start, floor)
        self.picture = CurvePicture(progress(_Nothing, *self._scale))
        self.box = ipywidgets.HTML()
        self._history: Any = _Nothing
        self._drawn = 0.0
        self._paint()

    def __call__(self, history: Any) -> None:
        """Take in a step, and draw if it is time to."""
        self._history = history
        if time.perf_counter() - self._drawn > self.SECONDS:
            self._paint()

    def __enter__(self) -> LiveCurve:
        self._shown = display(self, display_id=True)
        return self

    def __exit__(self, *problem: object) -> None:
        self._paint()
        if self._shown is not None:  # so that the notebook keeps the last picture, not the first
            self._shown.update(self)

    def _paint(self) -> None:
        picture, text = self.picture, html.escape(self.picture.SENTENCE)
        picture.show(progress(self._history, *self._scale))
        self.box.value = (
            f'<img alt="{text}" width="{picture.width}" height="{picture.height}" '
            f'src="data:image/png;base64,{picture.png()}"><p>{text}</p>'
        )
        self._drawn = time.perf_counter()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        data, metadata = self.picture._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return data | {WIDGET_MIME: view}, metadata


class _Nothing:
    """The history of a run that has not begun."""

    loss: tuple = ()
    evaluations: tuple = ()
