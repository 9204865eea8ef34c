"""variants/norms.py: each norm against a computation that shares nothing with it."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize, rms_norm

from tiny_lm.layers import NORMS, RMSNorm
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.variants import norms

NEW = [norms.PureRMSNorm, norms.OffsetRMSNorm, norms.FloorRMSNorm, norms.DynamicTanh]
EPS = 1e-3
each = pytest.mark.parametrize("norm", NEW)


def drawn(norm, width=6, eps=EPS, seed=0):
    """A norm in float64 whose every parameter is drawn."""
    layer, generator = norm(width, eps=eps).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return layer


def rows(seed=1, width=6):
    """Rows of very different sizes: above the eps, near it, far below, and zero."""
    x = torch.randn(5, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x * torch.tensor([100.0, 1.0, sqrt(EPS), 1e-4, 0.0], dtype=torch.float64)[:, None]


def by_other_means(layer, x):
    """The same with PyTorch's norms, or its normalize, or exponentials."""
    width = (x.shape[-1],)
    match layer:
        case norms.PureRMSNorm():
            return rms_norm(x, width, eps=EPS)
        case norms.OffsetRMSNorm():
            return rms_norm(x, width, 1 + layer.offset, eps=EPS)
        case norms.FloorRMSNorm():
            root = sqrt(x.shape[-1])
            return normalize(x, dim=-1, eps=sqrt(EPS) * root) * root * layer.scale
        case norms.DynamicTanh():
            return layer.scale * (1 - 2 / (1 + torch.exp(2 * layer.alpha * x))) + layer.shift


@each
def test_forward_and_backward_by_other_means(norm):
    layer, x = drawn(norm), rows()
    if norm is norms.FloorRMSNorm:
        x = x[:-1]  # at 0 normalize has no slope of its own; its own test is below
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = layer(ours), by_other_means(layer, theirs)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-13)
    weights = rows(seed=2)[: len(x)] + 1
    parameters = list(layer.parameters())
    given = torch.autograd.grad((y * weights).sum(), [ours, *parameters])
    asked = torch.autograd.grad((wanted * weights).sum(), [theirs, *parameters])
    for g, a in zip(given, asked, strict=True):
        torch.testing.assert_close(g, a, rtol=1e-10, atol=1e-11)


@each
def test_gradients_against_central_differences(norm):
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.autograd.gradcheck(drawn(norm, 4), x.requires_grad_())


def test_dynamic_tanh_in_numpy_with_its_slope_by_hand():
    layer, x = drawn(norms.DynamicTanh), rows().requires_grad_()
    y = layer(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    alpha, scale, shift, values = (
        t.detach().numpy() for t in (layer.alpha, layer.scale, layer.shift, x)
    )
    np.testing.assert_allclose(y.detach(), scale * np.tanh(alpha * values) + shift, rtol=1e-13)
    by_hand = scale * alpha / np.cosh(np.clip(alpha * values, -300, 300)) ** 2
    np.testing.assert_allclose(slope, by_hand, rtol=1e-9, atol=1e-15)


def test_a_floor_is_exact_above_and_a_straight_line_below():
    layer = norms.FloorRMSNorm(2, eps=1e-4).double()
    x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    unit = x / sqrt(12.5)
    torch.testing.assert_close(layer(x), unit, rtol=1e-15, atol=0)
    torch.testing.assert_close(layer(1000 * x), unit, rtol=1e-15, atol=0)
    small = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(small)[0, 0], small)
    assert slope.tolist() == [[pytest.approx(100.0), 0.0]], "1 / sqrt(eps), as RMSNorm"
    torch.testing.assert_close(layer(1e-6 * x), 1e-4 * x, rtol=1e-12, atol=0)


@each
def test_at_first_each_is_what_it_departs_from(norm):
    """RMSNorm, but for rows near the floor; tanh(x / 2) for DyT."""
    layer, x = norm(6, eps=1e-5).double(), rows()[:2]
    wanted = RMSNorm(6, eps=1e-5).double()(x)
    if norm is norms.DynamicTanh:
        wanted = torch.tanh(x / 2)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-4, atol=1e-7)


@each
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.lists(st.integers(0, 3), max_size=3))
def test_any_leading_axes_and_any_width(norm, width, leading):
    layer = norm(width)
    x = torch.randn(*leading, width)
    assert layer(x).shape == x.shape and layer(x).dtype == x.dtype


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(norm, dtype):
    """300² does not fit into float16; the result is that of float64, rounded once."""
    layer, x = norm(4), torch.tensor([[300.0, -400.0, 2.0, 0.5]], dtype=dtype)
    exact = by_other_means_at(norm, x.double())
    assert layer(x).dtype == dtype
    torch.testing.assert_close(
        layer(x).double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).tiny
    )


def by_other_means_at(norm, x):
    layer = norm(x.shape[-1], eps=EPS).double()
    return by_other_means(layer, x) if norm is norms.DynamicTanh else RMSNorm(4, 1e-5).double()(x)


def test_the_offset_is_added_in_float32_also_in_a_bfloat16_model():
    """In bfloat16 1 + 0.0025 is 1."""
    layer = norms.OffsetRMSNorm(2, eps=0.0).bfloat16()
    with torch.no_grad():
        layer.offset += 0.0025
    y = layer(torch.tensor([3.0, 4.0]))  # float32 rows, to see the gain
    offset = float(layer.offset.detach()[0])
    assert y.tolist() == pytest.approx(
        [3 / sqrt(12.5) * (1 + offset), 4 / sqrt(12.5) * (1 + offset)]
    )
    assert 0.002 < offset < 0.003


@each
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda norm: norm(4)(torch.ones(2, 5)), "expected [..., 4], got [2, 5]"),
        (lambda norm: norm(4)(torch.ones(4).long()), "expected floating-point numbers, got torch"),
    ],
)
def test_errors_name_the_norm(norm, call, message):
    with pytest.raises(ValueError) as caught:
        call(norm)
    assert str(caught.value).startswith(f"{norm.__name__}: {message}")


@each
def test_only_what_a_norm_names_is_learned(norm):
    names = {n for n, _ in norm(3).named_parameters()}
    assert (
        names
        == {
            norms.PureRMSNorm: set(),
            norms.OffsetRMSNorm: {"offset"},
            norms.FloorRMSNorm: {"scale"},
            norms.DynamicTanh: {"alpha", "scale", "shift"},
        }[norm]
    )
    assert all(p.ndim == 1 for p in norm(3).parameters()), "nothing decays"


@pytest.mark.parametrize("name", NORMS)
def test_a_config_puts_the_norm_everywhere(name):
    model = TinyLM(ModelConfig(norm=name, vocab_size=7, d_model=8, n_layers=2, norm_eps=0.25))
    everywhere = [n for block in model.blocks for n in (block.norm1, block.norm2)]
    for norm in [*everywhere, model.norm_final]:
        assert type(norm) is NORMS[name] and norm.eps == 0.25
