"""Faults that were found in other people's blocks, attention and sampling, and what is right.

Numbered as in test_known_faults_norms.py: the thread stands beside each, and the whole kind is
held: every order of block, the taught path and the fast one, with and without a cache.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, silu
from torch.testing import assert_close

from tiny_lm import plain
from tiny_lm.attention import attention_2d, attention_weights, split_heads
from tiny_lm.config import ORDER_NAMES, ModelConfig, TrainConfig
from tiny_lm.corpus import Letters
from tiny_lm.fast import FastAttention, FastSwiGLU, speed_up
from tiny_lm.generate import generate, probabilities
from tiny_lm.layers import (
    CausalSelfAttention,
    PlainBlock,
    Residual,
    RMSNorm,
    SwiGLU,
    TransformerBlock,
    residual_add,
)
from tiny_lm.model import TinyLM
from tiny_lm.rope import apply_rope, rope_angles, rotate
from tiny_lm.taps import Recorder
from tiny_lm.train import train

SMALL = {"vocab_size": 13, "max_len": 64, "n_layers": 2, "d_model": 16, "n_heads": 4, "d_ff": 24}
every_order = pytest.mark.parametrize("order", ORDER_NAMES)
every_attention = pytest.mark.parametrize("attention", [CausalSelfAttention, FastAttention])
every_float = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16]
)
both_paths = pytest.mark.parametrize("fast", [False, True], ids=["taught", "fast"])


def drawn(module, std=0.2, seed=0):
    """Weights large enough that a wrong position or mask cannot hide in the rounding."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim >= 2:
                weight.normal_(0, std, generator=generator)
            else:  # gains, and the factors that ReZero has at 0
                weight.uniform_(0.5, 1.5, generator=generator)
    return module.double()


def model_of(fast=False, **changes):
    model = drawn(TinyLM(ModelConfig(**(SMALL | changes)))).eval()
    return speed_up(model) if fast else model


def some_tokens(batch, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, SMALL["vocab_size"], (batch, length), generator=generator)


class Writes(nn.Module):
    """A branch that does what it is told."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x, **settings):
        return self.f(x)


def block_of(attention, ffn, eps=1e-5, block=TransformerBlock):
    made = block(ModelConfig(d_model=2, n_heads=1, d_ff=2, norm_eps=eps)).double()
    made.attention, made.ffn = Writes(attention), Writes(ffn)
    return made


def stream(*values):
    return torch.tensor([[values]], dtype=torch.float64)


# 18 · pytorch/pytorch#10586, karpathy/nanoGPT#72: adding in place changes the caller's numbers.
@every_order
@both_paths
def test_18_nothing_the_caller_holds_is_changed(order, fast):
    model, tokens = model_of(fast, order=order), some_tokens(2, 5)
    held, weights = tokens.clone(), copy.deepcopy(model.state_dict())
    x = model.embedding(tokens).detach()
    before = x.clone()
    with torch.no_grad():
        model(tokens)
        if order not in ("hyper", "embed_norm"):  # their blocks pass on more than a stream
            model.blocks[0](x)
    assert torch.equal(tokens, held) and torch.equal(x, before)
    assert all(torch.equal(weights[name], now) for name, now in model.state_dict().items())


def test_18_twice_in_a_row_with_gradients():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(2):
        y = residual_add(y, RMSNorm(2).double()(y))
    y.sum().backward()
    assert x.tolist() == [1, 1] and x.grad.isfinite().all()


# 19 · pytorch/pytorch#61165, tracel-ai/burn#1056: the direct path starts at the normalised copy, or
# the second half reads the wrong stream.
def test_19_both_branches_zero_give_x_back():
    block = block_of(torch.zeros_like, torch.zeros_like)
    assert torch.equal(block(stream(3, 4)), stream(3, 4))
    assert torch.equal(Residual(Writes(torch.zeros_like))(stream(3, 4)), stream(3, 4))
    assert plain.residual_add([3, 4], [0, 0]) == [3, 4]


def test_19_doubling_is_of_the_normalised_copy_and_added_to_x():
    one = block_of(lambda u: 2 * u, torch.zeros_like, eps=0.0)
    assert_close(one(stream(3, 4)), stream(4.697056274848, 6.262741699797))
    plain_block = block_of(lambda u: 2 * u, lambda u: u, eps=0.0, block=PlainBlock)
    assert_close(plain_block(stream(3, 4)), stream(0.848528137424, 1.131370849898))


def test_19_the_second_norm_reads_h_and_the_second_sum_starts_at_h():
    block = block_of(lambda u: torch.zeros_like(u) + u.new_tensor([1.0, 0]), lambda u: 2 * u)
    assert_close(block(stream(3, 4)), stream(5.999999375, 5.999999375), rtol=0, atol=1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 999), power=st.integers(-3, 3))
def test_19_any_branches_any_size(seed, power):
    generator = torch.Generator().manual_seed(seed)
    A, F = torch.randn(2, 2, 2, generator=generator).double()
    x = torch.randn(2, 3, 2, generator=generator).double() * 10.0**power
    norm = RMSNorm(2).double()
    h = x + norm(x) @ A
    block = block_of(lambda u: u @ A, lambda u: u @ F)
    assert_close(block(x), h + norm(h) @ F)


# 20 · pytorch/pytorch#50086, lucidrains/x-transformers#202: the final norm missing, or there twice.
@every_order
def test_20_one_final_norm(order):
    model, seen = model_of(order=order), Recorder()
    gain = torch.linspace(0.5, 2, 16).double()
    with torch.no_grad():
        model.norm_final.scale.copy_(gain)
        features = model.features(some_tokens(2, 5), tap=seen)
    last = [name for name in seen if name != "norm.final" and "weights" not in name][-1]
    normalised = features / gain  # twice, the gain would be there twice
    assert_close(normalised.square().mean(-1), torch.ones(2, 5).double(), rtol=0, atol=1e-2)
    if order not in ("hyper",):  # its last value has two streams
        x = seen[last]
        assert_close(normalised, x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


def test_20_what_small_weights_would_hide():
    model = TinyLM(ModelConfig(vocab_size=65, n_layers=2), seed=0)
    logits = model(torch.arange(65)[None])
    assert 0.1 < logits.std() < 0.25  # 0.004 without the norm, and the loss would not tell
    assert abs(cross_entropy(logits[0], torch.arange(65).roll(1)) - 4.1743873) < 0.1


# 25 · karpathy/minGPT#23, huggingface/transformers#35927: weight decay pulls gains to zero.
@pytest.mark.parametrize("order", ["pre", "post", "layerscale", "sandwich", "qk_norm"])
def test_25_gains_do_not_decay(order):
    corpus = Letters()
    config = ModelConfig(**(SMALL | {"vocab_size": corpus.tokenizer.vocab_size}), order=order)
    model = TinyLM(config)
    before = copy.deepcopy(model.state_dict())
    model.logits = lambda features: features[..., :1].expand(
        *features.shape[:-1], config.vocab_size
    )  # no score differs from another: every slope is zero, only the decay is left
    train(
        model, corpus, TrainConfig(steps=3, batch=2, length=8, lr=0.1, warmup=0, weight_decay=0.5)
    )
    for name, now in model.state_dict().items():
        kept = torch.equal(now, before[name])
        assert kept == (now.ndim < 2), name


# 28 · pytorch/pytorch#108108; 46 · meta-llama/llama#899: more keys than queries.
@pytest.mark.parametrize(
    ("queries", "keys", "right"),
    [(1, 3, [2.0]), (2, 3, [1.5, 2.0]), (3, 3, [1.0, 1.5, 2.0]), (2, 5, [2.5, 3.0])],
)
@every_float
def test_28_46_the_last_query_is_the_last_key(queries, keys, right, dtype):
    q, k = torch.zeros(queries, 2, dtype=dtype), torch.zeros(keys, 2, dtype=dtype)
    v = torch.arange(1.0, keys + 1, dtype=dtype)[:, None]
    assert_close(attention_2d(q, k, v)[0][:, 0].double().tolist(), right, rtol=4e-3, atol=0)


def test_28_more_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="expected at least 5 keys for 5 queries, got 2"):
        attention_weights(torch.zeros(5, 2), torch.zeros(2, 2))


# 32 · Blaizzy/mlx-vlm#1983 and others: with a cache, positions that start again or are one off.
@both_paths
@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("pieces", [[40, *[1] * 8], [1] * 48, [7, 30, 11], [47, 1]])
def test_28_32_46_a_cache_fed_in_pieces_is_the_full_pass(fast, n_kv_heads, pieces):
    model, tokens = model_of(fast, n_kv_heads=n_kv_heads), some_tokens(2, 48)
    cache = model.new_cache()
    with torch.no_grad():
        found = [model(piece, cache=cache) for piece in tokens.split(pieces, dim=1)]
        assert_close(torch.cat(found, dim=1), model(tokens), rtol=0, atol=1e-11)


@every_order
def test_32_in_every_order_of_block(order):
    model, tokens = model_of(order=order), some_tokens(2, 12)
    cache = model.new_cache()
    with torch.no_grad():
        found = [model(piece, cache=cache) for piece in tokens.split([5, 1, 1, 5], dim=1)]
        assert_close(torch.cat(found, dim=1), model(tokens), rtol=0, atol=1e-11)


# 29 · pytorch/pytorch#103963: a row in which everything is masked is 0/0.
@every_attention
@every_float
def test_29_every_row_sees_itself_and_slopes_are_finite(attention, dtype):
    layer = drawn(attention(8, 2), 1.0).to(dtype)
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    y = layer(x)
    y.float().sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()


# 30 · NVIDIA/apex#1052, huggingface/transformers#17306: -1e9 does not fit into sixteen bits.
@every_float
@pytest.mark.parametrize("size", [1.0, 16.0, 200.0])
def test_30_the_future_weighs_exactly_nothing(dtype, size):
    q = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(dtype) * size
    weights = attention_weights(q, -q)  # its own key is each query's worst
    assert weights.dtype == dtype and weights.triu(1).unique().tolist() == [0.0]
    assert_close(weights.double().sum(-1), torch.ones(5).double(), rtol=0, atol=1e-2)


# 31 · huggingface/transformers#25199, rasbt/LLMs-from-scratch#747: two ways to pair coordinates.
def test_31_neighbours_are_pairs():
    x = torch.tensor([[1.0, 2, 3, 4]], dtype=torch.float64)
    angles = rope_angles(torch.tensor([1]), 4)
    assert_close(angles, torch.tensor([[1, 0.01]], dtype=torch.float64))
    turned = rotate(x, angles)[0]
    right = [-1.142639664, 1.922075597, 2.959850667, 4.029799502]
    assert_close(turned.tolist(), right, rtol=0, atol=1e-9)
    order = torch.tensor([0, 2, 1, 3])  # the halves (0, 2), (1, 3) as neighbours
    other = torch.empty(4).double()
    other[order] = rotate(x[:, order], angles)[0]
    assert_close(
        other.tolist(), [-1.98411065, 1.95990067, 2.46237790, 4.01979967], rtol=0, atol=1e-8
    )


@settings(max_examples=30)
@given(start=st.integers(0, 5000), apart=st.integers(1, 60), seed=st.integers(0, 999))
def test_31_a_score_depends_on_the_distance_and_does_depend_on_it(start, apart, seed):
    q, k = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(seed)).double()

    def score(first, second):
        turned = (
            rotate(x, rope_angles(torch.tensor([p]), 8)) for x, p in ((q, first), (k, second))
        )
        a, b = turned
        return (a @ b.T).item()

    assert score(start, start + apart) == pytest.approx(score(0, apart), abs=1e-10)
    assert abs(score(0, apart) - score(0, 0)) > 1e-9


# 34 · huggingface/transformers#48101, rasbt/LLMs-from-scratch#444: head sizes that do not fit.
@every_attention
@pytest.mark.parametrize(
    ("width", "heads", "kv_heads", "message"),
    [
        (64, 5, None, "width divisible by heads, got 64 and 5"),
        (130, 2, None, "an even head width, got 65"),
        (64, 4, 3, "heads divisible by n_kv_heads, got 4 and 3"),
        (64, 0, None, "width divisible by heads, got 64 and 0"),
    ],
)
def test_34_sizes_are_refused_when_the_layer_is_made(attention, width, heads, kv_heads, message):
    with pytest.raises(ValueError, match=message):
        attention(width, heads, n_kv_heads=kv_heads)
    with pytest.raises(ValueError, match="ModelConfig: expected"):
        ModelConfig(d_model=width, n_heads=heads, n_kv_heads=kv_heads)


def test_34_a_head_is_a_part_of_the_width_not_of_the_positions():
    x = torch.arange(8.0).reshape(1, 2, 4)
    assert split_heads(x, 2)[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


# 35 · apple/axlearn#842, onnx/onnx#7274: which queries share a key/value head.
@every_attention
def test_35_neighbouring_queries_share(attention):
    layer = drawn(attention(8, 4, n_kv_heads=2))
    alone = drawn(attention(8, 4))
    with torch.no_grad():
        for name in ("q_proj", "out_proj"):
            getattr(alone, name).weight.copy_(getattr(layer, name).weight)
        for name in ("k_proj", "v_proj"):  # heads 0, 0, 1, 1
            rows = getattr(layer, name).weight.unflatten(0, (2, 2))
            getattr(alone, name).weight.copy_(rows[[0, 0, 1, 1]].flatten(0, 1))
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).double()
    assert_close(layer(x), alone(x), rtol=0, atol=1e-13)


# 36 · stas00/ml-engineering#45: which half goes through silu, and how wide the layer is.
@pytest.mark.parametrize("layer", [SwiGLU, FastSwiGLU])
def test_36_the_gate_goes_through_silu(layer):
    ffn = layer(1, 1).double()
    with torch.no_grad():
        for name, weight in (("gate_proj", 2.0), ("up_proj", 1.0), ("down_proj", 1.0)):
            getattr(ffn, name).weight.fill_(weight)
        one, minus = ffn(torch.ones(1, 1).double()), ffn(-torch.ones(1, 1).double())
    assert one.item() == pytest.approx(1.7615941559557649)  # silu(2) · 1, and not 2 · silu(1)
    assert minus.item() == pytest.approx(silu(torch.tensor(-2.0).double()).item() * -1)


# 37 · karpathy/build-nanogpt#18, minGPT#62: the loss before training, and counting parameters.
def test_37_parameters_and_the_first_loss():
    config = ModelConfig(vocab_size=65, d_model=64, n_heads=2, d_ff=176, n_layers=2)
    model = TinyLM(config)
    assert sum(p.numel() for p in model.parameters()) == 104_832
    tokens = torch.randint(0, 65, (4, 65), generator=torch.Generator().manual_seed(0))
    loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(4.1743873, abs=0.05)  # 59.1 with embeddings of std 1


@both_paths
def test_37_zero_output_projections_are_the_identity(fast):
    block = model_of(fast).blocks[0]
    with torch.no_grad():
        block.attention.out_proj.weight.zero_()
        block.ffn.down_proj.weight.zero_()
    x = torch.randn(2, 5, 16).double().requires_grad_()
    y = block(x)
    y.sum().backward()
    assert torch.equal(y, x) and torch.equal(x.grad, torch.ones_like(x))
    moved = {name for name, p in block.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"attention.out_proj.weight", "ffn.down_proj.weight"}


# 39 · karpathy/nanoGPT#738, google-deepmind/gemma#562: temperature 0.
def test_39_temperature():
    logits = torch.tensor([1.0, 3, 3, 0])
    assert probabilities(logits, temperature=0).tolist() == [0, 1, 0, 0]
    for tiny in (1e-8, 1e-40, 1e-300):
        assert probabilities(logits, temperature=tiny).tolist() == [0, 0.5, 0.5, 0]
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected temperature >= 0"):
            probabilities(logits, temperature=wrong)


# 40 · karpathy/nanoGPT model.py: top_k above the vocabulary, 0, and ties.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_40_top_k(dtype):
    logits = torch.tensor([1.0, 3, 3, 0], dtype=dtype)
    assert probabilities(logits, top_k=1).tolist() == [0, 1, 0, 0]
    assert probabilities(logits, top_k=3).count_nonzero() == 3
    for wrong in (0, 5, -1, 2.0):
        with pytest.raises(ValueError, match=rf"expected top_k 1 … 4, got {wrong}"):
            probabilities(logits, top_k=wrong)


# 41 · an empty prompt, and ids that are no tokens.
@both_paths
@pytest.mark.parametrize("call", [lambda m, t: m(t), lambda m, t: generate(m, t, 2)])
@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.int64), "expected at least one token, got"),
        (torch.zeros(0, 3, dtype=torch.int64), "expected at least one token, got"),
        (torch.tensor([[0, 13]]), "expected token ids 0 … 12, got 13"),
        (torch.tensor([[0, -1]]), "expected token ids 0 … 12, got -1"),
        (torch.tensor([[0.0, 1.0]]), "expected whole-number tokens"),
        (torch.tensor([0, 1]), r"expected tokens \[B, T\], got \[2\]"),
    ],
)
def test_41_prompts(fast, call, tokens, message):
    with pytest.raises(ValueError, match=message):
        call(model_of(fast), tokens)


# 42 · pytorch/pytorch#88718: another batch or length may round otherwise; it must not be wrong.
@both_paths
def test_42_alone_in_a_batch_and_as_a_prefix(fast):
    model, tokens = model_of(fast), some_tokens(8, 16)
    with torch.no_grad():
        together = model(tokens)
        assert_close(model(tokens[3:4]), together[3:4], rtol=0, atol=1e-12)
        assert_close(model(tokens[:, :10]), together[:, :10], rtol=0, atol=1e-12)


def test_42_the_weights_of_a_seed_depend_on_nothing_else():
    few = torch.randn(4, generator=torch.Generator().manual_seed(42))
    many = torch.randn(16, generator=torch.Generator().manual_seed(42))[:4]
    assert not torch.equal(few, many)  # so no text may promise the same first numbers
    one = TinyLM(ModelConfig(**SMALL), seed=3).state_dict()
    torch.rand(7)
    other = TinyLM(ModelConfig(**SMALL), seed=3).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


# 43 · NVIDIA/Megatron-LM#3504: what a stream of few bits swallows.
@pytest.mark.parametrize(
    ("dtype", "right"),
    [(torch.bfloat16, 1.0), (torch.float16, 1.375), (torch.float32, 1.3840027)],
)
def test_43_small_updates_of_a_stream(dtype, right):
    x, update = torch.ones(1, dtype=dtype), torch.full((1,), 0.003, dtype=dtype)
    for _ in range(128):
        x = residual_add(x, update)
    assert x.dtype == dtype and x.item() == pytest.approx(right, abs=1e-7)


@every_order
def test_43_the_stream_keeps_its_dtype(order):
    model, seen = TinyLM(ModelConfig(**SMALL, order=order)).to(torch.bfloat16), Recorder()
    model(some_tokens(1, 4), tap=seen)
    assert {value.dtype for value in seen.values()} == {torch.bfloat16}


# 47 · hyunwoongko/transformer#8: dropout on the direct path forgets the token.
@every_order
def test_47_nothing_is_dropped_from_the_stream(order):
    model, tokens = model_of(order=order), some_tokens(2, 6)
    assert torch.equal(model.train()(tokens), model.eval()(tokens))


# 17 · the same for the residual addition: a size-1 axis would broadcast.
@pytest.mark.parametrize(
    ("x", "change"),
    [((1, 3, 4), (1, 3, 1)), ((2, 3, 4), (3, 4)), ((1, 3, 4), (2, 3, 4)), ((3, 64), (3, 128))],
)
def test_17_the_sum_of_two_shapes_is_refused(x, change):
    with pytest.raises(ValueError, match=r"residual_add: expected \[.*\], got \["):
        residual_add(torch.ones(x), torch.ones(change))
    with pytest.raises(ValueError, match="residual_add: change: expected 2 numbers, got 1"):
        plain.residual_add([1, 2], [1])


# 10, 28 · whatever the order of norms and additions, a later token reaches no earlier score.
@every_order
@both_paths
def test_10_28_no_order_lets_the_future_through(order, fast):
    model, tokens = model_of(fast, order=order), some_tokens(1, 8)
    later = tokens.clone()
    later[0, 5] = (later[0, 5] + 1) % 13
    with torch.no_grad():
        one, other = model(tokens), model(later)
    assert_close(one[:, :5], other[:, :5], rtol=0, atol=1e-12)
    assert (one[:, 5:] - other[:, 5:]).abs().amax(-1).min() > 1e-6


def test_31_32_queries_and_keys_are_turned_alike():
    q = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    turned_q, turned_k = apply_rope(q, q, torch.arange(3, 8))
    assert torch.equal(turned_q, turned_k) and not torch.equal(turned_q, q)
