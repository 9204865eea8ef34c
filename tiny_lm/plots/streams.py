"""Pictures of what one text does inside a model: the stream, what norms read, gains, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.image import AxesImage
from matplotlib.ticker import NullLocator

from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, RED, Picture

MOST_WORDS = 26  # that have room below a map
LARGEST_HALF = 65_504.0  # of all float16 numbers


def quoted(word: str) -> str:
    """A token in a sentence, with its blanks."""
    return "“" + word.replace("\n", "↵") + "”"


def blocks_axis(axes: Axes, taps: list[str]) -> None:
    """Number the blocks up the side of a map whose rows are taps."""
    ends = [k for k, tap in enumerate(taps) if tap.endswith("resid.ffn")]
    step = max(1, -(-len(ends) // 10))
    places, names = [0, *ends[step - 1 :: step]], ["embed"]
    names += [f"block {taps[k].split('.')[1]}" for k in places[1:]]
    axes.set_yticks(places, names)


def words_axis(axes: Axes, words: list[str]) -> None:
    """The tokens below a map, or their positions where there are too many."""
    if len(words) <= MOST_WORDS:
        shown = [word.replace("\n", "↵").replace("$", r"\$")[:12] for word in words]
        axes.set_xticks(range(len(words)), shown, rotation=60, ha="right", rotation_mode="anchor")
    else:
        axes.set_xlabel("position, from 0")


def rms_map(axes: Axes, taps: list[str], words: list[str], rms: list[list[float]]) -> AxesImage:
    """The size of the stream as a map: a row for each tap, from below; a column for each token."""
    sizes = np.maximum(np.array(rms), 1e-30)
    axes.grid(False)
    image = axes.imshow(
        sizes, norm=LogNorm(), cmap="cividis", aspect="auto", origin="lower", interpolation="none"
    )
    blocks_axis(axes, taps)
    words_axis(axes, words)
    return image


class StreamMapPicture(Picture):
    """RMS of the stream at every tap and position."""

    width, height = 720, 430

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        image = rms_map(axes, *numbers)
        self.figure.colorbar(image, ax=axes, label="RMS of the stream")
        return []

    def update(self, numbers: Any) -> str:
        taps, words, rms = numbers
        sizes = np.array(rms)
        tap, position = np.unravel_index(sizes.argmax(), sizes.shape)
        others = np.delete(sizes, position, axis=1)
        rest = f" No other position goes above {_three(others.max())}." if others.size else ""
        return (
            f"RMS of the stream at {len(taps)} taps and {len(words)} positions. The largest, "
            f"{_three(sizes.max())}, is at {taps[tap]}, position {position}: "
            f"{quoted(words[position])}.{rest}"
        )


class RowsPicture(Picture):
    """Mean squares and largest squares that each norm reads, between eps and float16's limit."""

    width, height = 720, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        x = range(len(numbers.norms))
        small = 1e-30
        least, most = np.maximum(numbers.least, small), np.maximum(numbers.most, small)
        axes.plot(x, np.maximum(numbers.square, small), color=RED, ls="--", label="largest square")
        axes.fill_between(
            x, least, most, color=BLUE, alpha=0.5, label="mean square, smallest to largest row"
        )
        axes.plot(x, most, color=BLUE, lw=1)
        axes.plot(x, least, color=BLUE, lw=1)
        axes.axhline(LARGEST_HALF, color=BLACK, lw=1.5, ls=":")
        frame = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85}
        words = "largest float16 number, 65,504"
        axes.text(0, LARGEST_HALF * 2, words, fontsize=9, va="bottom", bbox=frame)
        axes.plot(x, np.maximum(numbers.eps, small), color=ORANGE, lw=1.5)
        axes.text(0, max(numbers.eps[0], small) * 1.5, "eps", fontsize=9)
        axes.set(yscale="log", xlabel="norms, in the order of computation", ylabel="square")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(top=max(max(numbers.square), LARGEST_HALF) * 30)
        axes.legend(loc="lower right")
        return []

    def update(self, numbers: Any) -> str:
        first = next((n for n, s in zip(numbers.norms, numbers.square) if s > LARGEST_HALF), "")  # noqa: B905
        over = sum(square > LARGEST_HALF for square in numbers.square)
        limit = f"first at {first}" if first else "nowhere"
        shares = [e / m if m else float("inf") for e, m in zip(numbers.eps, numbers.least)]  # noqa: B905
        return (
            f"What {len(numbers.norms)} norms read. The largest square is above float16's largest "
            f"number at {over} of them, {limit}. eps is at most {max(shares):.2%} of a row's mean "
            f"square."
        )


class GainsPicture(Picture):
    """Smallest, middle and largest gain of every norm, on a log scale."""

    width, height = 720, 300

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        kinds = list(dict.fromkeys(gain.norm.rpartition(".")[2] for gain in numbers))
        for kind, colour, marker in zip(kinds, (BLUE, ORANGE, BLACK, GREY, RED), "osD^v"):  # noqa: B905
            place, same = zip(*[
                (k, gain) for k, gain in enumerate(numbers) if gain.norm.endswith(kind)
            ], strict=True)  # fmt: skip
            low = np.maximum([gain.least for gain in same], 1e-6)
            axes.vlines(place, low, [max(g.most, 1e-6) for g in same], color=colour, lw=1.5)
            axes.plot(place, [g.median for g in same], marker, color=colour, ms=4, label=kind)
        axes.axhline(1, color=BLACK, lw=0.8)
        axes.set(yscale="log", xlabel="norms, in the order of computation", ylabel="gain")
        axes.yaxis.set_minor_locator(NullLocator())
        self.figure.legend(loc="outside upper right", ncols=len(kinds))
        return []

    def update(self, numbers: Any) -> str:
        least, most = min(numbers, key=lambda g: g.least), max(numbers, key=lambda g: g.most)
        middle = sorted(gain.median for gain in numbers)
        return (
            f"Gains of {len(numbers)} norms, without signs: from {least.least:.2g} in {least.norm} "
            f"to {most.most:.3g} in {most.norm}. Dots: medians, from {middle[0]:.2g} to "
            f"{middle[-1]:.3g}."
        )


class SinksPicture(Picture):
    """How much attention each head gives the first position: a map of heads and blocks."""

    width, height = 720, 270

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.grid(False)
        shares = np.array(numbers.shares).T
        image = axes.imshow(shares, vmin=0, vmax=1, cmap="cividis", aspect="auto", origin="lower")
        axes.set(xlabel="block", ylabel="head")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.xaxis.get_major_locator().set_params(integer=True)
        self.figure.colorbar(image, ax=axes, label="share on the first position")
        return []

    def update(self, numbers: Any) -> str:
        shares = np.array(numbers.shares)
        block, head = np.unravel_index(shares.argmax(), shares.shape)
        return (
            f"{(shares > 0.5).sum()} of {shares.size} heads give the first position more than half "
            f"of their attention; most, {shares.max():.0%}, head {head} of block {block}. On "
            f"average {shares.mean():.0%}; equal weights would give {numbers.equal:.0%}."
        )


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"
