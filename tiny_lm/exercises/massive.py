"""Chapter 08: exercises on massive activations; the rest in real.py."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor

from tiny_lm.exercises.core import Exercise


def _stream(
    rows: int, width: int, size: float, seed: int, loud: float = 1.0, **planted: float
) -> Tensor:
    """Random rows, the first and all of column 3 `loud` times louder; plants p1c4=-3000.0."""
    generator = torch.Generator().manual_seed(seed)
    stream = size * torch.randn(rows, width, generator=generator)
    stream[0] *= loud
    stream[1:, 3] *= loud
    for place, value in planted.items():
        position, coordinate = place[1:].split("c")
        stream[int(position), int(coordinate)] = value
    return stream


_STREAMS = (
    _stream(2, 6, 1.0, 0, p0c5=9000.0),
    _stream(4, 16, 1.0, 1, p2c3=-7000.0),  # negative
    _stream(3, 8, 0.001, 2, p1c2=50.0),  # many times the median, but not above 100
    _stream(3, 8, 20.0, 3, p0c5=150.0),  # above 100, but not many times the median
    _stream(5, 40, 2.0, 4, p0c7=9000.0, p0c9=-8000.0, p3c7=9000.0),
    _stream(2, 4, 1.0, 5, p0c1=2500.0),  # the mean is drawn up by the entry itself
    _stream(20, 40, 20.0, 6, p0c1=5000.0),  # with their signs the entries have a median near 0
    # a row, and a coordinate, with a large median of its own
    _stream(9, 20, 1.0, 7, loud=45.0, p0c7=22_000.0, p6c3=20_000.0),
)


def _massive_by(statistic: Callable[[Tensor], Tensor], times: float = 1000.0, least: float = 100.0):
    def places(stream: Tensor) -> list[tuple[int, int]]:
        sizes = stream.abs()
        there = (sizes > least) & (sizes >= times * statistic(sizes))
        return [tuple(place) for place in there.nonzero().tolist()]

    return places


_massive_places = _massive_by(torch.median)


def _with_their_sign(stream: Tensor) -> list[tuple[int, int]]:
    there = (stream > 100) & (stream >= 1000 * stream.abs().median())
    return [tuple(place) for place in there.nonzero().tolist()]


EXERCISES = (
    Exercise(
        name="massive_places",
        chapter=8,
        title="Find the massive activations",
        difficulty=3,
        minutes=8,
        reference=_massive_places,
        cases=[(stream,) for stream in _STREAMS],
        wrong={
            "The huge entry draws the mean up after itself: take the median.": (
                _massive_by(torch.mean)
            ),
            "A massive activation can be negative: compare without the sign.": _with_their_sign,
            "The median of entries with signs is near 0, and everything is a thousand times that: "
            "take the median of the sizes.": lambda stream: [
                tuple(place)
                for place in ((stream.abs() > 100) & (stream.abs() >= 1000 * stream.median().abs()))
                .nonzero()
                .tolist()
            ],
            "That is the median of each row. The large entry's own row is loud: compare with all "
            "entries of the stream.": _massive_by(
                lambda sizes: sizes.median(dim=1, keepdim=True).values
            ),
            "That is the median of each coordinate. Compare with all entries of the stream.": (
                _massive_by(lambda sizes: sizes.median(dim=0).values)
            ),
            "Above 100 is not enough: it has to be a thousand times the median too.": (
                _massive_by(torch.median, times=0.0)
            ),
            "A thousand times the median is not enough: it has to be above 100 too.": (
                _massive_by(torch.median, least=0.0)
            ),
            "That is (coordinate, position). Rows are positions, so they come first.": (
                lambda stream: [(c, p) for p, c in _massive_places(stream)]
            ),
            "There can be more than one, or none: the largest entry alone does not tell.": (
                lambda stream: [divmod(int(stream.abs().argmax()), stream.shape[-1])]
            ),
        },
        hints=[
            "sizes = stream.abs(); the median of all of them is sizes.median().",
            "(condition).nonzero() gives the places where a condition holds, a row for each.",
        ],
    ),
    Exercise(
        name="what_is_left",
        chapter=8,
        title="What is left of the others?",
        difficulty=2,
        minutes=4,
        reference=45 * sqrt(576) / 22_500,
        wrong={
            "Divided by the entry itself. The norm divides by the RMS, which is 22,500 / √576.": (
                45 / 22_500
            ),
            "That is the RMS of the row; divide the 45 by it.": 22_500 / sqrt(576),
            "A mean of squares divides by 576, the RMS by its root, 24.": 45 * 576 / 22_500,
            "That would be without the large entry. The denominator is that of the whole row.": 1.0,
            "That is the large entry after the norm. The others are asked.": 24.0,
        },
        hints=["The squares of the others do not count: RMS = √(22,500² / 576), all but exactly."],
        rtol=5e-3,
    ),
)
