"""Chapter 01: exercises on the residual addition."""

from __future__ import annotations

from tiny_lm.exercises.core import Exercise

EXERCISES: tuple[Exercise, ...] = ()
