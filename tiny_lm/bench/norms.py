"""How long norms take: the taught one, the fast one, and other people's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import torch
from torch import Tensor, nn

from tiny_lm.bench.contest import Contest, Way, missing
from tiny_lm.fast import FastRMSNorm
from tiny_lm.layers import RMSNorm

LARGE = ((8, 256, 576), (4, 512, 2048))
SMALL = (1, 64, 64)
EPS = 1e-5
BASE, FAST = "torch.nn.RMSNorm", "tiny_lm, fast"


def norms(width: int, device: str) -> dict[str, nn.Module]:
    """Every norm at hand by name, torch's first."""
    found = {
        BASE: nn.RMSNorm(width, eps=EPS),
        FAST: FastRMSNorm(width, EPS),
        "tiny_lm, taught": RMSNorm(width, EPS),
        "torch.nn.LayerNorm": nn.LayerNorm(width, eps=EPS),
    }
    if not any(missing(["transformers"])):
        llama = import_module("transformers.models.llama.modeling_llama")
        found["transformers, LlamaRMSNorm"] = llama.LlamaRMSNorm(width, eps=EPS)
    if not any(missing(["x_transformers"])):
        theirs = import_module("x_transformers.x_transformers")
        found["x-transformers, RMSNorm"] = theirs.RMSNorm(width)
    if not any(missing(["litgpt"])):
        found["litgpt, RMSNorm"] = import_module("litgpt.model").RMSNorm(width, eps=EPS)
    return {name: norm.to(device) for name, norm in found.items()}


def contests(device: str = "cpu", quick: bool = False) -> Iterator[Contest]:
    """Forward and backward, and forward alone, in float32."""
    repetitions = 10 if quick else 50
    for shape in LARGE:
        x, slope = inputs(shape, device)
        ways = norms(shape[-1], device)
        yield Contest(
            f"RMSNorm forward + backward, fp32 {list(shape)}",
            {name: both(norm, x, slope) for name, norm in ways.items()},
            {FAST: 0.30},
            repetitions,
        )
        yield Contest(
            f"RMSNorm forward alone, fp32 {list(shape)}",
            {name: forward(norm, x) for name, norm in ways.items()},
            {FAST: 0.5},
            repetitions,
        )
    x, slope = inputs(SMALL, device)
    yield Contest(
        f"RMSNorm forward + backward, fp32 {list(SMALL)}",
        {name: both(norm, x, slope) for name, norm in norms(SMALL[-1], device).items()},
        {FAST: 1.0},
        repetitions,
    )


def inputs(shape: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """A stream and the slope of a loss at its norm, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    x, slope = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    return x.requires_grad_(), slope


def both(norm: nn.Module, x: Tensor, slope: Tensor) -> Way:
    """Forward, and backward to the input and the gain."""
    wanted = (x, *norm.parameters())

    def way() -> object:
        return torch.autograd.grad(norm(x), wanted, slope)

    return way


def forward(norm: nn.Module, x: Tensor) -> Way:
    """Forward as when nothing is learned."""
    run: Callable[[Tensor], Tensor] = torch.no_grad()(norm.forward)
    return lambda: run(x)
