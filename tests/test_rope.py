"""rope.py against complex numbers in float64, and the laws that make RoPE what it is."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from tiny_lm.rope import apply_rope, rope_angles, rotate

modest = settings(deadline=None, max_examples=30, derandomize=True)
positions_up_to_4096 = st.integers(0, 4096)
widths = st.sampled_from([2, 4, 8, 16])
thetas = st.sampled_from([0.5, 1.5, 10_000.0, 100_000.0])


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def turned(x, positions, theta):
    """RoPE by its definition: pair i is a complex number, turned by t · theta^(−2i/d)."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    d = x.shape[-1]
    speed = torch.tensor([theta ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = positions.double()[:, None] * speed
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def test_angles_of_width_4():
    expected = torch.tensor([[0, 0], [1, 0.01], [3, 0.03]], dtype=torch.float64)
    assert_close(rope_angles(torch.tensor([0, 1, 3]), 4), expected, rtol=1e-15, atol=0)


@modest
@given(positions_up_to_4096, widths, thetas)
def test_angles_by_the_formula(position, width, theta):
    angles = rope_angles(torch.tensor([position]), width, theta)
    expected = [position * theta ** (-2 * i / width) for i in range(width // 2)]
    assert angles.shape == (1, width // 2) and angles.dtype == torch.float64
    assert angles[0].tolist() == pytest.approx(expected, rel=1e-14, abs=0)


def test_neighbours_are_pairs():
    """C31: pairing i with i + d/2 would give [-1.984, 1.960, 2.462, 4.020]."""
    x = torch.tensor([[1.0, 2, 3, 4]], dtype=torch.float64)
    right = torch.tensor([[-1.1426397, 1.9220756, 2.9598507, 4.0297995]], dtype=torch.float64)
    assert_close(rotate(x, rope_angles(torch.tensor([1]), 4)), right, rtol=0, atol=5e-8)


def test_the_other_layout_is_a_permutation_away():
    """C31: half-split RoPE of x, reordered by [0, 2, 1, 3], is ours of x reordered so."""
    x, order = normal(5, 4), [0, 2, 1, 3]
    angles = rope_angles(torch.arange(5), 4)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    half_split = x * cos + torch.cat([-x[:, 2:], x[:, :2]], dim=-1) * sin
    assert_close(half_split[:, order], rotate(x[:, order], angles), rtol=0, atol=1e-14)
    # At position 0 both leave x alone, so a test of one position could not tell them apart.
    different = (half_split - rotate(x, angles)).abs().amax(dim=-1)
    assert different[0] == 0 and different[1:].min() > 0.1


@modest
@given(st.lists(positions_up_to_4096, min_size=1, max_size=6), widths, thetas, st.integers(0, 99))
def test_against_complex_numbers(positions, width, theta, seed):
    positions = torch.tensor(positions)
    x = normal(2, 3, len(positions), width, seed=seed)
    # Both turn by the same angle to 1e-16 of up to 4096 radians: 1e-12 of entries near 1.
    ours = rotate(x, rope_angles(positions, width, theta))
    assert_close(ours, turned(x, positions, theta), rtol=0, atol=1e-11)


@modest
@given(positions_up_to_4096, widths, st.integers(0, 99))
def test_lengths_are_kept_pair_by_pair(position, width, seed):
    x = normal(3, 1, width, seed=seed)
    y = rotate(x, rope_angles(torch.tensor([position]), width))
    before, after = (v.unflatten(-1, (-1, 2)).norm(dim=-1) for v in (x, y))
    assert_close(after, before, rtol=1e-13, atol=0)


@modest
@given(positions_up_to_4096, positions_up_to_4096, st.integers(0, 4096), widths, thetas)
def test_a_score_depends_on_the_distance_only(here, there, shift, width, theta):
    q, k = normal(1, width, seed=here), normal(1, width, seed=there + 5000)

    def score(query_at, key_at):
        angles = (rope_angles(torch.tensor([p]), width, theta) for p in (query_at, key_at))
        return (rotate(q, next(angles)) * rotate(k, next(angles))).sum()

    # Angles up to 8192 radians are exact to 1e-12; scores are up to about 30.
    assert_close(score(here + shift, there + shift), score(here, there), rtol=0, atol=1e-10)


def test_a_score_does_change_with_the_distance():
    q, k = normal(1, 1, 8), normal(1, 1, 8, seed=1)
    keys = torch.cat([rotate(k, rope_angles(torch.tensor([p]), 8)) for p in range(6)], dim=1)
    scores = (q @ keys.mT).flatten()
    assert len(set(scores.mul(1e3).round().tolist())) == 6


@modest
@given(positions_up_to_4096, positions_up_to_4096, widths)
def test_two_turns_are_one_turn_by_the_sum(one, other, width):
    x = normal(1, width)
    one_angle, other_angle = (
        rope_angles(torch.tensor([one]), width),
        rope_angles(torch.tensor([other]), width),
    )
    both = rotate(rotate(x, one_angle), other_angle)
    assert_close(both, rotate(x, one_angle + other_angle), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_position_0_changes_nothing(dtype):
    x = normal(2, 1, 8).to(dtype)
    y = rotate(x, rope_angles(torch.tensor([0]), 8))
    assert y.dtype == dtype and torch.equal(y, x)


@pytest.mark.parametrize(
    ("dtype", "half_ulp"),
    [(torch.float16, 2**-11), (torch.bfloat16, 2**-8), (torch.float32, 2**-24)],
)
def test_the_dtype_of_x_comes_out_and_float32_is_used_inside(dtype, half_ulp):
    """C08: one rounding at the end, whatever the dtype."""
    positions = torch.arange(200)
    x = normal(4, 200, 16).to(dtype)
    y = rotate(x, rope_angles(positions, 16))
    assert y.dtype == dtype
    # One rounding to the dtype, on top of a few float32 roundings of entries up to about 5.
    assert_close(y.double(), turned(x, positions, 10_000.0), rtol=half_ulp, atol=2e-6)


def test_far_positions_keep_their_angle():
    """A float32 angle at 100,000 radians would be off by up to 0.004."""
    positions = torch.tensor([99_999, 100_000, 1_000_003])
    x = normal(3, 8, dtype=torch.float32)
    y, _ = apply_rope(x, x, positions)
    assert_close(y.double(), turned(x, positions, 10_000.0), rtol=0, atol=1e-6)


def test_apply_rope_turns_queries_and_keys_alike():
    q, k, positions = normal(2, 3, 4, 8), normal(2, 1, 4, 8, seed=1), torch.tensor([7, 9, 0, 2])
    for theta in (10_000.0, 100.0):
        turned_q, turned_k = apply_rope(q, k, positions, theta)
        assert_close(turned_q, turned(q, positions, theta), rtol=0, atol=1e-13)
        assert_close(turned_k, turned(k, positions, theta), rtol=0, atol=1e-13)


def test_apply_rope_counts_positions_from_0():
    q, k = normal(1, 5, 4), normal(1, 5, 4, seed=1)
    for ours, expected in zip(
        apply_rope(q, k), apply_rope(q, k, torch.arange(5), 10_000.0), strict=True
    ):
        assert torch.equal(ours, expected)
    assert_close(apply_rope(q, k)[0], turned(q, torch.arange(5), 10_000.0), rtol=0, atol=1e-14)


def test_arguments_are_left_alone():
    """C18."""
    q, positions = normal(1, 5, 4), torch.arange(5)
    before = q.clone()
    apply_rope(q, q, positions)
    assert torch.equal(q, before) and torch.equal(positions, torch.arange(5))


def test_the_gradient_is_turned_back():
    x = normal(1, 3, 8).requires_grad_()
    angles = rope_angles(torch.arange(3), 8)
    dy = normal(1, 3, 8, seed=1)
    (dx,) = torch.autograd.grad(rotate(x, angles), x, dy)
    assert_close(dx, rotate(dy, -angles), rtol=0, atol=1e-14)


def test_angles_do_not_depend_on_the_kind_of_position():
    expected = rope_angles(torch.arange(4), 8)
    for dtype in (torch.int32, torch.float32, torch.float64):
        assert torch.equal(rope_angles(torch.arange(4, dtype=dtype), 8), expected)


one = torch.tensor([1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # C34: an odd width has an entry without a partner.
        (
            lambda: rope_angles(one, 65),
            "rope_angles: expected an even head width, got 65 (RoPE turns pairs of coordinates)",
        ),
        (
            lambda: rope_angles(one, 0),
            "rope_angles: expected an even head width, got 0 (RoPE turns pairs of coordinates)",
        ),
        (lambda: rope_angles(torch.tensor(3), 4), "rope_angles: expected [T], got []"),
        (lambda: rope_angles(torch.zeros(2, 3), 4), "rope_angles: expected [T], got [2, 3]"),
        (lambda: rotate(torch.zeros(1, 4), one), "rotate: expected [T, d/2], got [1]"),
        (
            lambda: rotate(torch.zeros(()), rope_angles(one, 4)),
            "rotate: expected [..., 1, 4], got []",
        ),
        (
            lambda: apply_rope(torch.zeros(4), torch.zeros(4)),
            "apply_rope: expected queries [..., T, d], got [4]",
        ),
        (
            lambda: apply_rope(torch.zeros(()), torch.zeros(3, 4), torch.arange(3)),
            "apply_rope: expected queries [..., T, d], got []",
        ),
        (
            lambda: apply_rope(torch.zeros(3, 4), torch.zeros(4)),
            "rotate: expected [..., 3, 4], got [4]",
        ),
        (lambda: rope_angles(one, 4, 0), "rope_angles: expected theta > 0, got 0"),
        (lambda: rope_angles(one, 4, math.nan), "rope_angles: expected theta > 0, got nan"),
        (
            lambda: rotate(torch.zeros(2, 4), rope_angles(one, 4)),
            "rotate: expected [..., 1, 4], got [2, 4]",
        ),
        (
            lambda: rotate(torch.zeros(1, 6), rope_angles(one, 4)),
            "rotate: expected [..., 1, 4], got [1, 6]",
        ),
        (
            lambda: rotate(torch.zeros(4), rope_angles(one, 4)),
            "rotate: expected [..., 1, 4], got [4]",
        ),
        (
            lambda: rotate(torch.ones(1, 4, dtype=torch.long), rope_angles(one, 4)),
            "rotate: expected floating-point numbers, got torch.int64"
            " (write 3.0 for 3, or call .float())",
        ),
        (
            lambda: apply_rope(torch.zeros(1, 3, 4), torch.zeros(1, 2, 4)),
            "rotate: expected [..., 3, 4], got [1, 2, 4]",
        ),
        (
            lambda: apply_rope(torch.zeros(3, 4), torch.zeros(3, 4), torch.arange(2)),
            "rotate: expected [..., 2, 4], got [3, 4]",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
