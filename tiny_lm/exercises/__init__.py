"""Exercises that answer back: `check(name, answer)`, `hint(name)`, `progress()`.

This is the one place of the package that reads environment variables (DESIGN §9 has none in the
library): TINY_LM_STRICT=1 makes every check that is not passed raise, for graders who cannot edit
the cells; and the names that a notebook server or pytest sets tell whether a person is at the
notebook, whose progress may be kept. It is also the one place with a memory: hints shown so far,
and progress.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import Any

from tiny_lm.exercises import (
    block,
    depth,
    designs,
    epsilon,
    gradients,
    inside,
    museum,
    operating,
    real,
    residual,
    rms,
    training,
)
from tiny_lm.exercises.contents import ORDER
from tiny_lm.exercises.core import Exercise, Verdict, judge
from tiny_lm.exercises.record import Progress, Record, data_file, is_opened_by_a_person
from tiny_lm.shapes import fail

__all__ = ["EXERCISES", "Exercise", "Verdict", "check", "hint", "progress"]

_MODULES = (residual, rms, gradients, epsilon, block, museum, depth, training, inside)
_MODULES += (operating, real, designs)
_FOUND = {exercise.name: exercise for module in _MODULES for exercise in module.EXERCISES}
EXERCISES: dict[str, Exercise] = {name: _FOUND[name] for name in ORDER}
SOLUTION = "# @title Solution"  # how a solution cell begins


def check(name: str, answer: Any, *, strict: bool | None = None) -> Verdict:
    """Compare an answer with the right one. Whatever the answer does, this does not raise.

    With `strict=True`, or TINY_LM_STRICT=1 in the environment, it raises AssertionError unless the
    answer is right. Raises ValueError only for a name that is not an exercise.
    """
    verdict = judge(_find("check", name), answer)
    if verdict.ok is not None and not _is_solution(sys._getframe(1)):
        _SESSION.record.add(name, verdict.ok)
    if strict is None:
        strict = os.environ.get("TINY_LM_STRICT") == "1"
    if strict and not verdict.ok:
        raise AssertionError(str(verdict))
    return verdict


def hint(name: str, number: int | None = None) -> str:
    """The next hint of an exercise at each call, or the one of a given number.

    Raises ValueError for a name that is none.
    """
    hints = _find("hint", name).hints
    if number is None:
        number = _SESSION.shown[name] = min(_SESSION.shown.get(name, 0) + 1, len(hints))
    if not 1 <= number <= len(hints):
        return f"There is no hint {number}: this exercise has {len(hints)}."
    last = "" if number < len(hints) else " (The last one.)"
    return f"Hint {number} of {len(hints)}: {hints[number - 1]}{last}"


def progress(chapter: int | None = None, *, reset: bool = False) -> Progress:
    """What is solved in one chapter or in all of them; `reset=True` forgets everything.

    It is kept in the user's data folder when a person runs a notebook, and else, as under pytest,
    until Python ends. A check in a solution cell does not count.
    """
    record = _SESSION.record
    if reset:
        record.clear()
    chapters = sorted({exercise.chapter for exercise in EXERCISES.values()})
    if chapter is not None and chapter not in chapters:
        fail("progress", f"a chapter of {', '.join(map(str, chapters))}", repr(chapter))
    shown = chapters if chapter is None else [chapter]
    exercises = tuple(e for n in shown for e in EXERCISES.values() if e.chapter == n)
    return Progress(exercises, dict(record.read()), record.note)


class _Session:
    """What lasts from call to call."""

    def __init__(self) -> None:
        self.shown: dict[str, int] = {}  # hints
        self.record = Record(None)
        if is_opened_by_a_person(os.environ, vars(sys.modules["__main__"])):
            try:
                path = data_file()
                self.record = Record(path, f"in {path}")
            except (ImportError, OSError) as problem:
                self.record = Record(None, f"for this session only: {problem}")


def _is_solution(caller: FrameType) -> bool:
    return linecache.getline(caller.f_code.co_filename, 1).startswith(SOLUTION)


def _find(who: str, name: str) -> Exercise:
    if name not in EXERCISES:
        fail(who, f"one of {', '.join(EXERCISES)}", repr(name))
    return EXERCISES[name]


_SESSION = _Session()
