"""Chapter 08: exercises on massive activations, epsilon, float16, perplexity and the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, sqrt
from statistics import fmean

import torch
from torch import Tensor

from tiny_lm.exercises.core import Exercise


def _stream(rows: int, width: int, size: float, seed: int, **planted: float) -> Tensor:
    """Random rows, with entries planted as p1c4=-3000.0."""
    generator = torch.Generator().manual_seed(seed)
    stream = size * torch.randn(rows, width, generator=generator)
    for place, value in planted.items():
        position, coordinate = place[1:].split("c")
        stream[int(position), int(coordinate)] = value
    return stream


_STREAMS = (
    _stream(3, 8, 1.0, 0, p0c5=9000.0),
    _stream(4, 16, 1.0, 1, p2c3=-7000.0),  # negative
    _stream(3, 8, 0.001, 2, p1c2=50.0),  # many times the median, but not above 100
    _stream(3, 8, 20.0, 3, p0c5=150.0),  # above 100, but not many times the median
    _stream(5, 40, 2.0, 4, p0c7=9000.0, p0c9=-8000.0, p3c7=9000.0),
    _stream(2, 4, 1.0, 5, p0c1=2500.0),  # the mean is drawn up by the entry itself
    _stream(20, 40, 20.0, 6, p0c1=5000.0),  # with their signs the entries have a median near 0
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


def _feels_eps(x: Tensor, eps: float, share: float) -> list[int]:
    return (x.square().mean(dim=-1) < eps / share).nonzero().flatten().tolist()


def _feels_by(size: Callable[[Tensor], Tensor]) -> Callable[..., list[int]]:
    def feels(x: Tensor, eps: float, share: float) -> list[int]:
        return (size(x) < eps / share).nonzero().flatten().tolist()

    return feels


_ROWS = torch.tensor(
    [[0.001, 0.001, 0.001, 0.001], [0.03, -0.03, 0.03, -0.03], [0.02, 0.02, 0.02, 0.02],
     [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.05], [0.01, 0.01, 0.01, 0.01]]
)  # fmt: skip


def _work(prompt: int, new: int, cached: bool) -> int:
    return prompt + new - 1 if cached else sum(prompt + step for step in range(new))


_LOG_P = (
    [[log(0.5), log(0.5)], [log(0.25)]],
    [[log(0.1), log(0.2), log(0.9), log(0.9)], [log(0.01)]],
    [[-1.5, -0.5]],
)


def _text_perplexity(paragraphs: Sequence[Sequence[float]]) -> float:
    return exp(-fmean(value for paragraph in paragraphs for value in paragraph))


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
    Exercise(
        name="feels_eps",
        chapter=8,
        title="Which rows feel epsilon?",
        difficulty=2,
        minutes=6,
        reference=_feels_eps,
        cases=[
            (_ROWS, 1e-5, 0.01),
            (_ROWS, 1e-5, 0.1),
            (_ROWS[1:4], 1e-6, 0.01),
            (_ROWS, 1e-2, 0.01),
            (_ROWS[[1]], 1e-5, 0.01),
        ],
        wrong={
            "eps stands under the root beside the mean square, so it is compared with that, not "
            "with the RMS.": _feels_by(lambda x: x.square().mean(dim=-1).sqrt()),
            "The mean of the squares, not their sum.": _feels_by(lambda x: x.square().sum(dim=-1)),
            "The square of the mean is not the mean of the squares: signs cancel.": _feels_by(
                lambda x: x.mean(dim=-1).square()
            ),
            "These are the rows that do not feel it.": lambda x, eps, share: (
                (x.square().mean(dim=-1) >= eps / share).nonzero().flatten().tolist()
            ),
            "That asks whether eps is above the whole mean square. A share of it is enough.": (
                lambda x, eps, share: _feels_eps(x, eps, 1.0)
            ),
            "Each row has a mean square of its own; this looks at single entries.": (
                lambda x, eps, share: (
                    (x.square() < eps / share).any(dim=-1).nonzero().flatten().tolist()
                )
            ),
        },
        hints=["eps > share · mean(x²), row by row; positions as a list of whole numbers."],
    ),
    Exercise(
        name="safe_row",
        chapter=8,
        title="The largest safe entry",
        difficulty=3,
        minutes=6,
        reference=lambda width: sqrt(65504 / width),
        cases=[(1,), (64,), (576,), (4096,)],
        wrong={
            "That is safe for one square, not for the sum of all of them.": (
                lambda width: sqrt(65504)
            ),
            "That is the largest safe *square*. Take its root.": lambda width: 65504 / width,
            "The root of the width, not the width: squares are added, not entries.": (
                lambda width: sqrt(65504) / width
            ),
            "The wrong way round: a longer row has to have smaller entries.": (
                lambda width: sqrt(65504 * width)
            ),
            "float16's largest number is 65,504; 65,536 = 2¹⁶ is Inf already.": (
                lambda width: sqrt(65536 / width)
            ),
            "That is the largest sum of entries. They are squared first.": (
                lambda width: 65504 / width**0.5
            ),
        },
        hints=["width · a² must not be above 65,504. Solve for a."],
        rtol=1e-6,
    ),
    Exercise(
        name="text_perplexity",
        chapter=8,
        title="The perplexity of several paragraphs",
        difficulty=2,
        minutes=5,
        reference=_text_perplexity,
        cases=[(case,) for case in _LOG_P],
        wrong={
            "That is the mean of the paragraphs' perplexities. Tokens count, not paragraphs.": (
                lambda paragraphs: fmean(exp(-fmean(p)) for p in paragraphs)
            ),
            "A short paragraph counts as much as a long one here. Average over all tokens.": (
                lambda paragraphs: exp(-fmean(fmean(p) for p in paragraphs))
            ),
            "One over the mean probability. The mean is taken of the logarithms.": (
                lambda paragraphs: 1 / fmean(exp(v) for p in paragraphs for v in p)
            ),
            "The mean of 1/p. The mean is taken of the logarithms, then exp.": (
                lambda paragraphs: fmean(exp(-v) for p in paragraphs for v in p)
            ),
            "A minus is missing: perplexity is at least 1.": (
                lambda paragraphs: exp(fmean(v for p in paragraphs for v in p))
            ),
            "That is the loss, in nats. Perplexity is e to its power.": (
                lambda paragraphs: -fmean(v for p in paragraphs for v in p)
            ),
        },
        hints=["One mean over all tokens of all paragraphs; then exp of minus it."],
        rtol=1e-9,
    ),
    Exercise(
        name="cached_work",
        chapter=8,
        title="How many positions?",
        difficulty=2,
        minutes=6,
        reference=_work,
        cases=[(5, 1, False), (5, 1, True), (5, 3, False), (5, 3, True), (100, 50, True)],
        wrong={
            "The last token that is written is not read again: one less with the cache.": (
                lambda prompt, new, cached: prompt + new if cached else _work(prompt, new, False)
            ),
            "Without a cache the text grows by one at each step: 5, 6, 7 positions, not 5, 5, 5.": (
                lambda prompt, new, cached: _work(prompt, new, True) if cached else prompt * new
            ),
            "The first step without a cache reads the prompt alone.": (
                lambda prompt, new, cached: (
                    _work(prompt, new, True)
                    if cached
                    else sum(prompt + step for step in range(1, new + 1))
                )
            ),
            "The cache begins empty: the prompt goes through the blocks once as well.": (
                lambda prompt, new, cached: new if cached else _work(prompt, new, False)
            ),
            "The two cases are swapped.": (
                lambda prompt, new, cached: _work(prompt, new, not cached)
            ),
        },
        hints=[
            "Write down how much is fed at each step, for 5 prompt tokens and 3 new ones.",
            "With the cache: the prompt, then each new token but the last.",
        ],
    ),
)
