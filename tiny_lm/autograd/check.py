"""Central differences: a derivative measured, to hold a computed one against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiny_lm.autograd.tensor import Tensor
from tiny_lm.shapes import fail


def gradients(
    f: Callable[..., Tensor], *tensors: Tensor, step: float = 1e-5, tolerance: float = 1e-7
) -> float:
    """Compare the gradient of `f(*tensors)` in every entry of every tensor with a measured one.

    measured = (f(x + step) − f(x − step)) / (2 · step)

    A result of more than one number is first multiplied by fixed random weights and summed, so
    that no entry's gradient can hide behind another's. `tolerance` is relative for derivatives
    above 1 and absolute below; the method's own error is about step². Returns the largest
    difference.
    Raises ValueError that names the first entry which differs by more, and for tensors that are
    not float64: in float32 the measurement itself is too coarse.
    """
    for number, tensor in enumerate(tensors):
        if tensor.dtype != np.float64:
            fail("gradients", f"float64 in tensor {number}", tensor.dtype)
        tensor.grad = None
    result = f(*tensors)
    weights = np.ones(result.shape)
    if weights.size > 1:
        weights = np.random.default_rng(0).normal(size=result.shape)
    result.backward(weights)

    def weighted() -> float:
        return float((f(*tensors).data * weights).sum())

    worst = 0.0
    for number, tensor in enumerate(tensors):
        got = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad
        for index in np.ndindex(tensor.shape):
            measured = _slope(weighted, tensor.data, index, step)
            difference = abs(got[index] - measured) / max(1.0, abs(measured))
            if not difference <= tolerance:  # NaN is not
                where = f"tensor {number} at {list(index)}"
                fail("gradients", f"{measured:.6g} for {where}", f"{got[index]:.6g}")
            worst = max(worst, difference)
    return worst


def _slope(value: Callable[[], float], data: np.ndarray, index: tuple, step: float) -> float:
    """Nudge one entry up and down, and put it back."""
    kept = data[index]
    data[index] = kept + step
    above = value()
    data[index] = kept - step
    below = value()
    data[index] = kept
    return (above - below) / (2 * step)
