"""Tensor: a NumPy array that remembers how it was made, so that gradients find their way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numpy import ndarray

from tiny_lm.autograd.operations import OPERATIONS, unbroadcast
from tiny_lm.shapes import fail, shape_of


class Tensor:
    """Floating-point numbers with a gradient: `Tensor(data)`; integers become float64.

    `data` is a NumPy array (the one that was given, if it was one of floats), `grad` is None until
    a `backward` has passed, then an array of the same shape and dtype. `operation` names what made
    the tensor, `inputs` are the tensors and constants it was made from, `settings` what else the
    operation needs, such as an axis; all are empty where a graph begins. What is not a Tensor in
    an operation, such as the 2 in `2 * x`, is a constant.
    """

    __array_ufunc__ = None  # so that array * tensor asks the tensor

    def __init__(self, data: Any, dtype: Any = None):
        self.data = _floats(data, dtype)
        self.grad: ndarray | None = None
        self.operation = ""
        self.inputs: tuple[Any, ...] = ()
        self.settings: dict[str, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def parents(self) -> list[Tensor]:
        """The inputs that are tensors."""
        return [x for x in self.inputs if isinstance(x, Tensor)]

    def __repr__(self) -> str:
        made = f", made by {self.operation}" if self.operation else ""
        return f"Tensor({np.array2string(self.data, separator=', ')}{made})"

    def __len__(self) -> int:
        return len(self.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        return np.array(self.data, dtype=dtype) if copy else np.asarray(self.data, dtype=dtype)

    def __add__(self, other: Any) -> Tensor:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return apply("divide", other, self)

    def __neg__(self) -> Tensor:
        return apply("multiply", -1, self)

    def __pow__(self, exponent: float) -> Tensor:
        if not isinstance(exponent, int | float):
            fail("power", "a number as exponent", type(exponent).__name__)
        return apply("power", self, n=exponent)

    def __matmul__(self, other: Any) -> Tensor:
        if len(self.shape) < 2 or len(np.shape(other)) < 2:
            shapes = f"{shape_of(self)} and {list(np.shape(other))}"
            fail("matmul", "[..., T, D] and [..., D, F]", shapes, "reshape a vector to [1, D]")
        return apply("matmul", self, other)

    def __getitem__(self, index: Any) -> Tensor:
        return apply("index", self, index=index)

    def exp(self) -> Tensor:
        return apply("exp", self)

    def log(self) -> Tensor:
        return apply("log", self)

    def sqrt(self) -> Tensor:
        return apply("sqrt", self)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        return apply("sum", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        return apply("mean", self, axis=axis, keepdims=keepdims)

    def reshape(self, *shape: int) -> Tensor:
        return apply("reshape", self, shape=shape)

    def swapaxes(self, first: int, second: int) -> Tensor:
        return apply("swapaxes", self, first=first, second=second)

    def softmax(self, axis: int = -1) -> Tensor:
        """Positive shares that add up to 1 along an axis: exp(x) / sum(exp(x)).

        The largest entry is taken off first, which changes no share and keeps exp finite.
        """
        powers = (self - self.data.max(axis=axis, keepdims=True)).exp()
        return powers / powers.sum(axis=axis, keepdims=True)

    def backward(self, gradient: Any = None) -> None:
        """Add to `grad`, of this tensor and all it was made from, this tensor's derivative.

        `gradient` is the gradient of the final result in this tensor, of the same shape; it may be
        left out (and is 1) where the tensor is one number. Gradients of several calls add up.
        Raises ValueError for another shape, and when it is left out of more than one number.
        """
        for tensor, whole, _ in walk_back(self, gradient):
            tensor.grad = whole.copy() if tensor.grad is None else tensor.grad + whole


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """Entries of `a` where the condition holds, else of `b`; a number or a tensor each."""
    return apply("where", a, b, condition=np.asarray(condition))


def apply(name: str, *inputs: Any, **settings: Any) -> Tensor:
    """The result of one of OPERATIONS, with the way back to its inputs.

    Raises ValueError for shapes that do not fit.
    """
    inputs = tuple(x if isinstance(x, Tensor) else _constant(x) for x in inputs)
    arrays = [_plain(x) for x in inputs]
    try:
        result = Tensor(OPERATIONS[name].value(*arrays, **settings))
    except ValueError as problem:
        _do_not_fit(name, arrays, problem)
    result.operation, result.inputs, result.settings = name, inputs, settings
    return result


def walk_back(result: Tensor, gradient: Any = None) -> Iterator[tuple[Tensor, ndarray, list]]:
    """Reverse mode, one tensor at a time, from the result to where the graph begins.

    Yields the tensor, its gradient, now complete, and what it hands to each of its `parents`.
    """
    waiting = {id(result): _seed(result, gradient)}
    for tensor in reversed(order(result)):
        whole = waiting.pop(id(tensor))  # every tensor made from this one came before
        shares = _shares(tensor, whole)
        for parent, share in zip(tensor.parents, shares, strict=True):
            held = waiting.get(id(parent))
            waiting[id(parent)] = share if held is None else held + share
        yield tensor, whole, shares


def order(result: Tensor) -> list[Tensor]:
    """Every tensor that the result was made from, and itself: inputs before what uses them."""
    done, seen, todo = (
        [],
        set(),
        [(result, False)],
    )  # no recursion: graphs are deeper than its limit
    while todo:
        tensor, inputs_done = todo.pop()
        if inputs_done:
            done.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            todo.append((tensor, True))
            todo.extend((parent, False) for parent in tensor.parents)
    return done


def _shares(tensor: Tensor, whole: ndarray) -> list[ndarray]:
    """What a tensor hands to each of its parents: its operation's derivative times its gradient."""
    if not tensor.operation:
        return []
    back = OPERATIONS[tensor.operation].back
    shares = back(whole, tensor.data, *map(_plain, tensor.inputs), **tensor.settings)
    pairs = zip(tensor.inputs, shares, strict=True)
    return [
        unbroadcast(share, x.shape).astype(x.dtype, copy=False)
        for x, share in pairs
        if isinstance(x, Tensor)
    ]


def _seed(result: Tensor, gradient: Any) -> ndarray:
    if gradient is None:
        if result.data.size != 1:
            hint = "sum the result, or pass the gradient it gets"
            fail("backward", "a result of one number", shape_of(result), hint)
        return np.ones_like(result.data)
    gradient = np.asarray(gradient, dtype=result.dtype)
    if gradient.shape != result.shape:
        fail("backward", f"a gradient {shape_of(result)}", shape_of(gradient))
    return gradient


def _constant(x: Any) -> float | ndarray:
    # Python's own float, unlike NumPy's, leaves a float32 tensor in float32.
    return float(x) if isinstance(x, int | float) else _floats(x)


def _plain(x: Any) -> Any:
    return x.data if isinstance(x, Tensor) else x


def _floats(data: Any, dtype: Any = None) -> ndarray:
    if isinstance(data, Tensor):
        fail("Tensor", "numbers", "a Tensor", "use it as it is, or its .data")
    try:
        array = np.asarray(data, dtype=dtype)
    except ValueError:
        fail("Tensor", "rows of one length", type(data).__name__)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    if array.dtype.kind != "f":
        fail("Tensor", "real numbers", array.dtype)
    return array


def _do_not_fit(name: str, arrays: list, problem: ValueError) -> NoReturn:
    shapes = " and ".join(shape_of(np.asarray(array)) for array in arrays)
    fail(name, "shapes that fit", shapes, str(problem))
