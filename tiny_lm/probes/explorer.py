"""Chapter 08: one row and one coordinate of a recorded stream, in the middle of all of it."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_lm.probes.streams import Reading


@dataclass(frozen=True)
class View:
    """A stream as a map of RMS; one row of it, entry by entry; one coordinate, tap by tap."""

    taps: list[str]
    words: list[str]
    rms: list[list[float]]  # [tap][position]
    tap: int
    position: int
    coordinate: int
    row: list[float]  # entries at the tap and position
    path: list[float]  # the coordinate at this position, tap by tap


def view(reading: Reading, tap: int, position: int, coordinate: int) -> View:
    """Look at one tap, counted from 0, one position and one coordinate."""
    return View(
        taps=reading.taps,
        words=reading.words,
        rms=reading.rms.tolist(),
        tap=tap,
        position=position,
        coordinate=coordinate,
        row=reading.stream[tap, position].tolist(),
        path=reading.stream[:, position, coordinate].tolist(),
    )
