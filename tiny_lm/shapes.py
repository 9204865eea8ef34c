"""The shape checks every layer shares, and their one form of message.

    RMSNorm: expected [..., 64], got [1, 3, 1]

They read only `.shape` and `.dtype`, so the same checks serve NumPy arrays and torch tensors.
"""

from __future__ import annotations

from typing import Any, NoReturn


def fail(who: str, expected: str, got: object, hint: str = "") -> NoReturn:
    """Raise the package's one form of error, `who: expected …, got … (hint)`."""
    raise ValueError(f"{who}: expected {expected}, got {got}" + (f" ({hint})" if hint else ""))


def shape_of(x: Any) -> str:
    """A shape as people write it: `[1, 3, 64]`."""
    return "[" + ", ".join(str(size) for size in x.shape) + "]"


def expect_floats(who: str, x: Any) -> None:
    """Raise ValueError unless `x` holds floating-point numbers."""
    kind = str(x.dtype)
    if "float" not in kind:
        fail(who, "floating-point numbers", kind, "write 3.0 for 3, or call .float()")


def expect_width(who: str, x: Any, width: int) -> None:
    """Raise ValueError unless `x` is `[..., width]` and holds floating-point numbers."""
    if len(x.shape) == 0 or x.shape[-1] != width:
        fail(who, f"[..., {width}]", shape_of(x))
    expect_floats(who, x)


def expect_same_shape(who: str, x: Any, change: Any) -> None:
    """Raise ValueError unless both shapes are equal; broadcasting would hide a mistake."""
    if tuple(x.shape) != tuple(change.shape):
        fail(who, shape_of(x), shape_of(change), "a branch must project back to the stream's width")


def expect_axes(who: str, x: Any, axes: str) -> None:
    """Raise ValueError unless `x` has as many axes as the legend `axes`, such as "B T D"."""
    names = axes.split()
    if len(x.shape) != len(names):
        fail(who, "[" + ", ".join(names) + "]", shape_of(x))


def expect_seed(who: str, seed: int) -> None:
    """Raise ValueError unless torch can draw from this seed: it has 64 bits for it."""
    if not -(2**63) <= seed < 2**64:
        fail(who, "a seed from -2^63 to 2^64 - 1", seed)


def expect_id(who: str, i: Any, known: range) -> int:
    """A token id as an int; raises ValueError unless it is in `known`."""
    if int(i) not in known:
        fail(who, f"token ids 0 … {known[-1]}", int(i))
    return int(i)
