"""Three as one: lists, NumPy and torch agree in values and gradients, and learn alike."""

from math import cos, exp, sin, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm import layers, plain
from tiny_lm.autograd import Tensor, nn
from tiny_lm.autograd.check import gradients
from tiny_lm.config import ModelConfig
from tiny_lm.model import TinyLM
from tiny_lm.rope import apply_rope
from tiny_lm.taps import Recorder

modest = settings(deadline=None, max_examples=25, derandomize=True)
seeds = st.integers(0, 10**6)
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def pair(array):
    """The same numbers for NumPy and for torch."""
    return Tensor(array.copy()), torch.tensor(array, requires_grad=True)


def agree(ours, theirs, *pairs, seed=0):
    """Values, and gradients of (x, its torch twin) when the results get the same gradient."""
    np.testing.assert_allclose(ours.data, theirs.detach().numpy(), **EXACT)
    weights = np.random.default_rng(seed).normal(size=ours.shape)
    ours.backward(weights)
    theirs.backward(torch.tensor(weights))
    for x, twin in pairs:
        np.testing.assert_allclose(x.grad, twin.grad.numpy(), **EXACT)


def weight_pairs(ours, theirs):
    twins = dict(theirs.named_parameters())
    names = [name for name, _ in ours.parameters()]
    assert names == list(twins)
    return [(weight, twins[name]) for name, weight in ours.parameters()]


# RMSNorm and the residual addition, on lists, in NumPy and in torch


@modest
@given(seeds, st.integers(1, 9), st.sampled_from([1e-12, 1e-6, 1e-5, 1.0]), st.floats(-3, 3))
def test_rms_norm_three_times(seed, width, eps, size):
    rng = np.random.default_rng(seed)
    rows, gain = 10**size * rng.normal(size=(3, width)) + 1e-3, rng.uniform(0.5, 2, width)
    ours, theirs = nn.RMSNorm(width, eps), layers.RMSNorm(width, eps).double()
    ours.gamma.data[:] = gain
    nn.copy_weights(ours, theirs)
    x, twin = pair(rows)
    y = ours(x)
    for row, expected in zip(y.data, rows, strict=True):
        lists = plain.rms_norm(expected.tolist(), gain.tolist(), eps)
        np.testing.assert_allclose(row, lists, rtol=1e-12)
    # relative to the largest gradient: along x parts cancel, and leave rounding of the whole
    scale = 1 / np.sqrt((rows**2).mean(-1).min() + eps)
    weights = rng.normal(size=y.shape)
    y.backward(weights / scale)
    out = theirs(twin)
    out.backward(torch.tensor(weights / scale))
    np.testing.assert_allclose(y.data, out.detach().numpy(), **EXACT)
    np.testing.assert_allclose(x.grad, twin.grad.numpy(), **EXACT)
    np.testing.assert_allclose(ours.gamma.grad, theirs.scale.grad.numpy(), **EXACT)


@modest
@given(seeds)
def test_residual_addition_three_times(seed):
    rng = np.random.default_rng(seed)
    (x, x_twin), (change, change_twin) = (pair(rng.normal(size=(2, 3))) for _ in range(2))
    total = nn.residual_add(x, change)
    for row, a, b in zip(total.data, x.data, change.data, strict=True):
        assert row.tolist() == plain.residual_add(a.tolist(), b.tolist())
    twin = layers.residual_add(x_twin, change_twin)
    agree(total, twin, (x, x_twin), (change, change_twin))


def test_the_printed_digits_of_the_lesson():
    norm = nn.RMSNorm(2, eps=1e-6)
    a, b = norm(Tensor([[3, 4]])), norm(Tensor([[6, 8]]))
    assert str(np.round(a.data, 6)) == "[[0.848528 1.131371]]"
    assert str((b - a).data) == "[[2.54558422e-08 3.39411230e-08]]"
    assert (norm(Tensor([[0, 0]])).data == 0).all()  # zero stays zero
    assert np.round(norm(Tensor([[5, 5]])).data, 6).tolist() == [[1, 1]]  # no centring


def test_in_float32_the_difference_is_rounding():
    norm = nn.RMSNorm(2, eps=1e-6, dtype=np.float32)
    a, b = (norm(Tensor([row], np.float32)).data for row in ([3, 4], [6, 8]))
    assert a.dtype == np.float32
    assert (b - a).tolist() == [[2.0**-24, 2.0**-23]]  # 5.96e-8 and 1.19e-7
    assert np.array_equal(b - a, np.spacing(a))  # one step of the last digit each
    twelve, fifty, eps = np.float32(12.5), np.float32(50), np.float32(1e-6)
    assert fifty + eps == fifty and twelve + eps == twelve + np.spacing(twelve)


def test_the_norms_jacobian_and_its_zero_direction():
    x = np.array([3.0, 4.0])
    rows = []
    for seed in np.eye(2):
        tensor = Tensor(x)
        nn.RMSNorm(2, eps=0.0)(tensor).backward(seed)
        rows.append(tensor.grad)
    expected = [[0.18101934, -0.13576450], [-0.13576450, 0.10182338]]
    np.testing.assert_allclose(rows, expected, atol=5e-9)
    np.testing.assert_allclose(np.linalg.eigvalsh(rows), [0, 0.28284271], atol=5e-9)
    np.testing.assert_allclose(np.array(rows) @ x, 0, atol=1e-15)


# The parts of a block


@modest
@given(seeds, st.integers(1, 6), st.sampled_from([100.0, 10_000.0]))
def test_rope(seed, positions, theta):
    x, twin = pair(np.random.default_rng(seed).normal(size=(2, 2, positions, 6)))
    turned, _ = apply_rope(twin, twin, theta=theta)
    agree(nn.rotate(x, theta), turned, (x, twin))


def test_silu_of_large_numbers():
    x, twin = pair(np.array([-1000.0, -30.0, -1.0, 0.0, 1.0, 30.0, 1000.0]))
    agree(nn.silu(x), torch.nn.functional.silu(twin), (x, twin))


@modest
@given(
    seeds,
    st.integers(1, 2),
    st.integers(1, 5),
    st.sampled_from([(4, 1), (4, 2), (8, 2), (12, 3)]),
    st.integers(1, 9),
)
def test_the_block(seed, batch, positions, shape, hidden):
    width, heads = shape
    config = ModelConfig(d_model=width, n_heads=heads, d_ff=hidden, norm_eps=1e-6)
    ours = nn.Block(width, heads, hidden, eps=1e-6)
    theirs = layers.TransformerBlock(config).double()
    rng = np.random.default_rng(seed)
    for _, weight in ours.parameters():
        weight.data[:] = rng.normal(size=weight.shape) / np.sqrt(weight.shape[-1])
    nn.copy_weights(ours, theirs)
    x, twin = pair(rng.normal(size=(batch, positions, width)))
    agree(ours(x), theirs(twin), (x, twin), *weight_pairs(ours, theirs), seed=seed)


def times(matrix, x):
    return [sum(w * v for w, v in zip(row, x, strict=True)) for row in matrix]


def turned(x, position, heads, theta=10_000.0):
    """RoPE on one vector, head after head, pair after pair."""
    d, out = len(x) // heads, list(x)
    for i in range(0, len(x), 2):
        angle = position * theta ** (-(i % d) / d)
        out[i] = x[i] * cos(angle) - x[i + 1] * sin(angle)
        out[i + 1] = x[i] * sin(angle) + x[i + 1] * cos(angle)
    return out


def attended(q, keys, values, heads):
    """One query's answer from the keys and values up to its own position."""
    d, out = len(q) // heads, []
    for part in (slice(h * d, h * d + d) for h in range(heads)):
        scores = [sum(a * b for a, b in zip(q[part], k[part], strict=True)) for k in keys]
        raw = [exp(score / sqrt(d)) for score in scores]
        shares = [r / sum(raw) for r in raw]
        parts = [value[part] for value in values]
        out += [sum(s * v[i] for s, v in zip(shares, parts, strict=True)) for i in range(d)]
    return out


def block_on_lists(rows, weights, heads, eps):
    """The block on one text, a list of vectors, with nothing but Python's own numbers."""
    w = {name.removesuffix(".weight"): value.tolist() for name, value in weights.items()}
    normed = [plain.rms_norm(x, w["norm1.scale"], eps) for x in rows]
    q, k, v = ([times(w[f"attention.{n}_proj"], x) for x in normed] for n in "qkv")
    q, k = ([turned(x, t, heads) for t, x in enumerate(part)] for part in (q, k))
    answers = [attended(q[t], k[: t + 1], v[: t + 1], heads) for t in range(len(rows))]
    out = []
    for x, answer in zip(rows, answers, strict=True):
        h = plain.residual_add(x, times(w["attention.out_proj"], answer))
        read = plain.rms_norm(h, w["norm2.scale"], eps)
        gate, up = times(w["ffn.gate_proj"], read), times(w["ffn.up_proj"], read)
        hidden = [g / (1 + exp(-g)) * u for g, u in zip(gate, up, strict=True)]
        out.append(plain.residual_add(h, times(w["ffn.down_proj"], hidden)))
    return out


@modest
@given(seeds, st.integers(1, 5), st.sampled_from([(4, 1), (8, 2)]))
def test_the_block_on_lists(seed, positions, shape):
    rng, (width, heads) = np.random.default_rng(seed), shape
    block = nn.Block(width, heads, 5, eps=1e-6)
    for _, weight in block.parameters():
        weight.data[:] = rng.normal(size=weight.shape) / np.sqrt(weight.shape[-1])
    rows = rng.normal(size=(positions, width))
    expected = block_on_lists(rows.tolist(), block.state_dict(), heads, 1e-6)
    np.testing.assert_allclose(block(Tensor(rows[None])).data[0], expected, **EXACT)


def test_every_weight_of_a_block_against_central_differences():
    block, rng = nn.Block(4, 2, 3), np.random.default_rng(0)
    weights = [weight for _, weight in block.parameters()]
    for weight in weights:
        weight.data[:] = rng.normal(size=weight.shape)
    x = Tensor(rng.normal(size=(1, 3, 4)))
    assert gradients(lambda x, *_: block(x), x, *weights) < 1e-7


# The decoder


def decoders(**sizes):
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 24, **sizes}
    ours = nn.Decoder(12, **sizes)
    theirs = TinyLM(ModelConfig(vocab_size=12, norm_eps=1e-6, **sizes)).double()
    return ours, theirs


def test_weights_move_both_ways_by_one_function():
    ours, theirs = decoders()
    tokens = np.random.default_rng(0).integers(0, 12, (2, 5))
    logits = ours(tokens).data
    nn.copy_weights(ours, theirs)
    np.testing.assert_allclose(theirs(torch.tensor(tokens)).detach().numpy(), logits, **EXACT)
    back, _ = decoders()
    for _, weight in back.parameters():
        weight.data[:] = 0
    nn.copy_weights(theirs, back)
    assert np.array_equal(back(tokens).data, logits)
    back.embedding.weight.data[:] = 0  # a copy: the other keeps its own
    assert np.array_equal(ours(tokens).data, logits)


def test_both_name_the_same_values():
    ours, theirs = decoders()
    nn.copy_weights(theirs, ours)
    tokens, a, b = np.arange(6).reshape(1, 6), Recorder(), Recorder()
    ours(tokens, tap=a)
    with torch.no_grad():
        theirs(torch.tensor(tokens), tap=b)
    assert list(a) == list(b) and len(a) == 2 * 5 + 2
    for name in a:
        np.testing.assert_allclose(a[name].data, b[name].numpy(), **EXACT)


def test_an_edit_is_what_comes_after():
    ours, _ = decoders()
    tap = Recorder(edit={"blocks.1.norm.attn": lambda x: 0 * x})
    ours(np.arange(6).reshape(1, 6), tap=tap)
    before, after = tap["blocks.0.resid.ffn"], tap["blocks.1.resid.attn"]
    assert np.array_equal(before.data, after.data)


def test_nine_norms_of_1152_gains():
    names = dict(nn.Decoder(9).parameters())
    gains = [weight for name, weight in names.items() if name.endswith(".scale")]
    assert len(gains) == 9 and sum(weight.data.size for weight in gains) == 1152
    twin = TinyLM(ModelConfig(vocab_size=9, d_model=128, n_heads=4, d_ff=352))
    assert [tuple(p.shape) for p in twin.parameters()] == [w.shape for w in names.values()]


def test_the_start_has_the_spread_of_the_torch_model():
    ours, theirs = nn.Decoder(64), TinyLM(ModelConfig(d_model=128, n_heads=4, d_ff=352))
    twins = dict(theirs.named_parameters())
    for name, weight in ours.parameters():
        assert weight.data.std() == pytest.approx(twins[name].std().item(), rel=0.05, abs=1e-9)
    again, other = nn.Decoder(64), nn.Decoder(64, seed=1)
    assert np.array_equal(again.embedding.weight.data, ours.embedding.weight.data)
    assert not np.array_equal(other.embedding.weight.data, ours.embedding.weight.data)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_decoder_keeps_its_dtype(dtype):
    model = nn.Decoder(9, n_layers=1, d_model=8, n_heads=2, d_ff=12, dtype=dtype)
    nn.cross_entropy(model([[1, 2, 3]]), [[2, 3, 4]]).backward()
    assert {weight.grad.dtype for _, weight in model.parameters()} == {np.dtype(dtype)}


@modest
@given(seeds, st.sampled_from([1.0, 1e3]))
def test_cross_entropy(seed, size):
    rng = np.random.default_rng(seed)
    x, twin = pair(size * rng.normal(size=(2, 3, 5)))
    targets = rng.integers(0, 5, (2, 3))
    flat = twin.flatten(0, 1), torch.tensor(targets).flatten()
    agree(nn.cross_entropy(x, targets), torch.nn.functional.cross_entropy(*flat), (x, twin))


def test_it_learns_and_keeps_step_with_torch():
    """Count up or down in steps of 1 to 3 (mod 12): 300 steps, loss for loss the same."""
    ours, theirs = decoders(n_layers=1)
    rng = np.random.default_rng(0)
    for name, weight in ours.parameters():  # a start that learns fast, without warm-up
        if not name.endswith("scale"):
            weight.data[:] = rng.normal(size=weight.shape) / np.sqrt(weight.shape[1])
    nn.copy_weights(ours, theirs)
    losses, rate = [], 0.3
    for _ in range(300):
        start, stride = rng.integers(0, 12, (16, 1)), rng.integers(1, 4, (16, 1))
        text = (start + stride * np.arange(9)) % 12
        inputs, targets = text[:, :-1], text[:, 1:]
        loss = nn.cross_entropy(ours(inputs), targets)
        loss.backward()
        nn.descend(ours, rate)
        logits = theirs(torch.tensor(inputs)).flatten(0, 1)
        twin = torch.nn.functional.cross_entropy(logits, torch.tensor(targets).flatten())
        twin.backward()
        with torch.no_grad():
            for weight in theirs.parameters():
                weight -= rate * weight.grad
                weight.grad = None
        losses.append((float(loss.data), twin.item()))
    first, last = np.mean(losses[0]), np.mean(losses[-20:])
    assert max(abs(a - b) for a, b in losses) < 1e-8
    # Only the second token has to be guessed, one of 3: ln 3 over 8 places is 0.137.
    assert first > 2 and 0.13 < last < 0.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.RMSNorm(4)(Tensor(np.ones((1, 3, 1)))),
            "RMSNorm: expected [..., 4], got [1, 3, 1]",
        ),
        (lambda: nn.RMSNorm(4, eps=-1e-6), "RMSNorm: expected eps >= 0, got -1e-06"),
        (lambda: nn.Linear(3, 2)(Tensor([1.0, 2.0])), "Linear: expected [..., 3], got [2]"),
        (
            lambda: nn.residual_add(Tensor(np.ones((2, 1))), Tensor(np.ones((2, 3)))),
            "residual_add: expected [2, 1], got [2, 3] "
            "(a branch must project back to the stream's width)",
        ),
        (
            lambda: nn.CausalSelfAttention(6, 2),
            "CausalSelfAttention: expected heads of an even width, got 6 and 2",
        ),
        (
            lambda: nn.CausalSelfAttention(4, 2)(Tensor(np.ones((3, 4)))),
            "CausalSelfAttention: expected [B, T, D], got [3, 4]",
        ),
        (lambda: nn.Embedding(4, 2)([[0.5]]), "Embedding: expected whole-number tokens, got"),
        (lambda: nn.Embedding(4, 2)([[4]]), "Embedding: expected token ids 0 … 3, got 4 … 4"),
        (lambda: nn.Embedding(4, 2)([[-1]]), "Embedding: expected token ids 0 … 3, got -1 … -1"),
        (lambda: nn.Decoder(4, n_layers=1)([1, 2]), "Decoder: expected [B, T], got [2]"),
        (
            lambda: nn.cross_entropy(Tensor(np.ones((2, 3, 4))), [[1, 2]]),
            "cross_entropy: expected targets [2, 3], got [1, 2]",
        ),
        (
            lambda: nn.copy_weights(nn.Linear(2, 3), nn.Linear(3, 2)),
            "copy_weights: weight: expected [2, 3], got [3, 2]",
        ),
        (
            lambda: nn.copy_weights(nn.Linear(2, 2), nn.RMSNorm(2)),
            "copy_weights: expected the same names, got 2 others (first scale)",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value).startswith(message)
