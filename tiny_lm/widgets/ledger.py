"""The prediction ledger: say first, see then, and find out how well you know what you know.

    predict("01.2", ["[3, 4]", "[9, 12]"])     before a result: a choice, and how sure
    outcome("01.2", total)                     after it: what was said, beside what came out
    calibration("01")                          at the end: how often 75 % sure was right

What a reader writes down stays in this session, and in one JSON file in the reader's own data
folder. The file is opened by a click and by nothing else: a notebook that is run by a test, or
by anyone who does not click, shows the same whatever the file holds.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets

from tiny_lm.files import replacing
from tiny_lm.plots.calibration import SURE, CalibrationPicture
from tiny_lm.shapes import fail
from tiny_lm.widgets.controls import choice, slider
from tiny_lm.widgets.lab import WIDGET_MIME, Lab


def data_file() -> Path | None:
    """Where predictions are kept; None under pytest, and without the package platformdirs."""
    if "pytest" in sys.modules:
        return None
    try:
        from platformdirs import user_data_path
    except ImportError:
        return None
    return user_data_path("tiny_lm", appauthor=False) / "predictions.json"


class Ledger:
    """Predictions by name: `{"01.2": {"said": …, "sure": 75, "truth": …, "right": True}}`."""

    def __init__(self, file: Path | None = None):
        self.file = file
        self.entries: dict[str, dict[str, Any]] = {}
        self.truths: dict[str, Any] = {}
        self.within: dict[str, float] = {}
        self._watching: list[Callable[[], None]] = []

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back after each change."""
        self._watching.append(callback)

    def write(self, name: str, said: Any, sure: int) -> None:
        """Keep what a reader said, and how sure (per cent), here and in the file."""
        self.entries[name] = {"said": said, "sure": sure}
        if name in self.truths:
            self._judge(name)
        self._save()
        self._tell()

    def settle(self, name: str, truth: Any) -> None:
        """Say what came out."""
        self.truths[name] = truth
        if name in self.entries:
            self._judge(name)
            self._save()
        self._tell()

    def earlier(self) -> dict[str, dict[str, Any]]:
        """The entries in the file, from all sessions; none if it cannot be read."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8")) if self.file else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def export(self, path: str | Path) -> None:
        """Write all entries, of this and earlier sessions, to a JSON file."""
        text = json.dumps(self.earlier() | self.entries, indent=1, ensure_ascii=False)
        with replacing(Path(path)) as unfinished:
            unfinished.write_text(text + "\n", encoding="utf-8")

    def _judge(self, name: str) -> None:
        said, truth = self.entries[name]["said"], self.truths[name]
        within = self.within.get(name)
        right = str(said) == str(truth) if within is None else abs(said - truth) <= within
        self.entries[name] |= {"truth": truth, "right": bool(right)}

    def _save(self) -> None:
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.export(self.file)

    def _tell(self) -> None:
        for callback in self._watching:
            callback()


LEDGER = Ledger(data_file())


class _Shown:
    """A widget that is a plain sentence where there is no kernel."""

    def __init__(self, box: ipywidgets.Widget, sentence: str):
        self.box, self.sentence = box, sentence

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"text/plain": self.sentence, WIDGET_MIME: view}


def predict(
    name: str,
    choices: Sequence[str] = (),
    *,
    between: tuple[float, float] | None = None,
    within: float = 0.0,
    ledger: Ledger = LEDGER,
) -> _Shown:
    """Ask for a prediction: one of the choices, or a number between two (right if within …).

    Raises ValueError unless there are two choices or more, or a range.
    """
    if between:
        low, high = between
        guess = slider("your guess", low, high, low, step=(high - low) / 100)
        ledger.within[name] = within
        offer = f"a number from {low:g} to {high:g}"
    elif len(choices) > 1:
        layout = {"width": "max-content"}
        guess = ipywidgets.RadioButtons(options=list(choices), value=None, layout=layout)
        offer = " / ".join(choices)
    else:
        fail("predict", "two choices or more, or a range", list(choices))
    sure = choice("how sure", [f"{per_cent} %" for per_cent in SURE], "50 %")
    button, kept = ipywidgets.Button(description="Write it down"), ipywidgets.HTML()

    def write(_: Any) -> None:
        if guess.value is None:
            kept.value = "Choose one first."
            return
        ledger.write(name, guess.value, int(sure.value.split()[0]))
        kept.value = f"Written down: {html.escape(str(guess.value))}, {sure.value} sure."

    button.on_click(write)
    box = ipywidgets.VBox([guess, sure, ipywidgets.HBox([button, kept])])
    return _Shown(box, f"Your prediction {name}: {offer}")


def outcome(name: str, truth: Any, *, ledger: Ledger = LEDGER) -> _Shown:
    """Show what came out beside what was predicted, now or later."""
    text = ipywidgets.HTML()

    def show() -> None:
        entry, said = ledger.entries.get(name), nothing
        if entry:
            verdict = "it came true" if entry["right"] else "it did not come true"
            said = f"You said {entry['said']}, {entry['sure']} % sure: {verdict}."
        text.value = html.escape(f"{start} {said}")

    start, nothing = f"Prediction {name}: it is {truth}.", "Nothing was written down before."
    ledger.watch(show)
    ledger.settle(name, truth)
    return _Shown(text, f"{start} {nothing}")


def calibration(chapter: str, *, ledger: Ledger = LEDGER) -> Lab:
    """How sure a reader was, beside how often the reader was right, in a chapter or in all."""

    def judged(chapters: str, sessions: str) -> list[tuple[int, bool]]:
        entries = ledger.entries if sessions == "this one" else ledger.earlier() | ledger.entries
        return [
            (entry["sure"], entry["right"])
            for name, entry in sorted(entries.items())
            if "right" in entry and (chapters == "all" or name.startswith(f"{chapter}."))
        ]

    controls = {
        "chapters": choice("chapters", ["this one", "all"]),
        "sessions": choice("sessions", ["this one", "all"]),
    }
    lab = Lab(judged, CalibrationPicture, controls)
    ledger.watch(lab.draw)
    return lab
