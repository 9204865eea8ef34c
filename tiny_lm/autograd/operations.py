"""The table of all operations: what each computes, and its derivative.

Everything else, RMSNorm and a whole decoder, is built from these. A derivative gets the gradient g
of the result, the result y, and the inputs, and returns a gradient for each input. It may leave it
in the shape of the result where an input was broadcast: `unbroadcast` adds up afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray


class Operation(NamedTuple):
    """What an operation computes from arrays, and how a gradient goes back through it."""

    value: Callable[..., ndarray]  # (*inputs, **settings) -> result
    back: Callable[..., tuple]  # (g, y, *inputs, **settings) -> a gradient for each input


def _turned(a: ndarray) -> ndarray:
    return np.swapaxes(a, -1, -2)


def _spread(g: ndarray, a: ndarray, axis: Any, keepdims: bool) -> ndarray:
    """Hand the gradient of a sum to every entry that was summed."""
    if axis is not None and not keepdims:
        g = np.expand_dims(g, axis)
    return np.broadcast_to(g, a.shape)


def _put_back(g: ndarray, a: ndarray, index: Any) -> ndarray:
    """Give each chosen entry its gradient; one chosen twice gets both."""
    gradient = np.zeros_like(a)
    np.add.at(gradient, index, g)
    return gradient


OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add, lambda g, y, a, b: (g, g)),
    "subtract": Operation(np.subtract, lambda g, y, a, b: (g, -g)),
    "multiply": Operation(np.multiply, lambda g, y, a, b: (g * b, g * a)),
    "divide": Operation(np.divide, lambda g, y, a, b: (g / b, -g * y / b)),
    "power": Operation(
        lambda a, n: a**n,
        lambda g, y, a, n: (g * n * a ** (n - 1) if n else 0 * g,),
    ),
    "matmul": Operation(np.matmul, lambda g, y, a, b: (g @ _turned(b), _turned(a) @ g)),
    "exp": Operation(np.exp, lambda g, y, a: (g * y,)),
    "log": Operation(np.log, lambda g, y, a: (g / a,)),
    "sqrt": Operation(np.sqrt, lambda g, y, a: (g / (2 * y),)),
    "sum": Operation(
        lambda a, axis, keepdims: a.sum(axis=axis, keepdims=keepdims),
        lambda g, y, a, axis, keepdims: (_spread(g, a, axis, keepdims),),
    ),
    "mean": Operation(
        lambda a, axis, keepdims: a.mean(axis=axis, keepdims=keepdims),
        lambda g, y, a, axis, keepdims: (
            _spread(g, a, axis, keepdims) / (a.size // max(1, y.size)),
        ),
    ),
    "reshape": Operation(
        lambda a, shape: a.reshape(shape),
        lambda g, y, a, shape: (g.reshape(a.shape),),
    ),
    "swapaxes": Operation(
        lambda a, first, second: a.swapaxes(first, second),
        lambda g, y, a, first, second: (g.swapaxes(first, second),),
    ),
    "index": Operation(
        lambda a, index: a[index],
        lambda g, y, a, index: (_put_back(g, a, index),),
    ),
    "where": Operation(
        lambda a, b, condition: np.where(condition, a, b),
        lambda g, y, a, b, condition: (np.where(condition, g, 0), np.where(condition, 0, g)),
    ),
}


def unbroadcast(g: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Undo broadcasting: an entry that was used many times gets the sum of all its gradients."""
    if g.shape == shape:
        return g
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and g.shape[axis] != 1)
    return g.sum(axis=repeated, keepdims=True)
