"""Chapter 05: pictures of deep stacks: stream, gradient and cosines; paths; slopes along a line."""

from __future__ import annotations

from math import inf, isfinite, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from tiny_lm.plots.picture import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, Picture, number, y_limits

DEEPEST = 128
_DECADES = (2, 5, 10, 20, 50, 100, 200, 310)  # an axis goes from 10^−n to 10^n
_FLOAT32 = 38.53  # powers of ten up to which float32 reaches


def short(value: float) -> str:
    """A size of any magnitude: `1.41`, `0.0023`, `1,900`, `4.2e18`, `infinity`."""
    if not isfinite(value):
        return "infinity"
    if value == 0 or 1e-3 <= value < 1e4:
        return f"{float(f'{value:.3g}'):,.6g}"
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(power)}".replace("-", "−")


def _reach(values: list[float]) -> int:
    """The smallest axis that holds all these powers of ten."""
    most = max((abs(value) for value in values if isfinite(value)), default=1.0)
    return next((n for n in _DECADES if most <= 0.98 * n), _DECADES[-1])


def _powers(values: list[float]) -> list[float]:
    return [log10(value) if 0 < value < inf else np.nan for value in values]


class DepthPicture(Picture):
    """Stream, gradient and likeness of inputs after each layer, with the law where there is one."""

    width, height = 840, 340

    def build(self, numbers: Any) -> list:
        # Placed by hand: a layout that follows the width of the tick labels would wander.
        self.figure.set_layout_engine("none")
        self.axes = [self.figure.add_axes((x, 0.24, 0.25, 0.67)) for x in (0.065, 0.39, 0.735)]
        titles = ("size of the stream", "gradient that arrives there", "likeness of inputs")
        for axes, title in zip(self.axes, titles, strict=True):
            axes.set(xlim=(-3, DEEPEST + 3), xlabel="layers passed", title=title)
            axes.set_xticks(range(0, DEEPEST + 1, 32))
        for axes in self.axes[:2]:
            axes.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")
            axes.yaxis.get_major_locator().set_params(integer=True)
            axes.axhspan(_FLOAT32, 400, color=GREY, alpha=0.2, lw=0)
            axes.axhspan(-400, -44.85, color=GREY, alpha=0.2, lw=0)
        self.axes[2].set(ylim=(-0.25, 1.05), ylabel="mean cosine")
        self.lines = [self._pair(axes) for axes in self.axes[:2]]
        (self.cosine,) = self.axes[2].plot([], [], color=GREEN)
        (self.end,) = self.axes[2].plot([], [], "o", color=GREEN, ms=6)
        handles, labels = self.axes[0].get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="lower left", ncols=2, bbox_to_anchor=(0.05, 0))
        return [line for pair in self.lines for line in pair] + [self.cosine, self.end]

    def _pair(self, axes: Axes) -> tuple:
        (measured,) = axes.plot([], [], color=BLUE, lw=3.5, label="measured")
        (law,) = axes.plot([], [], "--", color=ORANGE, label="law")
        return measured, law

    def update(self, numbers: Any) -> str:
        stack, places = numbers.stack, range(numbers.stack.layers + 1)
        measured = [_powers(stack.stream), _powers(stack.gradient)]
        laws = [_powers(numbers.law_stream), _powers(numbers.law_gradient)]
        for axes, (line, dashes), powers, law in zip(
            self.axes, self.lines, measured, laws, strict=False
        ):
            reach = _reach(powers + law)
            y_limits(axes, -reach, reach)
            line.set_data(places, powers)
            dashes.set_data(range(len(law)), law)
        self.cosine.set_data(places, stack.cosine)
        self.end.set_data([stack.layers], [stack.cosine[-1]])
        return self._sentence(numbers)

    def _sentence(self, numbers: Any) -> str:
        stack, law = numbers.stack, numbers.law_stream
        plural, cosine = "s" * (stack.layers > 1), stack.cosine[-1]
        text = f"{stack.wiring}; {stack.init}; {stack.layers} layer{plural}. The stream "
        if law:
            fitted = numbers.number.format(short(numbers.fitted))
            text += f"{fitted} (law {short(numbers.expected)})"
        else:
            text += f"ends at {short(stack.stream[-1])} (no law is drawn for these branches)"
        text += f". Gradient at the input: {short(stack.gradient[0])}"
        text += f" (law {short(numbers.law_gradient[0])})" if law else ""
        alike = number(cosine) if isfinite(cosine) else "cannot be told"
        return text + f". Cosine of different inputs: {alike}."


class LengthsPicture(Picture):
    """How many paths there are of each length, and which of them carry the gradient."""

    width, height = 720, 340

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        axes.set(xlim=(-1, 65), xlabel="length of a path: branches passed", ylabel="share")
        places = range(65)
        self.bars = axes.bar(places, [0] * 65, width=0.8, color=BLUE, label="gradient (squared)")
        (self.law,) = axes.plot([], [], "_", color=ORANGE, ms=9, mew=2.5, label="its law")
        (self.paths,) = axes.plot([], [], "-o", color=BLACK, ms=3, lw=1, label="paths")
        axes.legend(loc="upper right")
        return [*self.bars, self.law, self.paths]

    def update(self, numbers: Any) -> str:
        places = range(numbers.layers + 1)
        most = max(numbers.gradient + numbers.law + numbers.paths)
        y_limits(self.bars[0].axes, 0, 0.3 if most < 0.29 else 1.02)
        for length, bar in enumerate(self.bars):
            bar.set_height(numbers.gradient[length] if length in places else 0)
        self.law.set_data(places, [share if share > 1e-3 else np.nan for share in numbers.law])
        self.paths.set_data(places, numbers.paths)
        return (
            f"{numbers.wiring}; {numbers.init}; {numbers.layers} layers. A path goes through "
            f"{numbers.mean_paths:.1f} branches on average, the gradient through "
            f"{numbers.mean_gradient:.1f} (law {numbers.mean_law:.1f})."
        )


class LinePicture(Picture):
    """The slope of several stacks along a line, and how soon each forgets itself."""

    width, height = 840, 380
    looks = ((ORANGE, "-."), (BLUE, "-"), (GREEN, "--"), (PINK, ":"))

    def build(self, numbers: Any) -> list:
        grid = self.figure.add_gridspec(len(numbers), 2, width_ratios=(1.5, 1))
        curve = self.figure.add_subplot(grid[:, 1])
        curve.axhline(0, color=BLACK, lw=0.8)
        curve.set(ylim=(-0.3, 1.05), xlabel="distance along the line", title="likeness of slopes")
        curve.set_ylabel("mean cosine")
        moving = []
        for place, line in enumerate(numbers):
            colour, style = self.looks[place]
            axes = self.figure.add_subplot(grid[place, 0])
            axes.axhline(0, color=BLACK, lw=0.8)
            axes.set(xlim=(-2, 2), ylim=(-4, 4), yticks=[])
            axes.set_ylabel(line.wiring, rotation=0, ha="right", va="center")
            axes.tick_params(labelbottom=place == len(numbers) - 1)
            moving += axes.plot(line.places, line.slopes, color=colour, lw=1.5)
            apart = [step / 32 for step in range(len(line.resemblance))]
            moving += curve.plot(apart, line.resemblance, style, color=colour, label=line.wiring)
            axes.set_title("slope of the output" if place == 0 else "")
        axes.set_xlabel("t, place on the line")
        curve.legend(fontsize=9)
        return moving

    def update(self, numbers: Any) -> str:
        found = "; ".join(f"{line.wiring} {number(line.resemblance[8])}" for line in numbers)
        return (
            f"Slopes of stacks of {numbers[0].layers} layers along a line of inputs. Cosine "
            f"between the slopes and those a quarter further on: {found}."
        )
