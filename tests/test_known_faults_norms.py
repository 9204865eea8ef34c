"""Faults that were found in other people's norms, each with the value that is right.

A name begins with the number of its case (01 to 49, some left out); the thread in which the fault
was reported stands beside it. What is held is the whole kind: every norm, precision and layout to
which it could happen here.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from implementations import ManyRMSNorm
from torch.nn.functional import layer_norm, rms_norm
from torch.testing import assert_close

import tiny_lm
from tiny_lm import autograd, plain
from tiny_lm.autograd import nn as glass
from tiny_lm.config import ModelConfig
from tiny_lm.fast import FastRMSNorm
from tiny_lm.layers import NORMS, LayerNorm, RMSNorm
from tiny_lm.model import TinyLM
from tiny_lm.variants.norms import DynamicTanh, FloorRMSNorm, OffsetRMSNorm, PureRMSNorm

RMS_NORMS = [RMSNorm, FastRMSNorm, ManyRMSNorm, PureRMSNorm, OffsetRMSNorm]
every_rms_norm = pytest.mark.parametrize("norm", RMS_NORMS)
every_norm = pytest.mark.parametrize("norm", [*RMS_NORMS, FloorRMSNorm, LayerNorm, DynamicTanh])
HALF_ULP = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24}
every_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
every_dtype = pytest.mark.parametrize("dtype", [*HALF_ULP, torch.float64])
PACKAGE = Path(tiny_lm.__file__).parent


def by_hand(row, eps):
    """The formula once more, in float64, on a row or rows."""
    row = torch.as_tensor(row, dtype=torch.float64)
    return row / (row.square().mean(-1, keepdim=True) + eps).sqrt()


def glass_norm(x, eps):
    return torch.from_numpy(glass.RMSNorm(len(x), eps)(autograd.Tensor(np.array(x))).data)


def ways(x, eps):
    """One row through every RMSNorm of the package, in float64."""
    found = {"plain": torch.tensor(plain.rms_norm(x, eps=eps), dtype=torch.float64)}
    found["autograd"] = glass_norm(x, eps)
    for norm in RMS_NORMS:
        found[norm.__name__] = norm(len(x), eps).double()(torch.tensor(x, dtype=torch.float64))
    return found


def slope_at(norm, x, output=0):
    """The gradient of one output with respect to a row."""
    x = torch.as_tensor(x).clone().requires_grad_()
    norm(x).flatten()[output].backward()
    return x.grad


# 01 · pytorch/pytorch#133085, pytorch/executorch#18772: x² is infinite in float16 from 256 on.
@every_rms_norm
@pytest.mark.parametrize("row", [[300.0, 400.0], [3e4, 4e4], [192.0, 256.0], [49128.0, 65504.0]])
def test_01_squares_beyond_float16(norm, row):
    x = torch.tensor(row, dtype=torch.float16)
    assert norm(2)(x).tolist() == [0.8486328125, 1.1318359375]
    # d y_0 / d x_0 is 0.1810 · 5 / |x|, and that too is right; float16 has steps of 6e-8 near 0.
    slope = slope_at(norm(2), x)[0].item()
    assert_close(slope, 0.18101934 * 5 / x.double().norm().item(), rtol=2**-10, atol=3e-8)


@every_rms_norm
@every_half
@settings(max_examples=30)
@given(power=st.integers(-8, 15), seed=st.integers(0, 999))
def test_01_any_row_of_any_size_that_sixteen_bits_can_hold(norm, dtype, power, seed):
    x = torch.randn(4, 512, generator=torch.Generator().manual_seed(seed)).clamp(-1.9, 1.9)
    x = (x * 2.0**power).to(dtype)
    y, right = norm(512)(x), by_hand(x, 1e-5)
    # One rounding at the end, or float16's smallest step; float32 inside adds a little to both.
    assert_close(y.double(), right, rtol=HALF_ULP[dtype] * 1.01, atol=4e-8)


@every_rms_norm
def test_01_the_sum_overflows_before_the_mean_would(norm):
    assert norm(512)(torch.full((512,), 200.0, dtype=torch.float16)).unique().tolist() == [1.0]


# 02 · tensorflow/tensorflow#24979: 1e-8 is 0 in float16, and a zero row becomes NaN.
@every_norm
@every_dtype
@pytest.mark.parametrize("eps", [1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 1e-30])
def test_02_an_eps_too_small_for_the_dtype(norm, dtype, eps):
    assert norm(4, eps).to(dtype)(torch.zeros(3, 4, dtype=dtype)).unique().tolist() == [0.0]


@every_rms_norm
def test_02_small_squares_keep_their_digits(norm):
    x = torch.tensor([1e-3, -1e-3], dtype=torch.float16)
    assert norm(2, 1e-6)(x).tolist() == [0.70703125, -0.70703125]  # 0.70725 exactly


# 03 · NVIDIA/apex#1295, keras-team/keras#23075: eps outside of the root, or as a floor.
@pytest.mark.parametrize(
    ("row", "right"),
    [
        ([3.0, 4.0], [0.8485277980, 1.1313703974]),
        ([3e-3, 4e-3], [0.6324555320, 0.8432740427]),
        ([3e-6, 4e-6], [9.486827e-4, 1.2649103e-3]),
    ],
)
def test_03_eps_stands_inside_the_root(row, right):
    for name, y in ways(row, 1e-5).items():
        assert_close(y.tolist(), right, rtol=1e-7, atol=0, msg=name)


@every_rms_norm
def test_03_the_slope_at_zero_is_finite(norm):
    zero = torch.zeros(2, dtype=torch.float64)
    assert_close(slope_at(norm(2).double(), zero).tolist(), [316.2277660168, 0.0])


def test_03_the_slope_at_zero_by_numpy_too():
    x = autograd.Tensor(np.zeros(2))
    glass.RMSNorm(2, 1e-5)(x)[0].backward()
    assert_close(x.grad.tolist(), [316.2277660168, 0.0])


# 04 · google-deepmind/optax#1553: eps 0 and a zero row; a negative eps gives NaN without a word.
@every_rms_norm
def test_04_eps_zero_is_a_lesson_and_less_is_an_error(norm):
    assert norm(2, 0.0)(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.8485281, 1.1313708])
    assert norm(2, 0.0)(torch.zeros(2)).isnan().all()
    for eps in (-2.0, -1e-12, float("nan")):
        with pytest.raises(ValueError, match=rf"expected eps >= 0, got {eps}"):
            norm(2, eps)


def test_04_without_torch_and_in_a_config():
    with pytest.raises(ValueError, match="expected a mean square above 0 when eps is 0, got 0"):
        plain.rms_norm([0.0, 0.0], eps=0.0)
    for refuse in (
        lambda: plain.rms_norm([1.0], eps=-2.0),
        lambda: glass.RMSNorm(2, -2.0),
        lambda: ModelConfig(norm_eps=-2.0),
    ):
        with pytest.raises(ValueError, match=r"eps >= 0, got -2\.0"):
            refuse()


# 05, 06 · mosaicml/llm-foundry#371 (divided by rsqrt), 131250208/TPlinker#37 (squared instead of
# rooted), hyunwoongko/transformer#7 (another statistic): wrong at some width or some size.
@settings(max_examples=50)
@given(
    row=st.lists(st.floats(0.01, 100) | st.floats(-100, -0.01), min_size=1, max_size=9),
    eps=st.sampled_from([1e-6, 1e-2, 1.0]),
)
def test_05_06_power_and_statistic(row, eps):
    for name, y in ways(row, eps).items():
        assert_close(y, by_hand(row, eps), rtol=1e-12, atol=0, msg=name)


def test_05_06_values():
    for name, y in ways([3.0, 4.0], 0.0).items():
        assert_close(y.tolist(), [0.848528137424, 1.131370849898], rtol=1e-11, atol=0, msg=name)


# 07 · pytorch/pytorch#189581, #155527: eps=None means another number in each dtype and version.
@every_rms_norm
@every_dtype
def test_07_eps_is_the_same_number_in_every_dtype(norm, dtype):
    x = torch.full((64,), 2.0**-10, dtype=dtype)
    rms = norm(64)(x).double().square().mean().sqrt()
    implied = 2.0**-20 * (1 / rms**2 - 1)
    # Near r² = eps / 10 a change of the RMS by one part is a change of eps by 2.2 parts.
    assert implied.item() == pytest.approx(1e-5, rel=3 * HALF_ULP.get(dtype, 1e-12))


def test_07_nothing_leaves_the_choice_of_eps_to_torch():
    norms = ("nn.RMSNorm", "nn.LayerNorm", "functional.rms_norm", "functional.layer_norm")
    calls, without = 0, []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(norms):
                calls += 1
                given = ast.unparse(node)
                without += [] if "eps" in given.lower() else [(file.name, given)]
    assert calls > 3
    # Where the default itself is the subject.
    assert without == [
        ("precision.py", "torch.nn.functional.rms_norm(x, (2,))"),
        ("precision.py", "torch.nn.functional.rms_norm(row, (2,))"),
    ]


# 08 · huggingface/transformers#30236, google/gemma_pytorch#67: the cast before or after the gain.
@pytest.mark.parametrize("norm", [RMSNorm, FastRMSNorm, ManyRMSNorm, FloorRMSNorm])
@every_half
def test_08_one_rounding_and_the_dtype_of_x(norm, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 64, generator=generator).to(dtype)
    layer = norm(64, 0.0)
    with torch.no_grad():
        layer.scale.copy_(1 + 0.3 * torch.randn(64, generator=generator))
    y, right = layer(x), by_hand(x, 0.0) * layer.scale.double()
    assert y.dtype == dtype
    assert ((y.double() - right) / right).abs().max() <= HALF_ULP[dtype] * 1.001
    assert torch.equal(y, rms_norm(x.float(), (64,), layer.scale, 0.0).to(dtype))
    rounded_twice = (by_hand(x, 0.0).to(dtype) * layer.scale.to(dtype)).to(dtype)
    assert not torch.equal(y, rounded_twice)


# 09 · huggingface/transformers#40224, NVIDIA's and litgpt's 1 + weight in the weight's dtype.
def test_09_a_gain_that_is_an_offset_from_one():
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert torch.equal(OffsetRMSNorm(2).double()(x), RMSNorm(2).double()(x))  # as they start
    with torch.no_grad():
        for offset, gain in ((15.8125, 16.8125), (0.0025, 1.0025)):
            layer = OffsetRMSNorm(2, 0.0).to(torch.bfloat16)
            layer.offset.fill_(offset)
            held = layer.offset[0].item()  # 0.0025 itself is rounded by bfloat16
            assert held == pytest.approx(offset, rel=2**-8)
            assert layer(torch.ones(2)).tolist() == [1 + held] * 2
            assert 1 + held == pytest.approx(gain, abs=1e-5)


# 10 · bkitano/llama-from-scratch#4, patrick-kidger/equinox#471: a norm over positions too.
@every_norm
def test_10_a_position_knows_nothing_of_another(norm):
    x = torch.tensor([[[3.0, 4.0], [30.0, 40.0]]], dtype=torch.float64)  # as many positions as D
    layer = norm(2, 0.0).double()
    later = x.clone()
    later[0, 1] *= 10
    assert torch.equal(layer(x)[0, 0], layer(later)[0, 0])
    assert torch.equal(layer(x)[0, 0], layer(x[0, 0]))
    if norm in RMS_NORMS:
        assert_close(layer(x)[0].tolist(), [[0.848528137424, 1.131370849898]] * 2)


# 12 · tenstorrent/tt-metal#55585: the zero row, forward and backward.
@pytest.mark.parametrize("norm", [RMSNorm, FastRMSNorm, ManyRMSNorm, FloorRMSNorm])
@pytest.mark.parametrize(
    ("eps", "slopes"),
    [(1e-5, [316.227766, 632.455532]), (1e-6, [1000, 2000]), (2**-23, [2896.309376, 5792.618751])],
)
def test_12_a_zero_row_multiplies_its_gradient(norm, eps, slopes):
    layer = norm(2, eps).double()
    with torch.no_grad():
        layer.scale.copy_(torch.tensor([1.0, 2.0]))
    x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.tolist() == [[0, 0]] and layer.scale.grad.tolist() == [0, 0]
    assert_close(x.grad[0].tolist(), [float(s) for s in slopes], rtol=1e-8, atol=0)


# 14 · pytorch/pytorch#101967: infinity and NaN, and that they stay where they are.
@every_rms_norm
def test_14_infinity_and_nan_stay_in_their_row(norm):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[inf, 1, 2], [nan, 1, 2], [3, 4, 5]], requires_grad=True)
    y = norm(3)(x)
    assert y[0, 0].isnan() and y[0, 1:].tolist() == [0, 0] and y[1].isnan().all()
    assert torch.equal(y[2], norm(3)(torch.tensor([3.0, 4, 5])))
    y[2].sum().backward()
    assert x.grad[2].isfinite().all()


# 16 · the commonest slip, torch.tensor([3, 4]): whole numbers have no mean, and int8 wraps.
@every_norm
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_16_whole_numbers_are_refused_with_the_remedy(norm, dtype):
    with pytest.raises(ValueError, match=r"floating-point numbers, got torch\..*write 3\.0 for 3"):
        norm(2)(torch.ones(2, dtype=dtype))


# 17 · tinygrad/tinygrad#6799: shapes that broadcast without a word.
@every_norm
@pytest.mark.parametrize("shape", [(2, 1), (4, 2, 1), (), (1,), (4, 3), (2, 8), (0,)])
def test_17_another_width_is_refused(norm, shape):
    got = "[" + ", ".join(map(str, shape)) + "]"
    with pytest.raises(ValueError) as refused:
        norm(4)(torch.ones(shape))
    assert f"expected [..., 4], got {got}" in str(refused.value)


@every_rms_norm
def test_17_the_mean_keeps_its_axis(norm):
    x = torch.arange(1.0, 9).reshape(2, 2, 2).double()  # without keepdim this runs, and is wrong
    assert_close(norm(2).double()(x), by_hand(x, 1e-5))


# 21 · ggml-org/llama.cpp#173: LayerNorm where RMSNorm is meant.
def test_21_the_two_norms_are_two():
    x = torch.tensor([1.0, 2, 3, 4], dtype=torch.float64)
    rms, layer = NORMS["rms"](4).double(), NORMS["layer"](4).double()
    assert_close(rms(x).tolist(), [0.365148, 0.730296, 1.095444, 1.460593], rtol=0, atol=1e-6)
    assert_close(layer(x).tolist(), [-1.341635, -0.447212, 0.447212, 1.341635], rtol=0, atol=1e-6)
    assert torch.equal(LayerNorm(2)(torch.tensor([5.0, 5])), torch.zeros(2))
    assert RMSNorm(2)(torch.tensor([5.0, 5])).tolist() == pytest.approx([1, 1], abs=1e-6)
    assert LayerNorm(2)(torch.tensor([100.0, -7])).tolist() == pytest.approx([1, -1], abs=1e-6)


@settings(max_examples=30)
@given(seed=st.integers(0, 999), width=st.integers(2, 40), offset=st.floats(-50, 50))
def test_21_23_layer_norm_is_rms_norm_of_the_centred_row(seed, width, offset):
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(seed)).double() + offset
    y = LayerNorm(width).double()(x)
    assert_close(y, by_hand(x - x.mean(-1, keepdim=True), 1e-5), rtol=0, atol=1e-9)
    assert_close(y, layer_norm(x, (width,), eps=1e-5), rtol=0, atol=1e-9)


# 22 · ggml-org/llama.cpp#2373: an eps that is not the checkpoint's.
@pytest.mark.parametrize(
    ("mean_square", "ratio"),
    [
        (1, 1.0000045),
        (1e-2, 1.00045),
        (1e-3, 1.0045),
        (1e-4, 1.0436),
        (1e-5, 1.3484),
        (1e-6, 2.3452),
    ],
)
@every_rms_norm
def test_22_what_another_eps_does(norm, mean_square, ratio):
    x = torch.full((8,), mean_square**0.5, dtype=torch.float64)
    got = norm(8, 1e-6).double()(x) / norm(8, 1e-5).double()(x)
    assert got[0].item() == pytest.approx(ratio, rel=5e-5)


@pytest.mark.parametrize("norm", NORMS)
def test_22_one_eps_reaches_every_norm_of_a_model(norm):
    model = TinyLM(ModelConfig(n_layers=2, norm=norm, norm_eps=3e-4))
    found = [m.eps for m in model.modules() if type(m) is NORMS[norm]]
    assert len(found) == 5 and set(found) == {3e-4}


# 23 · harvardnlp/annotated-transformer#119: the deviation over D - 1, and eps added to it.
def test_23_layer_norm_divides_by_d():
    y = LayerNorm(4).double()(torch.tensor([1.0, 0, 0, 0], dtype=torch.float64))
    assert_close(y.tolist(), [1.7320046] + [-0.5773349] * 3, rtol=0, atol=1e-6)


# 27 · pytorch/pytorch#158699: compiled and eager are both right, not equal to the bit.
@pytest.mark.parametrize("norm", [RMSNorm, FastRMSNorm, LayerNorm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_27_traced_by_the_compiler_it_is_as_near_to_the_truth(norm, dtype):
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    right = norm(64).double()(x.double())
    compiled = torch.compile(norm(64), backend="aot_eager")  # the kernels need a C++ compiler
    for way in (norm(64), compiled):
        assert_close(way(x).double(), right, rtol=HALF_ULP[dtype] * 8, atol=1e-7)


# 48 · the numbers that lessons on this subject print.
def test_48_printed_numbers():
    y = plain.rms_norm([2.5, -1.8, 4.2, 0.5], eps=1e-6)
    assert [round(v, 10) for v in y] == [0.9555496345, -0.6879957368, 1.6053233860, 0.1911099269]
    assert round(plain.rms(y), 8) == 0.99999993  # and not y[0], which one page prints as the RMS
    one, ten = (torch.tensor(plain.rms_norm(v, eps=1e-5)).double() for v in ([3, 4], [30, 40]))
    assert_close((ten - one).tolist(), [3.3601694e-7, 4.4802259e-7], rtol=0.2, atol=0)
    exact = [
        b - a for a, b in zip(*(plain.rms_norm(v, eps=1e-6) for v in ([3, 4], [6, 8])), strict=True)
    ]
    assert exact == pytest.approx([2.54558422135e-8, 3.39411229514e-8], rel=1e-7)
    for value, out in ((5.0, 0.9999998), (0.001, 0.301511), (-2.0, -0.9999988)):
        assert plain.rms_norm([value], eps=1e-5)[0] == pytest.approx(out, abs=5e-7)


@every_rms_norm
@pytest.mark.parametrize(
    ("size", "rms"), [(1e-3, 0.301511), (1e-2, 0.953463), (0.1, 0.999500), (1.0, 0.999995)]
)
def test_48_rms_of_the_output_by_size(norm, size, rms):
    x = torch.full((16,), size, dtype=torch.float64)
    assert norm(16).double()(x).square().mean().sqrt().item() == pytest.approx(rms, abs=5e-7)


# 49 · the Jacobian of RMSNorm.
@every_rms_norm
def test_49_jacobian(norm):
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)

    def jacobian(eps):
        return torch.autograd.functional.jacobian(norm(2, eps).double(), x)

    right = [[0.18101934, -0.13576450], [-0.13576450, 0.10182338]]
    assert_close(jacobian(0.0).tolist(), right, rtol=0, atol=5e-9)
    assert_close(
        torch.linalg.eigvalsh(jacobian(0.0)).tolist(), [0.0, 0.28284271], rtol=0, atol=5e-9
    )
    assert_close((jacobian(1e-5) @ x).tolist(), [6.788217e-7, 9.050956e-7], rtol=1e-6, atol=0)
