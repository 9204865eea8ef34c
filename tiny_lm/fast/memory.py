"""Where weights lie, and how they are read: most of the time of writing a text goes there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tiny_lm.shapes import fail

int8_product = getattr(torch.ops.aten, "_weight_int8pack_mm", None)
FEW = 24  # rows; with more, int8 weights made floats once are quicker than read so for every row


def lay_side_by_side(model: nn.Module) -> None:
    """Move all weights of a model into one piece of memory, in their order, each still its own.

    One piece for each dtype. Weights that have the same input then are one matrix, and the piece
    lies on large pages where the system has them: a pass over the weights of SmolLM2 takes a third
    of the time or half.
    """
    weights = [*model.parameters(), *model.buffers()]
    for dtype, device in {(weight.dtype, weight.device) for weight in weights}:
        alike = [w for w in weights if (w.dtype, w.device) == (dtype, device)]
        piece = _piece(sum(weight.numel() for weight in alike), dtype, device)
        for weight, part in zip(alike, piece.split([w.numel() for w in alike]), strict=True):
            weight.data = part.view(weight.shape).copy_(weight.detach())


def _piece(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(count, dtype=dtype, device=device)
    # NumPy asks the system for large pages, torch does not.
    return torch.from_numpy(np.empty(count * dtype.itemsize, np.uint8)).view(dtype)


def side_by_side(*layers: nn.Linear, part: str = "weight") -> Tensor:
    """Their weights as one matrix; without a copy where they lie so and no gradient is wanted."""
    if len(layers) == 1:
        return getattr(layers[0], part)
    weights = [getattr(layer, part) for layer in layers]
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        return torch.cat(weights)
    first, rows = weights[0], 0
    at = first.data_ptr()
    for weight in weights:
        if weight.data_ptr() != at or not weight.is_contiguous():
            return torch.cat(weights)
        at += weight.nbytes
        rows += weight.shape[0]
    try:
        return first.as_strided((rows, *first.shape[1:]), first.stride())
    except RuntimeError:  # neighbours by chance, in pieces of memory of their own
        return torch.cat(weights)


def multiply(x: Tensor, *layers: nn.Linear | nn.Embedding) -> Tensor:
    """x times the weights of layers side by side: `[..., K] -> [..., N]`, N over all of them.

    One vector alone takes the kernel that is made for one. Weights may be int8, with a scale a row.
    """
    weight = side_by_side(*layers)
    if weight.dtype == torch.int8:
        return multiply_int8(x, weight, side_by_side(*layers, part="scale"))
    if x.numel() == x.shape[-1] and x.dtype == weight.dtype:
        return weight.mv(x) if x.ndim == 1 else weight.mv(x.flatten()).view(*x.shape[:-1], -1)
    return linear(x, weight)


def multiply_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """y_n = scale_n Σ_k x_k weight_nk of int8 weights: `[..., K], [N, K], [N] -> [..., N]`.

    Up to 24 rows on a CPU take a kernel that reads bytes: x and y are rounded to bfloat16 there,
    the sum is in float32. Otherwise the weights become floats first: the same numbers, x and y not
    rounded. Raises ValueError where a gradient is wanted.
    """
    if x.requires_grad and torch.is_grad_enabled():
        fail(
            "int8 weights", "torch.no_grad()", "an input that wants a gradient", "they can't learn"
        )
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) <= FEW and _has_kernel(weight):
        # A copy even of bfloat16: torch allocates on the bounds of 32 bytes that the kernel needs.
        y = int8_product(rows.to(torch.bfloat16, copy=True), weight, scale.bfloat16())
    else:
        # In float16 the sums, not scaled yet, would overflow.
        wide = torch.promote_types(x.dtype, torch.bfloat16)
        y = linear(rows.to(wide), weight.to(wide)) * scale
    return y.to(x.dtype).view(*x.shape[:-1], len(weight))


def _has_kernel(weight: Tensor) -> bool:
    """It checks nothing: it reads 16 bytes at a time, from bounds of 16, past the end of others."""
    if int8_product is None or weight.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return weight.shape[1] % 16 == 0 and weight.data_ptr() % 16 == 0 and weight.is_contiguous()
