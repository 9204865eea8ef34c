"""attention.py against torch's own attention, in float64, and what a mask and a cache must do."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from tiny_lm.attention import (
    CausalSelfAttention,
    KVCache,
    attention_2d,
    attention_weights,
    merge_heads,
    split_heads,
)
from tiny_lm.rope import apply_rope
from tiny_lm.taps import Recorder

modest = settings(deadline=None, max_examples=30, derandomize=True)
small = st.integers(1, 5)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def drawn(module, std=0.2, seed=0):
    """The module with weights wide enough for its mistakes to show: at 0.02 many hide (C32)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(0, std, generator=generator)
    return module


def may_look(queries, keys):
    """[T, S]: true where a key is not later than the query, the last of both lined up."""
    at = torch.arange(keys - queries, keys)[:, None]
    return torch.arange(keys) <= at


# Heads


def test_split_heads_cuts_the_width_not_the_positions():
    """C34: view(B, H, T, d) has the right shape and mixes positions: [[0, 1], [2, 3]] first."""
    x = torch.arange(8.0).reshape(1, 2, 4)
    assert split_heads(x, 2).tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    assert merge_heads(split_heads(x, 2)).tolist() == x.tolist()


@modest
@given(small, small, small, small)
def test_merge_heads_undoes_split_heads(batch, positions, heads, width):
    x = normal(batch, positions, heads * width)
    cut = split_heads(x, heads)
    assert cut.shape == (batch, heads, positions, width)
    assert torch.equal(merge_heads(cut), x)
    for head in range(heads):
        assert torch.equal(cut[:, head], x[..., head * width : (head + 1) * width])


@modest
@given(small, small, small, small)
def test_split_heads_undoes_merge_heads(batch, positions, heads, width):
    x = normal(batch, heads, positions, width)
    assert merge_heads(x).shape == (batch, positions, heads * width)
    assert torch.equal(split_heads(merge_heads(x), heads), x)


# The arithmetic


@modest
@given(small, small, small, st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_against_torch(heads, width, queries, earlier, causal, seed):
    keys = queries + earlier
    q, k = normal(2, heads, queries, width, seed=seed), normal(2, heads, keys, width, seed=seed + 1)
    v = normal(2, heads, keys, width + 1, seed=seed + 2)
    mask = may_look(queries, keys) if causal else None
    context, weights = attention_2d(q, k, v, causal)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # Sums of a few products near 1 in float64.
    assert_close(context, expected, rtol=0, atol=1e-13)
    assert weights.shape == (2, heads, queries, keys)
    assert_close(weights @ v, context, rtol=0, atol=1e-13)
    assert_close(weights.sum(-1), torch.ones(2, heads, queries).double(), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (1, 7)])
def test_the_last_query_lines_up_with_the_last_key(queries, keys):
    """C28, C46: torch's is_causal lines up the first ones instead."""
    q, k, v = normal(1, 1, queries, 8), normal(1, 1, keys, 8, seed=1), normal(1, 1, keys, 8, seed=2)
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_close(attention_2d(q, k, v)[0], expected, rtol=0, atol=1e-13)
    assert torch.equal(attention_weights(q, k)[0, 0] > 0, mask)


def test_equal_scores_give_the_mean_of_what_is_seen():
    """C28: scores 0, values 1, 2, 3."""
    v = torch.tensor([[1.0], [2.0], [3.0]])
    for queries, expected in [(1, [2.0]), (2, [1.5, 2.0]), (3, [1.0, 1.5, 2.0])]:
        context, _ = attention_2d(torch.zeros(queries, 2), torch.zeros(3, 2), v)
        assert context.flatten().tolist() == pytest.approx(expected, rel=1e-6)
    context, _ = attention_2d(torch.zeros(2, 2), torch.zeros(3, 2), v, causal=False)
    assert context.flatten().tolist() == pytest.approx([2, 2], rel=1e-6)


def test_scores_are_divided_by_the_root_of_the_width():
    q, k = torch.tensor([[2.0, 2.0, 2.0, 2.0]]), torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    weights = attention_weights(q.double(), k.double(), causal=False)
    expected = torch.tensor([[8 / sqrt(4), 0.0]]).double().softmax(-1)
    assert_close(weights, expected, rtol=1e-12, atol=0)


def test_a_later_key_gets_exactly_nothing_forward_and_backward():
    q, k, v = (normal(1, 4, 2, seed=i).requires_grad_() for i in range(3))
    context, weights = attention_2d(q, k, v)
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    dk, dv = torch.autograd.grad(context[0, :2].sum(), (k, v))
    for gradient in (dk, dv):
        assert torch.equal(gradient[0, 2:], torch.zeros(2, 2).double())
        assert (gradient[0, 1] != 0).all()


def test_no_row_is_fully_masked_and_gradients_are_finite():
    """C29: a row without any key would be NaN; with more queries than keys it is refused."""
    q, k, v = (normal(1, 4, 2, seed=i).requires_grad_() for i in range(3))
    context, weights = attention_2d(q, k, v)
    assert weights[0, 0].tolist() == [1, 0, 0, 0]
    for gradient in torch.autograd.grad(context.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()


def test_wide_score_differences_do_not_overflow():
    q = torch.tensor([[1e3, 0.0], [1e3, 0.0]])
    k = torch.tensor([[1e3, 0.0], [-1e3, 0.0]])
    assert attention_weights(q, k).tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """C30: the mask works in half precision; the softmax is float32 inside; the dtype comes out."""
    q, k, v = (normal(1, 2, 6, 8, seed=i).to(dtype) for i in range(3))
    context, weights = attention_2d(q, k, v)
    assert context.dtype == weights.dtype == dtype
    expected = attention_weights(q.double(), k.double())
    # A score of up to about 4 is off by an ulp or two before the softmax, and one more after it.
    assert_close(weights.double(), expected, rtol=8 * torch.finfo(dtype).eps, atol=1e-6)


def test_leading_axes_may_be_any():
    q, k, v = (normal(2, 3, 4, 5, 6, seed=i) for i in range(3))
    context, weights = attention_2d(q, k, v)
    assert context.shape == (2, 3, 4, 5, 6) and weights.shape == (2, 3, 4, 5, 5)
    alone, _ = attention_2d(q[1, 2, 3], k[1, 2, 3], v[1, 2, 3])
    assert_close(context[1, 2, 3], alone, rtol=0, atol=1e-14)


def test_the_order_of_the_keys_does_not_matter_without_a_mask():
    q, k, v = (normal(5, 4, seed=i) for i in range(3))
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled, _ = attention_2d(q, k[order], v[order], causal=False)
    assert_close(shuffled, attention_2d(q, k, v, causal=False)[0], rtol=0, atol=1e-14)


# The layer


def by_hand(layer, x, theta):
    """The layer again, with torch's attention and every key/value head copied by hand."""
    heads, width = layer.heads, layer.width // layer.heads
    shared = layer.heads // layer.kv_heads

    def cut(matrix):
        y = x @ matrix.weight.T
        return torch.stack([y[..., i : i + width] for i in range(0, y.shape[-1], width)], dim=1)

    q, k = apply_rope(cut(layer.q_proj), cut(layer.k_proj), torch.arange(x.shape[1]), theta)
    v = cut(layer.v_proj)
    k, v = (torch.stack([y[:, h // shared] for h in range(heads)], dim=1) for y in (k, v))
    context = scaled_dot_product_attention(q, k, v, attn_mask=may_look(x.shape[1], x.shape[1]))
    return torch.cat([context[:, h] for h in range(heads)], dim=-1) @ layer.out_proj.weight.T


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (2, 2), (4, 4), (4, 2), (4, 1), (6, 2)])
@pytest.mark.parametrize("theta", [10_000.0, 50.0])
def test_the_layer_against_torch(heads, kv_heads, theta):
    layer = drawn(CausalSelfAttention(4 * heads, heads, theta, n_kv_heads=kv_heads)).double()
    x = normal(2, 7, 4 * heads)
    assert_close(layer(x), by_hand(layer, x, theta), rtol=0, atol=1e-12)


def test_theta_is_10000_if_not_given():
    layer = drawn(CausalSelfAttention(8, 2)).double()
    assert layer.theta == 10_000.0
    x = normal(1, 5, 8)
    assert_close(layer(x), by_hand(layer, x, 10_000.0), rtol=0, atol=1e-13)


def test_four_matrices_no_bias():
    shapes = {name: tuple(w.shape) for name, w in CausalSelfAttention(64, 2).named_parameters()}
    assert shapes == {f"{name}_proj.weight": (64, 64) for name in ("q", "k", "v", "out")}
    grouped = CausalSelfAttention(64, 4, n_kv_heads=2)
    assert grouped.k_proj.weight.shape == grouped.v_proj.weight.shape == (32, 64)
    assert grouped.q_proj.weight.shape == grouped.out_proj.weight.shape == (64, 64)


@modest
@given(small, small, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_the_shape_comes_back(batch, positions, groups, shared, half):
    heads = groups * shared
    width = 2 * half * heads
    layer = CausalSelfAttention(width, heads, n_kv_heads=groups)
    x = torch.zeros(batch, positions, width)
    assert layer(x).shape == x.shape


def test_neighbouring_query_heads_share_a_key_head():
    """C35: for 4 query heads on 2, [0, 0, 1, 1]; tiled it would be [0, 1, 0, 1]."""
    layer = CausalSelfAttention(8, 4, n_kv_heads=2)
    x = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    assert layer._one_each(x).flatten().tolist() == [0, 0, 1, 1]
    with torch.no_grad():
        layer.v_proj.weight.zero_()
        layer.v_proj.weight[:2] = 1.0  # only key/value head 0 carries anything
        layer.out_proj.weight.copy_(torch.eye(8))
    y = layer(torch.ones(1, 3, 8))
    assert (y[..., :4] > 1).all() and torch.equal(y[..., 4:], torch.zeros(1, 3, 4))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_only_the_past_is_seen(kv_heads):
    """C10: bitwise, since the same shapes are multiplied in the same order."""
    layer = drawn(CausalSelfAttention(64, 4, n_kv_heads=kv_heads))
    x = normal(2, 4, 64, dtype=torch.float32)
    changed = x.clone()
    changed[:, 2] += 5
    before, after = layer(x), layer(changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert ((before - after)[:, 2:].abs().amax(-1) > 1e-2).all()


@modest
@given(st.permutations(range(4)), st.integers(0, 99))
def test_rows_of_a_batch_do_not_meet(order, seed):
    layer = drawn(CausalSelfAttention(8, 2)).double()
    x = normal(4, 5, 8, seed=seed)
    y = layer(x)
    assert_close(layer(x[list(order)]), y[list(order)], rtol=0, atol=1e-13)
    assert_close(layer(x[:1]), y[:1], rtol=0, atol=1e-13)


def test_positions_count():
    """Without RoPE the last output would not notice the order of what came before it."""
    layer = drawn(CausalSelfAttention(8, 2), std=1.0).double()
    x = normal(1, 5, 8)
    swapped = layer(x[:, [1, 0, 2, 3, 4]])[:, -1]
    assert (swapped - layer(x)[:, -1]).abs().max() > 1e-2


def test_values_are_not_turned():
    """Equal values at every position come out as they are, whatever the weights."""
    layer = drawn(CausalSelfAttention(8, 2), std=0.5).double()
    x = normal(1, 1, 8).expand(1, 6, 8)
    expected = x @ layer.v_proj.weight.T @ layer.out_proj.weight.T
    assert_close(layer(x), expected, rtol=0, atol=1e-13)


def test_the_input_is_left_alone_and_gradients_reach_every_weight():
    layer = drawn(CausalSelfAttention(8, 4, n_kv_heads=2))
    x = normal(2, 5, 8, dtype=torch.float32).requires_grad_()
    before = x.detach().clone()
    layer(x).square().sum().backward()
    assert torch.equal(x.detach(), before)
    for gradient in [x.grad] + [weight.grad for weight in layer.parameters()]:
        assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_a_zero_output_projection_writes_zeros():
    layer = drawn(CausalSelfAttention(8, 2))
    torch.nn.init.zeros_(layer.out_proj.weight)
    x = normal(1, 3, 8, dtype=torch.float32)
    assert torch.equal(layer(x), torch.zeros(1, 3, 8))


def test_the_tap_sees_the_weights_and_may_change_them():
    layer = drawn(CausalSelfAttention(8, 4, n_kv_heads=2)).double()
    x = normal(2, 5, 8)
    tap = Recorder()
    assert torch.equal(layer(x, tap=tap), layer(x))
    assert list(tap) == ["attn.weights"]
    weights = tap["attn.weights"]
    assert weights.shape == (2, 4, 5, 5)
    assert_close(weights.sum(-1), torch.ones(2, 4, 5).double(), rtol=0, atol=1e-14)
    assert torch.equal(weights, weights.tril())
    silenced = layer(x, tap=Recorder(edit={"attn.weights": torch.zeros_like}))
    assert torch.equal(silenced, torch.zeros_like(x))


def test_repr_says_what_the_numbers_are():
    assert "64, 4, theta=10000, n_kv_heads=2" in repr(CausalSelfAttention(64, 4, n_kv_heads=2))


# The cache


@modest
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 99))
def test_a_cache_holds_what_was_appended(chunks, seed):
    """Sums up to 480 positions: past the first room of 64 and several doublings."""
    k, v = normal(2, 3, sum(chunks), 4, seed=seed), normal(2, 3, sum(chunks), 4, seed=seed + 1)
    cache, start = KVCache(), 0
    for size in chunks:
        end = start + size
        keys, values = cache.append(k[:, :, start:end], v[:, :, start:end])
        assert len(cache) == end
        assert torch.equal(keys, k[:, :, :end]) and torch.equal(values, v[:, :, :end])
        start = end


def test_what_was_returned_earlier_stays_as_it_was():
    cache, k = KVCache(), normal(1, 1, 200, 2)
    first, _ = cache.append(k[:, :, :3], k[:, :, :3])
    before = first.clone()
    for i in range(3, 200):
        cache.append(k[:, :, i : i + 1], k[:, :, i : i + 1])
    assert torch.equal(first, before)


def test_a_cache_copies_and_is_detached():
    cache, k = KVCache(), normal(1, 2, 3, 4).requires_grad_()
    keys, values = cache.append(k, k * 2)
    assert not keys.requires_grad and not values.requires_grad
    with torch.no_grad():
        k.zero_()
    assert keys.abs().min() > 0


def test_room_grows_by_doubling():
    """Of 300 appended tokens four find no room, the first among them."""
    cache, one = KVCache(), normal(1, 1, 1, 2)
    rooms = [cache.append(one, one)[0].untyped_storage().nbytes() // (2 * 8) for _ in range(300)]
    assert sorted(set(rooms)) == [64, 130, 262, 526]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_cache_keeps_the_dtype(dtype):
    k = normal(1, 1, 3, 2).to(dtype)
    assert all(held.dtype == dtype for held in KVCache().append(k, k))


def chunked(layer, x, chunks):
    cache, pieces = KVCache(), []
    for piece in x.split(chunks, dim=1):
        pieces.append(layer(piece, cache=cache))
    assert len(cache) == x.shape[1]
    return torch.cat(pieces, dim=1)


@modest
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.sampled_from([4, 2, 1]))
@torch.no_grad()
def test_any_chunking_gives_the_full_pass(chunks, kv_heads):
    """C32: positions from 0 in each chunk, off by one, or a top-left mask are off by 0.01 to 1."""
    layer = drawn(CausalSelfAttention(64, 4, n_kv_heads=kv_heads))
    x = normal(2, sum(chunks), 64, dtype=torch.float32)
    # float32: the same sums in another order, measured at 1e-6.
    assert_close(chunked(layer, x, chunks), layer(x), rtol=0, atol=1e-4)


@torch.no_grad()
def test_token_by_token_past_several_doublings_of_the_room():
    layer = drawn(CausalSelfAttention(8, 2)).double()
    x = normal(1, 300, 8)
    assert_close(chunked(layer, x, [1] * 300), layer(x), rtol=0, atol=1e-12)


# Errors

zeros = torch.zeros


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_heads(zeros(3, 4), 2), "split_heads: expected [B, T, D], got [3, 4]"),
        (
            lambda: split_heads(zeros(1, 2, 64), 5),
            "split_heads: expected a width divisible by 5 heads, got [1, 2, 64]",
        ),
        (
            lambda: split_heads(zeros(1, 2, 4), 0),
            "split_heads: expected a width divisible by 0 heads, got [1, 2, 4]",
        ),
        (
            lambda: merge_heads(zeros(1, 2, 4)),
            "merge_heads: expected [B, H, T, d], got [1, 2, 4]",
        ),
        (
            lambda: attention_weights(zeros(2, 4), zeros(2, 6)),
            "attention_weights: expected keys [..., 4], got [2, 6]",
        ),
        (
            lambda: attention_2d(zeros(5, 4), zeros(2, 4), zeros(2, 4)),
            "attention_weights: expected at least 5 keys for 5 queries, got 2",
        ),
        (
            lambda: attention_2d(zeros(2, 4), zeros(3, 4), zeros(2, 4)),
            "attention_2d: expected 3 values, got 2",
        ),
        (
            lambda: attention_weights(zeros(4), zeros(2, 4)),
            "attention_weights: expected queries [..., T, d], got [4]",
        ),
        (
            lambda: attention_weights(zeros(2, 4), zeros(4)),
            "attention_weights: expected keys [..., S, d], got [4]",
        ),
        (
            lambda: attention_weights(zeros(()), zeros(2, 4)),
            "attention_weights: expected queries [..., T, d], got []",
        ),
        (
            lambda: attention_2d(zeros(4), zeros(4), zeros(4)),
            "attention_weights: expected queries [..., T, d], got [4]",
        ),
        (
            lambda: attention_2d(zeros(2, 4), zeros(2, 4), zeros(4)),
            "attention_2d: expected values [..., S, d], got [4]",
        ),
        (
            lambda: attention_2d(zeros(2, 4), zeros(2, 4), zeros(2, 4, dtype=torch.long)),
            "attention_2d: expected floating-point numbers, got torch.int64"
            " (write 3.0 for 3, or call .float())",
        ),
        (
            lambda: CausalSelfAttention(64, 5),
            "CausalSelfAttention: expected width divisible by heads, got 64 and 5",
        ),
        (
            lambda: CausalSelfAttention(64, 0),
            "CausalSelfAttention: expected width divisible by heads, got 64 and 0",
        ),
        (
            lambda: CausalSelfAttention(65, 1),
            "CausalSelfAttention: expected an even head width, got 65 (RoPE turns pairs)",
        ),
        (
            lambda: CausalSelfAttention(64, 4, n_kv_heads=3),
            "CausalSelfAttention: expected heads divisible by n_kv_heads, got 4 and 3",
        ),
        (
            lambda: CausalSelfAttention(64, 4, n_kv_heads=0),
            "CausalSelfAttention: expected heads divisible by n_kv_heads, got 4 and 0",
        ),
        (
            lambda: CausalSelfAttention(8, 2)(zeros(3, 8)),
            "CausalSelfAttention: expected [B, T, D], got [3, 8]",
        ),
        (
            lambda: CausalSelfAttention(8, 2)(zeros(1, 3, 6)),
            "CausalSelfAttention: expected [..., 8], got [1, 3, 6]",
        ),
        (
            lambda: CausalSelfAttention(8, 2)(zeros(1, 3, 8, dtype=torch.long)),
            "CausalSelfAttention: expected floating-point numbers, got torch.int64"
            " (write 3.0 for 3, or call .float())",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("shape", [(2, 2, 1, 4), (1, 3, 1, 4), (1, 2, 1, 6)])
def test_a_cache_refuses_another_batch(shape):
    cache = KVCache()
    cache.append(zeros(1, 2, 3, 4), zeros(1, 2, 3, 4))
    with pytest.raises(ValueError) as caught:
        cache.append(zeros(shape), zeros(shape))
    assert str(caught.value) == (
        f"KVCache: expected [1, 2, T, 4], got {list(shape)} (start a new cache for a new batch)"
    )
    assert len(cache) == 3


@pytest.mark.parametrize(
    ("k", "v", "message"),
    [
        (
            zeros(1, 1, 2, 4),
            zeros(1, 1, 1, 4),  # one value would serve two keys
            "values [1, 1, 2, 4] torch.float32, got [1, 1, 1, 4] torch.float32",
        ),
        (
            zeros(1, 1, 2, 4),
            zeros(1, 1, 2, 6),
            "values [1, 1, 2, 4] torch.float32, got [1, 1, 2, 6] torch.float32",
        ),
        (
            zeros(1, 1, 2, 4),
            zeros(1, 1, 2, 4).double(),
            "values [1, 1, 2, 4] torch.float32, got [1, 1, 2, 4] torch.float64",
        ),
        (
            zeros(1, 1, 2, 4).double(),  # would be rounded unseen
            zeros(1, 1, 2, 4).double(),
            "torch.float32, got torch.float64 (start a new cache for another dtype)",
        ),
    ],
    ids=["fewer values", "wider values", "other values", "another dtype"],
)
def test_a_cache_refuses_what_does_not_belong_together(k, v, message):
    cache = KVCache()
    cache.append(zeros(1, 1, 3, 4), zeros(1, 1, 3, 4))
    with pytest.raises(ValueError) as caught:
        cache.append(k, v)
    assert str(caught.value) == f"KVCache: expected {message}"
    assert len(cache) == 3


def test_an_odd_head_width_is_named_with_its_size():
    """C34: 6 is even, and half of it is not."""
    with pytest.raises(ValueError, match=r"an even head width, got 3 \(RoPE turns pairs\)"):
        CausalSelfAttention(6, 2)


def test_whole_numbers_are_refused():
    """C16: the weights would be cut down to whole numbers, without a word."""
    x = torch.tensor([[1, 2], [3, 4]])
    with pytest.raises(ValueError) as caught:
        attention_2d(x, x, x)
    assert str(caught.value) == (
        "attention_weights: expected floating-point numbers, got torch.int64"
        " (write 3.0 for 3, or call .float())"
    )


def test_queries_are_divided_before_they_meet_the_keys():
    """In float16 q · k = 102,400 would be infinite; divided by 8 first, it is 12,800."""
    x = torch.full((2, 64), 40.0, dtype=torch.float16)
    assert attention_weights(x, x).tolist() == [[1, 0], [0.5, 0.5]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_are_computed_in_float32(dtype):
    """q · k = 2,560,000 is Inf in float16; in bfloat16 a score would keep three digits."""
    x = torch.full((2, 64), 200.0, dtype=dtype)
    assert attention_weights(x, x).tolist() == [[1, 0], [0.5, 0.5]]
    torch.manual_seed(0)
    q, k = (4 * torch.randn(16, 64)).to(dtype), (4 * torch.randn(16, 64)).to(dtype)
    right = attention_weights(q.double(), k.double())
    # one rounding of a weight of at most 1
    torch.testing.assert_close(
        attention_weights(q, k).double(), right, rtol=torch.finfo(dtype).eps, atol=1e-5
    )
