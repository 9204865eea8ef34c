"""Chapter 05: stacks of 1 to 128 layers before any training: stream, gradient, cosines.

A *layer* is one branch and whatever goes around it; a transformer block has two of them. Everything
is float64, with norms of eps 0, so that the laws show and not the rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf, sqrt

import torch
from torch import Tensor, nn

from tiny_lm.attention import CausalSelfAttention
from tiny_lm.layers import RMSNorm, SwiGLU, residual_add
from tiny_lm.shapes import fail

WIDTH, HIDDEN, HEADS, INPUTS, DEEPEST = 64, 256, 4, 16, 128
GATED = 176  # hidden width of SwiGLU, about 8/3 of WIDTH

Branch = Callable[[Tensor], Tensor]


@cache
def norm() -> RMSNorm:
    """RMSNorm of the stream's width with eps 0, in float64, gains 1."""
    return RMSNorm(WIDTH, eps=0.0).double().requires_grad_(False)


def _deepnorm(x: Tensor, branch: Branch, layers: int) -> Tensor:
    """norm(α x + F(x)), α = (2N)^¼, both matrices of F by β = (8N)^−¼, and 2N = layers.

    Two matrices scaled by β scale a ReLU branch by β². Source: Wang et al. 2022, arXiv 2203.00555.
    """
    alpha, beta = layers**0.25, (4 * layers) ** -0.25
    return norm()(residual_add(alpha * x, beta**2 * branch(x)))


WIRINGS: dict[str, Callable[[Tensor, Branch, int], Tensor]] = {
    "plain": lambda x, branch, layers: branch(x),
    "norm, no path": lambda x, branch, layers: branch(norm()(x)),
    "path, no norm": lambda x, branch, layers: residual_add(x, branch(x)),
    "pre-norm": lambda x, branch, layers: residual_add(x, branch(norm()(x))),
    "pre-norm / √L": lambda x, branch, layers: residual_add(x, branch(norm()(x)) / sqrt(layers)),
    "post-norm": lambda x, branch, layers: norm()(residual_add(x, branch(x))),
    "sandwich": lambda x, branch, layers: residual_add(x, norm()(branch(norm()(x)))),
    "DeepNorm": _deepnorm,
    "ReZero": lambda x, branch, layers: residual_add(x, 0.0 * branch(x)),
}


def _fan_in(weight: Tensor, generator: torch.Generator, gain: float) -> None:
    nn.init.normal_(weight, std=sqrt(gain / weight.shape[1]), generator=generator)


def _torch_default(weight: Tensor, generator: torch.Generator, gain: float) -> None:
    bound = 1 / sqrt(weight.shape[1])  # what nn.Linear does: variance 1 / (3 · fan-in)
    nn.init.uniform_(weight, -bound, bound, generator=generator)


def _normal_002(weight: Tensor, generator: torch.Generator, gain: float) -> None:
    nn.init.normal_(weight, std=0.02, generator=generator)


# How a matrix [out, in] is drawn. `gain` is 2 in front of a ReLU, which halves the mean square.
INITS: dict[str, Callable[[Tensor, torch.Generator, float], None]] = {
    "He / fan-in": _fan_in,
    "PyTorch's default": _torch_default,
    "Normal(0, 0.02)": _normal_002,
}


class ReLUBranch(nn.Module):
    """Two matrices with a ReLU between them: `[..., D] -> [..., D]`, y = relu(x Wup) Wdown."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(HIDDEN, WIDTH, dtype=torch.float64))
        self.down = nn.Parameter(torch.empty(WIDTH, HIDDEN, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.up.T) @ self.down.T


def _real_branch(index: int) -> nn.Module:
    return SwiGLU(WIDTH, GATED) if index % 2 else CausalSelfAttention(WIDTH, HEADS)


# The branch of layer 0, 1, 2, …: two matrices with a ReLU between, or a block's two in turn.
BRANCHES: dict[str, Callable[[int], nn.Module]] = {
    "ReLU": lambda index: ReLUBranch(),
    "attention, SwiGLU": _real_branch,
}


@lru_cache(maxsize=10)  # up to 34 MB each
def branches(branch: str, init: str, seed: int) -> list[nn.Module]:
    """The random branches of the deepest stack; a shallower one uses the first of them."""
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights, which are replaced below
        made = [BRANCHES[branch](index).double().requires_grad_(False) for index in range(DEEPEST)]
    generator = torch.Generator().manual_seed(seed)
    for module in made:
        for name, weight in module.named_parameters():
            INITS[init](weight, generator, 2.0 if name == "up" else 1.0)
    return made


def inputs(seed: int) -> tuple[Tensor, Tensor]:
    """Sixteen random inputs of RMS about 1, and the gradient that arrives at the outputs."""
    generator = torch.Generator().manual_seed(1000 + seed)
    x, gradient = torch.randn(2, 1, INPUTS, WIDTH, generator=generator, dtype=torch.float64)
    return x, gradient


@dataclass(frozen=True)
class Stack:
    """One random stack. Lists are by layers passed, 0 … `layers`."""

    wiring: str
    branch: str
    init: str
    layers: int
    seed: int
    stream: list[float]  # RMS over all inputs; inf from where float64 overflows
    gradient: list[float]  # length of the gradient there, 1 at the output
    cosine: list[float]  # mean cosine between different inputs


@lru_cache(maxsize=2048)
def stack(
    wiring: str = "path, no norm",
    branch: str = "ReLU",
    init: str = "He / fan-in",
    layers: int = 64,
    seed: int = 0,
) -> Stack:
    """Send 16 inputs through a stack and a gradient back.

    Raises ValueError for an unknown name and for a depth outside 1 … 128.
    """
    for name, known in ((wiring, WIRINGS), (branch, BRANCHES), (init, INITS)):
        if name not in known:
            fail("stack", f"one of {', '.join(known)}", repr(name))
    if not 1 <= layers <= DEEPEST:
        fail("stack", f"1 to {DEEPEST} layers", layers)
    x, gradient = inputs(seed)
    streams = run(x, wiring, branches(branch, init, seed)[:layers])
    gradients = torch.autograd.grad(streams[-1], streams, gradient)
    lengths = _sizes(gradients)
    return Stack(
        wiring=wiring,
        branch=branch,
        init=init,
        layers=layers,
        seed=seed,
        stream=_sizes(streams),
        gradient=[length / lengths[-1] for length in lengths],
        cosine=_cosines(streams),
    )


def run(x: Tensor, wiring: str, made: list[nn.Module]) -> list[Tensor]:
    """The stream after 0, 1, … layers, `[1, T, D]` each, with its graph."""
    streams = [x.clone().requires_grad_()]
    for branch in made:
        streams.append(WIRINGS[wiring](streams[-1], branch, len(made)))
    return streams


@torch.no_grad()
def _sizes(values: Sequence[Tensor]) -> list[float]:
    """RMS of all entries of each, computed so that no square over- or underflows."""
    rows = torch.stack(tuple(values)).flatten(1)
    largest = rows.abs().amax(dim=1)
    sizes = largest * (rows / largest[:, None]).square().mean(dim=1).sqrt()
    # 0 / 0 where all is zero; an infinity over itself where float64 has overflowed.
    sizes = torch.where(largest == 0, 0.0, sizes)
    return torch.where(sizes.isfinite(), sizes, inf).tolist()


@torch.no_grad()
def _cosines(values: Sequence[Tensor]) -> list[float]:
    """Mean cosine between different rows of each; NaN where float64 has over- or underflowed."""
    rows = torch.stack(tuple(values))[:, 0]
    rows = nn.functional.normalize(rows / rows.abs().amax(dim=(1, 2), keepdim=True), dim=-1)
    count = rows.shape[1]
    together = rows.sum(dim=1).square().sum(dim=1)
    return ((together - count) / (count * (count - 1))).tolist()
