"""Exercises that answer back: `check(name, answer)` and `hint(name)`."""

from __future__ import annotations

from typing import Any

from tiny_lm.exercises import block, epsilon, residual, rms, training
from tiny_lm.exercises.core import Exercise, Verdict, judge
from tiny_lm.shapes import fail

__all__ = ["EXERCISES", "Exercise", "Verdict", "check", "hint"]

EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise
    for module in (residual, rms, epsilon, block, training)
    for exercise in module.EXERCISES
}


def check(name: str, answer: Any) -> Verdict:
    """Compare an answer with the right one. Whatever the answer does, this does not raise.

    Raises ValueError only for a name that is not an exercise.
    """
    return judge(_find(name), answer)


def hint(name: str, number: int = 1) -> str:
    """The first (or given) hint of an exercise. Raises ValueError for a name that is none."""
    hints = _find(name).hints
    if not 1 <= number <= len(hints):
        return f"There is no hint {number}: this exercise has {len(hints)}."
    return f"Hint {number} of {len(hints)}: {hints[number - 1]}"


def _find(name: str) -> Exercise:
    if name not in EXERCISES:
        fail("check", f"one of {', '.join(EXERCISES)}", repr(name))
    return EXERCISES[name]
