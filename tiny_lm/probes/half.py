"""What 16-bit numbers would do to a stream: squares that overflow, updates that are swallowed."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tiny_lm.probes.edits import DIRECT
from tiny_lm.probes.streams import Reading

LARGEST = 65_504.0  # of all float16 numbers
SAFE_ENTRY = 255.875  # the largest float16 number whose square is one too


def safe_entry(width: int) -> float:
    """The largest entry that can fill a row of this width with the *sum* of squares in float16."""
    return min(SAFE_ENTRY, sqrt(LARGEST / width))


@dataclass(frozen=True)
class Overflow:
    """The rows that a norm reads, if float16 had to hold each step of it."""

    norm: str
    largest: float  # entry, without its sign
    rows: int
    entry: int  # rows with an entry that float16 does not have
    square: int  # rows with a square that float16 does not have: a plain norm returns zeros
    total: int  # rows whose sum of squares float16 does not have, though perhaps their mean


def overflows(reading: Reading) -> list[Overflow]:
    """Count, for every norm, the rows whose steps do not fit into float16."""
    found = []
    for name, rows in reading.read.items():
        half = rows.half()
        squares = half.square()
        total = squares.sum(dim=-1)  # summed in float32, rounded to float16
        found.append(
            Overflow(
                norm=name,
                largest=float(rows.abs().max()),
                rows=len(rows),
                entry=int(half.isinf().any(dim=-1).sum()),
                square=int(squares.isinf().any(dim=-1).sum()),
                total=int(total.isinf().sum()),
            )
        )
    return found


@dataclass(frozen=True)
class Swallowed:
    """The part of an update's coordinates that a bfloat16 stream would not notice."""

    tap: str  # where the sum stands
    shares: list[float]  # by position


def swallowed(reading: Reading) -> list[Swallowed]:
    """Add each update to the stream in bfloat16 and see what comes of it.

    Empty for orders with a norm on the direct path: there a difference of two taps is no update.
    """
    if reading.model.config.order not in DIRECT:
        return []
    before = reading.stream[:-1].bfloat16()
    update = (reading.stream[1:] - reading.stream[:-1]).bfloat16()
    after = before + update  # the spacing of bfloat16 decides what is left
    unseen = ((after == before) & (update != 0)).double().mean(dim=-1)
    return [Swallowed(tap, unseen[k].tolist()) for k, tap in enumerate(reading.taps[1:])]
