"""Chapters 01 and 02: a picture of a computation graph, with values and gradients on its nodes."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Text

from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, PINK, Picture

COLOURS = {"direct": BLACK, "branch": ORANGE, "": GREY}
WIDE, HIGH = 0.37, 0.2  # half the size of a node


class GraphPicture(Picture):
    """Nodes with their values; beside each, once it has come, the gradient of the result in it.

    Lines run forward, left to right. One along which a gradient has come back is thick.
    """

    width, height = 760, 300

    def build(self, numbers: Any) -> list:
        axes = self.figure.subplots()
        columns = [node.place[0] for node in numbers.nodes]
        axes.set(xlim=(min(columns) - 0.7, max(columns) + 0.6), ylim=(-0.42, 1.42))
        axes.axis("off")
        axes.set_title(numbers.title)
        for path, name in numbers.paths.items():
            axes.plot([], [], color=COLOURS[path], lw=3, label=name)
        axes.plot([], [], "s", color="white", mec=BLUE, label="in the box: name and value")
        axes.plot([], [], "s", color=BLUE, label="beside it: gradient")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, fontsize=9)
        self.lines = [
            _line(axes, numbers.nodes[edge.start].place, numbers.nodes[edge.end].place, edge.path)
            for edge in numbers.edges
        ]
        self.boxes = [_box(axes, node.place) for node in numbers.nodes]
        self.texts = [
            axes.text(x, y, "", ha="center", va="center", fontsize=9, zorder=4)
            for x, y in (node.place for node in numbers.nodes)
        ]
        self.gradients = [_gradient(axes, node.place) for node in numbers.nodes]
        return [*self.lines, *self.boxes, *self.texts, *self.gradients]

    def update(self, numbers: Any) -> str:
        for line, edge in zip(self.lines, numbers.edges, strict=True):
            line.set(linewidth=4 if edge.passed else 1.5, alpha=1.0 if edge.passed else 0.7)
        parts = zip(numbers.nodes, self.boxes, self.texts, self.gradients, strict=True)
        for node, box, text, gradient in parts:
            box.set(edgecolor=PINK if node.active else BLUE, linewidth=3 if node.active else 1.2)
            text.set_text(f"{node.name}\n{_show(node.value)}")
            arrived = "" if node.gradient is None else _show(node.gradient)
            gradient.set_text(arrived + ("" if node.complete or not arrived else " + …"))
        first = numbers.nodes[0]
        arrived = "nothing yet" if first.gradient is None else _show(first.gradient)
        more = " so far" if first.gradient is not None and not first.complete else ""
        return (
            f"{numbers.title} = {_show(numbers.nodes[-1].value)}, "
            f"step {numbers.step} of {numbers.steps}. {numbers.words} "
            f"Gradient at {first.name}: {arrived}{more}."
        )


def _show(values: list[float]) -> str:
    shown = [f"{round(value, 9) + 0.0:.3g}".replace("-", "−") for value in values]
    return shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"


def _box(axes: Axes, place: tuple[float, float]) -> FancyBboxPatch:
    x, y = place
    box = FancyBboxPatch((x - WIDE, y - HIGH), 2 * WIDE, 2 * HIGH, boxstyle="round,pad=0.02")
    box.set(facecolor="white", zorder=3)
    axes.add_patch(box)
    return box


def _gradient(axes: Axes, place: tuple[float, float]) -> Text:
    """A place for words above a box of the upper row, or below one of the lower."""
    x, y = place
    above = y > 0
    y += (HIGH + 0.05) * (1 if above else -1)
    look = {"ha": "center", "fontsize": 9, "weight": "bold", "color": BLUE}
    return axes.text(x, y, "", va="bottom" if above else "top", **look)


def _line(axes: Axes, start: tuple, end: tuple, path: str) -> FancyArrowPatch:
    """From the right side of one box to the left side of the next, or up and down between rows."""
    (x0, y0), (x1, y1) = start, end
    if y0 == y1:
        ends = (x0 + WIDE, y0), (x1 - WIDE, y1)
    else:
        way = 1 if y1 > y0 else -1
        ends = (x0 + 0.1, y0 + way * HIGH), (x1 - 0.1, y1 - way * HIGH)
    line = FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=14, shrinkA=0, shrinkB=0)
    line.set(color=COLOURS[path], zorder=2)
    axes.add_patch(line)
    return line
