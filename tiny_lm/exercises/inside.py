"""Chapter 07: exercises on shares, early readings and removals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, sqrt

import torch
from torch import Tensor

from tiny_lm.exercises.core import Exercise


def _example(seed: int, eps: float, size: float = 1.0) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    write, rest, gain, row = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    return size * write, size * (write + rest), gain + 2, row, eps


def _share(write: Tensor, last: Tensor, gain: Tensor, row: Tensor, eps: float) -> Tensor:
    return (gain * write / (last.square().mean() + eps).sqrt()) @ row


def _decisive(first: Sequence[float], second: Sequence[float]) -> int:
    leads = [a - b for a, b in zip(first, second, strict=True)]
    return leads.index(max(leads))


def _entropy(logits: Tensor) -> Tensor:
    return torch.special.entr(logits.double().softmax(dim=-1)).sum(dim=-1)


def _at(choose: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """What one position is set to, made of what was before it and what it is."""

    def edit(before: Tensor, value: Tensor, position: int) -> Tensor:
        out = value.clone()
        out[:, position] = choose(before[:, position], value[:, position])
        return out

    return edit


def _in_place(before: Tensor, value: Tensor, position: int) -> Tensor:
    value[:, position] = before[:, position]
    return value


def _first_text(before: Tensor, value: Tensor, position: int) -> Tensor:
    out = value.clone()
    out[0, position] = before[0, position]
    return out


def _onwards(before: Tensor, value: Tensor, position: int) -> Tensor:
    return torch.cat([value[:, :position], before[:, position:]], dim=1)


_BEFORE, _VALUE = torch.randn(
    2, 2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
)

EXERCISES = (
    Exercise(
        name="write_share",
        chapter=7,
        title="Your own share",
        difficulty=2,
        minutes=6,
        reference=_share,
        cases=[_example(0, 0.0), _example(1, 0.5), _example(2, 1e-2, size=0.1)],
        wrong={
            "The write was divided by its own RMS. The final norm divides the whole stream by one "
            "number, and every write with it.": (
                lambda write, last, gain, row, eps: _share(write, write, gain, row, eps)
            ),
            "The gain is missing: the final norm multiplies each coordinate by it.": (
                lambda write, last, gain, row, eps: _share(
                    write, last, torch.ones_like(gain), row, eps
                )
            ),
            "Divided by the mean square. The norm divides by its root.": (
                lambda write, last, gain, row, eps: (
                    (gain * write / (last.square().mean() + eps)) @ row
                )
            ),
            "eps is missing below the root.": (
                lambda write, last, gain, row, eps: _share(write, last, gain, row, 0.0)
            ),
            "That is the whole logit: the last stream stands where the write should.": (
                lambda write, last, gain, row, eps: _share(last, last, gain, row, eps)
            ),
            "Divided by the root of the sum of squares. It is the root of their mean.": (
                lambda write, last, gain, row, eps: (
                    (gain * write / (last.square().sum() + eps).sqrt()) @ row
                )
            ),
            "The last stream's denominator is missing.": lambda write, last, gain, row, eps: (
                (gain * write) @ row
            ),
            "The product with the row has to be summed: `@`, which gives one number.": (
                lambda write, last, gain, row, eps: (
                    gain * write / (last.square().mean() + eps).sqrt() * row
                )
            ),
        },
        hints=[
            "The final norm is gain · x / sqrt(mean(x²) + eps). Which x is in the root, and which "
            "one above it?",
            "The root belongs to `last`. Above it stands `write`. Then the product with `row`.",
        ],
    ),
    Exercise(
        name="decisive_write",
        chapter=7,
        title="Why this word and not that one?",
        difficulty=1,
        minutes=4,
        reference=_decisive,
        cases=[
            ([0.1, 2.0, 5.0], [0.0, -2.0, 4.5]),
            ([3.0, 2.5, 1.0], [1.5, 0.0, 6.0]),
            ([2.0, -1.0, 0.5], [3.0, -4.0, 0.1]),
            ([4.0, 0.5, 1.0], [1.0, 0.0, 3.0]),
            ([1.0, 0.0, 2.0, 5.0], [2.0, -3.0, 1.0, 1.0]),
        ],
        wrong={
            "The largest share in the first word's logit may be as large in the other's.": (
                lambda first, second: list(first).index(max(first))
            ),
            "That is the write that most helps the second word.": (
                lambda first, second: _decisive(second, first)
            ),
            "That one moves the lead most, in either direction: a sign got lost.": (
                lambda first, second: _decisive(
                    [abs(a - b) for a, b in zip(first, second, strict=True)], [0.0] * len(first)
                )
            ),
            "Shares of two logits are subtracted. Their sum says how much both words gain.": (
                lambda first, second: _decisive(first, [-b for b in second])
            ),
        },
        hints=[
            "A softmax sees differences of logits only. Subtract first, then look for a maximum."
        ],
    ),
    Exercise(
        name="silent_write",
        chapter=7,
        title="A write with a share of nothing",
        difficulty=3,
        minutes=6,
        reference=3 / sqrt(4.5),
        wrong={
            "That is the logit before. The share of the removed write is 0, but the final norm "
            "divides by another number now.": 3 / sqrt(12.5),
            "Divided by the length 3. RMS is sqrt((3² + 0²) / 2).": 1.0,
            "That is without the final norm.": 3.0,
            "The write in the other coordinate was removed: that is a logit of 0.": 0.0,
        },
        hints=[
            "Before: 3 / sqrt((3² + 4²) / 2). What is left of the stream afterwards?",
            "The stream is [3, 0] now. What is its RMS?",
        ],
        rtol=4e-3,
    ),
    Exercise(
        name="lens_entropy",
        chapter=7,
        title="How unsure is a reading?",
        difficulty=2,
        minutes=5,
        reference=_entropy,
        cases=[
            (torch.zeros(8, dtype=torch.float64),),
            (torch.tensor([[0.0, 1.0, 3.0], [2.0, 2.0, -1.0]], dtype=torch.float64),),
            (torch.tensor([2000.0, 0.0, -2000.0], dtype=torch.float64),),
        ],
        wrong={
            "0 · ln 0 is NaN for a computer. Where a probability has rounded to 0, take the "
            "logarithm another way: log_softmax.": (
                lambda logits: -(logits.softmax(dim=-1) * logits.softmax(dim=-1).log()).sum(dim=-1)
            ),
            "That is in bits. Use the natural logarithm, and drop log2 or the division by ln 2.": (
                lambda logits: _entropy(logits) / log(2)
            ),
            "A minus is missing: logarithms of probabilities are negative.": (
                lambda logits: -_entropy(logits)
            ),
            "That is the surprise at the likeliest token alone. Entropy is the mean over all.": (
                lambda logits: -logits.log_softmax(dim=-1).amax(dim=-1)
            ),
            "A plain mean over the tokens. Weigh each surprise with its probability.": (
                lambda logits: -logits.log_softmax(dim=-1).mean(dim=-1)
            ),
        },
        hints=[
            "The mean of −ln p, weighed with p. `log_softmax` gives ln p without dividing by zero.",
        ],
    ),
    Exercise(
        name="remove_at",
        chapter=7,
        title="One write, at one word",
        difficulty=3,
        minutes=7,
        reference=_at(lambda before, value: before),
        cases=[(_BEFORE, _VALUE, 0), (_BEFORE, _VALUE, 2), (_BEFORE[:, :1], _VALUE[:, :1], 0)],
        wrong={
            "That removes the stream, and not just what was written to it. Put back what was there "
            "before.": _at(lambda before, value: torch.zeros_like(value)),
            "That keeps the write and removes the direct path.": _at(
                lambda before, value: value - before
            ),
            "Right numbers, but `value` itself was changed, and whoever recorded it has them too. "
            "Work on a clone.": _in_place,
            "The write was removed in the first text only: the first axis, B, is that of texts.": (
                _first_text
            ),
            "The write was removed at all positions.": lambda before, value, position: before,
            "The write was removed at this position and all after it.": _onwards,
        },
        hints=[
            "`value` is `before` plus the write. What is left of it without the write?",
            "Clone `value`, then set one position in all texts: [:, position].",
        ],
    ),
)
