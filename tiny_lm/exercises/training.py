"""Chapter 06: exercises on surprise, the loss and reading many runs; the rest in optimizer.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, log
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tiny_lm.exercises import optimizer
from tiny_lm.exercises.core import Exercise

# A day is "rain ." with probability 1/2, else "sun and wind ." or "sun and snow .", 1/4 each.
_DAY = 0.5 * log(2) + 0.5 * log(4)  # nats
_WORDS = 0.5 * 2 + 0.5 * 4

_LOGITS = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
_TOKENS = torch.tensor([[0, 3, 3, 6, 1], [2, 2, 5, 0, 4]])


def _next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _safe_rate(losses: Sequence[Sequence[float]], rates: Sequence[float], line: float) -> float:
    return _safe_by(max)(losses, rates, line)


def _safe_by(summary: Callable[[Sequence[float]], float]) -> Callable[..., float]:
    """The rates up to the first at which this summary of the seeds is not below the line."""

    def safe(losses: Sequence[Sequence[float]], rates: Sequence[float], line: float) -> float:
        best = 0.0
        for rate, ends in zip(rates, losses, strict=True):
            if not summary(ends) < line:
                break
            best = rate
        return best

    return safe


def _last_that_survived(losses: Sequence, rates: Sequence[float], line: float) -> float:
    pairs = zip(rates, losses, strict=True)
    return max((rate for rate, ends in pairs if max(ends) < line), default=0.0)


def _lowest_loss(losses: Sequence, rates: Sequence[float], line: float) -> float:
    means = [fmean(ends) for ends in losses]
    return rates[means.index(min(means))] if min(means) < line else 0.0


EXERCISES = (
    *optimizer.EXERCISES,
    Exercise(
        name="small_entropy",
        chapter=6,
        title="The floor of a small language",
        difficulty=2,
        minutes=5,
        reference=_DAY / _WORDS,
        wrong={
            "That is the entropy of a day. A day has 3 words on average: divide.": _DAY,
            "Divided by the plain mean of 2, 4 and 4 words. Days of two words come twice as "
            "often: weigh the lengths with the probabilities.": _DAY / (10 / 3),
            "The surprises of the three sentences were averaged as if each came equally often.": (
                (log(2) + 2 * log(4)) / 3 / _WORDS
            ),
            "These are bits. Nats are asked: take natural logarithms.": _DAY / _WORDS / log(2),
            "Three sentences, but not equally likely: ln 3 is too much.": log(3) / _WORDS,
        },
        hints=[
            "Entropy of a day: the sum of p · (−ln p) over the three sentences.",
            "Mean number of words, the full stop counted: ½ · 2 + ¼ · 4 + ¼ · 4.",
        ],
        rtol=2e-3,
    ),
    Exercise(
        name="untrained",
        chapter=6,
        title="Before the first step",
        difficulty=1,
        minutes=2,
        reference=log(50_000),
        wrong={
            "That is the logarithm to base 2: bits. Losses are in nats.": log(50_000) / log(2),
            "That is the logarithm to base 10. Take the natural one.": log(50_000) / log(10),
            "That is the probability of each token. The loss is −ln of it.": 1 / 50_000,
            "That is the perplexity. The loss is its logarithm.": 50_000.0,
        },
        hints=["Each of 50,000 tokens gets probability 1/50,000. How surprising is any of them?"],
        rtol=2e-3,
    ),
    Exercise(
        name="perplexity",
        chapter=6,
        title="As unsure as among how many?",
        difficulty=1,
        minutes=3,
        reference=lambda surprises: exp(sum(surprises) / len(surprises)),
        cases=[([0.0, 0.0],), ([log(8), 0.0, 0.0],), ([0.3, 1.7, 2.2, 0.0],)],
        wrong={
            "The mean comes first, then exp. This averages the exponentials.": (
                lambda surprises: fmean(map(exp, surprises))
            ),
            "The surprises are in nats, so the base is e, not 2.": (
                lambda surprises: 2 ** fmean(surprises)
            ),
            "The sum grows with the length of the text. Take the mean.": (
                lambda surprises: exp(sum(surprises))
            ),
            "That is the mean probability-like number below 1: a minus too many.": (
                lambda surprises: exp(-fmean(surprises))
            ),
        },
        hints=["Loss is the mean surprise; perplexity is e to the power of the loss."],
    ),
    Exercise(
        name="next_token",
        chapter=6,
        title="Shifted by one",
        difficulty=2,
        minutes=5,
        reference=_next_token,
        cases=[(_LOGITS, _TOKENS), (_LOGITS[:1, :2], _TOKENS[:1, :2])],
        wrong={
            "Each position is judged by the token it has just read: copying would be perfect.": (
                lambda logits, tokens: cross_entropy(logits.flatten(0, 1), tokens.flatten())
            ),
            "Shifted the wrong way: this asks for the token before, which has been read already.": (
                lambda logits, tokens: cross_entropy(
                    logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten()
                )
            ),
            "roll brings the first token round to the end: the last position is judged by it.": (
                lambda logits, tokens: cross_entropy(
                    logits.flatten(0, 1), tokens.roll(-1, dims=1).flatten()
                )
            ),
            "That is the sum over all tokens. The loss is their mean.": (
                lambda logits, tokens: _next_token(logits, tokens) * tokens[:, 1:].numel()
            ),
            "That is in bits; the loss is in nats.": (
                lambda logits, tokens: _next_token(logits, tokens) / log(2)
            ),
        },
        hints=[
            "Logits at position t are about token t + 1. Which logits have no token to be judged "
            "by, and which token is nobody's?",
            "Drop the last position of the logits and the first token of each row.",
        ],
    ),
    Exercise(
        name="safe_rate",
        chapter=6,
        title="How fast is safe?",
        difficulty=3,
        minutes=8,
        reference=_safe_rate,
        cases=[
            ([[1.3, 1.3, 1.4], [1.2, 1.3, 1.3], [1.2, 3.5, 1.3]], [0.001, 0.01, 0.1], 2.3),
            ([[1.3, 1.3, 1.3], [3.4, 3.5, inf], [1.9, 1.3, 1.3]], [0.001, 0.01, 0.1], 2.3),
            ([[1.9, 1.9, 1.9], [1.2, 1.2, 1.2], [1.5, 1.5, 2.1]], [0.001, 0.01, 0.1], 2.3),
            ([[2.4, 1.3, 1.3], [1.3, 1.3, 1.3]], [0.01, 0.1], 2.3),
            ([[1.3, 1.3, 1.3], [1.2, 2.4, 2.4]], [0.01, 0.1], 2.3),
            ([[1.3, 1.3, 1.3], [1.3, 3.5, 3.5]], [0.01, 0.1], 2.3),
        ],
        wrong={
            "One lucky seed is not enough: every seed has to survive.": _safe_by(min),
            "A mean of losses can be below the line though one seed is above it.": _safe_by(fmean),
            "Two of three seeds are not all seeds.": _safe_by(lambda ends: sorted(ends)[1]),
            "There is a gap: a smaller rate failed. All rates up to the safe one have to work.": (
                _last_that_survived
            ),
            "The rate with the lowest loss need not be the largest that is safe.": _lowest_loss,
        },
        hints=[
            "Go through the rates from small to large and stop at the first at which a seed is not "
            "below the line.",
        ],
    ),
)
