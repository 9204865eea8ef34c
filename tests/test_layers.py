"""layers.py against torch's own norms and float64, and the wiring of the block."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from tiny_lm.attention import CausalSelfAttention, KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.layers import (
    BLOCKS,
    NORMS,
    LayerNorm,
    PlainBlock,
    PostNormBlock,
    Residual,
    RMSNorm,
    SwiGLU,
    TransformerBlock,
    residual_add,
)
from tiny_lm.taps import Recorder, ignore

modest = settings(deadline=None, max_examples=40, derandomize=True)
both_norms = pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
all_blocks = pytest.mark.parametrize("block", list(BLOCKS.values()))
shapes = st.lists(st.integers(1, 4), max_size=3)
widths = st.integers(1, 9)
epsilons = st.sampled_from([1e-6, 1e-5, 1e-2, 1.0])

HALVES = [(torch.float16, 2**-11), (torch.bfloat16, 2**-8)]  # half a unit in the last place


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def drawn(module, std=0.2, seed=0):
    """The module with weights wide enough for its mistakes to show; gains and shifts as well."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * std)
    return module


def exact(x, eps):
    """RMSNorm of each row, in float64 and with math alone."""
    rows = x.double().reshape(-1, x.shape[-1]).tolist()
    roots = [math.sqrt(math.fsum(v * v for v in row) / len(row) + eps) for row in rows]
    return double(*[[v / r for v in row] for row, r in zip(rows, roots, strict=True)]).view(x.shape)


# RMSNorm: values


@modest
@given(shapes, widths, epsilons, st.sampled_from([1e-3, 1.0, 1e3]), st.integers(0, 99))
def test_rms_norm_against_torch_and_exact_sums(shape, width, eps, size, seed):
    x = normal(*shape, width, seed=seed) * size
    ours, theirs = RMSNorm(width, eps).double(), nn.RMSNorm(width, eps=eps).double()
    gain = normal(width, seed=seed + 1)
    with torch.no_grad():
        ours.scale.copy_(gain), theirs.weight.copy_(gain)
    y = ours(x)
    assert y.shape == x.shape
    # A few roundings of 1e-16 each.
    assert_close(y, theirs(x), rtol=1e-14, atol=1e-15)
    assert_close(y, exact(x, eps) * gain, rtol=1e-14, atol=1e-15)


@modest
@given(shapes, widths, epsilons, st.integers(0, 99))
def test_layer_norm_against_torch(shape, width, eps, seed):
    x = normal(*shape, width, seed=seed)
    ours = drawn(LayerNorm(width, eps)).double()
    theirs = nn.LayerNorm(width, eps=eps).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.scale), theirs.bias.copy_(ours.shift)
    # Centring leaves rounding errors of 1e-16 which a small variance and eps 1e-6 multiply by 1e3.
    assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)


def test_layer_norm_far_from_zero():
    """C23: float32 holds 1e4 + x to 5e-4; the difference mean(x²) − mean(x)² would be noise."""
    x = (1e4 + normal(3, 512)).float()
    expected = nn.LayerNorm(512).double()(x.double())
    assert_close(LayerNorm(512)(x).double(), expected, rtol=0, atol=2e-3)


def test_values_of_the_lessons():
    """C03, C05, C06, C48: eps inside the root, the mean of the squares, and a root to divide by."""
    cases = [
        (double(3, 4), 1e-5, double(0.84852779801, 1.13137039735)),
        (double(30, 40), 1e-5, double(0.84852813403, 1.13137084537)),
        (double(3, 4), 0, double(0.84852813742, 1.13137084990)),
        (double(13, 14), 0, double(0.9623031733, 1.0363264943)),
        (double(3e-3, 4e-3), 1e-5, double(0.6324555320, 0.8432740427)),
        (double(3e-6, 4e-6), 1e-5, double(9.486827e-4, 1.2649103e-3)),
        (double(1, 2, 3, 4), 1e-5, double(0.365148, 0.730296, 1.095444, 1.460593)),
        (double(5, 5), 1e-6, double(0.99999998, 0.99999998)),
    ]
    for x, eps, expected in cases:
        assert_close(RMSNorm(len(x), eps)(x), expected, rtol=1e-6, atol=1e-10)
    difference = RMSNorm(2)(double(30, 40)) - RMSNorm(2)(double(3, 4))
    assert_close(difference, double(3.3601694e-7, 4.4802259e-7), rtol=1e-7, atol=0)
    difference = RMSNorm(2, 1e-6)(double(6, 8)) - RMSNorm(2, 1e-6)(double(3, 4))
    assert_close(difference, double(2.54558422e-8, 3.39411230e-8), rtol=1e-8, atol=0)


def test_layer_norm_is_another_norm():
    """C21, C23: it centres, and divides by D, not by D − 1."""
    assert_close(
        LayerNorm(4)(double(1, 2, 3, 4)),
        double(-1.341635, -0.447212, 0.447212, 1.341635),
        rtol=0,
        atol=1e-6,
    )
    assert_close(
        LayerNorm(4)(double(1, 0, 0, 0)), double(1.732005, *[-0.577335] * 3), rtol=0, atol=1e-6
    )
    assert LayerNorm(2)(double(5, 5)).tolist() == [0, 0]
    assert_close(LayerNorm(2)(double(3, 4)), double(-0.99998, 0.99998), rtol=0, atol=1e-8)
    x = normal(3, 8) + 5
    centred = x - x.mean(-1, keepdim=True)
    assert_close(LayerNorm(8)(x), RMSNorm(8)(centred), rtol=1e-12, atol=1e-13)


@modest
@given(widths, st.floats(1e-3, 1e3), epsilons, st.integers(0, 99))
def test_scale_law(width, c, eps, seed):
    """RMSNorm(c·x; eps) = RMSNorm(x; eps / c²)."""
    x = normal(3, width, seed=seed)
    gain = normal(width, seed=seed + 1)
    one, other = RMSNorm(width, eps).double(), RMSNorm(width, eps / c**2).double()
    with torch.no_grad():
        one.scale.copy_(gain), other.scale.copy_(gain)
    assert_close(one(c * x), other(x), rtol=1e-12, atol=0)


def test_rms_of_the_output_by_size_of_the_input():
    """r / sqrt(r² + eps): a half at sqrt(eps/3), 1/sqrt 2 at sqrt(eps), 1 % short at 0.0222."""
    direction = double(1, -1, 1, -1)
    half, root_half = math.sqrt(1e-5 / 3), math.sqrt(1e-5)
    for r, expected in [
        (1e-3, 0.301511), (1e-2, 0.953463), (1e-1, 0.999500), (1, 0.999995),
        (half, 0.5), (root_half, 0.5**0.5), (0.022192, 0.99),
    ]:  # fmt: skip
        y = RMSNorm(4, 1e-5)(r * direction)
        assert y.square().mean().sqrt().item() == pytest.approx(expected, rel=2e-6)


@modest
@given(shapes, widths, st.integers(0, 99))
def test_every_position_has_its_own_denominator(shape, width, seed):
    """C10: only the last axis is averaged."""
    x = normal(*shape, width, seed=seed)
    y = RMSNorm(width)(x).reshape(-1, width)
    for row, out in zip(x.reshape(-1, width), y, strict=True):
        assert_close(RMSNorm(width)(row), out, rtol=1e-15, atol=0)


def test_two_positions_of_different_size():
    """C10: over positions and width together this would be [0.119, 0.159], [1.194, 1.592]."""
    y = RMSNorm(2, 0)(double([[3, 4], [30, 40]])[None])
    assert_close(y, double([[0.8485281, 1.1313708]] * 2)[None], rtol=0, atol=1e-7)


@both_norms
def test_order_of_the_coordinates_and_sign(norm):
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    x = normal(3, 8)
    layer = norm(8).double()
    assert_close(layer(x[:, order]), layer(x)[:, order], rtol=1e-13, atol=1e-14)
    assert_close(layer(-x), -layer(x), rtol=0, atol=0)


def test_rms_norm_notices_a_shift_and_layer_norm_does_not():
    x = normal(3, 8)
    assert (RMSNorm(8)(x + 5) - RMSNorm(8)(x)).abs().max() > 0.5
    assert_close(LayerNorm(8)(x + 5), LayerNorm(8)(x), rtol=0, atol=1e-12)


def test_twice_is_once_only_with_a_gain_of_ones_and_no_eps():
    x = normal(5, 8)
    plain = RMSNorm(8, 0).double()
    assert_close(plain(plain(x)), plain(x), rtol=1e-14, atol=0)
    gained = drawn(RMSNorm(8, 0)).double()
    assert (gained(gained(x)) - gained(x)).abs().max() > 0.01


def test_a_width_of_one_keeps_only_the_sign():
    x = double([5.0], [0.001], [-2.0])
    assert_close(RMSNorm(1)(x), double([0.9999998], [0.301511], [-1]), rtol=0, atol=2e-6)


# RMSNorm: gradients


@modest
@given(widths, epsilons, st.integers(0, 99))
def test_gradients_against_torch(width, eps, seed):
    x, dy = normal(4, width, seed=seed), normal(4, width, seed=seed + 1)
    ours, theirs = RMSNorm(width, eps).double(), nn.RMSNorm(width, eps=eps).double()
    gain = normal(width, seed=seed + 2)
    with torch.no_grad():
        ours.scale.copy_(gain), theirs.weight.copy_(gain)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours(one).backward(dy), theirs(other).backward(dy)
    # With one number alone the gradient is a small difference of large terms: 1e-16 of 1e3.
    assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-12)
    assert_close(ours.scale.grad, theirs.weight.grad, rtol=1e-12, atol=1e-12)


@both_norms
def test_gradients_against_finite_differences(norm):
    layer = drawn(norm(4, eps=1e-2)).double()
    assert torch.autograd.gradcheck(layer, normal(3, 4).requires_grad_())


@modest
@given(st.integers(2, 9), st.sampled_from([0, 1e-5, 1e-2, 1.0]), st.integers(0, 99))
def test_radial_identity(width, eps, seed):
    """x·∂L/∂x = (y·∂L/∂y) · eps / (mean(x²) + eps): without eps, at a right angle to x."""
    norm = drawn(RMSNorm(width, eps), seed=seed).double()
    x = normal(width, seed=seed).requires_grad_()
    y, dy = norm(x), normal(width, seed=seed + 1)
    (dx,) = torch.autograd.grad(y, x, dy)
    mean_square = x.detach().square().mean()
    expected = (y.detach() @ dy) * eps / (mean_square + eps)
    # Both sides are sums of a few terms of |x||dx|, with 1e-16 of each lost.
    tolerance = 1e-13 * (x.detach().abs() @ dx.abs() + 1).item()
    assert_close(x.detach() @ dx, expected, rtol=0, atol=tolerance)


def jacobian(norm, x):
    return torch.autograd.functional.jacobian(norm, x)


def test_jacobian_of_3_4():
    """C49: eigenvalues 0 (along x) and 1/rms (across)."""
    J = jacobian(RMSNorm(2, 0), double(3, 4))
    assert_close(J, double([0.18101934, -0.13576450], [-0.13576450, 0.10182338]), rtol=0, atol=1e-8)
    assert_close(torch.linalg.eigvalsh(J), double(0, 0.28284271), rtol=0, atol=1e-8)
    assert_close(J @ double(3, 4), double(0, 0), rtol=0, atol=1e-15)
    J = jacobian(RMSNorm(2, 1e-5), double(3, 4))
    # About 0.5 minus about 0.5: 1e-16 of it is 1e-9 of what is left.
    assert_close(J @ double(3, 4), double(6.788217e-7, 9.050956e-7), rtol=2e-7, atol=0)


@modest
@given(st.integers(1, 6), epsilons, st.integers(0, 99))
def test_jacobian_by_its_formula(width, eps, seed):
    """J = (I − x xᵀ / (D s)) / sqrt(s), s = mean(x²) + eps: symmetric when the gains are ones."""
    x = normal(width, seed=seed)
    square = x.square().mean() + eps
    expected = (torch.eye(width).double() - x.outer(x) / (width * square)) / square.sqrt()
    J = jacobian(RMSNorm(width, eps), x)
    assert_close(J, expected, rtol=1e-11, atol=1e-12)
    assert_close(J, J.T, rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(J).min() > -1e-12


@pytest.mark.parametrize(("eps", "slope"), [(1e-5, 316.2277660), (1e-6, 1000.0)])
def test_the_zero_row(eps, slope):
    """C03, C12: it comes out as zeros, and its gradient is multiplied by 1/sqrt(eps)."""
    norm = RMSNorm(2, eps).double()
    with torch.no_grad():
        norm.scale.copy_(double(1, 2))
    x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    y = norm(x)
    assert y.tolist() == [[0, 0]]
    y.sum().backward()
    assert_close(x.grad, double([slope, 2 * slope]), rtol=1e-9, atol=0)
    assert norm.scale.grad.tolist() == [0, 0]
    (first,) = torch.autograd.grad(norm(x)[0, 0], x)
    assert_close(first, double([slope, 0]), rtol=1e-9, atol=0)


def test_eps_zero_is_allowed_and_the_zero_row_then_has_no_value():
    """C04."""
    y = RMSNorm(2, 0)(double([0, 0], [3, 4]))
    assert y[0].isnan().all()
    assert_close(y[1], double(0.84852813742, 1.13137084990), rtol=1e-10, atol=0)


def test_infinity_and_nan_stay_in_their_row():
    """C14."""
    inf, nan = math.inf, math.nan
    x = torch.tensor([[3.0, 4, 5], [inf, 1, 2], [nan, 1, 2], [1, 1, 1]])
    y = RMSNorm(3)(x)
    assert y[1].isnan().tolist() == [True, False, False] and y[1, 1:].tolist() == [0, 0]
    assert y[2].isnan().all()
    assert_close(y[[0, 3]], RMSNorm(3)(x[[0, 3]]), rtol=1e-6, atol=0)


# Norms: dtypes


@both_norms
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16, torch.float64])
def test_the_dtype_of_x_comes_out(norm, dtype, parameters):
    """C08."""
    assert norm(4).to(parameters)(torch.ones(2, 4, dtype=dtype)).dtype == dtype


@both_norms
@pytest.mark.parametrize(("dtype", "half_ulp"), HALVES)
def test_float32_inside_and_one_rounding_at_the_end(norm, dtype, half_ulp):
    """C08: cast before the gain it would be rounded twice, 5.4e-3 off in bf16 instead of 3.9e-3."""
    layer = norm(64)
    with torch.no_grad():
        layer.scale.copy_(1 + normal(64, seed=1) / 4)
    x = normal(64, 64).to(dtype)
    right = layer.double()(x.double())
    # rtol is the one rounding; atol the float32 roundings before it, of numbers near 1.
    assert_close(layer.float()(x).double(), right, rtol=half_ulp, atol=1e-6)
    # The gradient of x is in the dtype of x as well, and finite.
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad.dtype == dtype and x.grad.isfinite().all()


def test_half_precision_squares_do_not_overflow():
    """C01: 256² is above the largest float16; computed there the result is zeros."""
    right = [0.8486328125, 1.1318359375]
    for x in ([300.0, 400.0], [3e4, 4e4]):
        assert RMSNorm(2)(torch.tensor(x, dtype=torch.float16)).tolist() == right
    # The second trap: the squares, 40,000, are finite, and their sum over 512 is not.
    long = torch.full((512,), 200.0, dtype=torch.float16)
    assert RMSNorm(512)(long).tolist() == [1] * 512
    assert LayerNorm(2)(torch.tensor([3e4, -3e4], dtype=torch.float16)).tolist() == [1, -1]


def test_a_small_eps_does_not_vanish_in_half_precision():
    """C02: 1e-8 is 0 in float16, and 0 / 0 is NaN."""
    assert RMSNorm(2, 1e-8)(torch.zeros(2, dtype=torch.float16)).tolist() == [0, 0]
    y = RMSNorm(2, 1e-6)(torch.tensor([1e-3, -1e-3], dtype=torch.float16))
    assert y.tolist() == [0.70703125, -0.70703125]  # with squares in float16: 0.70264


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_eps_is_ours_whatever_the_dtype(dtype):
    """C07: torch's default has meant four different numbers; ours is 1e-5 everywhere."""
    assert RMSNorm(64).eps == LayerNorm(64).eps == 1e-5
    r = 2.0**-8  # exact in every dtype
    x = torch.full((1, 64), r, dtype=dtype)
    expected = r / math.sqrt(r * r + 1e-5)
    rounding = torch.finfo(dtype).eps
    assert RMSNorm(64)(x)[0, 0].item() == pytest.approx(expected, rel=max(rounding, 1e-14))


def test_float32_runs_out_above_1_8e19():
    """What the docstring says: an entry whose square overflows is returned as 0."""
    assert RMSNorm(2)(torch.tensor([1.8e19, 0.0])).tolist() == pytest.approx([2**0.5, 0])
    assert RMSNorm(2)(torch.tensor([3e19, 0.0])).tolist() == [0, 0]


# Norms: as modules


def test_parameters():
    """One gain for each coordinate, ones; LayerNorm has as many shifts, zeros."""
    norm = RMSNorm(64)
    assert {name: p.tolist() for name, p in norm.named_parameters()} == {"scale": [1] * 64}
    layer = LayerNorm(64)
    assert {name: p.tolist() for name, p in layer.named_parameters()} == {
        "scale": [1] * 64,
        "shift": [0] * 64,
    }
    assert norm.scale.requires_grad and layer.shift.requires_grad


@both_norms
def test_gain_and_shift_are_used(norm):
    layer, x = norm(2, 0).double(), double(3, 4)
    before = layer(x).detach()
    with torch.no_grad():
        layer.scale.copy_(double(2, -3))
    assert_close(layer(x), before * double(2, -3), rtol=1e-15, atol=0)
    if norm is LayerNorm:
        with torch.no_grad():
            layer.shift.copy_(double(10, 20))
        assert_close(layer(x), before * double(2, -3) + double(10, 20), rtol=1e-15, atol=0)


@both_norms
def test_the_input_is_left_alone(norm):
    """C18."""
    x = normal(2, 4)
    before = x.clone()
    with torch.no_grad():
        y = norm(4)(x)
        y.zero_()
    assert torch.equal(x, before)


@both_norms
def test_norm_repr(norm):
    assert repr(norm(64)) == f"{norm.__name__}(64, eps=1e-05)"


@both_norms
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda norm: norm(64)(torch.zeros(1, 3, 1)), "expected [..., 64], got [1, 3, 1]"),
        (lambda norm: norm(4)(torch.zeros(2, 1)), "expected [..., 4], got [2, 1]"),
        (lambda norm: norm(1)(torch.zeros(2, 4)), "expected [..., 1], got [2, 4]"),
        (lambda norm: norm(4)(torch.tensor(1.0)), "expected [..., 4], got []"),
        (
            lambda norm: norm(2)(torch.tensor([3, 4])),
            "expected floating-point numbers, got torch.int64 (write 3.0 for 3, or call .float())",
        ),
        (lambda norm: norm(0), "expected width >= 1, got 0"),
        (lambda norm: norm(2, eps=-2), "expected eps >= 0, got -2"),
        (lambda norm: norm(2, eps=math.nan), "expected eps >= 0, got nan"),
    ],
)
def test_norm_errors(norm, call, message):
    """C04, C16, C17."""
    with pytest.raises(ValueError) as caught:
        call(norm)
    assert str(caught.value) == f"{norm.__name__}: {message}"


def test_norms_by_name():
    assert NORMS["rms"] is RMSNorm and NORMS["layer"] is LayerNorm


# SwiGLU


def gated(gate, up, down, x):
    """SwiGLU of width 1 and hidden width 1 with these three weights."""
    ffn = SwiGLU(1, 1).double()
    with torch.no_grad():
        for matrix, value in [(ffn.gate_proj, gate), (ffn.up_proj, up), (ffn.down_proj, down)]:
            matrix.weight.fill_(value)
        return ffn(double(x)).item()


def test_the_gate_goes_through_silu_and_the_other_does_not():
    """C36: swapped, the second pair of numbers changes places; a sigmoid gate fails the second."""
    assert gated(1, 2, 1, 1) == pytest.approx(1.4621171573, rel=1e-9)
    assert gated(2, 1, 1, 1) == pytest.approx(1.7615941560, rel=1e-9)
    assert gated(2, 1, 3, 1) == pytest.approx(3 * 1.7615941560, rel=1e-9)
    assert gated(-1, 1, 1, 1) == pytest.approx(-0.2689414214, rel=1e-9)
    assert gated(1.278464543, 1, 1, -1) == pytest.approx(0.2784645428, rel=1e-9)  # silu's minimum
    # Degree 2 for large inputs: ten times the input is 105 times the output.
    assert gated(1, 1, 1, 30) / gated(1, 1, 1, 3) == pytest.approx(104.98, abs=0.01)


@modest
@given(shapes, widths, widths, st.integers(0, 99))
def test_swiglu_in_its_own_words(shape, width, hidden, seed):
    ffn = drawn(SwiGLU(width, hidden), seed=seed).double()
    x = normal(*shape, width, seed=seed)
    gate, up = x @ ffn.gate_proj.weight.T, x @ ffn.up_proj.weight.T
    expected = (gate / (1 + torch.exp(-gate)) * up) @ ffn.down_proj.weight.T
    assert_close(ffn(x), expected, rtol=1e-12, atol=1e-13)
    assert ffn(x).shape == x.shape


def test_swiglu_has_three_matrices_and_no_bias():
    shapes = {name: tuple(w.shape) for name, w in SwiGLU(64, 176).named_parameters()}
    assert shapes == {
        "gate_proj.weight": (176, 64),
        "up_proj.weight": (176, 64),
        "down_proj.weight": (64, 176),
    }


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3), "SwiGLU: expected [..., 4], got [2, 3]"),
        (
            torch.ones(2, 4, dtype=torch.long),
            "SwiGLU: expected floating-point numbers, got torch.int64"
            " (write 3.0 for 3, or call .float())",
        ),
    ],
)
def test_swiglu_errors(x, message):
    with pytest.raises(ValueError) as caught:
        SwiGLU(4, 8)(x)
    assert str(caught.value) == message


# The residual addition


def test_residual_add():
    x, change = double(3, 4), double(6, 8)
    total = residual_add(x, change)
    assert total.tolist() == [9, 12]
    assert (x.tolist(), change.tolist()) == ([3, 4], [6, 8])  # C18
    assert total.data_ptr() not in (x.data_ptr(), change.data_ptr())
    assert residual_add(x, torch.zeros_like(x)) is not x


@pytest.mark.parametrize(
    ("x", "change"),
    [
        ((1, 3, 4), (1, 3, 1)), ((1, 3, 1), (1, 3, 4)), ((3, 4), (2, 3, 4)), ((2, 3, 4), (4,)),
        ((1, 3, 64), (1, 3, 128)), ((2,), ()),
    ],
)  # fmt: skip
def test_nothing_is_broadcast(x, change):
    """C17."""
    with pytest.raises(ValueError) as caught:
        residual_add(torch.zeros(x), torch.zeros(change))
    assert str(caught.value) == (
        f"residual_add: expected {list(x)}, got {list(change)}"
        " (a branch must project back to the stream's width)"
    )


def test_gradients_of_the_two_paths_add():
    for slope, expected in [(0.0, 1), (2.0, 3), (-1.0, 0)]:
        x = double(3, 4).requires_grad_()
        residual_add(x, slope * x).sum().backward()
        assert x.grad.tolist() == [expected, expected]


def test_twice_in_a_row_with_gradients():
    """C18: in place, the second addition would break the first one's backward."""
    x, norm = double(1, 1).requires_grad_(), RMSNorm(2)
    y = residual_add(x, norm(x))
    residual_add(y, norm(y)).sum().backward()
    assert x.grad.isfinite().all()


def test_a_low_precision_stream_loses_small_changes():
    """C43: what bf16 does; the addition itself does not widen."""
    lost = residual_add(torch.tensor([256.0]).bfloat16(), torch.tensor([1.0]).bfloat16())
    assert lost.dtype == torch.bfloat16 and lost.tolist() == [256]
    for dtype, expected in [
        (torch.bfloat16, 1.0), (torch.float16, 1.375), (torch.float32, 1.3840027),
    ]:  # fmt: skip
        x, change = torch.tensor([1.0], dtype=dtype), torch.tensor([0.003], dtype=dtype)
        for _ in range(128):
            x = residual_add(x, change)
        assert x.item() == pytest.approx(expected, abs=1e-7)


def test_residual_wraps_any_branch():
    x = normal(2, 3, 4)
    assert torch.equal(Residual(nn.Identity())(x), 2 * x)
    linear = nn.Linear(4, 4).double()
    assert torch.equal(Residual(linear)(x), x + linear(x))
    assert Residual(linear).branch is linear
    with pytest.raises(ValueError, match="a branch must project back to the stream's width"):
        Residual(nn.Linear(4, 1).double())(x)


def test_jacobian_of_a_residual_is_the_identity_plus_the_branchs():
    branch = nn.Sequential(RMSNorm(3), nn.Linear(3, 3)).double()
    x = normal(3)
    inner = torch.autograd.functional.jacobian(branch, x)
    total = torch.autograd.functional.jacobian(Residual(branch), x)
    assert_close(total, torch.eye(3).double() + inner, rtol=0, atol=1e-15)


# The block

SMALL = {"d_model": 8, "n_heads": 4, "n_kv_heads": 2, "d_ff": 12}


class Write(nn.Module):
    """In the place of attention: writes one vector at every position."""

    def __init__(self, *values):
        super().__init__()
        self.values = double(*values)

    def forward(self, x, *, cache=None, tap=ignore):
        return self.values.expand_as(x)


class Times(nn.Module):
    """In the place of a branch: u -> factor · u."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, *, cache=None, tap=ignore):
        return self.factor * x


def with_branches(block, attention, ffn, eps=0.0):
    block = block(ModelConfig(d_model=2, n_heads=1, norm_eps=eps))
    block.attention, block.ffn = attention, ffn
    return block


def value(block, *x):
    return block(double(x)[None]).flatten().tolist()


def test_where_the_direct_path_and_the_norms_stand():
    """C19: attention writes [1, 0], the ffn doubles what it reads. h = [4, 4], y = [6, 6]."""
    assert value(with_branches(TransformerBlock, Write(1, 0), Times(2)), 3, 4) == [6, 6]
    # norm2 of x, or the two branches side by side, would give [5.697, 6.263]; adding x [5, 6].
    y = value(with_branches(TransformerBlock, Write(1, 0), Times(2), eps=1e-5), 3, 4)
    assert y == pytest.approx([5.999999375, 5.999999375], abs=1e-9)


def test_the_direct_path_keeps_what_was_not_normalised():
    """C19, eps 0: the attention branch doubles, the ffn adds nothing."""
    pre = with_branches(TransformerBlock, Times(2), Times(0))
    assert value(pre, 3, 4) == pytest.approx([4.697056, 6.262742], abs=1e-6)
    pre = with_branches(TransformerBlock, Times(0), Times(2))
    assert value(pre, 3, 4) == pytest.approx([4.697056, 6.262742], abs=1e-6)
    for factors in [(0, 0), (2, 0), (0, 2), (2, 2)]:
        post = with_branches(PostNormBlock, *map(Times, factors))
        assert value(post, 3, 4) == pytest.approx([0.848528, 1.131371], abs=1e-6)
    plain = with_branches(PlainBlock, Times(2), Times(3))
    assert value(plain, 3, 4) == pytest.approx([3 * 0.848528, 3 * 1.131371], abs=1e-5)


def test_zero_branches_return_x():
    """C19: [3, 4], not [0.8485, 1.1314]."""
    assert value(with_branches(TransformerBlock, Times(0), Times(0)), 3, 4) == [3, 4]
    assert value(with_branches(PlainBlock, Times(0), Times(0), eps=1e-5), 3, 4) == [0, 0]


def sublayers(block, x):
    """The block's four parts, composed by hand in each of the three orders."""
    norm1, attention, norm2, ffn = block.norm1, block.attention, block.norm2, block.ffn
    if type(block) is TransformerBlock:
        h = x + attention(norm1(x))
        return {"norm.attn": norm1(x), "resid.attn": h, "norm.ffn": norm2(h)}, h + ffn(norm2(h))
    if type(block) is PostNormBlock:
        h = norm1(x + attention(x))
        seen = {"resid.attn": x + attention(x), "norm.attn": h, "resid.ffn": h + ffn(h)}
        return seen, norm2(h + ffn(h))
    h = attention(norm1(x))
    return {"norm.attn": norm1(x), "resid.attn": h, "norm.ffn": norm2(h)}, ffn(norm2(h))


@all_blocks
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_each_order_by_hand(block, norm):
    layer = drawn(block(ModelConfig(**SMALL, norm=norm))).double()
    x = normal(2, 5, 8)
    tap = Recorder()
    y = layer(x, tap=tap)
    seen, expected = sublayers(layer, x)
    assert_close(y, expected, rtol=0, atol=1e-13)
    for name, expected in seen.items():
        assert_close(tap[name], expected, rtol=0, atol=1e-13)


NAMES = {
    TransformerBlock: ["norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"],
    PostNormBlock: ["attn.weights", "resid.attn", "norm.attn", "resid.ffn", "norm.ffn"],
    PlainBlock: ["norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"],
}


@all_blocks
def test_taps_names_order_and_arithmetic(block):
    layer = drawn(block(ModelConfig(**SMALL)))
    x = normal(2, 5, 8, dtype=torch.float32)
    tap = Recorder()
    y = layer(x, tap=tap)
    assert list(tap) == NAMES[block]
    assert torch.equal(y, layer(x))  # the same whether or not anyone listens
    assert tap[NAMES[block][-1]] is y
    widths = {name: tuple(value.shape) for name, value in tap.items()}
    assert widths.pop("attn.weights") == (2, 4, 5, 5)
    assert set(widths.values()) == {(2, 5, 8)}


@all_blocks
@pytest.mark.parametrize("name", NAMES[TransformerBlock])
def test_every_tap_can_change_the_result(block, name):
    layer = drawn(block(ModelConfig(**SMALL)))
    x = normal(2, 5, 8, dtype=torch.float32)
    tap = Recorder(edit={name: lambda value: value * 0.5 + 0.25})
    y = layer(x, tap=tap)
    assert tap.unused == [] and torch.equal(y, layer(x, tap=Recorder(edit=tap._edit)))
    assert (y - layer(x)).abs().max() > 1e-3


def test_switching_a_branch_off_by_its_tap():
    layer = drawn(TransformerBlock(ModelConfig(**SMALL)))
    x = normal(2, 5, 8, dtype=torch.float32)
    tap = Recorder(edit={"norm.attn": torch.zeros_like, "norm.ffn": torch.zeros_like})
    assert torch.equal(layer(x, tap=tap), x)
    assert torch.equal(tap["norm.attn"], torch.zeros_like(x))


def test_zero_output_projections_are_the_identity():
    """C37: bitwise, the gradient exactly 1, and only those two matrices learn at first."""
    layer = drawn(TransformerBlock(ModelConfig(**SMALL)))
    nn.init.zeros_(layer.attention.out_proj.weight)
    nn.init.zeros_(layer.ffn.down_proj.weight)
    x = normal(2, 5, 8, dtype=torch.float32).requires_grad_()
    y = layer(x)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    moved = {name for name, p in layer.named_parameters() if p.grad.abs().max() > 0}
    assert moved == {"attention.out_proj.weight", "ffn.down_proj.weight"}


@all_blocks
def test_causality_through_the_whole_block(block):
    """C10: norms and all. Position 3 of 4 moves by 5; 1 and 2 stay, bitwise; 3 and 4 change."""
    layer = drawn(block(ModelConfig()))
    x = normal(1, 4, 64, dtype=torch.float32)
    changed = x.clone()
    changed[:, 2] += 5
    before, after = layer(x), layer(changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert ((before - after)[:, 2:].abs().amax(-1) > 1e-2).all()


@modest
@given(st.permutations(range(4)), st.sampled_from(list(BLOCKS.values())))
def test_rows_of_a_batch_do_not_meet(order, block):
    layer = drawn(block(ModelConfig(**SMALL))).double()
    x = normal(4, 5, 8)
    y = layer(x)
    assert_close(layer(x[list(order)]), y[list(order)], rtol=0, atol=1e-13)
    assert_close(layer(x[2:3]), y[2:3], rtol=0, atol=1e-13)


@modest
@given(st.integers(1, 3), st.integers(1, 6), st.sampled_from(list(BLOCKS.values())))
def test_shape_and_finite_gradients(batch, positions, block):
    layer = block(ModelConfig())
    x = normal(batch, positions, 64, dtype=torch.float32).requires_grad_()
    y = layer(x)
    assert y.shape == x.shape
    y.square().sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().max() > 0


@all_blocks
def test_the_blocks_input_is_left_alone(block):
    """C18: under no_grad, where an addition in place would pass unseen."""
    x = normal(2, 3, 64, dtype=torch.float32)
    before = x.clone()
    with torch.no_grad():
        block(ModelConfig())(x)
    assert torch.equal(x, before)


@all_blocks
def test_a_block_hands_its_cache_to_attention(block):
    layer = drawn(block(ModelConfig(**SMALL))).double()
    x, cache = normal(1, 6, 8), KVCache()
    pieces = [layer(piece, cache=cache) for piece in x.split([3, 1, 2], dim=1)]
    assert len(cache) == 6
    assert_close(torch.cat(pieces, dim=1), layer(x), rtol=0, atol=1e-13)


@all_blocks
def test_the_parts_of_a_block(block):
    """C19, C22: two norms of their own, with the eps of the config in both."""
    layer = block(ModelConfig(**SMALL, norm_eps=1e-3, rope_theta=500.0))
    assert [name for name, _ in layer.named_children()] == ["norm1", "attention", "norm2", "ffn"]
    assert layer.norm1 is not layer.norm2 and layer.norm1.scale is not layer.norm2.scale
    assert layer.norm1.eps == layer.norm2.eps == 1e-3
    assert type(layer.norm1) is type(layer.norm2) is RMSNorm
    assert type(layer.attention) is CausalSelfAttention and type(layer.ffn) is SwiGLU
    assert (layer.attention.heads, layer.attention.kv_heads) == (4, 2)
    assert layer.attention.theta == 500.0
    assert layer.ffn.gate_proj.weight.shape == (12, 8)
    layered = block(ModelConfig(norm="layer", norm_eps=1e-3))
    assert type(layered.norm1) is type(layered.norm2) is LayerNorm
    assert layered.norm1.eps == layered.norm2.eps == 1e-3


def test_the_three_orders_have_the_same_parameters():
    names = [[n for n, _ in block(ModelConfig()).named_parameters()] for block in BLOCKS.values()]
    assert names[0] == names[1] == names[2]
    assert dict(BLOCKS) == {"pre": TransformerBlock, "post": PostNormBlock, "plain": PlainBlock}


def test_parameters_of_a_block():
    """C37: 4 D² + 3 D F + 2 D."""
    block = TransformerBlock(ModelConfig(d_model=64, d_ff=176))
    assert sum(p.numel() for p in block.parameters()) == 4 * 64**2 + 3 * 64 * 176 + 2 * 64


@all_blocks
def test_wrong_inputs_to_a_block(block):
    layer = block(ModelConfig())
    with pytest.raises(ValueError, match=r"expected \[\.\.\., 64\], got \[1, 3, 32\]"):
        layer(torch.zeros(1, 3, 32))
    with pytest.raises(ValueError, match=r"expected \[B, T, D\], got \[3, 64\]"):
        layer(torch.zeros(3, 64))
    with pytest.raises(ValueError, match=r"expected floating-point numbers"):
        layer(torch.zeros(1, 3, 64, dtype=torch.long))
