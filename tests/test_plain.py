"""plain.py against exact fractions, correctly rounded sums and the numbers of the lessons."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tiny_lm.plain import residual_add, rms, rms_norm

modest = settings(deadline=None, max_examples=60, derandomize=True)

# Squares of these neither overflow nor vanish, so relative error is the right yardstick.
numbers = st.floats(1e-100, 1e100) | st.floats(-1e100, -1e-100) | st.just(0.0)
vectors = st.lists(numbers, min_size=1, max_size=40)
# The formula is compared here, not what happens at the smallest floats there are.
entries = st.floats(1e-6, 1e3) | st.floats(-1e3, -1e-6) | st.just(0.0)
ordinary = st.lists(entries, min_size=1, max_size=40).filter(lambda x: max(map(abs, x)) > 1e-3)


def exact_mean_square(x):
    return sum((Fraction(value) ** 2 for value in x), Fraction()) / len(x)


def close(expected, digits=1e-12):
    return pytest.approx(expected, rel=digits, abs=0)


@modest
@given(vectors)
def test_rms_is_the_root_of_the_exact_mean_square(x):
    exact = exact_mean_square(x)
    # D sums of squares, none negative: at most D + 2 roundings of half an ulp, 1.1e-16 each.
    assert rms(x) == pytest.approx(float(exact) ** 0.5, rel=(len(x) + 4) * 1.2e-16, abs=0)


@modest
@given(vectors)
def test_rms_agrees_with_a_correctly_rounded_sum(x):
    expected = math.sqrt(math.fsum(value * value for value in x) / len(x))
    assert rms(x) == pytest.approx(expected, rel=(len(x) + 4) * 1.2e-16, abs=0)


def test_rms_of_3_4():
    assert rms([3, 4]) == close(3.5355339059327378, 1e-15)
    assert rms([30, 40]) == close(35.355339059327378, 1e-15)
    assert rms([13, 14]) == close(13.509256086106296, 1e-15)
    assert rms([3, -3]) == 3  # the mean of these is 0: squares do not cancel
    assert rms([2.5, -1.8, 4.2, 0.5]) == close(2.6162951, 1e-7)


def test_rms_divides_by_the_entries_of_the_vector():
    assert rms([5]) == rms([5] * 7) == 5
    assert rms([0, 0, 0]) == 0


@modest
@given(ordinary)
@example([3.0, 4.0])
@example([1e-3, 0.0])
def test_rms_norm_against_fractions(x):
    gamma = [1 + index / 8 for index in range(len(x))]
    denominator = float(exact_mean_square(x) + Fraction(1e-5)) ** 0.5
    expected = [g * value / denominator for g, value in zip(gamma, x, strict=True)]
    assert rms_norm(x, gamma, eps=1e-5) == pytest.approx(expected, rel=1e-13, abs=0)


@modest
@given(ordinary, st.floats(1e-3, 1e3), st.sampled_from([0.0, 1e-6, 1e-5, 1.0]))
def test_scale_law(x, c, eps):
    """RMSNorm(c·x; eps) = RMSNorm(x; eps / c²)."""
    scaled = rms_norm([c * value for value in x], eps=eps)
    assert scaled == pytest.approx(rms_norm(x, eps=eps / c**2), rel=1e-12, abs=0)


@modest
@given(ordinary)
def test_without_eps_the_rms_of_the_result_is_one(x):
    y = rms_norm(x, eps=0)
    assert rms(y) == close(1, 1e-13)
    # One common divisor: ratios and signs are kept, so y_i · x_0 = y_0 · x_i.
    for value, out in zip(x, y, strict=True):
        assert out * x[0] == pytest.approx(y[0] * value, rel=1e-12, abs=0)


@modest
@given(ordinary, st.floats(1e-12, 1e3))
def test_rms_of_the_result_with_eps(x, eps):
    r = rms(x)
    assert rms(rms_norm(x, eps=eps)) == close(r / math.sqrt(r * r + eps))


@modest
@given(ordinary, st.randoms(use_true_random=False))
def test_order_and_sign_of_the_coordinates(x, random):
    order = list(range(len(x)))
    random.shuffle(order)
    y = rms_norm(x)
    assert rms_norm([x[i] for i in order]) == close([y[i] for i in order])
    assert rms_norm([-value for value in x]) == [-value for value in y]


def test_eps_stands_inside_the_root():
    """C03: outside it would give 0.8485257374 and, on small numbers, 0.8461349."""
    assert rms_norm([3, 4], eps=0) == close([0.8485281374238570, 1.1313708498984760], 1e-15)
    assert rms_norm([3, 4], eps=1e-5) == close([0.84852779801, 1.13137039735], 1e-11)
    assert rms_norm([3e-3, 4e-3], eps=1e-5) == close([0.6324555320, 0.8432740427], 1e-9)
    assert rms_norm([3e-6, 4e-6], eps=1e-5) == close([9.486827e-4, 1.2649103e-3], 1e-7)


def test_no_shortcut_of_the_formula():
    """C05, C06: multiplied by the RMS, squared, the L2 norm and mean |x| all give other numbers."""
    assert rms_norm([3, 4]) == close([0.8485281035, 1.1313708046], 1e-9)
    assert rms_norm([1, 2, 3, 4], eps=1e-5) == close([0.365148, 0.730296, 1.095444, 1.460593], 1e-6)
    assert rms_norm([5, 5], eps=1e-6) == close([0.99999998, 0.99999998], 1e-12)  # no centring
    assert rms_norm([13, 14], eps=0) == close([0.9623031733, 1.0363264943], 1e-9)


def test_numbers_printed_in_the_lessons():
    """C48: the demo's vector, the glass-box difference and one number alone."""
    y = rms_norm([2.5, -1.8, 4.2, 0.5], [1.0] * 4, eps=1e-6)
    assert y == close([0.9555496345, -0.6879957368, 1.6053233860, 0.1911099269], 1e-9)
    assert rms(y) == close(0.999999926954, 1e-12)
    small, large = rms_norm([3, 4], eps=1e-5), rms_norm([30, 40], eps=1e-5)
    difference = [b - a for a, b in zip(small, large, strict=True)]
    # Two numbers near 1 are subtracted: each carries 1e-16, so 3e-7 keeps nine digits.
    assert difference == close([3.3601694e-7, 4.4802259e-7], 1e-7)
    doubled = rms_norm([6, 8], eps=1e-6)
    difference = [b - a for a, b in zip(rms_norm([3, 4], eps=1e-6), doubled, strict=True)]
    assert difference == close([2.54558422e-8, 3.39411230e-8], 1e-8)
    assert rms_norm([5], eps=1e-6) == close([0.99999998], 1e-9)
    assert rms_norm([0.001], eps=1e-5) == close([0.30151134], 1e-7)
    assert rms_norm([-2], eps=1e-5)[0] < 0


def test_default_eps_is_1e_6_and_gamma_ones():
    assert rms_norm([0.001]) == rms_norm([0.001], [1.0], eps=1e-6) == close([0.5**0.5], 1e-12)


def test_zero_vector():
    assert rms_norm([0, 0], eps=1e-5) == [0, 0]
    assert rms_norm([0, 0], [7, 9]) == [0, 0]


@modest
@given(ordinary, st.integers(-10, 10))
def test_gamma_multiplies_each_coordinate(x, g):
    gamma = [g + index for index in range(len(x))]
    expected = [a * b for a, b in zip(gamma, rms_norm(x), strict=True)]
    assert rms_norm(x, gamma) == pytest.approx(expected, rel=1e-14, abs=0)


@modest
@given(st.lists(st.tuples(numbers, numbers), max_size=20))
def test_residual_add(pairs):
    x, change = [a for a, _ in pairs], [b for _, b in pairs]
    total = residual_add(x, change)
    assert total == [math.fsum(pair) for pair in pairs]  # one rounding each: exactly equal
    assert residual_add(x, [0.0] * len(x)) == x


def test_zero_branch_doubling_and_negation():
    """The first lesson: nothing added, twice itself added, itself taken away."""
    assert residual_add([3, 4], [0, 0]) == [3, 4]
    assert residual_add([3, 4], [6, 8]) == [9, 12]
    assert residual_add([3, 4], [-3, -4]) == [0, 0]


def test_arguments_are_left_alone():
    """C18: out of place."""
    x, change, gamma = [3.0, 4.0], [1.0, 2.0], [2.0, 2.0]
    for result in (residual_add(x, change), rms_norm(x), rms_norm(x, gamma)):
        assert result is not x and result is not change
        result[0] = 99.0
    rms(x)
    assert (x, change, gamma) == ([3.0, 4.0], [1.0, 2.0], [2.0, 2.0])


def test_tuples_and_lists_give_lists():
    assert rms((3, 4)) == rms([3, 4])
    assert type(rms_norm((3, 4))) is list and type(residual_add((3, 4), (0, 0))) is list


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rms([]), "rms: expected at least one number, got an empty vector"),
        (lambda: rms_norm([]), "rms_norm: expected at least one number, got an empty vector"),
        (lambda: rms_norm([3, 4], [1]), "rms_norm: gamma: expected 2 numbers, got 1"),
        (lambda: rms_norm([3], [1, 1]), "rms_norm: gamma: expected 1 numbers, got 2"),
        (lambda: rms_norm([3, 4], eps=-1e-5), "rms_norm: expected eps >= 0, got -1e-05"),
        (lambda: rms_norm([3, 4], eps=math.nan), "rms_norm: expected eps >= 0, got nan"),
        (
            lambda: rms_norm([0, 0], eps=0),
            "rms_norm: expected a mean square above 0 when eps is 0, got 0 (use eps > 0)",
        ),
        (lambda: residual_add([3, 4], [1]), "residual_add: change: expected 2 numbers, got 1"),
        (lambda: residual_add([], [1]), "residual_add: change: expected 0 numbers, got 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
