"""What every layer is made of: modules with named weights, a matrix and a table of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from tiny_lm.autograd.tensor import Tensor
from tiny_lm.shapes import expect_width, fail, shape_of

Seed = int | np.random.Generator


class Module:
    """Something with weights: tensors, other modules and lists of modules, found by their names."""

    other_names: dict[str, str] = {}  # noqa: RUF012  a weight's name in the torch model, if another

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight with its full name, such as `attention.q_proj.weight`."""
        for name, part in vars(self).items():
            if isinstance(part, Tensor):
                yield self.other_names.get(name, name), part
            for key, module in _modules(name, part):
                yield from ((f"{key}.{inner}", weight) for inner, weight in module.parameters())

    def state_dict(self) -> dict[str, ndarray]:
        """Every weight's numbers, not copied, under the name they have in the torch model."""
        return {name: weight.data for name, weight in self.parameters()}


def _modules(name: str, part: Any) -> Iterator[tuple[str, Module]]:
    if isinstance(part, Module):
        yield name, part
    elif isinstance(part, list):
        yield from ((f"{name}.{i}", module) for i, module in enumerate(part))


def copy_weights(source: Any, target: Any) -> None:
    """Give one model the weights of another; each may be of NumPy or of torch (on the CPU).

    Raises ValueError, and copies nothing, when names or shapes differ.
    """
    have, want = source.state_dict(), target.state_dict()
    if have.keys() != want.keys():
        odd = sorted(have.keys() ^ want.keys())
        fail("copy_weights", "the same names", f"{len(odd)} others", f"first {odd[0]}")
    for name in want:
        if have[name].shape != want[name].shape:
            fail(f"copy_weights: {name}", shape_of(want[name]), shape_of(have[name]))
    for name, held in want.items():
        np.asarray(held)[...] = np.asarray(have[name])  # shares its memory with a CPU tensor


class Linear(Module):
    """A matrix without bias: `[..., inputs] -> [..., outputs]`, y = x Wᵀ; W starts at std 0.02."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any = np.float64, seed: Seed = 0):
        self.weight = _drawn((outputs, inputs), dtype, seed)

    def __call__(self, x: Tensor) -> Tensor:
        expect_width("Linear", x, self.weight.shape[1])
        return x @ self.weight.swapaxes(0, 1)


class Embedding(Module):
    """A vector for each token: whole numbers `[B, T] -> [B, T, D]`; drawn with std 0.02.

    Raises ValueError for ids that are not whole numbers from 0 to V − 1.
    """

    def __init__(self, tokens: int, width: int, *, dtype: Any = np.float64, seed: Seed = 0):
        self.weight = _drawn((tokens, width), dtype, seed)

    def __call__(self, tokens: Any) -> Tensor:
        tokens, vocabulary = np.asarray(tokens), self.weight.shape[0]
        if tokens.dtype.kind not in "iu":
            fail("Embedding", "whole-number tokens", tokens.dtype)
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary:
            fail("Embedding", f"token ids 0 … {vocabulary - 1}", f"{tokens.min()} … {tokens.max()}")
        return self.weight[tokens]


def _drawn(shape: tuple[int, int], dtype: Any, seed: Seed) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(0.0, 0.02, shape).astype(dtype))
