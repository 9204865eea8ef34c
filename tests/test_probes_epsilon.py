"""Chapter 03: the numbers behind epsilon, what its pictures draw, and the red zones of its lab."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.plots.epsilon import LawPicture, PartsPicture, PlacesPicture
from tiny_lm.plots.precision import FormatsPicture, LaboratoryPicture
from tiny_lm.probes.epsilon import (
    OUTPUTS,
    PLACES,
    floor,
    inside,
    law,
    none,
    output_rms,
    outside,
    parts,
    places,
    rows_gradient,
    size_for,
)
from tiny_lm.probes.precision import (
    DTYPES,
    PLAIN,
    TORCH,
    WIDE,
    default_eps,
    formats,
    laboratory,
    steadiness,
)
from tiny_lm.widgets.epsilon import laboratory as laboratory_lab

DIGITS = 1e-12  # float64: a dozen roundings of 1e-16
near = pytest.approx


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def gradient_at_zero(norm, arriving=(1.0, 0.0), dtype=torch.float64):
    x = torch.zeros(2, dtype=dtype, requires_grad=True)
    (dx,) = torch.autograd.grad(norm(x), x, torch.tensor(arriving, dtype=dtype))
    return dx.tolist()


# The law


@pytest.mark.parametrize(
    ("size", "expected"), [(1e-3, 0.301511), (1e-2, 0.953463), (1e-1, 0.999500), (1, 0.999995)]
)
def test_the_law_is_what_the_layer_does(size, expected):
    x = size * double(1, -1, 1, -1)
    measured = RMSNorm(4, eps=1e-5).double()(x).square().mean().sqrt().item()
    assert output_rms(size, 1e-5) == near(expected, abs=5e-7)
    assert measured == near(output_rms(size, 1e-5), rel=DIGITS)
    assert law(1e-5, size).output == output_rms(size, 1e-5)


def test_landmarks():
    found = law(1e-5, 1.0)
    assert found.half == near(0.0018257, abs=5e-8) and found.half == near(math.sqrt(1e-5 / 3))
    assert found.root == near(0.0031623, abs=5e-8) and found.root == near(math.sqrt(1e-5))
    assert found.nearly == near(0.0221926, abs=5e-8)
    assert found.nearly / math.sqrt(1e-5) == near(7.018, abs=5e-4)
    for output in (0.01, 0.5, 0.99):
        assert output_rms(size_for(output, 1e-6), 1e-6) == near(output, rel=DIGITS)


def test_ordinary_rows_hardly_notice():
    small = RMSNorm(2).double()(double(3, 4))
    large = RMSNorm(2).double()(double(30, 40))
    assert small.tolist() == near([0.8485277980, 1.1313703974], abs=5e-11)
    # Differences of numbers near 1, each 1e-16 off.
    assert (large - small).tolist() == near([3.3601694e-7, 4.4802259e-7], abs=1e-14)
    norm = RMSNorm(2, eps=1e-6).double()
    change = norm(double(6, 8)) - norm(double(3, 4))
    assert change.tolist() == near([2.54558422e-8, 3.39411230e-8], abs=1e-15)


def test_the_law_picture_draws_the_law():
    picture = LawPicture(law(1e-5, 1e-2))
    for eps, size in ((1e-5, 1e-2), (1e-2, 3.0)):
        words = picture.show(law(eps, size))
        for r, y in zip(*picture.curve.get_data(), strict=True):
            assert y == near(r / math.sqrt(r * r + eps), rel=DIGITS)
        at = [mark.get_xdata()[0] for mark in picture.marks]
        assert at == near([math.sqrt(eps / 3), math.sqrt(eps), 7.0179 * math.sqrt(eps)], rel=1e-4)
        assert [mark.get_ydata()[0] for mark in picture.marks] == near([0.5, 0.5**0.5, 0.99])
        assert picture.point.get_ydata()[0] == near(output_rms(size, eps))
        assert f"{output_rms(size, eps):.4g}" in words
        # The names stand left of their marks and above the curve, clear of the dotted line.
        for label, mark in zip(picture.labels, picture.marks, strict=True):
            (x, y), (at,) = label.get_position(), mark.get_xdata()
            assert label.get_ha() == "right" and x < at and y > output_rms(at, eps)


# Backwards


@pytest.mark.parametrize(
    ("eps", "expected"), [(1e-5, 316.2277660), (1e-6, 1000.0), (2.0**-23, 2896.309376)]
)
def test_a_zero_row_multiplies_its_gradient(eps, expected):
    assert parts(eps, 1.0).at_zero == near(expected, rel=1e-7)
    assert gradient_at_zero(lambda x: inside(x, eps)) == near([expected, 0], rel=1e-7)
    (length,) = rows_gradient(torch.zeros(1, 4).double(), torch.ones(1, 4).double(), eps)
    assert length == near(2 * expected, rel=1e-7)


def test_a_padded_row_outweighs_the_others_unless_masked():
    x = torch.ones(8, 64, dtype=torch.float64)
    x[:, ::2], x[7] = -1.0, 0.0
    arriving = torch.ones_like(x)
    lengths = rows_gradient(x, arriving, eps=1e-5)
    assert lengths[0] == near(8 / math.sqrt(1 + 1e-5), rel=DIGITS)
    assert lengths[7] == near(8 * 316.2277660, rel=1e-9)
    arriving[7] = 0
    assert rows_gradient(x, arriving, eps=1e-5)[7] == 0
    assert math.isnan(rows_gradient(x, arriving, 1e-5, "outside")[7])


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e-5**0.5, 1e-2, 1.0, 1e3])
def test_factors_across_and_along(size):
    found, square = parts(1e-5, size), size * size + 1e-5
    # The part along x is a small difference of large ones: 1e-16 of the part across.
    rounding = 1e-15 * found.across
    assert found.across == near(square**-0.5, rel=DIGITS)
    assert found.along == near(1e-5 * square**-1.5, rel=1e-9, abs=rounding)
    assert found.share == near(1e-5 / square, rel=1e-9, abs=1e-15)
    assert found.share == near(1 - output_rms(size, 1e-5) ** 2, rel=1e-9, abs=1e-15)
    angle = math.degrees(math.atan2(found.across, found.along))
    assert found.angle == near(angle) and 45 <= found.angle <= 90


def test_the_radial_identity():
    """x·∂L/∂x = (y·∂L/∂y) · eps / (mean(x²) + eps)."""
    base, gain, dy = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    for size, eps in itertools.product((1e-4, 1e-2, 1.0), (0.0, 1e-5)):
        x = (size * base).requires_grad_()
        y = gain * inside(x, eps)
        (dx,) = torch.autograd.grad(y, x, dy)
        mean_square = x.square().mean()
        expected = (y @ dy) * eps / (mean_square + eps)
        assert (x @ dx).item() == near(expected.item(), rel=1e-9, abs=1e-13)
        if eps == 0:  # at a right angle
            assert abs(x @ dx) < 1e-13 * x.norm() * dx.norm()


def test_the_parts_picture_draws_both_factors():
    picture = PartsPicture(parts(1e-5, 1e-2))
    for eps, size in ((1e-5, 1e-2), (1e-2, 1e-6)):
        picture.show(parts(eps, size))
        for r, across in zip(*picture.across.get_data(), strict=True):
            assert across == near((r * r + eps) ** -0.5, rel=DIGITS)
        for r, along in zip(*picture.along.get_data(), strict=True):
            assert along == near(eps * (r * r + eps) ** -1.5, rel=DIGITS)
        x, y = picture.returned.get_data()
        assert math.degrees(math.atan2(y[1], x[1])) - 45 == near(parts(eps, size).angle)


def test_finite_differences_need_a_step_below_the_root_of_eps():
    x = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    passes = [
        torch.autograd.gradcheck(
            RMSNorm(4, eps=eps).double().requires_grad_(False), x, raise_exception=False
        )
        for eps in (1e-5, 1e-12)
    ]
    assert passes == [True, False]


# Where epsilon stands


@pytest.mark.parametrize(
    ("row", "place", "expected"),
    [
        ([3, 4], inside, [0.8485277980, 1.1313703974]),
        ([3, 4], outside, [0.8485257374, 1.1313676499]),
        ([3, 4], floor, [0.8485281374, 1.1313708499]),
        ([3e-3, 4e-3], inside, [0.6324555320, 0.8432740427]),
        ([3e-3, 4e-3], outside, [0.8461349065, 1.1281798753]),
        ([3e-3, 4e-3], floor, [0.8485281374, 1.1313708499]),
        ([3e-6, 4e-6], inside, [9.486827051e-4, 1.2649102735e-3]),
        ([3e-6, 4e-6], outside, [0.2216388375, 0.2955184500]),
        ([3e-6, 4e-6], floor, [0.3, 0.4]),
        ([0, 0], inside, [0, 0]),
        ([0, 0], outside, [0, 0]),
        ([0, 0], floor, [0, 0]),
    ],
)
def test_values_by_place(row, place, expected):
    assert place(double(*row), 1e-5).tolist() == near(expected, abs=5e-11)


def test_only_inside_has_a_gradient_at_zero():
    zero = double(0, 0)
    assert inside(zero, 0.0).isnan().all() and none(zero, 1e-5).isnan().all()
    for place in (outside, floor, none):
        for arriving in ((1.0, 0.0), (0.0, 0.0)):  # the second is a masked row
            found = gradient_at_zero(lambda x, place=place: place(x, 1e-5), arriving)
            assert all(map(math.isnan, found)), place
    assert gradient_at_zero(lambda x: inside(x, 1e-5), (0.0, 0.0)) == [0, 0]
    assert all(map(math.isnan, gradient_at_zero(lambda x: inside(x, 0.0))))
    # A floor under the root has one, and pays more than inside does.
    below = gradient_at_zero(
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True).clamp(min=1e-10))
    )
    assert below == near([1e5, 0])
    unit = gradient_at_zero(lambda x: normalize(x, dim=-1) * math.sqrt(2))
    assert unit == near([1.41421356e12, 0], rel=1e-8)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3, 1.0])
def test_places_agree_with_their_formulas(size):
    found = places(1e-5, size)
    for name in ("inside", "outside", "floor"):
        place = getattr(found, name)
        assert place.output == near(OUTPUTS[name](size, 1e-5), rel=DIGITS)
        assert place.slope == near(OUTPUTS[name](size, 1e-5) / size, rel=DIGITS)
        assert place.zero_output == 0
    assert found.inside.zero_slope == near(316.2277660, rel=1e-9)
    assert math.isnan(found.outside.zero_slope) and math.isnan(found.floor.zero_slope)


def test_half_size_by_place():
    assert OUTPUTS["inside"](math.sqrt(1e-5 / 3), 1e-5) == near(0.5)
    assert OUTPUTS["outside"](1e-5, 1e-5) == near(0.5)
    assert OUTPUTS["floor"](5e-6, 1e-5) == near(0.5)


def test_the_places_picture_draws_three_lines_and_two_nans():
    picture = PlacesPicture(places(1e-5, 1e-3))
    picture.show(places(1e-4, 1e-2))
    for k, name in enumerate(("inside", "outside", "floor")):
        output, slope = picture.lines[2 * k : 2 * k + 2]
        for r, y in zip(*output.get_data(), strict=True):
            assert y == near(float(OUTPUTS[name](r, 1e-4)), rel=DIGITS)
        for r, y in zip(*slope.get_data(), strict=True):
            assert y == near(float(OUTPUTS[name](r, 1e-4)) / r, rel=DIGITS)
        assert picture.points[2 * k].get_ydata()[0] == near(float(OUTPUTS[name](1e-2, 1e-4)))
    assert [label.get_visible() for label in picture.nans] == [False] * 3 + [True, False, True]
    assert picture.zeros[1].get_ydata()[0] == near(100.0)


# 16 and 32 bits


def test_float16_squares():
    half = torch.float16
    assert torch.tensor(255.875, dtype=half).square().item() == 65472
    assert torch.tensor(256.0, dtype=half).square().isinf()
    big = torch.tensor([300.0, 400.0], dtype=half)
    assert inside(big, 1e-5).tolist() == [0, 0]
    assert RMSNorm(2)(big).tolist() == [0.8486328125, 1.1318359375]
    squares = torch.full((512,), 200.0, dtype=half).square()
    assert squares[0] == squares.mean() == 40000 and squares.sum().isinf()


@pytest.mark.parametrize(
    ("eps", "stored"),
    [
        (1e-5, 1.0013580322265625e-05),
        (1e-6, 1.0132789611816406e-06),
        (1e-7, 1.1920928955078125e-07),
        (5e-8, 5.960464477539063e-08),
        (1e-8, 0.0),
    ],
)
def test_eps_in_float16(eps, stored):
    assert torch.tensor(eps, dtype=torch.float16).item() == stored
    zero = torch.zeros(2, dtype=torch.float16)
    assert inside(zero, eps).isnan().all() == (stored == 0)
    assert RMSNorm(2, eps=eps)(zero).tolist() == [0, 0]


def test_small_squares_lose_digits_in_float16():
    x = torch.tensor([1e-3, -1e-3], dtype=torch.float16)
    assert inside(x, 1e-6)[0].item() == near(0.70264, abs=5e-6)
    assert RMSNorm(2, eps=1e-6)(x)[0].item() == near(0.70703, abs=5e-6)


def test_float16_fails_backwards_before_it_fails_forwards():
    """Back through 1/root comes its cube: 316³ is above 65504."""
    half = torch.float16
    assert inside(torch.zeros(2, dtype=half), 1e-5).tolist() == [0, 0]
    plain = gradient_at_zero(lambda x: inside(x, 1e-5), (1.0, 1.0), half)
    assert all(map(math.isnan, plain))
    wide = [
        gradient_at_zero(RMSNorm(2, eps=eps), (1.0, 1.0), half)[0] for eps in (1e-5, 1e-8, 1e-10)
    ]
    assert wide == [316.25, 10000.0, math.inf]


def test_bfloat16_swallows():
    sums = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        sums[dtype] = torch.tensor(1.0, dtype=dtype)
        for _ in range(128):
            sums[dtype] = sums[dtype] + 0.003
    assert sums[torch.bfloat16] == 1 and sums[torch.float16] == 1.375
    assert sums[torch.float32].item() == near(1.384, abs=1e-5)
    assert torch.tensor(256.0).bfloat16() + 1 == 256
    assert torch.tensor(1e-12).bfloat16() > 0
    assert (1 + torch.tensor(15.8125).bfloat16()).item() == 16.75
    assert (1 + torch.tensor(0.0025).bfloat16()).item() == 1


def test_formats():
    sixteen, brain, single = formats()
    assert (sixteen.smallest, sixteen.largest) == (2.0**-24, 65504)
    assert sixteen.largest_square == 255.875
    assert sixteen.smallest_square == near(1.7273e-4, rel=1e-4)
    for one, digits in ((brain, 2**-8), (single, 2**-24)):
        assert one.largest == near(2.0**128, rel=2 * digits)
        assert one.largest_square == near(2.0**64, rel=2 * digits)
    assert 1.8e19 < single.largest_square < 3e19
    for one in (sixteen, brain, single):
        edge = torch.tensor([one.smallest_square, one.largest_square], dtype=DTYPES[one.name])
        assert (edge.square() > 0).all() and edge.square().isfinite().all()
        beyond = torch.nextafter(edge, torch.tensor([0.0, math.inf], dtype=edge.dtype)).square()
        assert beyond[0] == 0 and beyond[1].isinf()
    words = FormatsPicture([sixteen, brain, single]).sentence
    assert "65504" in words and "255.9" in words


def test_float32_ends_too():
    assert RMSNorm(2)(torch.tensor([3e19, 0.0])).tolist() == [0, 0]
    assert RMSNorm(2)(torch.tensor([1.8e19, 0.0])).tolist() == near([2**0.5, 0])
    assert RMSNorm(2, eps=0)(torch.full((2,), 1e-23)).isinf().all()
    assert RMSNorm(2)(torch.full((2,), 1e-23)).isfinite().all()


# The laboratory


def zone(curve, size):
    """The kind of red zone that a size lies in; empty for none."""
    found = [kind for kind, low, high in curve.zones if low <= size <= high]
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("setting", "kind", "reason"),
    [
        ((1e-5, 300.0, "float16", "inside", PLAIN), "0", "square is Inf in float16"),
        ((1e-5, 1e20, "float32", "inside", PLAIN), "0", "square is Inf in float32"),
        ((1e-5, 1e20, "bfloat16", "inside", WIDE), "0", "square is Inf in float32"),
        ((1e-5, 1e-5, "float16", "left out", PLAIN), "Inf", "square is 0 in float16"),
        ((1e-8, 1e-5, "float16", "inside", PLAIN), "Inf", "square is 0 in float16"),
        ((1e-5, 1e5, "float16", "inside", WIDE), "NaN", "the input itself is Inf in float16"),
        ((1e-5, 1e-4, "float16", "outside", PLAIN), "off", "too small for float16"),
        ((1e-5, 1.0, "float16", "inside", PLAIN), "", ""),
        ((1e-5, 300.0, "float16", "inside", WIDE), "", ""),
        ((1e-12, 1e20, "float64", "left out", PLAIN), "", ""),
    ],
)
def test_every_red_zone_of_the_output_is_found_and_named(setting, kind, reason):
    found = laboratory(*setting)
    assert zone(found.output, setting[1]) == kind
    assert (reason in found.reason) if reason else found.reason == ""
    here = found.output.here
    if kind == "0":
        assert here == 0
    elif kind == "Inf":
        assert here == math.inf
    elif kind == "NaN":
        assert math.isnan(here)
    elif kind == "off":
        assert here == near(10, rel=0.01) and found.law_here == near(1 / 1.1)
    else:
        assert here == near(found.law_here, rel=1e-3)


@pytest.mark.parametrize(
    ("setting", "output", "slope", "reason"),
    [
        ((1e-5, 1.0, "float64", "inside", PLAIN), 0, 316.2277660, ""),
        ((1e-5, 1.0, "float16", "inside", WIDE), 0, 316.2277660, ""),
        ((1e-5, 1.0, "float64", "outside", PLAIN), 0, math.nan, "the root's slope at 0"),
        ((1e-5, 1.0, "float32", "floor", WIDE), 0, math.nan, "the root's slope at 0"),
        ((1e-5, 1.0, "float64", "left out", PLAIN), math.nan, math.nan, "0 / 0"),
        ((1e-8, 1.0, "float16", "inside", PLAIN), math.nan, math.nan, "eps itself is 0"),
        ((1e-5, 1.0, "float16", "inside", PLAIN), 0, math.nan, "intermediate product is Inf"),
        ((1e-12, 1.0, "float16", "inside", WIDE), 0, math.inf, "more than float16 can hold"),
    ],
)
def test_every_way_the_zero_vector_fails_is_named(setting, output, slope, reason):
    found = laboratory(*setting)
    assert found.output.zero == near(output, nan_ok=True)
    assert found.slope.zero == near(slope, rel=1e-3, nan_ok=True)  # three digits of float16
    assert (reason in found.zero_reason) if reason else found.zero_reason == ""


def test_in_64_bits_the_laboratory_is_the_law():
    for place in PLACES:
        found = laboratory(1e-5, 1e-3, "float64", place, PLAIN)
        assert not found.output.zones and not found.slope.zones
        assert found.output.values == near(found.law, rel=1e-9)
        assert found.slope.values == near(
            [y / x for x, y in zip(found.sizes, found.law, strict=True)], rel=1e-9
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_epsilon_inside_and_float32_inside_is_safe(dtype):
    """Only an input that is Inf already (float16) or cannot be squared (the others) is left."""
    found = laboratory(1e-5, 1.0, dtype, "inside", WIDE)
    edge = {"float16": 6e4, "float64": 1e30}.get(dtype, 1e19)
    assert all(low > edge for _, low, _ in found.output.zones + found.slope.zones)
    assert found.zero_reason == "" and found.output.zero == 0


def test_plain_float16_is_wrong_backwards_where_it_is_right_forwards():
    found = laboratory(1e-5, 1e-2, "float16", "inside", PLAIN)
    assert zone(found.output, 1e-2) == "" and zone(found.slope, 1e-2) == "NaN, Inf"
    assert "intermediate product" in found.reason
    (first, *_) = found.slope.zones
    assert first[2] == near(65504 ** (-1 / 3), rel=0.2)  # eight sizes to a factor of ten
    # Below that edge the zero row's gradient is NaN, every other row's Inf or NaN.
    for size in (1e-4, 1e-3, 1e-2, 0.024):
        x = (size * torch.tensor([0.6, 0.8]) * 2**0.5).half().requires_grad_()
        for arriving in ((1.0, 1.0), (-0.8, 0.6)):
            y = inside(x, 1e-5)
            (dx,) = torch.autograd.grad(y, x, torch.tensor(arriving).half())
            assert y.isfinite().all() and not dx.isfinite().any()


def test_float16_fails_where_its_larger_entry_passes_256():
    good, bad = (laboratory(1e-5, r, "float16", "inside", PLAIN).output.here for r in (226, 227))
    assert good == near(1, rel=1e-3) and bad == 0


def test_the_laboratory_picture_draws_what_is_computed():
    first = (1e-5, 1.0, "float16", "inside", PLAIN)
    picture = LaboratoryPicture(laboratory(*first))
    for setting in (first, (1e-8, 1e-5, "float16", "left out", PLAIN)):
        numbers = laboratory(*setting)
        picture.show(numbers)
        for k, curve in enumerate((numbers.output, numbers.slope)):
            drawn = list(picture.computed[k].get_ydata())
            assert drawn == near(curve.values, nan_ok=True)
            bands = len(picture.zones[k].bands.get_paths())
            assert bands == len(curve.zones) + (not math.isfinite(curve.zero))
        left_out = setting[3] == "left out"
        assert ("eps left out" in picture.sentence) == left_out
        assert ("eps = " in picture.sentence) != left_out
        names = {name.get_text() for name in picture.zones[0].names} - {""}
        assert {kind for kind, _, _ in numbers.output.zones if kind != "off"} <= names


def test_moving_the_laboratory_reaches_every_zone():
    lab, seen = laboratory_lab(), set()
    moves = [
        {"size": 1000.0},
        {"size": 1e-5, "place": "left out"},
        {"size": 1e6},
        {"size": 1e-4, "place": "outside"},
        {"size": 1e20, "dtype": "float32"},
    ]
    for move in moves:
        lab.reset()
        for name, value in move.items():
            lab.controls[name].value = value
        numbers = lab.probe(**lab.values)
        seen.add(zone(numbers.output, lab.values["size"]))
        assert numbers.reason in lab.sentence and lab.error == ""
    assert seen == {"0", "Inf", "NaN", "off"}


# Two libraries, two orders of casts, two norms


@pytest.mark.parametrize(
    ("mean_square", "ratio"),
    [
        (1, 1.0000045),
        (1e-2, 1.00045),
        (1e-3, 1.0045),
        (1e-4, 1.0436),
        (1e-5, 1.3484),
        (1e-6, 2.345),
    ],
)
def test_another_epsilon_matters_for_small_rows_only(mean_square, ratio):
    r = math.sqrt(mean_square)
    assert output_rms(r, 1e-6) / output_rms(r, 1e-5) == near(ratio, rel=1e-4)


def test_four_answers_for_one_small_row():
    row = torch.tensor([3e-4, 4e-4])
    for answer, expected in (
        (RMSNorm(2, eps=1e-5)(row), [0.0943, 0.1257]),
        (RMSNorm(2, eps=1e-6)(row), [0.2828, 0.3771]),
        (nn.RMSNorm(2)(row), [0.6071, 0.8094]),
        (normalize(row, dim=-1) * math.sqrt(2), [0.8485, 1.1314]),
    ):
        assert answer.tolist() == near(expected, abs=5e-5)


def test_the_machine_epsilon_as_eps():
    """torch.nn.RMSNorm's None: of float32 for float32, of float64 for float64."""
    for dtype, r, eps in ((torch.float32, 1e-4, 1.19e-7), (torch.float64, 1e-8, 2.22e-16)):
        x = torch.full((2,), r, dtype=dtype)
        y = nn.RMSNorm(2, dtype=dtype)(x).double().square().mean().item()
        assert r * r / y - r * r == near(eps, rel=2e-3)
    found = [output_rms(0.058, eps) for eps in (2.0**-7, 2.0**-10, 2.0**-23)]
    assert found == near([0.5486, 0.8803, 0.99998], abs=5e-5)


def test_order_of_the_casts():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, generator=generator).bfloat16()
    gain = (1 + 0.1 * torch.randn(4096, generator=generator)).bfloat16()
    after = inside(x.float(), 1e-6).bfloat16() * gain
    before = (inside(x.float(), 1e-6) * gain.float()).bfloat16()
    assert (after != before).sum().item() == near(854, abs=5)  # a tie may fall the other way
    right = inside(x.double(), 1e-6) * gain.double()
    worst = [((y.double() - right) / right).abs().max().item() for y in (before, after)]
    assert worst == near([3.80e-3, 5.44e-3], rel=0.02) and worst[0] < 2**-8 < worst[1]
    norm = RMSNorm(4096, eps=1e-6)
    with torch.no_grad():
        norm.scale.copy_(gain)
    assert torch.equal(norm(x), before)


def test_steadiness():
    zero, hundred, large = (steadiness(mean) for mean in (0.0, 100.0, 1e4))
    for found in (zero, hundred, large):
        assert 2e-8 < found.rms_error < 1.2e-7
    assert zero.layer_error < 1.2e-7
    assert 1e-6 < hundred.layer_error < 1e-5 and 1e-4 < large.layer_error < 1e-3
    assert hundred.signal == near(0.01, rel=0.02) and large.signal == near(1e-4, rel=0.02)


def test_constant_rows_and_one_large_coordinate():
    def factor(norm, x):
        J = torch.autograd.functional.jacobian(norm(8).double(), x)
        return torch.linalg.matrix_norm(J, 2).item()

    ones, zeros = torch.ones(8).double(), torch.zeros(8).double()
    assert factor(RMSNorm, ones) == near(1, rel=1e-5)
    for norm, x in ((LayerNorm, ones), (RMSNorm, zeros), (LayerNorm, zeros)):
        assert factor(norm, x) == near(316.2277660, rel=1e-9)
    x = torch.ones(512, dtype=torch.float64)
    x[::2], x[7] = -1.0, 1e4
    y = RMSNorm(512).double()(x)
    assert y[7].item() == near(math.sqrt(512), rel=1e-4) and y[7] < math.sqrt(512)
    assert y[1].item() == near(0.00226, abs=5e-6)


def test_a_value_beyond_the_axis_stands_at_its_edge_as_an_arrow():
    picture = LaboratoryPicture(laboratory(1e-5, 3e-4, "float16", "inside", PLAIN))
    far = laboratory(1e-6, 10**-3.75, "float16", "outside", PLAIN)
    assert far.output.here > 1.5
    picture.show(far)
    assert picture.here[0].get_marker() == "^" and picture.here[0].get_ydata() == [1.5]
    picture.show(laboratory(1e-5, 1.0, "float16", "inside", PLAIN))
    assert picture.here[0].get_marker() == "o"


@pytest.mark.parametrize("name", DTYPES)
def test_torchs_own_epsilon_is_measured_right(name):
    """Given back to torch, it makes the same numbers at every size."""
    eps = default_eps(DTYPES[name])
    for size in (1e-4, 1e-3, 1e-1, 1.0):
        row = torch.tensor([3 * size, 4 * size], dtype=DTYPES[name])
        ours = nn.functional.rms_norm(row, (2,), eps=eps)
        theirs = nn.functional.rms_norm(row, (2,))
        # measured on one row of the type: good to a few of its last digits
        assert ours.tolist() == near(theirs.tolist(), rel=4 * torch.finfo(DTYPES[name]).eps)


def test_computed_by_torch_the_laboratory_takes_torchs_epsilon():
    first, second = (
        laboratory(eps, 1e-3, "float32", place, TORCH)
        for eps, place in ((1e-5, "inside"), (1.0, "left out"))
    )
    assert first.output == second.output and first.eps == second.eps
    law_at = 1e-3 / math.sqrt(1e-6 + first.eps)
    assert first.output.here == near(law_at, rel=1e-6)
    assert first.law_here == near(law_at, rel=1e-12)
