"""How the weights of a model are drawn before training: a few ways, by name."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor, nn

from tiny_lm.shapes import expect_seed, fail

WRITES_TO_STREAM = ("out_proj.weight", "down_proj.weight")


def _gpt2(name: str, weight: Tensor, layers: int) -> float:
    """normal(0, 0.02), divided by sqrt(2 · layers) for what writes to the stream."""
    return 0.02 / (sqrt(2 * layers) if name.endswith(WRITES_TO_STREAM) else 1)


def _small(name: str, weight: Tensor, layers: int) -> float:
    """normal(0, 0.02) for every matrix."""
    return 0.02


def _fan_in(name: str, weight: Tensor, layers: int) -> float:
    """normal(0, 1 / sqrt(inputs)): vectors come out as large as they went in."""
    return 1 / sqrt(weight.shape[-1])


def _scaled_fan_in(name: str, weight: Tensor, layers: int) -> float:
    """As fan_in, divided by sqrt(2 · layers) for what writes to the stream."""
    shrink = sqrt(2 * layers) if name.endswith(WRITES_TO_STREAM) else 1
    return _fan_in(name, weight, layers) / shrink


INITS: dict[str, Callable[[str, Tensor, int], float]] = {
    "gpt2": _gpt2,
    "small": _small,
    "fan_in": _fan_in,
    "scaled_fan_in": _scaled_fan_in,
}


@torch.no_grad()
def draw(model: nn.Module, init: str, layers: int, seed: int) -> None:
    """Draw every matrix of a model in place, in the order of its names; gains stay as they are.

    Raises ValueError for an unknown `init` and a seed of more than 64 bits.
    """
    if init not in INITS:
        fail("TinyLM", f"init one of {', '.join(INITS)}", repr(init))
    expect_seed("TinyLM", seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim >= 2:
            weight.normal_(0.0, INITS[init](name, weight, layers), generator=generator)
    for module in model.modules():
        if hasattr(module, "after_drawing"):  # a design that asks for something else
            module.after_drawing()
