"""Where weights lie, and how they are read: most of the time of writing a text goes there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear


def lay_side_by_side(model: nn.Module) -> None:
    """Move all parameters of a model into one piece of memory, in their order, each still its own.

    Weights that have the same input then are one matrix, and the piece lies on large pages where
    the system has them: a pass over the weights of SmolLM2 takes a third of the time or half.
    """
    kinds = {(weight.dtype, weight.device) for weight in model.parameters()}
    for dtype, device in kinds:
        alike = [w for w in model.parameters() if (w.dtype, w.device) == (dtype, device)]
        piece = _piece(sum(weight.numel() for weight in alike), dtype, device)
        for weight, part in zip(alike, piece.split([w.numel() for w in alike]), strict=True):
            weight.data = part.view(weight.shape).copy_(weight.detach())


def _piece(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(count, dtype=dtype, device=device)
    # NumPy asks the system for large pages, torch does not.
    return torch.from_numpy(np.empty(count * dtype.itemsize, np.uint8)).view(dtype)


def side_by_side(*layers: nn.Linear) -> Tensor:
    """Their weights as one matrix; without a copy where they lie so and no gradient is wanted."""
    weights = [layer.weight for layer in layers]
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        return torch.cat(weights)
    first, piece = weights[0], weights[0].untyped_storage().data_ptr()
    at = first.data_ptr()
    for weight in weights:
        alone = weight.untyped_storage().data_ptr() != piece or not weight.is_contiguous()
        if alone or weight.data_ptr() != at:
            return torch.cat(weights)
        at += weight.nbytes
    return first.as_strided((sum(map(len, weights)), first.shape[1]), (first.shape[1], 1))


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """linear(x, weight); one vector alone takes the kernel that is made for one."""
    if x.numel() == x.shape[-1] and x.dtype == weight.dtype:
        return weight.mv(x.flatten()).view(*x.shape[:-1], -1)
    return linear(x, weight)
