"""Chapters 01 and 02: exact Jacobians of small branches, of the sum around them, and of a stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log

import torch
from torch import Tensor

from tiny_lm.layers import RMSNorm, residual_add

X = (3.0, 4.0)
_W = torch.tensor([[0.5, -0.3], [0.2, 0.4]], dtype=torch.float64)
_U = torch.tensor([0.6, 0.8], dtype=torch.float64)  # the direction of X
_TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
_NORM = RMSNorm(2, eps=0.0).double().requires_grad_(False)

# Branches of two numbers, `[..., 2] -> [..., 2]`.
BRANCHES: dict[str, Callable[[Tensor], Tensor]] = {
    "x": lambda x: 1.0 * x,
    "x along [3, 4]": lambda x: (x @ _U)[..., None] * _U,
    "x turned by 90°": lambda x: x @ _TURN.T,
    "tanh(W x)": lambda x: torch.tanh(x @ _W.T),
    "RMSNorm(x)": _NORM,
}


def jacobians(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Exact Jacobian at each point, by automatic differentiation: `[L, D] -> [L, D, D]`.

    Row i of a Jacobian is the gradient of output i, so each point is sent through D times.
    """
    width = points.shape[-1]
    x = points[:, None, :].repeat(1, width, 1).requires_grad_()
    seeds = torch.eye(width, dtype=points.dtype).expand_as(x)
    (rows,) = torch.autograd.grad(function(x), x, seeds)
    return rows


@dataclass(frozen=True)
class Microscope:
    """The Jacobian of gain · F at [3, 4], that of the sum around it, and of a stack (float64)."""

    branch: str
    gain: float
    layers: int
    jacobian: list[list[float]]  # of gain · F
    total: list[list[float]]  # I + it
    eigenvalues: list[complex]  # of the jacobian
    total_eigenvalues: list[complex]
    singular_values: list[float]  # of I + J, largest first
    largest: list[float]  # singular value of the product after 0, 1, … layers
    smallest: list[float]


def microscope(branch: str = "x", gain: float = 0.5, layers: int = 20) -> Microscope:
    """Look at y = x + gain · F(x) for one of BRANCHES, at x = [3, 4], once and layer after layer.

    Each layer has the same branch, and its Jacobian is taken where the stream is by then.
    """

    def layer(x: Tensor) -> Tensor:
        return residual_add(x, gain * BRANCHES[branch](x))

    stream = [torch.tensor(X, dtype=torch.float64)]
    for _ in range(layers - 1):
        stream.append(layer(stream[-1]))
    factors = jacobians(layer, torch.stack(stream))
    total = factors[0]
    jacobian = total - torch.eye(2, dtype=torch.float64)
    largest, smallest = _singular_values(factors)
    return Microscope(
        branch=branch,
        gain=gain,
        layers=layers,
        jacobian=jacobian.tolist(),
        total=total.tolist(),
        eigenvalues=torch.linalg.eigvals(jacobian).tolist(),
        total_eigenvalues=torch.linalg.eigvals(total).tolist(),
        singular_values=torch.linalg.svdvals(total).tolist(),
        largest=largest,
        smallest=smallest,
    )


def _singular_values(factors: Tensor) -> tuple[list[float], list[float]]:
    """Largest and smallest singular value of the product of the first 0, 1, … 2 × 2 matrices.

    The smaller one as |determinant| / larger: next to a large number its own digits would be lost.
    """
    product, log_size = torch.eye(2, dtype=torch.float64), 0.0
    largest, smallest = [1.0], [1.0]
    for factor in factors:
        product = factor @ product
        size = abs(float(torch.linalg.det(factor)))
        log_size += log(size) if size > 1e-12 else -inf  # below: rounding of an exact 0
        top = float(torch.linalg.matrix_norm(product, 2))
        largest.append(top)
        smallest.append(exp(log_size - log(top)) if top > 0 and log_size > -inf else 0.0)
    return largest, smallest
