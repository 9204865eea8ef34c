"""Chapter 08: RMSNorm in 16 bits, in the ways that it is written, on rows of a real model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tiny_lm.layers import RMSNorm
from tiny_lm.model import TinyLM
from tiny_lm.probes.edits import surprise
from tiny_lm.probes.streams import Reading, norms
from tiny_lm.taps import Recorder

# A way computes the mean square that stands below the root, and the row above it, both divided by
# the square of one factor: `x in its dtype -> (row, mean square, factor)`.
Way = Callable[[Tensor], tuple[Tensor, Tensor, Tensor | float]]


def _mean(x: Tensor) -> tuple[Tensor, Tensor, float]:
    return x, x.square().mean(dim=-1, keepdim=True), 1.0


def _sum(x: Tensor) -> tuple[Tensor, Tensor, float]:
    return x, x.square().sum(dim=-1, keepdim=True) / x.shape[-1], 1.0


def _scaled(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # Not below 1/256: eps has to be divided by its square, and 65,536 eps is to stay in range.
    factor = x.abs().amax(dim=-1, keepdim=True).clamp_min(2.0**-8)
    row = x / factor  # entries up to 1
    return row, row.square().mean(dim=-1, keepdim=True), factor


WAYS: dict[str, tuple[torch.dtype, torch.dtype, Way]] = {
    # name                             row kept in     computed in     how
    "float32 inside":                 (torch.float16,  torch.float32,  _mean),
    "float16, mean of squares":       (torch.float16,  torch.float16,  _mean),
    "float16, sum of squares":        (torch.float16,  torch.float16,  _sum),
    "float16, divided first":         (torch.float16,  torch.float16,  _scaled),
    "bfloat16, mean of squares":      (torch.bfloat16, torch.bfloat16, _mean),
}  # fmt: skip


def norm_in(way: str, x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """RMSNorm in one of WAYS: `[..., D] -> [..., D]`, in 16 bits."""
    kept, computed, how = WAYS[way]
    row, mean_square, factor = how(x.to(kept).to(computed))
    y = row * torch.rsqrt(mean_square + eps / factor / factor)  # the square could overflow
    return (y * gain.to(computed)).to(kept)


class HalfNorm(nn.Module):
    """An RMSNorm that computes in one of WAYS; the rest of the model stays in float32."""

    def __init__(self, norm: RMSNorm, way: str):
        super().__init__()
        self.norm, self.way = norm, way

    def forward(self, x: Tensor) -> Tensor:
        return norm_in(self.way, x, self.norm.scale, self.norm.eps).to(x.dtype)


def with_half_norms(model: TinyLM, way: str) -> TinyLM:
    """The model with all its RMSNorms computed in one of WAYS; weights are shared."""
    twin = deepcopy(model, {id(weight): weight for weight in model.parameters()})
    for name in norms(model):
        parent, _, child = name.rpartition(".")
        place = twin.get_submodule(parent)
        setattr(place, child, HalfNorm(getattr(place, child), way))
    return twin


@dataclass(frozen=True)
class Outcome:
    """A model whose norms compute in one way: what it expects next, and its loss on a text."""

    way: str
    zero_rows: int  # rows that a norm returned as zeros
    rows: int
    token: int  # the likeliest next token
    probability: float
    loss: float  # nats a token


@torch.no_grad()
def outcomes(model: TinyLM, ids: Sequence[int], text: Sequence[int]) -> list[Outcome]:
    """Every way in turn: the token after `ids`, and the loss on `text`."""
    found = []
    for way in WAYS:
        twin, tap = with_half_norms(model, way), Recorder()
        p = twin(torch.tensor([list(ids)]), tap=tap)[0, -1].softmax(dim=-1)
        made = [value[0] for name, value in tap.items() if "norm" in name.split(".")]
        rows = torch.cat(made)
        row = torch.tensor([list(text)])
        loss = surprise(twin(row[:, :-1]), row) / (len(text) - 1)
        zero, token = int((rows == 0).all(dim=-1).sum()), int(p.argmax())
        found.append(Outcome(way, zero, len(rows), token, float(p[token]), loss))
    return found


@dataclass(frozen=True)
class Steps:
    """One row on its way through one norm, computed in 16 bits. None stands for what overflowed."""

    norm: str
    word: str
    position: int
    way: str
    entry: float  # the largest, without its sign
    square: float | None  # of it
    total: float | None  # of all squares; None also where no sum is formed in 16 bits
    mean: float | None  # below the root
    right: list[float]  # the output in float64
    computed: list[float]
    forms_sum: bool

    @property
    def is_zero(self) -> bool:
        """Whether nothing is left of the row."""
        return not any(self.computed)


@torch.no_grad()
def steps(reading: Reading, norm: int, position: int, way: str) -> Steps:
    """What a norm, counted from 0, makes of the row at a position."""
    name = list(reading.read)[norm]
    module, x = norms(reading.model)[name], reading.read[name][position]
    kept, computed, how = WAYS[way]
    row, mean_square, _ = how(x.to(kept).to(computed))
    squares = row.square()
    forms_sum = how is _sum
    total = float(squares.sum() if forms_sum else row.double().square().sum())
    right = x.double() * torch.rsqrt(x.double().square().mean() + module.eps)
    return Steps(
        norm=name,
        word=reading.words[position],
        position=position,
        way=way,
        entry=float(row.abs().max()),
        square=_finite(squares.max()),
        total=_finite(total),
        mean=_finite(mean_square),
        right=(right * module.scale.double()).tolist(),
        computed=norm_in(way, x, module.scale, module.eps).double().tolist(),
        forms_sum=forms_sum,
    )


def _finite(value: Tensor | float) -> float | None:
    value = float(value)
    return value if value < float("inf") else None
