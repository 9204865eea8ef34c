"""RMS, RMSNorm and the residual addition on lists of numbers: no NumPy, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt


def rms(x: Sequence[float]) -> float:
    """Root of the mean of the squares of one vector: `[D] -> number`.

    rms(x) = sqrt((x_1² + … + x_D²) / D)

    Raises ValueError for an empty vector.
    """
    return sqrt(_mean_square("rms", x))


def rms_norm(
    x: Sequence[float], gamma: Sequence[float] | None = None, eps: float = 1e-6
) -> list[float]:
    """Divide one vector by its RMS, then multiply by a gain: `[D] -> [D]`.

    y_i = gamma_i · x_i / sqrt(mean(x²) + eps)

    `eps` is in units of x² and stands inside the root. `gamma` is all ones if not given.
    Raises ValueError for an empty vector, a gain of another length, a negative eps, and for
    the zero vector when eps is 0 (there 0 / 0 has no value; squares below 1e-308 count as 0,
    and those of a vector longer than 1e154 overflow).
    Source: Zhang and Sennrich 2019, arXiv 1910.07467.
    """
    if not eps >= 0:
        raise ValueError(f"rms_norm: expected eps >= 0, got {eps}")
    gamma = [1.0] * len(x) if gamma is None else gamma
    _same_length("rms_norm: gamma", len(x), len(gamma))
    denominator = sqrt(_mean_square("rms_norm", x) + eps)
    if denominator == 0:
        raise ValueError(
            "rms_norm: expected a mean square above 0 when eps is 0, got 0 (use eps > 0)"
        )
    return [g * value / denominator for g, value in zip(gamma, x, strict=True)]


def residual_add(x: Sequence[float], change: Sequence[float]) -> list[float]:
    """Add a branch's output to the stream, coordinate by coordinate: `[D], [D] -> [D]`.

    Raises ValueError when the lengths differ.
    """
    _same_length("residual_add: change", len(x), len(change))
    return [value + delta for value, delta in zip(x, change, strict=True)]


def _mean_square(who: str, x: Sequence[float]) -> float:
    if len(x) == 0:
        raise ValueError(f"{who}: expected at least one number, got an empty vector")
    return sum(value * value for value in x) / len(x)


def _same_length(who: str, expected: int, got: int) -> None:
    if expected != got:
        raise ValueError(f"{who}: expected {expected} numbers, got {got}")
