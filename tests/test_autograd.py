"""autograd: every derivative against central differences, and the rules of the way back."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm.autograd import Tensor, where
from tiny_lm.autograd.check import gradients
from tiny_lm.autograd.operations import OPERATIONS, unbroadcast
from tiny_lm.autograd.tensor import apply, order, walk_back

ROOT = Path(__file__).parents[1]
modest = settings(deadline=None, max_examples=60, derandomize=True)
RNG = np.random.default_rng(0)


def numbers(*shape):
    """Between 0.5 and 2: far from 0, where log, sqrt and division have no derivative."""
    return Tensor(RNG.uniform(0.5, 2.0, shape))


# For each operation: a function that uses it, and inputs whose shapes make it broadcast or move.
EXAMPLES = {
    "add": (lambda a, b: a + b, [numbers(2, 3), numbers(3)]),
    "subtract": (lambda a, b: a - b, [numbers(2, 1), numbers(2, 3)]),
    "multiply": (lambda a, b: a * b, [numbers(2, 3), numbers(2, 1)]),
    "divide": (lambda a, b: a / b, [numbers(3), numbers(2, 3)]),
    "power": (lambda a: a**3, [numbers(2, 3)]),
    "matmul": (lambda a, b: a @ b, [numbers(2, 3, 4), numbers(4, 2)]),
    "exp": (lambda a: a.exp(), [numbers(2, 3)]),
    "log": (lambda a: a.log(), [numbers(2, 3)]),
    "sqrt": (lambda a: a.sqrt(), [numbers(2, 3)]),
    "sum": (lambda a: a.sum(axis=0), [numbers(2, 3)]),
    "mean": (lambda a: a.mean(axis=(0, -1)), [numbers(2, 2, 3)]),
    "reshape": (lambda a: a.reshape(3, -1), [numbers(2, 3)]),
    "swapaxes": (lambda a: a.swapaxes(0, -1), [numbers(2, 3, 2)]),
    "index": (lambda a: a[np.array([2, 0, 2]), 1:], [numbers(3, 3)]),
    "where": (
        lambda a, b: where([[True, False, True], [False, False, True]], a, b),
        [numbers(2, 3), numbers(2, 1)],
    ),
}
EACH_INPUT = [(name, i) for name, (_, inputs) in EXAMPLES.items() for i in range(len(inputs))]


def test_every_operation_has_an_example():
    assert EXAMPLES.keys() == OPERATIONS.keys()
    for name, (f, inputs) in EXAMPLES.items():
        assert f(*inputs).operation == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_derivative_against_central_differences(name):
    f, inputs = EXAMPLES[name]
    assert gradients(f, *inputs) < 1e-8


def damaged(name, which, damage):
    """The operation with the gradient of one of its inputs changed."""
    operation = OPERATIONS[name]

    def back(*arguments, **settings):
        shares = list(operation.back(*arguments, **settings))
        shares[which] = damage(shares[which])
        return tuple(shares)

    return operation._replace(back=back)


@pytest.mark.parametrize("damage", [lambda g: -g, lambda g: 0 * g, lambda g: 1.001 * g])
@pytest.mark.parametrize(("name", "which"), EACH_INPUT)
def test_a_wrong_derivative_in_any_operation_is_caught(monkeypatch, name, which, damage):
    """A wrong sign, nothing at all, one part in a thousand too much."""
    monkeypatch.setitem(OPERATIONS, name, damaged(name, which, damage))
    f, inputs = EXAMPLES[name]
    with pytest.raises(ValueError, match=rf"^gradients: expected \S+ for tensor {which} at \["):
        gradients(f, *inputs)


MORE = {
    "sum of all": (lambda a: a.sum(), [numbers(2, 3)]),
    "sum, axis kept": (lambda a: a.sum(axis=1, keepdims=True), [numbers(2, 3)]),
    "mean of all": (lambda a: a.mean(), [numbers(2, 3)]),
    "mean of an axis": (lambda a: a.mean(axis=-1), [numbers(2, 3)]),
    "mean, axis kept": (lambda a: a.mean(axis=0, keepdims=True), [numbers(2, 3)]),
    "power 0": (lambda a: a**0, [Tensor([0.0, 2.0])]),
    "power −1/2": (lambda a: a**-0.5, [numbers(3)]),
    "a slice": (lambda a: a[..., 1::2], [numbers(2, 4)]),
    "matmul of batches": (lambda a, b: a @ b, [numbers(2, 1, 3, 2), numbers(3, 2, 4)]),
    "softmax": (lambda a: a.softmax(), [numbers(2, 3)]),
    "softmax of an axis": (lambda a: a.softmax(axis=0), [numbers(2, 3)]),
    "used twice": (lambda a: a * a + a, [numbers(3)]),
    "numbers on the left": (lambda a: 2 - 3 / (1 + 2 * a), [numbers(3)]),
    "minus": (lambda a: -a, [numbers(3)]),
    "an array on the left": (lambda a: np.array([1.0, 2.0, 3.0]) * a, [numbers(2, 3)]),
}


@pytest.mark.parametrize("name", MORE)
def test_more_derivatives(name):
    f, inputs = MORE[name]
    gradients(f, *inputs)


@pytest.mark.parametrize("name", [*EXAMPLES, *MORE])
def test_values_are_numpys(name):
    """Outside the graph, the same function of arrays is NumPy's own."""
    f, inputs = (EXAMPLES | MORE)[name]
    if name in ("matmul", "where") or "softmax" in name or name in ("exp", "log", "sqrt"):
        return  # not methods of an array: compared with torch below
    assert np.array_equal(f(*inputs).data, f(*[x.data for x in inputs]))


def scattered(array):
    """The same numbers in an array whose axes lie the other way round, with gaps of NaN."""
    room = np.full([2 * size + 1 for size in reversed(array.shape)], np.nan).T
    view = room[(slice(1, None, 2),) * array.ndim + (...,)]
    view[...] = array
    return view


@pytest.mark.parametrize("name", [*EXAMPLES, *MORE])
def test_how_an_array_lies_in_memory_does_not_matter(name):
    f, inputs = (EXAMPLES | MORE)[name]
    found = []
    for laid in (np.copy, scattered):
        tensors = [Tensor(laid(x.data)) for x in inputs]
        result = f(*tensors)
        result.backward(laid(np.arange(1.0, result.data.size + 1).reshape(result.shape)))
        found.append([result.data, *(x.grad for x in tensors)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=0)


@modest
@given(st.integers(0, 10**6))
def test_values_and_gradients_are_torchs(seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(0.5, 2.0, shape) for shape in ((2, 3), (3, 4), (2, 1))]
    condition = rng.random((2, 4)) < 0.5

    def f(a, b, c, where):
        y = (a.sqrt() @ b).log() + c.exp()
        return (where(condition, y, c) ** 2).sum()

    ours = [Tensor(array) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    mine = f(*ours, where)
    other = f(*theirs, lambda m, a, b: torch.where(torch.tensor(m), a, b))
    mine.backward()
    other.backward()
    assert mine.data == pytest.approx(other.item(), rel=1e-13)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad, y.grad.numpy(), rtol=1e-12, atol=1e-12)


@modest
@given(st.lists(st.floats(-700, 700), min_size=1, max_size=6), st.integers(0, 5))
def test_softmax(scores, shift):
    shares = Tensor(scores).softmax().data
    expected = torch.tensor(scores, dtype=torch.float64).softmax(0).numpy()
    np.testing.assert_allclose(shares, expected, rtol=1e-12, atol=1e-300)
    assert np.isfinite((Tensor(scores) + 1e300 * (shift > 4)).softmax().data).all()


# Broadcasting


@modest
@given(st.lists(st.integers(1, 3), min_size=0, max_size=4), st.data())
def test_broadcasting_is_undone(shape, data):
    """The gradient of a sum counts how often each entry was used."""
    cut = data.draw(st.integers(0, len(shape)))
    small = [data.draw(st.sampled_from([1, size])) for size in shape[cut:]]
    x = Tensor(np.ones(small))
    (x * np.ones(shape)).sum().backward()
    assert x.grad.shape == tuple(small)
    assert (x.grad == np.prod(shape, dtype=int) / np.prod(small, dtype=int)).all()
    assert unbroadcast(np.ones(shape), tuple(shape)).shape == tuple(shape)


# The way back


def test_gradients_of_several_calls_add_up():
    x = Tensor([3.0])
    y = x * x
    y.backward()
    y.backward()  # through the same graph: what is on its way is not what was there before
    (2 * x).backward()
    assert x.grad == 14 and y.grad == 2


def test_a_gradient_is_nobody_elses():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    (a + b).sum().backward()
    a.grad *= 10
    assert b.grad.tolist() == [1, 1]


def test_paths_that_meet_are_complete_before_they_go_on():
    """y = x⁸ by squaring twice and a detour: each tensor is passed once, after all its users."""
    x = Tensor([1.5])
    square = x * x
    y = square * square * (square + 0 * x) * square
    y.backward()
    assert x.grad == pytest.approx(8 * 1.5**7, rel=1e-15)
    passed = [id(tensor) for tensor, _, _ in walk_back(y)]
    assert len(passed) == len(set(passed)) == len(order(y))
    assert order(y)[0] is x and order(y)[-1] is y


def test_a_chain_longer_than_the_recursion_limit():
    x = Tensor([1.0])
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward()
    assert sys.getrecursionlimit() < 20_000 and x.grad == 20_001
    del y  # nor does letting go of it recurse


def test_what_the_result_does_not_use_has_no_gradient():
    x, other = Tensor([1.0]), Tensor([2.0])
    (x * 2).backward()
    assert other.grad is None


def test_a_seed_gradient():
    x = Tensor([3.0, 4.0])
    (x * x).backward([1, 10])
    assert x.grad.tolist() == [6, 80]


# Types and errors


@pytest.mark.parametrize("data", [3, [3, 4], np.array([3, 4], np.int32), [True, False]])
def test_integers_become_float64(data):
    assert Tensor(data).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_stays(dtype):
    x = Tensor([1.0, 2.0], dtype)
    y = (2 * x + np.float64(1.0) - x / 3) ** 2
    y = where([True, False], y, 0.0).mean()
    y.backward()
    assert y.dtype == x.grad.dtype == dtype


def test_a_gradient_has_its_tensors_dtype():
    x = Tensor([1.0, 2.0], np.float32)
    y = (x * np.array([3.0, 4.0])).sum()  # a float64 constant makes a float64 result
    y.backward()
    assert (y.dtype, x.grad.dtype) == (np.float64, np.float32)


def test_a_float_array_is_not_copied_and_an_operation_leaves_it_alone():
    array = np.array([3.0, 4.0])
    x = Tensor(array)
    y = x + x * x
    y.sum().backward()
    assert x.data is array and array.tolist() == [3, 4]
    assert np.asarray(y).tolist() == [12, 20] and len(x) == 2


def test_repr():
    assert repr(Tensor([3, 4])) == "Tensor([3., 4.])"
    assert repr(Tensor([3, 4]) * 2) == "Tensor([6., 8.], made by multiply)"


two, three = Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: two.backward(),
            "backward: expected a result of one number, got [2] "
            "(sum the result, or pass the gradient it gets)",
        ),
        (lambda: two.backward([1.0]), "backward: expected a gradient [2], got [1]"),
        (lambda: two + three, "add: expected shapes that fit, got [2] and [3] (operands"),
        (lambda: two.reshape(3), "reshape: expected shapes that fit, got [2] (cannot reshape"),
        (lambda: two.sum(axis=1), "sum: expected shapes that fit, got [2] (axis 1 is out of"),
        (
            lambda: two @ two,
            "matmul: expected [..., T, D] and [..., D, F], got [2] and [2] "
            "(reshape a vector to [1, D])",
        ),
        (
            lambda: three.reshape(1, 3) @ two.reshape(2, 1),
            "matmul: expected shapes that fit, got [1, 3] and [2, 1] (",
        ),
        (lambda: two**two, "power: expected a number as exponent, got Tensor"),
        (lambda: Tensor([[1.0], [1.0, 2.0]]), "Tensor: expected rows of one length, got list"),
        (lambda: Tensor("three"), "Tensor: expected real numbers, got <U5"),
        (lambda: Tensor([1j]), "Tensor: expected real numbers, got complex128"),
        (lambda: Tensor(two), "Tensor: expected numbers, got a Tensor (use it as it is, or"),
        (
            lambda: gradients(lambda x: x, two, Tensor([1.0], np.float32)),
            "gradients: expected float64 in tensor 1, got float32",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_the_check_names_tensor_index_expected_and_got(monkeypatch):
    monkeypatch.setitem(OPERATIONS, "multiply", damaged("multiply", 1, lambda g: -g))
    a, b = Tensor([[1.0, 2.0]]), Tensor([[4.0, 8.0]])
    with pytest.raises(
        ValueError, match=r"^gradients: expected 1 for tensor 1 at \[0, 0\], got -1$"
    ):
        gradients(lambda a, b: (a * b).sum(), a, b)
    assert a.data.tolist() == [[1, 2]] and b.data.tolist() == [[4, 8]]  # each nudge taken back


def test_the_check_finds_a_gradient_that_is_nan():
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="got nan"):
        gradients(lambda x: (0 * x).sqrt() * 0, Tensor([1.0]))


def test_the_check_is_relative_for_large_slopes():
    """3x² is 3,000,000 at 1,000, and the measured slope is off in its ninth digit or later."""
    assert gradients(lambda x: x**3, Tensor([1000.0])) < 1e-7


def test_no_entry_hides_behind_another(monkeypatch):
    """A gradient of ones looks the same when it comes back to the wrong entries."""
    swap = OPERATIONS["swapaxes"]
    lazy = swap._replace(back=lambda g, y, a, first, second: (g,))
    monkeypatch.setitem(OPERATIONS, "swapaxes", lazy)
    with pytest.raises(ValueError, match=r"tensor 0 at \[0, 1\]"):
        gradients(lambda a: a.swapaxes(0, 1), numbers(2, 2))


def test_operations_are_found_by_name():
    assert apply("add", two, 1).data.tolist() == [2, 3]


def test_it_runs_where_only_numpy_is_installed():
    """Every other package from outside is made to be missing."""
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in sys.stdlib_module_names | {"numpy", "tiny_lm"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import tiny_lm.autograd.nn as nn, tiny_lm.autograd.check
nn.cross_entropy(nn.Decoder(9, n_layers=1)([[1, 2, 3]]), [[2, 3, 4]]).backward()
print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
