"""Laws of everything that maps [B, T, D] to [B, T, D]: norms, SwiGLU, attention, blocks of every
order, taught, fast and in NumPy.

None of them may depend on how its input lies in memory, on the other rows of a batch, or on whether
a graph is kept.
"""

import copy
import pickle
import warnings

import pytest
import torch
from implementations import FAST_LAYERS, LAYERS, THINGS, normal, slope
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from tiny_lm.fast import FastAttention, slow_down

B, T, D = 3, 5, 16
every_thing = pytest.mark.parametrize("name", THINGS)
every_layer = pytest.mark.parametrize("name", [*LAYERS, *FAST_LAYERS])
NEVER = float("nan")  # fills the memory around a view: who reads there shows it


LAYOUTS = {  # axes from the outermost in memory to the innermost, and the steps between numbers
    "positions outermost": ((1, 0, 2), 1),
    "width outermost": ((2, 0, 1), 1),
    "every second": ((0, 1, 2), 2),
    "part of a larger": ((0, 1, 2), 1),
    "expanded": None,
}


def lying(layout, x):
    """The same numbers, another way in memory."""
    if layout == "expanded":  # every row of the batch is the first one, at one place in memory
        return x[:1].expand(x.shape)
    axes, step = LAYOUTS[layout]
    room = x.new_full([step * x.shape[axis] + 3 for axis in axes], NEVER)
    room = room.permute([axes.index(axis) for axis in range(3)])
    # From 1 on: the pairs of RoPE do not begin at an even address.
    view = room[tuple(slice(1, 1 + step * size, step) for size in x.shape)]
    return view.copy_(x)


@every_thing
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_the_input_lies_in_memory_does_not_matter(name, layout):
    """C17, C34: forward and backward, input and slope both lying so."""
    thing, x, dy = THINGS[name](), lying(layout, normal(B, T, D)), normal(B, T, D, seed=1)
    assert not x.is_contiguous()
    assert_close(thing(x), thing(x.contiguous()), rtol=0, atol=1e-12)
    got, wanted = slope(thing, x, lying(layout, dy)), slope(thing, x.contiguous(), dy)
    if layout == "expanded":
        wanted = slope(thing, x.contiguous(), dy[:1].expand(dy.shape).contiguous())
    assert_close(got, wanted, rtol=0, atol=1e-11)


@every_thing
@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D), (0, 0, D)], ids=str)
def test_nothing_in_nothing_out(name, shape):
    """No rows or no positions: the right shape, slopes of zero, and no warning."""
    if name == "numpy block" and shape[1] == 0:
        pytest.skip("NumPy knows no largest of no scores")
    thing, x = THINGS[name](), normal(*shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, dx = thing(x), slope(thing, x, torch.ones_like(x))
        assert y.shape == dx.shape == shape and y.dtype == torch.float64
        if isinstance(thing, nn.Module):
            thing(x).sum().backward() if list(thing.parameters()) else None
            assert not any(weight.grad.any() for weight in thing.parameters())


@every_thing
def test_rows_of_a_batch_do_not_meet(name):
    """Not in another order, not alone, not beside a row that is no number, not in the slopes."""
    thing, x, dy = THINGS[name](), normal(B, T, D), normal(B, T, D, seed=1)
    y, dx, order = thing(x), slope(thing, x, dy), [2, 0, 1]
    assert_close(thing(x[order]), y[order], rtol=0, atol=1e-12)
    assert_close(thing(x[1:2]), y[1:2], rtol=0, atol=1e-12)
    assert_close(slope(thing, x[1:2], dy[1:2]), dx[1:2], rtol=0, atol=1e-11)
    broken = x.clone()
    broken[1] = NEVER
    others = [0, 2]
    assert_close(thing(broken)[others], y[others], rtol=0, atol=1e-12)
    assert_close(slope(thing, broken, dy)[others], dx[others], rtol=0, atol=1e-11)


@every_thing
def test_the_input_is_left_alone_and_the_output_is_new(name):
    """C18."""
    thing, x = THINGS[name](), normal(B, T, D)
    before = x.clone()
    with torch.no_grad():
        y = thing(x)
        assert torch.equal(x, before)
        y.fill_(NEVER)
    assert torch.equal(x, before), "what is written into the output must not reach the input"


@pytest.mark.parametrize("name", [name for name in LAYERS if f"fast {name}" in FAST_LAYERS])
def test_two_speeds_one_answer_and_a_way_back(name):
    taught, quick = LAYERS[name](), FAST_LAYERS[f"fast {name}"]()
    x, dy, found = normal(B, T, D), normal(B, T, D, seed=1), []
    for layer in (taught, quick, slow_down(copy.deepcopy(quick))):
        read = x.clone().requires_grad_()
        y = layer(read)
        found.append([y, *torch.autograd.grad(y, (read, *layer.parameters()), dy)])
    for one, other, back in zip(*found, strict=True):
        assert_close(other, one, rtol=0, atol=1e-11)
        assert_close(back, one, rtol=0, atol=1e-11)
    assert [type(part) for part in layer.modules()] == [type(part) for part in taught.modules()]


@every_layer
def test_slopes_are_measured_ones(name):
    """By central differences along random directions, in the input and in every parameter; and so
    are the slopes of slopes, which torch's fused attention does not have."""
    layer, x = THINGS[name](), normal(2, 3, D).requires_grad_()
    inputs = (x, *layer.parameters())  # nudged in place, where the layer reads them

    def forward(x, *_):
        return layer(x)

    assert gradcheck(forward, inputs, fast_mode=True)
    if not any(isinstance(part, FastAttention) for part in layer.modules()):
        assert gradgradcheck(forward, inputs, fast_mode=True)


@every_layer
def test_with_and_without_a_graph_the_numbers_are_the_same(name):
    layer, x = THINGS[name](), normal(B, T, D)
    with torch.inference_mode():
        inferred = layer(x)
    with torch.no_grad():
        quiet = layer(x)
    y = layer(x.requires_grad_())
    assert y.requires_grad and not quiet.requires_grad and inferred.is_inference()
    assert_close(quiet, y.detach(), rtol=0, atol=1e-12)
    assert_close(inferred.clone(), y.detach(), rtol=0, atol=1e-12)
    y.sum().backward()  # what was made in inference mode, such as a table, must not be in the way
    for weight in (x, *layer.parameters()):
        assert weight.grad.isfinite().all() and weight.grad.any()
    for weight in layer.parameters():  # frozen: nothing is asked of it, and x keeps its slope
        weight.requires_grad_(False)
    frozen = torch.autograd.grad(layer(x).sum(), x)[0]
    assert_close(frozen, x.grad, rtol=0, atol=1e-11)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}


@every_layer
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_says_the_same_and_stands_alone(name, way):
    layer, x = THINGS[name](), normal(B, T, D)
    y = layer(x).detach()
    other = COPIES[way](layer)
    assert type(other) is type(layer)
    assert_close(other(x), y, rtol=0, atol=1e-12)  # other addresses may mean another order of sums
    with torch.no_grad():
        for weight in other.parameters():
            weight.fill_(NEVER)
    assert torch.equal(layer(x), y)
    assert other(x).isnan().all() or not list(other.parameters())


@every_layer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_dtype_that_comes_in_comes_out(name, dtype):
    """And its numbers are those of float64, on the very same weights, up to roundings."""
    layer, x = THINGS[name]().to(dtype), normal(B, T, D).to(dtype)
    wanted = copy.deepcopy(layer).double()(x.double())
    got = layer(x)
    assert got.dtype == dtype and got.shape == x.shape
    step = torch.finfo(dtype).eps * float(wanted.detach().abs().max() + x.abs().max())
    # A block rounds a dozen times in a row, and each time what came before is carried on.
    assert_close(got.double(), wanted, rtol=0, atol=(12 if dtype.itemsize == 2 else 32) * step)


@every_layer
def test_a_shape_needs_no_numbers(name):
    """On "meta" nothing is computed: what the layers ask of their input is its shape and dtype."""
    layer, x = THINGS[name]().to("meta"), torch.empty(B, T, D, dtype=torch.float64, device="meta")
    y = layer(x)
    assert (y.shape, y.dtype, y.device.type) == ((B, T, D), torch.float64, "meta")


@pytest.mark.parametrize("name", LAYERS)
def test_torch_func_sees_through_the_taught_layers(name):
    """vmap is a loop, and a Jacobian by torch.func is the one that backward gives."""
    layer, x = LAYERS[name](), normal(B, T, D)
    looped = torch.stack([layer(row[None])[0] for row in x])
    assert_close(torch.func.vmap(lambda row: layer(row[None])[0])(x), looped, rtol=0, atol=1e-12)
    few = normal(1, 2, D)
    forward = torch.func.jacrev(lambda few: layer(few).sum((0, 1)))(few)
    backward = torch.autograd.functional.jacobian(lambda few: layer(few).sum((0, 1)), few)
    assert_close(forward, backward, rtol=0, atol=1e-11)
