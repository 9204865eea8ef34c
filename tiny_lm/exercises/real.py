"""Chapter 08: exercises on epsilon, float16, perplexity, the cache; the rest in massive.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, sqrt
from statistics import fmean

import torch
from torch import Tensor

from tiny_lm.exercises import massive
from tiny_lm.exercises.core import Exercise


def _feels_eps(x: Tensor, eps: float, share: float) -> list[int]:
    return (x.square().mean(dim=-1) < eps / share).nonzero().flatten().tolist()


def _feels_by(size: Callable[[Tensor], Tensor]) -> Callable[..., list[int]]:
    def feels(x: Tensor, eps: float, share: float) -> list[int]:
        return (size(x) < eps / share).nonzero().flatten().tolist()

    return feels


_ROWS = torch.tensor(
    [[0.001, 0.001, 0.001, 0.001], [0.03, -0.03, 0.03, -0.03], [0.02, 0.02, 0.02, 0.02],
     [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.05], [0.012, 0.012, 0.012, 0.012]]
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
    *massive.EXERCISES,
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
            (torch.tensor([[0.003, 0.003, 0.003, 0.0053]]), 1e-5, 0.5),
        ],
        wrong={
            "eps stands under the root beside the mean square, so it is compared with that, not "
            "with the RMS.": _feels_by(lambda x: x.square().mean(dim=-1).sqrt()),
            "The mean of the squares, not their sum.": _feels_by(lambda x: x.square().sum(dim=-1)),
            "The square of the mean is not the mean of the squares: signs cancel.": _feels_by(
                lambda x: x.mean(dim=-1).square()
            ),
            "That is eps as a share of mean square plus eps. Compare with the mean square.": (
                lambda x, eps, share: (
                    (x.square().mean(dim=-1) < eps / share - eps).nonzero().flatten().tolist()
                )
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
        hints=[
            "With what is eps added up under the root? That is what it has to be compared with.",
            "eps > share · mean(x²), row by row; then the positions, as whole numbers.",
        ],
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
            "Computed in float16 and rounded there. Python's own numbers keep more digits.": (
                lambda width: float(torch.tensor(65504 / width, dtype=torch.float16).sqrt())
            ),
        },
        hints=[
            "If all entries of the row are a, what is the sum of their squares?",
            "width · a² must not be above 65,504. Solve for a.",
        ],
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
        hints=[
            "How many numbers is the mean taken over: as many as there are paragraphs, or tokens?",
            "One mean over all tokens of all paragraphs; then exp of minus it.",
        ],
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
            "`cached` is not looked at: without a cache every step reads the whole text again.": (
                lambda prompt, new, cached: _work(prompt, new, True)
            ),
            "`cached` is not looked at: with the cache only what is new is read.": (
                lambda prompt, new, cached: _work(prompt, new, False)
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
