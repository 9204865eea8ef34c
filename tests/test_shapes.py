"""shapes.py: what each check lets through, and every message word for word, for both libraries."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm.shapes import (
    expect_axes,
    expect_floats,
    expect_same_shape,
    expect_seed,
    expect_width,
    fail,
    shape_of,
)

modest = settings(deadline=None, max_examples=40, derandomize=True)
some_shape = st.lists(st.integers(0, 3), max_size=4)
zeros = pytest.mark.parametrize("zeros", [np.zeros, torch.zeros], ids=["numpy", "torch"])


def message(call, *arguments):
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    return str(caught.value)


def test_the_one_form_of_message():
    assert message(fail, "RMSNorm", "[..., 64]", "[1, 3, 1]") == (
        "RMSNorm: expected [..., 64], got [1, 3, 1]"
    )
    assert message(fail, "Who", "a", 1, "why") == "Who: expected a, got 1 (why)"


@zeros
@pytest.mark.parametrize(
    ("shape", "text"), [((), "[]"), ((5,), "[5]"), ((1, 3, 64), "[1, 3, 64]"), ((0, 2), "[0, 2]")]
)
def test_a_shape_as_people_write_it(zeros, shape, text):
    assert shape_of(zeros(shape)) == text


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_every_float_of_torch_is_one(dtype):
    expect_floats("x", torch.zeros(2, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_of_numpy_is_one(dtype):
    expect_floats("x", np.zeros(2, dtype=dtype))


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor([3, 4]),
        torch.tensor([3, 4], dtype=torch.int8),
        torch.tensor([True]),
        torch.tensor([1j]),
        np.array([3, 4]),
        np.array([3, 4], dtype=np.uint8),
    ],
    ids=lambda x: str(x.dtype),
)
def test_whole_numbers_are_named_with_the_fix(x):
    """C16: torch.tensor([3, 4]) is the commonest slip."""
    expected = (
        f"X: expected floating-point numbers, got {x.dtype} (write 3.0 for 3, or call .float())"
    )
    assert message(expect_floats, "X", x) == expected
    assert message(expect_width, "X", x, x.shape[-1]) == expected


@modest
@given(some_shape, st.integers(0, 3))
def test_width_is_the_last_axis_and_nothing_else(shape, width):
    x = torch.zeros(shape)
    if shape and shape[-1] == width:
        expect_width("X", x, width)
    else:
        assert message(expect_width, "X", x, width) == (
            f"X: expected [..., {width}], got {list(shape)}"
        )


@zeros
def test_a_scalar_has_no_width(zeros):
    assert message(expect_width, "X", zeros(()), 1) == "X: expected [..., 1], got []"


def test_a_wrong_width_is_told_before_a_wrong_kind():
    assert message(expect_width, "X", torch.tensor([3, 4]), 3) == "X: expected [..., 3], got [2]"


@modest
@given(some_shape, some_shape)
def test_shapes_are_the_same_or_not(one, other):
    """C17: torch would broadcast many of these unseen."""
    x, change = torch.zeros(one), torch.zeros(other)
    if one == other:
        expect_same_shape("add", x, change)
    else:
        assert message(expect_same_shape, "add", x, change) == (
            f"add: expected {one}, got {other} (a branch must project back to the stream's width)"
        )


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1, -(2**63)])
def test_every_seed_of_64_bits_is_one(seed):
    expect_seed("X", seed)
    torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**30])
def test_a_seed_of_more_bits_is_named(seed):
    expected = f"X: expected a seed from -2^63 to 2^64 - 1, got {seed}"
    assert message(expect_seed, "X", seed) == expected


def test_same_shape_across_libraries():
    expect_same_shape("add", np.zeros((1, 2)), torch.zeros(1, 2))


@zeros
def test_axes_are_counted_and_named(zeros):
    expect_axes("X", zeros((2, 3, 4)), "B T D")
    expect_axes("X", zeros(()), "")
    assert message(expect_axes, "X", zeros((2, 3)), "B T D") == "X: expected [B, T, D], got [2, 3]"
    assert message(expect_axes, "X", zeros((1, 2, 3, 4)), "B T D") == (
        "X: expected [B, T, D], got [1, 2, 3, 4]"
    )
