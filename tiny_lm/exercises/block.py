"""Chapter 04: exercises on the pre-norm block."""

from __future__ import annotations

from tiny_lm.exercises.core import Exercise

EXERCISES: tuple[Exercise, ...] = ()
