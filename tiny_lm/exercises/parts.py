"""Chapter 04: exercises on SwiGLU and on how the parts of a block fit together."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from tiny_lm.exercises.core import Exercise
from tiny_lm.layers import RMSNorm


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


_MATRICES = (_normal(2, 3), _normal(2, 3, seed=1), _normal(3, 2, seed=2))
_ONE = torch.ones(1, 1)


# --- a layer around a branch


class _Around(nn.Module):
    """x + branch(norm(x))"""

    def __init__(self, width: int, branch: nn.Module):
        super().__init__()
        self.norm, self.branch = RMSNorm(width), branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(self.norm(x))


class _AroundInAList(_Around):
    def __init__(self, width: int, branch: nn.Module):
        super().__init__(width, nn.Identity())
        self.branches = [branch]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branches[0](self.norm(x))


class _AroundNormMadeAnew(_Around):
    def __init__(self, width: int, branch: nn.Module):
        super().__init__(width, branch)
        self.norm = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(RMSNorm(x.shape[-1])(x))


class _AroundPostNorm(_Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.branch(x))


class _AroundFromTheCopy(_Around):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return x + self.branch(x)


class _AroundNoNorm(_Around):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class _AroundNoPath(_Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.branch(self.norm(x))


def _build(layer: type[nn.Module], x: Tensor, matrix: Tensor, what: str) -> Tensor | int:
    branch = nn.Linear(*matrix.shape[::-1], bias=False)
    with torch.no_grad():
        branch.weight.copy_(matrix)
    made = layer(x.shape[-1], branch)
    if what == "parameters":
        return sum(p.numel() for p in made.parameters())
    return made(x)


_X, _MIX = torch.tensor([[3.0, 4.0], [30.0, 40.0]]), torch.tensor([[1.0, 2.0], [0.0, -1.0]])

EXERCISES = (
    Exercise(
        name="swiglu",
        chapter=4,
        title="Write SwiGLU",
        difficulty=2,
        minutes=5,
        reference=lambda x, gate, up, down: (silu(x @ gate) * (x @ up)) @ down,
        cases=[
            (torch.tensor([1.0]), 2 * _ONE, _ONE, _ONE),
            (_normal(3, 2), *_MATRICES),
        ],
        wrong={
            "Gate and up are swapped: silu belongs to the gate.": (
                lambda x, gate, up, down: (silu(x @ up) * (x @ gate)) @ down
            ),
            "This gates with sigmoid, not with silu(u) = u · sigmoid(u).": (
                lambda x, gate, up, down: ((x @ gate).sigmoid() * (x @ up)) @ down
            ),
            "This gates with ReLU.": lambda x, gate, up, down: (relu(x @ gate) * (x @ up)) @ down,
            "This gates with GELU.": lambda x, gate, up, down: (gelu(x @ gate) * (x @ up)) @ down,
            "Gate and up are multiplied, not added.": (
                lambda x, gate, up, down: (silu(x @ gate) + x @ up) @ down
            ),
            "The up matrix is missing.": lambda x, gate, up, down: silu(x @ gate) @ down,
            "silu comes before the product, on the gate alone.": (
                lambda x, gate, up, down: silu((x @ gate) * (x @ up)) @ down
            ),
        },
        hints=["silu(x @ gate), times x @ up, and then @ down."],
    ),
    Exercise(
        name="second_norm",
        chapter=4,
        title="What does the second norm hand on?",
        difficulty=1,
        minutes=3,
        reference=[1.0, 1.0],
        rtol=5e-3,
        wrong={
            "That is the norm of x. The second norm reads h = x + [2, 1].": [
                3 / sqrt(12.5),
                4 / sqrt(12.5),
            ],
            "That is h itself: now divide it by its RMS.": [5.0, 5.0],
            "That is the norm of what attention wrote. The second norm reads the sum.": [
                2 / sqrt(2.5),
                1 / sqrt(2.5),
            ],
            "The sum starts from x itself, not from its normalised copy.": [
                (3 / sqrt(12.5) + 2) / 2.522,
                (4 / sqrt(12.5) + 1) / 2.522,
            ],
        },
        hints=["h = [3, 4] + [2, 1]. What is its RMS?"],
    ),
    Exercise(
        name="fold_gain",
        chapter=4,
        title="Fold the gain into the next projection",
        difficulty=2,
        minutes=6,
        reference=lambda weight, gain: weight * gain,
        cases=[
            (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([10.0, 1.0])),
            (_normal(3, 2), torch.tensor([2.0, -0.5])),
            (_normal(2, 3), torch.tensor([0.0, 1.0, 3.0])),
        ],
        wrong={
            "This scales the rows, which belong to the outputs. The gain acts on the inputs, so on "
            "the columns.": lambda weight, gain: weight * gain[:, None],
            "The gain multiplies what comes in; divided by it, the matrix undoes it.": (
                lambda weight, gain: weight / gain
            ),
            "That is the matrix times the gain as a vector: one number for each output.": (
                lambda weight, gain: weight @ gain
            ),
            "One mean gain for all coordinates: each column has its own.": (
                lambda weight, gain: weight * gain.mean()
            ),
            "The gain multiplies; it is not added.": lambda weight, gain: weight + gain,
        },
        hints=[
            "An output is the sum over j of weight[i, j] · gain[j] · n[j]. Which entries of weight "
            "does gain[j] meet?",
            "weight is [F, D] and gain is [D]: broadcasting lines up the last axes.",
        ],
    ),
    Exercise(
        name="rope_layouts",
        chapter=4,
        title="From halves to neighbours",
        difficulty=2,
        minutes=5,
        reference=lambda x: torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2),
        cases=[
            (torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),),
            (torch.arange(16.0).view(2, 8),),
        ],
        wrong={
            "The coordinates stand where they stood.": lambda x: x,
            "This is the way back: from neighbours to halves.": (
                lambda x: x.unflatten(-1, (-1, 2)).transpose(-2, -1).flatten(-2)
            ),
            "Each pair is the wrong way round, which turns it the other way.": (
                lambda x: torch.stack(x.chunk(2, dim=-1)[::-1], dim=-1).flatten(-2)
            ),
            "This swaps the two halves; pairs of neighbours are still no pairs.": (
                lambda x: torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)
            ),
        },
        hints=[
            "For d = 6 the pairs are (0, 3), (1, 4), (2, 5), and the answer is that list, written "
            "in one row.",
            "x.chunk(2, dim=-1) gives both halves; torch.stack(…, dim=-1) pairs them up.",
        ],
    ),
    Exercise(
        name="around",
        chapter=4,
        title="A layer around any branch",
        difficulty=2,
        minutes=6,
        reference=_Around,
        use=_build,
        cases=[
            (_X[:1], torch.zeros(2, 2), "output"),
            (_X, _MIX, "output"),
            (_X, _MIX, "parameters"),
        ],
        wrong={
            "A plain list hides its modules: their parameters are never trained or saved.": (
                _AroundInAList
            ),
            "The norm is made anew in each call, so its gain is never trained or saved.": (
                _AroundNormMadeAnew
            ),
            "This is post-norm: the norm stands on the direct path.": _AroundPostNorm,
            "The sum starts from the normalised copy.": _AroundFromTheCopy,
            "The branch reads the stream without its norm.": _AroundNoNorm,
            "There is no direct path: nothing is added.": _AroundNoPath,
        },
        hints=[
            "Both parts are made or kept in __init__, as attributes of self; forward is one line.",
            "self.norm = RMSNorm(width); self.branch = branch; x + self.branch(self.norm(x)).",
        ],
    ),
)
