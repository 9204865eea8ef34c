"""Chapters 01 and 02: a computation as a graph, and gradients on their way back through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiny_lm.autograd import Tensor, nn
from tiny_lm.autograd.tensor import walk_back

# What each operation hands back, when the gradient of its result r is G.
RULES = {
    "add": "r = a + b hands G to each",
    "multiply": "r = a · b hands G · b to a, and G · a to b",
    "divide": "r = a / b hands G / b to a, and −G · r / b to b",
    "sqrt": "r = √a hands G / (2r) to a",
    "mean": "r = mean(a) hands G / D to each of the D entries",
}


@dataclass(frozen=True)
class Node:
    """One tensor of a graph: its place in the drawing, its value, and what has come back to it."""

    name: str
    place: tuple[float, float]  # column, row
    value: list[float]
    gradient: list[float] | None  # None: nothing yet
    complete: bool  # nothing more is on its way
    active: bool  # handed its gradient on in this very step


@dataclass(frozen=True)
class Edge:
    """Two nodes, by their numbers, and the path that their connection belongs to."""

    start: int
    end: int
    path: str  # "direct", "branch" or "" for neither
    passed: bool  # a gradient has come back along it


@dataclass(frozen=True)
class Graph:
    """A computation after some steps of the way back (float64)."""

    title: str
    paths: dict[str, str]  # path -> what it is called
    nodes: list[Node]
    edges: list[Edge]
    step: int
    steps: int  # the last step
    words: str  # what this step did


Drawing = list[tuple[Tensor, str, tuple[float, float]]]  # tensor, name, place


def residual(step: int = 3, x: float = 3.0, factor: float = 2.0) -> Graph:
    """y = x + w · x after some steps back: 0 none, 1 the seed at y, then an operation each."""
    start, w = Tensor([x]), Tensor([factor])
    branch = w * start
    y = start + branch
    drawing = [
        (start, "x", (0, 0)),
        (w, "w", (0, 1)),
        (branch, "w · x", (1.5, 1)),
        (y, "y", (3, 0)),
    ]
    branches = [(start, branch), (branch, y)]
    paths = {"direct": "direct path", "branch": "through the branch"}
    return _graph("y = x + w · x", paths, drawing, (start, y), branches, [1.0], step)


SEEDS = {"y₁": [1.0, 0.0], "y₂": [0.0, 1.0], "y₁ + y₂": [1.0, 1.0], "3y₁ + 4y₂": [3.0, 4.0]}


def rms_norm(step: int = 7, result: str = "y₁", eps: float = 1e-5) -> Graph:
    """RMSNorm of [3, 4] after some steps back from one of SEEDS, an operation a step."""
    x, g = Tensor([3.0, 4.0]), nn.RMSNorm(2, eps).gamma
    square = x * x
    mean = square.mean(axis=-1, keepdims=True)
    shifted = mean + eps
    root = shifted.sqrt()
    normed = x / root
    y = normed * g
    drawing = [
        (x, "x", (0, 0)),
        (square, "x · x", (0.75, 1)),
        (mean, "mean", (1.75, 1)),
        (shifted, "+ ε", (2.75, 1)),
        (root, "√", (3.75, 1)),
        (normed, "x / √", (4.5, 0)),
        (g, "gain", (4.75, 1)),
        (y, "y", (5.5, 0)),
    ]
    branches = [(x, square), (square, mean), (mean, shifted), (shifted, root), (root, normed)]
    paths = {"direct": "x, divided", "branch": "through its own RMS"}
    return _graph("RMSNorm([3, 4])", paths, drawing, (x, normed), branches, SEEDS[result], step)


def _graph(
    title: str,
    paths: dict[str, str],
    drawing: Drawing,
    direct: tuple[Tensor, Tensor],
    branches: list[tuple[Tensor, Tensor]],
    seed: list[float],
    step: int,
) -> Graph:
    """Walk back `step` steps from the last tensor drawn, and write down what has arrived where."""
    number = {id(tensor): i for i, (tensor, _, _) in enumerate(drawing)}

    def edge(start: Tensor, end: Tensor) -> tuple[int, int]:
        return number[id(start)], number[id(end)]

    result = drawing[-1][0]
    walk = [part for part in walk_back(result, seed) if part[0].operation]
    done = walk[: max(0, step - 1)]
    arrived = {number[id(result)]: np.array(seed)} if step else {}
    for tensor, _, shares in done:
        for parent, share in zip(tensor.parents, shares, strict=True):
            at = number[id(parent)]
            arrived[at] = arrived.get(at, 0.0) + share
    passed = {edge(parent, tensor) for tensor, _, _ in done for parent in tensor.parents}
    edges = dict.fromkeys(edge(p, t) for t, _, _ in reversed(walk) for p in t.parents)
    kinds = {edge(*direct): "direct"} | {edge(*pair): "branch" for pair in branches}
    words = "The gradient starts at y." if step else "Forward only: no gradient yet."
    active = None
    if done:
        active = number[id(done[-1][0])]
        words = f"At “{drawing[active][1]}”: {RULES[done[-1][0].operation]}."
    nodes = [
        Node(
            name=name,
            place=place,
            value=tensor.data.tolist(),
            gradient=arrived[i].tolist() if i in arrived else None,
            complete=i in arrived and all(e in passed for e in edges if e[0] == i),
            active=i == active,
        )
        for i, (tensor, name, place) in enumerate(drawing)
    ]
    lines = [Edge(*ends, kinds.get(ends, ""), ends in passed) for ends in edges]
    return Graph(title, paths, nodes, lines, step, steps=1 + len(walk), words=words)
