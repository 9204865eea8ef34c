"""What a learner has solved: kept in the user's data folder, drawn as a row of boxes a chapter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from tiny_lm.exercises.core import Exercise
from tiny_lm.extras import need
from tiny_lm.files import replacing

PACKAGE = Path(__file__).resolve().parents[1]
# A Jupyter server tells a kernel which document somebody opened, in its environment; so does VS
# Code, among the notebook's own names; Colab's machines have a release. nbclient, and with it
# nbval, nbconvert and nbgrader, starts kernels without any of these.
OPENED = {"JPY_SESSION_NAME", "COLAB_RELEASE_TAG", "__vsc_ipynb_file__"}


def is_opened_by_a_person(environment: Iterable[str], notebook: Iterable[str]) -> bool:
    """Whether a person opened this kernel's notebook, by the names of the environment's variables
    and of the notebook's own. Under pytest it was not a person, whoever started pytest."""
    names = {*environment, *notebook}
    return bool(OPENED & names) and not any(name.startswith("PYTEST_") for name in names)


def data_file() -> Path:
    """Where progress is kept: in the user's data folder.

    Raises ImportError without platformdirs, and OSError if that folder lies in the package's own
    tree, as when somebody points it there: what a learner has done is not part of a checkout.
    """
    folder = need("platformdirs", "lab").user_data_path("tiny-lm", appauthor=False)
    checkout = PACKAGE.parent
    if (checkout / "pyproject.toml").exists() and checkout in folder.resolve().parents:
        raise OSError(f"tiny_lm: expected a data folder outside {checkout}, got {folder}")
    return folder / "progress.json"


class Record:
    """Tries and successes by the name of the exercise, in a file or, without one, in memory.

    A file that cannot be read or written is said in `note`; it never stops a check.
    """

    def __init__(self, path: Path | None, note: str = "for this session only"):
        self.path, self.note = path, note
        self.memory: dict[str, dict] = {}

    def read(self) -> dict[str, dict]:
        """The entries, `{name: {"tries": int, "done": bool}}`; a damaged file is put aside."""
        if self.path is None:
            return self.memory
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            return {
                n: {"tries": int(e["tries"]), "done": e["done"] is True} for n, e in entries.items()
            }
        except FileNotFoundError:
            return {}
        except OSError as problem:
            self.note = f"not kept: {problem}"
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            aside = self.path.with_suffix(".damaged")
            with suppress(OSError):
                os.replace(self.path, aside)
            self.note = f"begun again: the file was damaged, and is now {aside.name}"
        return {}

    def add(self, name: str, right: bool) -> None:
        """Count one try. Once solved, an exercise stays solved."""
        entries = self.read()
        entry = entries.setdefault(name, {"tries": 0, "done": False})
        entry["tries"] += 1
        entry["done"] = entry["done"] or right
        self._write(entries)

    def clear(self) -> None:
        """Forget everything."""
        self.memory = {}
        if self.path is not None:
            with suppress(FileNotFoundError):
                self.path.unlink()

    def _write(self, entries: dict[str, dict]) -> None:
        if self.path is None:
            self.memory = entries
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as unfinished:
                unfinished.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        except OSError as problem:
            self.note = f"not kept: {problem}"


@dataclass(frozen=True)
class Progress:
    """What is done: a row a chapter, a box an exercise, ■ solved, ▪ tried, □ not yet."""

    exercises: tuple[Exercise, ...]
    entries: Mapping[str, Mapping]
    note: str

    def _box(self, exercise: Exercise) -> str:
        entry = self.entries.get(exercise.name)
        return "□" if entry is None else "■" if entry["done"] else "▪"

    def _rows(self) -> Iterable[tuple[str, str, str]]:
        for chapter, group in groupby(self.exercises, key=lambda exercise: exercise.chapter):
            boxes = "".join(map(self._box, group))
            yield f"{chapter:02d}", boxes, f"{boxes.count('■')} of {len(boxes)}"

    def _summary(self) -> str:
        open_ones = [e.title for e in self.exercises if self._box(e) != "■"]
        if len({e.chapter for e in self.exercises}) > 1:
            what = f"{len(self.exercises) - len(open_ones)} of {len(self.exercises)} solved"
        else:
            what = f"Still open: {' · '.join(open_ones)}" if open_ones else "All solved"
        return f"{what}. (Kept {self.note}.)"

    def __repr__(self) -> str:
        width = max(len(boxes) for _, boxes, _ in self._rows())
        lines = [f"chapter {n}  {boxes:{width}}  {count}" for n, boxes, count in self._rows()]
        return "\n".join([*lines, self._summary()])

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td>chapter {n}</td><td style="text-align: left; letter-spacing: 0.15em; '
            f'color: rgb(0, 158, 115)">{boxes}</td><td>{count}</td></tr>'
            for n, boxes, count in self._rows()
        )
        return f"<table>{cells}</table><p>{escape(self._summary())}</p>"
