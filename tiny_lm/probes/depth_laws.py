"""Chapter 05: what a stack of random ReLU branches should do, beside what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log, sqrt
from statistics import median

from tiny_lm.probes import depth

# How many times larger than its input's the mean square of a ReLU branch's output is: half the
# entries survive, and each matrix multiplies by fan-in · variance.
GAINS = {
    "He / fan-in": 1.0,
    "PyTorch's default": 1 / 18,
    "Normal(0, 0.02)": 0.5 * (depth.WIDTH * 0.02**2) * (depth.HIDDEN * 0.02**2),
}


@dataclass(frozen=True)
class Law:
    """Sizes after l of L layers of gain g², for an input of RMS 1 and an output gradient of 1.

    `number` says what the stream does, in one number: `fit(stream)`, and by the law
    `expected(g², L)`.
    """

    stream: Callable[[float, float, float], float]  # (l, L, g²)
    gradient: Callable[[float, float, float], float]
    number: str
    fit: Callable[[Sequence[float]], float]
    expected: Callable[[float, int], float]


def slope(y: Sequence[float]) -> float:
    """Slope of the straight line that fits y at 0, 1, 2, … best (least squares)."""
    middle, mean = (len(y) - 1) / 2, sum(y) / len(y)
    above = sum((i - middle) * (value - mean) for i, value in enumerate(y))
    return above / sum((i - middle) ** 2 for i in range(len(y)))


def _factor(stream: Sequence[float]) -> float:
    """By which factor the stream grows in a layer."""
    return exp(slope([log(size) for size in stream]))


def _square(stream: Sequence[float]) -> float:
    """By how much the stream's mean square grows in a layer."""
    return slope([size**2 for size in stream])


def _last(stream: Sequence[float]) -> float:
    return stream[-1]


FACTOR = "is multiplied by {} in each layer"
SQUARE = "gains {} in mean square in each layer"
LAST = "ends at {}"


# Pythagoras does it all: what a random branch writes stands at right angles to what is there.
LAWS: dict[str, Law] = {
    "plain": Law(
        stream=lambda at, layers, gain: gain ** (at / 2),
        gradient=lambda at, layers, gain: gain ** ((layers - at) / 2),
        number=FACTOR,
        fit=_factor,
        expected=lambda gain, layers: sqrt(gain),
    ),
    "norm, no path": Law(
        stream=lambda at, layers, gain: sqrt(gain) if at else 1.0,
        gradient=lambda at, layers, gain: 1.0 if at else sqrt(gain),
        number=LAST,
        fit=_last,
        expected=lambda gain, layers: sqrt(gain),
    ),
    "path, no norm": Law(
        stream=lambda at, layers, gain: (1 + gain) ** (at / 2),
        gradient=lambda at, layers, gain: (1 + gain) ** ((layers - at) / 2),
        number=FACTOR,
        fit=_factor,
        expected=lambda gain, layers: sqrt(1 + gain),
    ),
    "pre-norm": Law(
        stream=lambda at, layers, gain: sqrt(1 + gain * at),
        gradient=lambda at, layers, gain: sqrt((1 + gain * layers) / (1 + gain * at)),
        number=SQUARE,
        fit=_square,
        expected=lambda gain, layers: gain,
    ),
    "pre-norm / √L": Law(
        stream=lambda at, layers, gain: sqrt(1 + gain * at / layers),
        gradient=lambda at, layers, gain: sqrt((1 + gain) / (1 + gain * at / layers)),
        number=LAST,
        fit=_last,
        expected=lambda gain, layers: sqrt(1 + gain),
    ),
    "post-norm": Law(
        stream=lambda at, layers, gain: 1.0,
        gradient=lambda at, layers, gain: 1.0,
        number=LAST,
        fit=_last,
        expected=lambda gain, layers: 1.0,
    ),
    "sandwich": Law(
        stream=lambda at, layers, gain: sqrt(1 + at),
        gradient=lambda at, layers, gain: sqrt((1 + layers) / (1 + at)),
        number=SQUARE,
        fit=_square,
        expected=lambda gain, layers: 1.0,
    ),
}
LAWS["DeepNorm"] = LAWS["ReZero"] = LAWS["post-norm"]


@dataclass(frozen=True)
class Measured:
    """A stack with its law beside it; `law_*` are empty where there is no law."""

    stack: depth.Stack
    law_stream: list[float]
    law_gradient: list[float]
    number: str
    fitted: float
    expected: float


def measure(
    wiring: str = "path, no norm",
    branch: str = "ReLU",
    init: str = "He / fan-in",
    layers: int = 64,
    seed: int = 0,
) -> Measured:
    """Run one stack, fit the law's number to its stream, and compute what the law says.

    Arguments and errors as in depth.stack. The laws are for ReLU branches.
    """
    stack, law = depth.stack(wiring, branch, init, layers, seed), LAWS[wiring]
    sizes = [size for size in stack.stream if 0 < size < inf]
    gain, known = GAINS[init], branch == "ReLU"
    places = range(layers + 1) if known else []
    return Measured(
        stack=stack,
        law_stream=[law.stream(at, layers, gain) for at in places],
        law_gradient=[law.gradient(at, layers, gain) for at in places],
        number=law.number,
        fitted=law.fit(sizes),
        expected=law.expected(gain, layers),
    )


SEEDS = tuple(range(5))


@dataclass(frozen=True)
class Row:
    """One wiring at several depths: medians over seeds."""

    wiring: str
    stream: list[float]  # RMS at the output
    gradient: list[float]  # length at the input, 1 at the output
    cosine: list[float]  # between different inputs, at the output


@lru_cache(maxsize=64)
def row(
    wiring: str,
    depths: tuple[int, ...] = (4, 16, 64, 128),
    branch: str = "ReLU",
    init: str = "He / fan-in",
    seeds: tuple[int, ...] = SEEDS,
) -> Row:
    """Medians over seeds of what comes out at either end, one number for each depth."""
    runs = {n: [depth.stack(wiring, branch, init, n, seed) for seed in seeds] for n in depths}
    return Row(
        wiring=wiring,
        stream=[median(s.stream[-1] for s in runs[n]) for n in depths],
        gradient=[median(s.gradient[0] for s in runs[n]) for n in depths],
        cosine=[median(s.cosine[-1] for s in runs[n]) for n in depths],
    )
