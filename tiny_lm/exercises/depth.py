"""Chapter 05: exercises on depth and gradients."""

from __future__ import annotations

from math import log, sqrt

from tiny_lm.exercises.core import Exercise


def _sizes(gain: float, layers: int) -> list[float]:
    return [(1 + gain) ** (layers / 2), sqrt(1 + gain * layers)]


def _largest(layers: int, factor: float) -> float:
    return factor ** (2 / layers) - 1


def _mean_path(layers: int) -> float:
    return sum(1 / (layer + 2) for layer in range(layers))


def _ruling(low: float, high: float, band: tuple[float, float]) -> str:
    if high < band[0] or low > band[1]:
        return "disagrees"
    return "agrees" if band[0] <= low and high <= band[1] else "open"


def _by_the_mean(low: float, high: float, band: tuple[float, float]) -> str:
    return "agrees" if band[0] <= (low + high) / 2 <= band[1] else "disagrees"


def _open_is_no(low: float, high: float, band: tuple[float, float]) -> str:
    return "agrees" if band[0] <= low and high <= band[1] else "disagrees"


def _one_end_is_enough(low: float, high: float, band: tuple[float, float]) -> str:
    inside = [band[0] <= end <= band[1] for end in (low, high)]
    return "agrees" if any(inside) else "disagrees"


def _ends_only(low: float, high: float, band: tuple[float, float]) -> str:
    inside = [band[0] <= end <= band[1] for end in (low, high)]
    return "agrees" if all(inside) else "open" if any(inside) else "disagrees"


EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        name="two_laws",
        chapter=5,
        title="Two laws",
        difficulty=2,
        minutes=6,
        reference=_sizes,
        cases=[(1.0, 128), (1 / 18, 128), (0.5, 1), (0.0, 9), (2.0, 3)],
        wrong={
            "Those are mean squares. The RMS is their root.": (
                lambda gain, layers: [(1 + gain) ** layers, 1 + gain * layers]
            ),
            "That is the branches alone: the stream they are added to is missing.": (
                lambda gain, layers: [gain ** (layers / 2), sqrt(gain * layers)]
            ),
            "The order is: first without a norm, then pre-norm.": (
                lambda gain, layers: _sizes(gain, layers)[::-1]
            ),
            "Lengths do not add when they stand at right angles. Squares do.": (
                lambda gain, layers: [(1 + sqrt(gain)) ** layers, 1 + sqrt(gain) * layers]
            ),
            "The first is right. In pre-norm the branch reads RMS 1, however large the stream is: "
            "each layer adds the same to the mean square.": (
                lambda gain, layers: [_sizes(gain, layers)[0]] * 2
            ),
        },
        hints=[
            "Follow the mean square. Without a norm a branch adds gain · (what is there); in "
            "pre-norm it adds gain · 1.",
            "After L layers the mean squares are (1 + gain)^L and 1 + gain · L.",
        ],
    ),
    Exercise(
        name="largest_gain",
        chapter=5,
        title="How loud may a branch be?",
        difficulty=2,
        minutes=5,
        reference=_largest,
        cases=[(100, 2.0), (128, 10.0), (2, 3.0), (1, 1.5)],
        wrong={
            "That keeps the mean square within the factor. The RMS is its root.": (
                lambda layers, factor: factor ** (1 / layers) - 1
            ),
            "That is the factor of one layer, 1 + g². Take the 1 of the direct path away.": (
                lambda layers, factor: factor ** (2 / layers)
            ),
            "That is the law of pre-norm. Without a norm the layers multiply.": (
                lambda layers, factor: (factor**2 - 1) / layers
            ),
            "That is close for many layers, but ln(1 + g²) is not g².": (
                lambda layers, factor: 2 * log(factor) / layers
            ),
        },
        hints=["Solve (1 + g²)^(layers / 2) = factor for g²."],
    ),
    Exercise(
        name="same_directions",
        chapter=5,
        title="The same cosine twice",
        difficulty=3,
        minutes=4,
        reference="c",
        wrong={
            "The seeds are the same for all wirings, and the other rows differ.": "a",
            "Far from it: 10 to the 18th and 1.": "b",
            "The norm does change what the branch reads: its size.": "d",
        },
        hints=["What does a ReLU branch without biases make of 10 x, compared with x?"],
    ),
    Exercise(
        name="output_scale",
        chapter=5,
        title="The number in GPT-2's initialisation",
        difficulty=1,
        minutes=3,
        reference=1 / sqrt(96),
        rtol=5e-3,
        wrong={
            "A block has two layers, one for each branch.": 1 / sqrt(48),
            "Each layer adds a square. The root is missing.": 1 / 96,
            "A block has two layers, and each adds a square.": 1 / 48,
            "The branches should become smaller, not larger.": sqrt(96),
        },
        hints=["How many branches write into the stream of 48 blocks?"],
    ),
    Exercise(
        name="mean_path",
        chapter=5,
        title="The mean path of pre-norm",
        difficulty=3,
        minutes=7,
        reference=_mean_path,
        rtol=1e-6,
        cases=[(1,), (2,), (54,), (128,)],
        wrong={
            "That is the mean over all paths, each counted once. Weigh them by their gradient.": (
                lambda layers: layers / 2
            ),
            "1 / (1 + j) is what the branch brings. Its share of the layer is that divided by "
            "1 + 1 / (1 + j).": lambda layers: sum(1 / (1 + layer) for layer in range(layers)),
            "Layers are counted from 0: the first branch reads a stream of mean square 1.": (
                lambda layers: sum(1 / (layer + 3) for layer in range(layers))
            ),
            "The first layer is missing.": lambda layers: _mean_path(layers) - 0.5,
        },
        hints=[
            "In layer j = 0, 1, … the share of the branch is (1 / (1 + j)) / (1 + 1 / (1 + j)).",
            "That is 1 / (j + 2). The mean length is the sum of the shares.",
        ],
    ),
    Exercise(
        name="first_step",
        chapter=5,
        title="Who learns first?",
        difficulty=2,
        minutes=4,
        reference=5,
        wrong={
            "A gradient reaches the input. To reach a matrix *inside* attention it must come "
            "through the zeros behind it.": 9,
            "The zeroed matrix itself does learn: what is in front of it is not zero.": 4,
            "That is with both outputs zeroed. Here SwiGLU writes, and all of it learns.": 2,
            "norm1 stands in front of attention: its gradient comes through the zeros.": 6,
        },
        hints=["Whose gradient does not pass through a matrix of zeros?"],
    ),
    Exercise(
        name="ruling",
        chapter=5,
        title="The rule of the court",
        difficulty=2,
        minutes=6,
        reference=_ruling,
        cases=[
            (0.9, 1.1, (0.5, 2.0)),
            (3.0, 4.0, (0.5, 2.0)),
            (0.1, 0.4, (0.5, 2.0)),
            (0.2, 0.6, (0.5, 2.0)),
            (1.5, 2.4, (0.5, 2.0)),
            (0.5, 2.0, (0.5, 2.0)),
            (0.1, 9.0, (0.5, 2.0)),
        ],
        wrong={
            "The middle alone decides here. Then the interval is of no use: nothing is ever left "
            "open.": _by_the_mean,
            "An interval across an edge does not show that the claim is wrong.": _open_is_no,
            "One end in the band is not enough: the true mean may lie at the other.": (
                _one_end_is_enough
            ),
            "Both ends may lie outside, on different sides, with the whole band between them.": (
                _ends_only
            ),
        },
        hints=[
            "First the two ways to lie wholly outside: below the band, and above it.",
            "Then wholly inside. What is left is open.",
        ],
    ),
)
