"""model.py against the same model written another way, and what a language model must not do."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing import assert_close

from tiny_lm.attention import KVCache
from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.taps import Recorder

modest = settings(deadline=None, max_examples=25, derandomize=True)
all_orders = pytest.mark.parametrize("order", ["pre", "post", "plain"])

SMALL = {"vocab_size": 65, "max_len": 64, "n_layers": 2, "d_model": 64, "n_heads": 4, "d_ff": 96}


def drawn(model, std=0.2, seed=0):
    """The model with every weight drawn at std 0.2: at 0.02 the faults of C32 hide in rounding."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            centre = 0.0 if weight.ndim > 1 else 1.0
            weight.normal_(centre, std, generator=generator)
    return model


def some_tokens(batch, positions, vocabulary=65, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (batch, positions), generator=generator)


def numbers(model):
    return sum(p.numel() for p in model.parameters())


# The arithmetic


def rope(x, theta):
    """Pairs as complex numbers, in float64."""
    d = x.shape[-1]
    speed = theta ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def written_another_way(model, tokens):
    """The whole model from its state_dict, with torch's own norm, attention and silu."""
    c, w = model.config, model.state_dict()
    x = w["embedding.weight"][tokens]
    B, T, D = x.shape
    d = D // c.n_heads

    def norm(x, name):
        if c.norm == "layer":
            return F.layer_norm(x, (D,), w[name + ".scale"], w[name + ".shift"], eps=c.norm_eps)
        return F.rms_norm(x, (D,), w[name + ".scale"], eps=c.norm_eps)

    def attention(x, at):
        def heads(which, count):
            return (x @ w[f"{at}.{which}_proj.weight"].T).view(B, T, count, d).transpose(1, 2)

        q, k = (
            rope(heads("q", c.n_heads), c.rope_theta),
            rope(heads("k", c.n_kv_heads), c.rope_theta),
        )
        y = F.scaled_dot_product_attention(
            q,
            *(
                kv.repeat_interleave(c.n_heads // c.n_kv_heads, 1)
                for kv in (k, heads("v", c.n_kv_heads))
            ),
            is_causal=True,  # as many queries as keys, so both alignments are one
        )
        return y.transpose(1, 2).reshape(B, T, D) @ w[f"{at}.out_proj.weight"].T

    def ffn(x, at):
        gate, up = x @ w[f"{at}.gate_proj.weight"].T, x @ w[f"{at}.up_proj.weight"].T
        return (F.silu(gate) * up) @ w[f"{at}.down_proj.weight"].T

    for i in range(c.n_layers):
        b = f"blocks.{i}"
        if c.order == "pre":
            x = x + attention(norm(x, f"{b}.norm1"), f"{b}.attention")
            x = x + ffn(norm(x, f"{b}.norm2"), f"{b}.ffn")
        elif c.order == "post":
            x = norm(x + attention(x, f"{b}.attention"), f"{b}.norm1")
            x = norm(x + ffn(x, f"{b}.ffn"), f"{b}.norm2")
        else:
            x = attention(norm(x, f"{b}.norm1"), f"{b}.attention")
            x = ffn(norm(x, f"{b}.norm2"), f"{b}.ffn")
    return norm(x, "norm_final") @ w["embedding.weight" if c.tied else "output.weight"].T


@all_orders
@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("tied", [True, False])
def test_against_the_same_model_written_another_way(order, norm, tied):
    config = ModelConfig(
        **SMALL, order=order, norm=norm, tied=tied, n_kv_heads=2, rope_theta=500.0, norm_eps=1e-3
    )
    model = drawn(TinyLM(config)).double()
    tokens = some_tokens(2, 9)
    # Logits of size 10 in float64.
    assert_close(model(tokens), written_another_way(model, tokens), rtol=0, atol=1e-10)


def test_float32_is_near_float64():
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(2, 9)
    single = model(tokens)
    # float32 keeps 1e-7 of logits of size 10, through a dozen matrix products.
    assert_close(single.double(), model.double()(tokens), rtol=0, atol=1e-4)


@modest
@given(st.integers(1, 3), st.integers(1, 8))
def test_shapes(batch, positions):
    model, tokens = TinyLM(ModelConfig(**SMALL)), some_tokens(batch, positions)
    assert model(tokens).shape == (batch, positions, 65)
    assert model.features(tokens).shape == (batch, positions, 64)
    assert model.logits(torch.zeros(64)).shape == (65,)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_the_features_scored(tied):
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL, tied=tied))), some_tokens(2, 5)
    features = model.features(tokens)
    assert torch.equal(model(tokens), model.logits(features))
    matrix = model.embedding.weight if tied else model.output.weight
    assert_close(model.logits(features), features @ matrix.T, rtol=0, atol=1e-4)


def test_the_final_norm_is_there_once():
    """C20: missing, it shows only in deep models; doubled, hardly at all."""
    model, tap = drawn(TinyLM(ModelConfig(**SMALL))).double(), Recorder()
    model(some_tokens(2, 5), tap=tap)
    last = tap["blocks.1.resid.ffn"]
    assert_close(tap["norm.final"], model.norm_final(last), rtol=0, atol=0)
    assert (model.norm_final(tap["norm.final"]) - tap["norm.final"]).abs().max() > 1e-2


# Parameters


def test_number_of_parameters():
    """C37."""
    config = ModelConfig(vocab_size=65, d_model=64, n_heads=2, d_ff=176, n_layers=2)
    assert numbers(TinyLM(config)) == 104_832
    assert numbers(TinyLM(config)) == 65 * 64 + 2 * (4 * 64**2 + 3 * 64 * 176 + 2 * 64) + 64
    untied = ModelConfig(vocab_size=65, d_model=64, n_heads=2, d_ff=176, n_layers=2, tied=False)
    assert numbers(TinyLM(untied)) == 104_832 + 65 * 64


def test_norms_and_their_gains():
    """Two a block and one before the logits: 5 · 64 = 320; 9 · 128 = 1,152."""
    for layers, width, count, gains in [(2, 64, 5, 320), (4, 128, 9, 1152)]:
        model = TinyLM(ModelConfig(d_model=width, n_layers=layers))
        norms = [module for module in model.modules() if isinstance(module, RMSNorm)]
        assert (len(norms), sum(map(numbers, norms))) == (count, gains)
        assert len({id(norm.scale) for norm in norms}) == count


def test_one_eps_reaches_every_norm():
    """C22."""
    for norm, kind in [("rms", RMSNorm), ("layer", LayerNorm)]:
        model = TinyLM(ModelConfig(norm=norm, norm_eps=3e-4))
        norms = [module for module in model.modules() if isinstance(module, kind)]
        assert len(norms) == 9 and {norm.eps for norm in norms} == {3e-4}


def test_names_of_the_weights():
    names = set(TinyLM(ModelConfig(n_layers=1)).state_dict())
    block = {f"attention.{which}_proj.weight" for which in ("q", "k", "v", "out")}
    block |= {f"ffn.{which}_proj.weight" for which in ("gate", "up", "down")}
    block |= {"norm1.scale", "norm2.scale"}
    expected = {f"blocks.0.{name}" for name in block} | {"embedding.weight", "norm_final.scale"}
    assert names == expected
    assert set(TinyLM(ModelConfig(n_layers=1, tied=False)).state_dict()) == (
        expected | {"output.weight"}
    )


def test_how_weights_are_drawn():
    """0.02, and 0.02 / sqrt(2 · 8) for those that write to the stream; gains ones."""
    model = TinyLM(ModelConfig(n_layers=8, tied=False))
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            assert torch.equal(weight, torch.ones_like(weight)), name
            continue
        expected = 0.005 if name.endswith(("out_proj.weight", "down_proj.weight")) else 0.02
        # The std of n draws is off by 1/sqrt(2n), 1 % for 4,096; five times that is allowed.
        assert weight.std().item() == pytest.approx(expected, rel=0.055), name
        assert abs(weight.mean().item()) < 5 * expected / math.sqrt(weight.numel()), name
    layered = TinyLM(ModelConfig(norm="layer"))
    assert torch.equal(layered.norm_final.shift, torch.zeros(64))


def test_the_seed_decides_and_nothing_else():
    config = ModelConfig(**SMALL)
    torch.manual_seed(1)
    one = TinyLM(config, seed=3).state_dict()
    torch.manual_seed(99)
    same, other = TinyLM(config, seed=3).state_dict(), TinyLM(config, seed=4).state_dict()
    for name, weight in one.items():
        assert torch.equal(weight, same[name]), name
        assert weight.ndim == 1 or not torch.equal(weight, other[name]), name
    assert torch.equal(TinyLM(config).embedding.weight, TinyLM(config, seed=0).embedding.weight)


def test_a_seed_means_the_same_in_every_order():
    """So that a comparison of orders is a comparison of orders."""
    pre = TinyLM(ModelConfig(**SMALL)).state_dict()
    for order in ("post", "plain"):
        for name, weight in TinyLM(ModelConfig(**SMALL, order=order)).state_dict().items():
            assert torch.equal(weight, pre[name])


def test_no_two_layers_start_alike():
    model = TinyLM(ModelConfig(**SMALL))
    first, second = (block.state_dict() for block in model.blocks)
    for name, weight in first.items():
        assert weight.ndim == 1 or not torch.equal(weight, second[name])


def test_a_shape_without_storage():
    with torch.device("meta"):
        model = TinyLM(ModelConfig(**SMALL))
    assert all(weight.is_meta for weight in model.parameters())
    model.load_state_dict(TinyLM(ModelConfig(**SMALL)).state_dict(), assign=True)
    assert model(some_tokens(1, 3)).isfinite().all()


def test_blocks_are_of_the_order_asked_for():
    for order, name in [("pre", "TransformerBlock"), ("post", "PostNormBlock")]:
        model = TinyLM(ModelConfig(order=order))
        assert [type(block).__name__ for block in model.blocks] == [name] * 4


# At the start


def test_the_loss_starts_near_ln_v():
    """C37: 4.17 = ln 65, not the 59 of a tied embedding with std 1."""
    model, tokens = TinyLM(ModelConfig(**SMALL)), some_tokens(8, 33)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()
    # Logits of std 0.16 add half their variance, 0.013; the mean over 256 tokens adds 0.02.
    assert loss == pytest.approx(math.log(65), abs=0.06)
    # A tied model starts out copying its input: that token costs less.
    own = F.cross_entropy(logits.flatten(0, 1), tokens[:, :-1].flatten()).item()
    assert own < loss - 0.5


def test_the_logits_start_with_the_size_that_the_final_norm_gives_them():
    """C20: 0.02 · sqrt(64) = 0.16; without the final norm, 0.004."""
    model = TinyLM(ModelConfig(**SMALL, tied=False))
    # 65 rows of E: the std of 65 · 64 draws is off by 1 %, and the features' directions by 10 %.
    assert model(some_tokens(8, 32)).std().item() == pytest.approx(0.16, abs=0.03)


def test_one_step_downhill_lowers_the_loss():
    model, tokens = TinyLM(ModelConfig(**SMALL)), some_tokens(4, 17)

    def loss():
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    before = loss()
    before.backward()
    for name, weight in model.named_parameters():
        assert weight.grad.isfinite().all() and weight.grad.abs().max() > 0, name
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
    assert loss() < before - 0.01


def test_zero_output_projections_leave_the_embedding():
    model, tap = drawn(TinyLM(ModelConfig(**SMALL))), Recorder()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.out_proj.weight.zero_()
            block.ffn.down_proj.weight.zero_()
    model(some_tokens(2, 5), tap=tap)
    assert torch.equal(tap["blocks.1.resid.ffn"], tap["embed"])


# Causality, batches, the table


@all_orders
@pytest.mark.parametrize("at", [1, 3, 7])
def test_a_later_token_does_not_reach_back(order, at):
    """C10, bitwise: same shapes, same order of sums."""
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL, order=order))), some_tokens(2, 8)
    changed = tokens.clone()
    changed[:, at] = (changed[:, at] + 1) % 65
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :at], after[:, :at])
    assert ((before - after)[:, at:].abs().amax(-1) > 1e-3).all()


@modest
@given(st.permutations(range(4)))
def test_rows_of_a_batch_do_not_meet(order):
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))).double(), some_tokens(4, 6)
    logits = model(tokens)
    assert_close(model(tokens[list(order)]), logits[list(order)], rtol=0, atol=1e-11)
    assert_close(model(tokens[:1]), logits[:1], rtol=0, atol=1e-11)


def test_a_prefix_alone_scores_as_it_does_inside():
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))).double(), some_tokens(2, 9)
    # C42: other shapes, other order of sums, so never bitwise.
    assert_close(model(tokens[:, :4]), model(tokens)[:, :4], rtol=0, atol=1e-11)


def test_tokens_and_weights_are_left_alone():
    """C18: an addition in place would write into the embedding's rows."""
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(2, 5)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    asked = tokens.clone()
    with torch.no_grad():
        model(tokens)
    assert torch.equal(tokens, asked)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_int32_tokens_are_tokens_too():
    model, tokens = TinyLM(ModelConfig(**SMALL)), some_tokens(1, 4)
    assert torch.equal(model(tokens.int()), model(tokens))


# Taps

BLOCK_NAMES = {
    "pre": ["norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"],
    "post": ["attn.weights", "resid.attn", "norm.attn", "resid.ffn", "norm.ffn"],
    "plain": ["norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"],
}


@all_orders
def test_taps_names_order_and_arithmetic(order):
    model, tokens, tap = (
        drawn(TinyLM(ModelConfig(**SMALL, order=order))), some_tokens(2, 5), Recorder(),
    )  # fmt: skip
    logits = model(tokens, tap=tap)
    inside = [f"blocks.{i}.{name}" for i in (0, 1) for name in BLOCK_NAMES[order]]
    assert list(tap) == ["embed", *inside, "norm.final"]
    assert torch.equal(logits, model(tokens))  # bitwise, whether or not anyone listens
    assert torch.equal(tap["embed"], model.embedding.weight[tokens])
    assert torch.equal(model.logits(tap["norm.final"]), logits)
    for name, value in tap.items():
        assert value.shape == ((2, 4, 5, 5) if name.endswith("weights") else (2, 5, 64))


def test_listening_does_not_change_gradients():
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(2, 5)
    gradients = []
    for options in ({}, {"tap": Recorder()}):
        model.zero_grad()
        model(tokens, **options).square().mean().backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "name",
    ["embed", *(f"blocks.{i}.{name}" for i in (0, 1) for name in BLOCK_NAMES["pre"]), "norm.final"],
)
def test_an_edit_under_each_name_changes_the_logits(name):
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(2, 5)
    plain, edited = Recorder(), Recorder(edit={name: lambda value: value * 0.5 + 0.25})
    before, after = model(tokens, tap=plain), model(tokens, tap=edited)
    assert edited.unused == []
    assert (before - after).abs().max() > 1e-2
    assert_close(edited[name], plain[name] * 0.5 + 0.25, rtol=0, atol=0)
    for earlier in list(plain)[: list(plain).index(name)]:
        assert torch.equal(plain[earlier], edited[earlier])


def test_an_edit_that_changes_nothing_changes_nothing():
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(2, 5)
    names = Recorder()
    logits = model(tokens, tap=names)
    edit = {name: lambda value: value for name in names}
    assert torch.equal(model(tokens, tap=Recorder(edit=edit)), logits)


def test_a_misspelt_edit_is_reported():
    model, tap = TinyLM(ModelConfig(**SMALL)), Recorder(edit={"blocks.2.resid.ffn": abs})
    model(some_tokens(1, 3), tap=tap)
    assert tap.unused == ["blocks.2.resid.ffn"]


# The cache


def chunked(model, tokens, chunks):
    cache = model.new_cache()
    logits = [model(piece, cache=cache) for piece in tokens.split(chunks, dim=1)]
    assert [len(held) for held in cache] == [tokens.shape[1]] * model.config.n_layers
    return torch.cat(logits, dim=1)


@modest
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.sampled_from([4, 2, 1]),
    st.sampled_from(["pre", "post", "plain"]),
)
@torch.no_grad()
def test_any_chunking_gives_the_logits_of_the_full_pass(chunks, kv_heads, order):
    """C32, C46: with weights at std 0.2, wrong positions or a wrong mask are off by 4 and more."""
    model = drawn(TinyLM(ModelConfig(**SMALL, n_kv_heads=kv_heads, order=order)))
    tokens = some_tokens(2, sum(chunks))
    # The same sums in another order: measured at 1e-5 for logits of size 10.
    assert_close(chunked(model, tokens, chunks), model(tokens), rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_prompt_of_40_and_8_tokens_after_it():
    model, tokens = drawn(TinyLM(ModelConfig(**SMALL))), some_tokens(1, 48)
    full = model(tokens)
    assert_close(chunked(model, tokens, [40] + [1] * 8), full, rtol=0, atol=1e-4)
    assert_close(chunked(model.double(), tokens, [40] + [1] * 8), model(tokens), rtol=0, atol=1e-11)


def test_a_new_cache_has_one_of_its_own_for_every_block():
    model = TinyLM(ModelConfig(**SMALL))
    one, other = model.new_cache(), model.new_cache()
    assert all(type(held) is KVCache and len(held) == 0 for held in one + other)
    assert len({id(held) for held in one + other}) == 4


@torch.no_grad()
def test_a_cache_may_be_recorded_and_filled_up_to_max_len():
    model, tokens, tap = TinyLM(ModelConfig(**SMALL)), some_tokens(1, 64), Recorder()
    cache = model.new_cache()
    model(tokens[:, :60], cache=cache)
    model(tokens[:, 60:], cache=cache, tap=tap)
    assert tap["blocks.1.attn.weights"].shape == (1, 4, 4, 64)
    with pytest.raises(ValueError) as caught:
        model(tokens[:, :1], cache=cache)
    assert str(caught.value) == "TinyLM: expected at most 64 positions, got 65 (config.max_len)"
    assert [len(held) for held in cache] == [64, 64]


# Errors


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([1, 2]), "tokens [B, T], got [2] (add a batch axis: tokens[None])"),
        (
            torch.zeros(1, 2, 3).long(),
            "tokens [B, T], got [1, 2, 3] (add a batch axis: tokens[None])",
        ),
        (torch.zeros(1, 3), "whole-number tokens, got torch.float32 (call .long())"),
        (torch.zeros(1, 3).bool(), "whole-number tokens, got torch.bool (call .long())"),
        (torch.zeros(1, 3).byte(), "whole-number tokens, got torch.uint8 (call .long())"),
        (torch.zeros(1, 3).short(), "whole-number tokens, got torch.int16 (call .long())"),
        (torch.zeros(1, 0).long(), "at least one token, got [1, 0]"),
        (torch.zeros(0, 3).long(), "at least one token, got [0, 3]"),
        (torch.zeros(1, 65).long(), "at most 64 positions, got 65 (config.max_len)"),
        (torch.tensor([[0, 65]]), "token ids 0 … 64, got 65"),
        (torch.tensor([[-1, 3]]), "token ids 0 … 64, got -1"),
    ],
)
def test_errors(tokens, message):
    """C41."""
    model = TinyLM(ModelConfig(**SMALL))
    for call in (model, model.features):
        with pytest.raises(ValueError) as caught:
            call(tokens)
        assert str(caught.value) == f"TinyLM: expected {message}"


def test_a_refused_call_leaves_the_cache_as_it_was():
    model = TinyLM(ModelConfig(**SMALL))
    cache = model.new_cache()
    model(some_tokens(1, 3), cache=cache)
    for wrong in (torch.tensor([[65]]), torch.zeros(1, 62).long(), torch.zeros(1, 1)):
        with pytest.raises(ValueError, match="TinyLM: expected"):
            model(wrong, cache=cache)
    with pytest.raises(ValueError, match="KVCache: expected"):
        model(some_tokens(2, 1), cache=cache)
    assert [len(held) for held in cache] == [3, 3]
