"""Chapter 09: exercises on norms of other designs, on intervals, and on choosing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor

from tiny_lm.exercises.core import Exercise
from tiny_lm.probes.defence import report

_X = torch.tensor([[0.5, -2.0, 30.0], [0.0, 1e-3, -0.7]], dtype=torch.float64)
_SCALE = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
_SHIFT = torch.tensor([0.0, 0.1, -1.0], dtype=torch.float64)


def _dyt(x: Tensor, alpha: float, scale: Tensor, shift: Tensor) -> Tensor:
    return scale * torch.tanh(alpha * x) + shift


def _apart_by(t: float, pair: Callable[[Sequence, Sequence], tuple[float, float]]) -> Callable:
    """A verdict from a (mean, half width for t = 1) of what `pair` makes of two lists."""

    def apart(ours: Sequence[float], theirs: Sequence[float]) -> str:
        mean, error = pair(ours, theirs)
        if abs(mean) <= t * error:
            return "not told apart"
        return "lower" if mean < 0 else "higher"

    return apart


def _paired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    return fmean(gaps), stdev(gaps) / sqrt(len(gaps))


def _unpaired(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    errors = (stdev(ours) + stdev(theirs)) / sqrt(len(ours))
    return fmean(ours) - fmean(theirs), errors


_apart = _apart_by(4.303, _paired)


def _reference_apart(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return _apart(ours, theirs)


def _first_seed(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return "lower" if ours[0] < theirs[0] else "higher"


EXERCISES = (
    Exercise(
        name="floor",
        chapter=9,
        title="A floor instead of a sum",
        difficulty=2,
        minutes=4,
        reference=sqrt(4e-6 / 1e-5),
        wrong={
            "That is the sum inside the root, 0.002 / √(4e-6 + 1e-5). A floor takes the larger of "
            "the two, not both.": 2e-3 / sqrt(1.4e-5),
            "The floor counts: the mean square 4e-6 is below eps.": 1.0,
            "eps is in units of x²: its root stands below, not eps itself.": 2e-3 / 1e-5,
            "That is the mean square of what comes out. Take the root.": 0.4,
        },
        hints=["Which is larger, mean(x²) = 4e-6 or eps = 1e-5? Divide 0.002 by the root of it."],
        rtol=2e-3,
    ),
    Exercise(
        name="dyt",
        chapter=9,
        title="Dynamic Tanh",
        difficulty=1,
        minutes=4,
        reference=_dyt,
        cases=[(_X, 0.5, _SCALE, _SHIFT), (_X, 2.0, _SCALE, _SHIFT), (_X[:1], 0.1, _SCALE, _SHIFT)],
        wrong={
            "alpha is missing: it says how soon the curve bends.": (
                lambda x, alpha, scale, shift: scale * torch.tanh(x) + shift
            ),
            "The shift is missing.": lambda x, alpha, scale, shift: scale * torch.tanh(alpha * x),
            "alpha stands inside the tanh: it says how soon the curve bends.": (
                lambda x, alpha, scale, shift: alpha * scale * torch.tanh(x) + shift
            ),
            "The scale stands outside: inside, it would bend the curve instead of stretching "
            "it.": lambda x, alpha, scale, shift: torch.tanh(alpha * scale * x) + shift,
            "The shift comes last, outside the tanh.": (
                lambda x, alpha, scale, shift: scale * torch.tanh(alpha * x + shift)
            ),
            "No norm comes first: Dynamic Tanh is there instead of one.": (
                lambda x, alpha, scale, shift: (
                    scale * torch.tanh(alpha * x / x.square().mean(-1, keepdim=True).sqrt()) + shift
                )
            ),
        },
        hints=["Three steps for each entry: times alpha, tanh, times scale plus shift."],
    ),
    Exercise(
        name="largest_score",
        chapter=9,
        title="The largest score",
        difficulty=3,
        minutes=5,
        reference=8.0,
        wrong={
            "That is q · k. A score is divided by √d.": 64.0,
            "Two vectors of RMS 1 have length √d each, not 1: q · k can be as large as d.": 1.0,
            "Length √d times length √d is d; then divide by √d once.": 512.0,
            "Divided by d. Attention divides by √d.": 0.125,
        },
        hints=[
            "A vector of RMS 1 and width d has length √d. When is q · k largest?",
            "q · k ≤ |q| |k| = d.",
        ],
        rtol=1e-3,
    ),
    Exercise(
        name="apart",
        chapter=9,
        title="Told apart?",
        difficulty=3,
        minutes=8,
        reference=_reference_apart,
        cases=[
            ([1.40, 1.50, 1.60], [1.45, 1.56, 1.64]),
            ([1.45, 1.56, 1.64], [1.40, 1.50, 1.60]),
            ([1.40, 1.50, 1.60], [1.43, 1.51, 1.66]),
            ([1.20, 1.30, 1.40], [1.21, 1.35, 1.36]),
            ([1.30, 1.30, 1.33], [1.36, 1.41, 1.42]),
            ([1.42, 1.30, 1.31], [1.40, 1.40, 1.45]),
            ([1.40, 1.50, 1.60], [1.42, 1.54, 1.655]),
            ([1.40, 1.50, 1.60], [1.44, 1.56, 1.685]),
            ([1.60, 1.40, 1.50], [1.45, 1.64, 1.56]),
        ],
        wrong={
            "The two intervals may overlap and the differences still be clear: take the "
            "difference seed by seed, then one interval.": _apart_by(4.303, _unpaired),
            "1.96 is for very many seeds. With three, Student's t is 4.303.": (
                _apart_by(1.96, _paired)
            ),
            "Which mean is lower says nothing yet: noise has a mean too.": _apart_by(0.0, _paired),
            "One seed decides nothing.": _first_seed,
            "The mean of three varies less than one of them: divide the deviation by √3.": (
                _apart_by(4.303 * sqrt(3), _paired)
            ),
            "`stdev` divides by n − 1, `pstdev` by n: with three it makes the interval too "
            "narrow.": _apart_by(4.303 * sqrt(2 / 3), _paired),
            "Sorting breaks the pairs: which two losses have the same seed?": (
                lambda ours, theirs: _apart(sorted(ours), sorted(theirs))
            ),
        },
        hints=[
            "The three differences ours − theirs; their mean; 4.303 · stdev / √3 to either side.",
            "statistics.stdev divides by n − 1, as it should here.",
        ],
    ),
    Exercise(
        name="whole_step",
        chapter=9,
        title="30 % of what?",
        difficulty=2,
        minutes=3,
        reference=2.4,
        wrong={
            "That is what the norms save of their own time. They are 8 % of the step.": 30.0,
            "That would be all of the norms' time. 30 % of it is saved.": 8.0,
            "That is how much of the norms' time is left, as a part of the step.": 5.6,
            "A percentage is asked: 0.024 is the fraction.": 0.024,
        },
        hints=["30 % of 8 % is how many per cent?"],
        rtol=1e-3,
    ),
    Exercise(
        name="defend",
        chapter=9,
        title="Choose and defend",
        difficulty=4,
        minutes=15,
        reference={"norm": "rms", "order": "deepnorm", "init": "fan_in"},
        wrong={
            "In pre-norm with fan-in weights, for one, each branch adds as much as is there: the "
            "stream grows with depth, and with it what the norms of late blocks divide by.": {
                "order": "pre",
                "init": "fan_in",
            },
            "Small enough, but the blocks do not learn at the same pace, and six steps do not get "
            "all of them going. Section 5: in which designs are the gradients alike?": {
                "order": "pre",
                "init": "scaled_fan_in",
            },
            "Even and quiet, but six steps do not get it going. In pre-norm with gpt2's weights, "
            "for one, a small embedding drowns in what the branches write.": {
                "order": "pre",
                "init": "gpt2",
            },
            "In ReZero's first step only the two fades of a block have a gradient, and how long "
            "it is, is chance. It learns fast, but it does not meet the first condition.": {
                "order": "rezero",
                "init": "fan_in",
            },
            "Without norms, 24 blocks of fan-in weights do not even get through the first step.": {
                "order": "bare",
                "init": "fan_in",
            },
        },
        hints=[
            "Section 5: which designs keep the gradients of all blocks alike? The first condition "
            "leaves few of them.",
            "Quiet branches, or a louder direct path; and the embedding must not drown.",
        ],
        use=report,
    ),
)
