"""Chapter 03: exercises on epsilon."""

from __future__ import annotations

from tiny_lm.exercises.core import Exercise

EXERCISES: tuple[Exercise, ...] = ()
