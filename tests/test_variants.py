"""variants.py: each design against its formula written out, and what it promises at the start."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention

from tiny_lm.config import ModelConfig
from tiny_lm.layers import BLOCKS, NORMS
from tiny_lm.model import TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.variants import ORDERS

CONFIG = ModelConfig(d_model=16, n_heads=2, d_ff=24, norm_eps=1e-3, n_layers=3)
NEW = [order for order in ORDERS if order not in BLOCKS]


def block(order, seed=0):
    """A block in float64 whose every parameter is drawn, gains too; where it counts, the third."""
    config, place = replace(CONFIG, order=order), {"inverse_root": {"index": 2}}
    layer = ORDERS[order](config, **place.get(order, {})).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return layer


def stream(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(order, b, x):
    """The formula of each docstring, with PyTorch's own norm."""

    def norm(n, x):
        return rms_norm(x, (16,), n.scale, eps=1e-3)

    match order:
        case "bare":
            h = x + b.attention(x)
            return h + b.ffn(h)
        case "sandwich":
            h = x + norm(b.norm3, b.attention(norm(b.norm1, x)))
            return h + norm(b.norm4, b.ffn(norm(b.norm2, h)))
        case "deepnorm":
            h = norm(b.norm1, 6**0.25 * x + b.attention(x))
            return norm(b.norm2, 6**0.25 * h + b.ffn(h))
        case "rezero":
            h = x + b.fade1 * b.attention(x)
            return h + b.fade2 * b.ffn(h)
        case "parallel":
            return x + b.attention(norm(b.norm1, x)) + b.ffn(norm(b.norm2, x))
        case "layerscale":
            h = x + b.scale1 * b.attention(norm(b.norm1, x))
            return h + b.scale2 * b.ffn(norm(b.norm2, h))
        case "inverse_root":
            h = x + b.attention(norm(b.norm1, x) / 3**0.5)
            return h + b.ffn(norm(b.norm2, h) / 3**0.5)
        case "embed_norm":
            x = norm(b.norm0, x)
            h = x + b.attention(norm(b.norm1, x))
            return h + b.ffn(norm(b.norm2, h))
        case "qk_norm":
            h = x + normed_attention(b.attention, norm(b.norm1, x))
            return h + b.ffn(norm(b.norm2, h))
        case "hyper":
            streams = [x, x]
            for mix, branch in (
                (b.mix1, lambda u: b.attention(norm(b.norm1, u))),
                (b.mix2, lambda u: b.ffn(norm(b.norm2, u))),
            ):
                r0, r1, w0, w1, k00, k01, k10, k11 = mix
                out = branch(r0 * streams[0] + r1 * streams[1])
                streams = [
                    k00 * streams[0] + k01 * streams[1] + w0 * out,
                    k10 * streams[0] + k11 * streams[1] + w1 * out,
                ]
            return torch.stack(streams, dim=2)


def normed_attention(attention, x):
    """Attention with RoPE as a product of complex numbers, PyTorch's own kernel, q and k normed."""
    B, T, _ = x.shape
    q, k, v = (
        linear(x, p.weight).view(B, T, 2, 8).transpose(1, 2)
        for p in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    q = rms_norm(q, (8,), attention.q_proj.norm.scale, eps=1e-3)
    k = rms_norm(k, (8,), attention.k_proj.norm.scale, eps=1e-3)
    angles = torch.arange(T).double()[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)
    turns = torch.polar(torch.ones_like(angles), angles)

    def turned(u):
        return torch.view_as_real(torch.view_as_complex(u.unflatten(-1, (4, 2))) * turns).flatten(
            -2
        )

    context = scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
    return linear(context.transpose(1, 2).flatten(2), attention.out_proj.weight)


@pytest.mark.parametrize("order", NEW)
def test_forward_and_backward_against_the_formula(order):
    b, x = block(order), stream(2, 5, 16)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = b(ours), by_hand(order, b, theirs)
    weights = stream(*wanted.shape, seed=2)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    parameters = list(b.parameters())
    given = torch.autograd.grad((y * weights).sum(), [ours, *parameters])
    asked = torch.autograd.grad((wanted * weights).sum(), [theirs, *parameters])
    for g, a in zip(given, asked, strict=True):
        torch.testing.assert_close(g, a, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("order", NEW)
def test_names_of_the_values_and_what_an_edit_does(order):
    b, x = block(order), stream(1, 4, 16)
    seen = Recorder()
    y = b(x, tap=seen)
    names = {"norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"}
    assert set(seen) == names | ({"norm.embed"} if order == "embed_norm" else set())
    assert torch.equal(y, b(x)) and torch.equal(list(seen.values())[-1], y)
    for name in seen:
        edited = b(x, tap=Recorder(edit={name: lambda value: value * 1.5}))
        assert not torch.allclose(edited, y), name


@pytest.mark.parametrize("order", NEW)
def test_causal_and_the_same_with_a_cache(order):
    config = replace(CONFIG, order=order, vocab_size=11)
    model = TinyLM(config, init="fan_in").double()
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    whole, changed = model(tokens), model(torch.tensor([[1, 2, 3, 4, 9, 6]]))
    torch.testing.assert_close(whole[:, :4], changed[:, :4], rtol=1e-12, atol=1e-12)
    cache = model.new_cache()
    parts = [model(part, cache=cache) for part in tokens.split([3, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)


def test_rezero_begins_as_nothing_and_only_its_fades_learn():
    b, x = ORDERS["rezero"](CONFIG), stream(1, 3, 16).float().requires_grad_()
    y = b(x)
    assert torch.equal(y, x)
    y.square().sum().backward()
    assert torch.equal(x.grad, 2 * x)
    learning = {name for name, p in b.named_parameters() if p.grad is not None and p.grad.any()}
    assert learning == {"fade1", "fade2"}


def test_parameters_that_come_and_go():
    counts = {o: sum(p.numel() for p in ORDERS[o](CONFIG).parameters()) for o in ORDERS}
    pre = counts["pre"]
    assert counts == {
        "pre": pre, "post": pre, "plain": pre, "deepnorm": pre,
        "bare": pre - 32, "sandwich": pre + 32, "rezero": pre - 32 + 2, "parallel": pre,
        "layerscale": pre + 32, "inverse_root": pre, "embed_norm": pre + 16, "qk_norm": pre + 16,
        "hyper": pre + 16,
    }  # fmt: skip


def test_deepnorm_is_drawn_smaller_where_its_paper_says():
    """(8 · 3)^(-1/4) for v, the output projection and the FFN; not for q and k."""
    plain = dict(TinyLM(replace(CONFIG, order="post"), seed=4, init="fan_in").named_parameters())
    deep = TinyLM(replace(CONFIG, order="deepnorm"), seed=4, init="fan_in").named_parameters()
    for name, p in deep:
        smaller = any(part in name for part in ("v_proj", "out_proj", "ffn"))
        torch.testing.assert_close(p, plain[name] * (24**-0.25 if smaller else 1.0))


def test_the_norm_of_the_config_reaches_the_new_norms():
    layer = ORDERS["sandwich"](replace(CONFIG, norm="layer"))
    assert type(layer.norm3) is type(layer.norm4) is NORMS["layer"]
    assert layer.norm3.eps == layer.norm4.eps == 1e-3


# Pre-norm blocks with one thing more


def models(order, **more):
    """The pre-norm model and one of another order, from the same seed, in float64."""
    made = [
        TinyLM(replace(CONFIG, order=o, vocab_size=11, **more), seed=3, init="fan_in").double()
        for o in ("pre", order)
    ]
    return *made, torch.tensor([[1, 2, 3, 4, 5, 6]])


def test_hyper_connections_begin_as_the_pre_norm_model_twice_as_large():
    pre, hyper, tokens = models("hyper", norm_eps=0.0)  # the final norm must not see the size
    with torch.no_grad():
        torch.testing.assert_close(hyper(tokens), pre(tokens), rtol=1e-11, atol=1e-12)
        ends = [Recorder(), Recorder()]
        for model, seen in zip((pre, hyper), ends, strict=True):
            model(tokens, tap=seen)
    last = "blocks.2.resid.ffn"
    torch.testing.assert_close(ends[1][last], 2 * ends[0][last], rtol=1e-12, atol=1e-12)
    assert ends[1]["blocks.1.resid.ffn"].shape == (1, 6, 2, 16)


def test_branches_of_hyper_connections_read_the_streams_in_turn():
    _, hyper, _ = models("hyper")
    reads = [mix[:2].tolist() for block in hyper.blocks for mix in (block.mix1, block.mix2)]
    assert reads == [[1, 0], [0, 1]] * 3
    assert all(block.mix1.ndim == 1 for block in hyper.blocks), "neither drawn nor decaying"


def test_one_block_of_hyper_connections_is_first_and_last():
    _, hyper, tokens = models("hyper", n_layers=1)
    assert hyper(tokens).shape == (1, 6, 11)


@pytest.mark.parametrize(("n_layers", "start"), [(18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6)])
def test_layerscale_begins_as_its_paper_says(n_layers, start):
    b = ORDERS["layerscale"](replace(CONFIG, order="layerscale", n_layers=n_layers))
    assert torch.all(b.scale1 == start) and torch.all(b.scale2 == start)


def test_each_block_divides_by_the_root_of_its_number():
    _, model, tokens = models("inverse_root", norm_eps=0.0)
    seen = Recorder()
    with torch.no_grad():
        model(tokens, tap=seen)
    sizes = [float(seen[f"blocks.{i}.norm.{part}"].square().mean())
             for i in range(3) for part in ("attn", "ffn")]  # fmt: skip
    assert sizes == pytest.approx([1, 1, 1 / 2, 1 / 2, 1 / 3, 1 / 3], rel=1e-12)


def test_only_the_first_block_norms_the_embedding():
    _, model, tokens = models("embed_norm", norm_eps=0.0)
    seen = Recorder()
    with torch.no_grad():
        model(tokens, tap=seen)
    assert [name for name in seen if name.endswith("norm.embed")] == ["blocks.0.norm.embed"]
    assert [name for name, _ in model.named_parameters() if "norm0" in name] == [
        "blocks.0.norm0.scale"
    ]
    assert float(seen["blocks.0.norm.embed"].square().mean()) == pytest.approx(1, rel=1e-12)


def test_with_qk_norm_the_size_of_q_and_k_no_longer_counts():
    """And without it, it does."""
    pre, normed, tokens = models("qk_norm", norm_eps=0.0)
    for model, stays in ((normed, True), (pre, False)):
        with torch.no_grad():
            before = model(tokens)
            for block in model.blocks:
                block.attention.q_proj.weight *= 50
                block.attention.k_proj.weight *= 0.5
            assert torch.allclose(model(tokens), before, rtol=1e-9, atol=1e-10) == stays


def test_qk_norm_with_fewer_key_heads():
    config = replace(CONFIG, order="qk_norm", n_heads=4, n_kv_heads=2)
    attention = ORDERS["qk_norm"](config).attention
    assert attention.k_proj.weight.shape == (8, 16) and attention.k_proj.norm.width == 4
    assert attention(torch.randn(1, 3, 16)).shape == (1, 3, 16)


@pytest.mark.parametrize("order", NEW)
def test_every_order_is_kept_by_a_checkpoint(order, tmp_path):
    from tiny_lm import checkpoint

    model = TinyLM(replace(CONFIG, order=order, vocab_size=11), init="fan_in")
    checkpoint.save(tmp_path / "m.safetensors", model)
    again, _ = checkpoint.load(tmp_path / "m.safetensors")
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(again(tokens), model(tokens))


@pytest.mark.parametrize("order", NEW)
def test_every_order_takes_a_step(order):
    """A gradient reaches a parameter of every block, and the loss of the same rows falls."""
    from tiny_lm.train import next_token_loss

    model = TinyLM(replace(CONFIG, order=order, vocab_size=11), init="fan_in")
    rows = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    before = next_token_loss(model, rows)
    before.backward()
    assert all(
        any(p.grad is not None and p.grad.any() for p in b.parameters()) for b in model.blocks
    )
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= 1e-3 * p.grad / p.grad.norm().clamp_min(1e-12)
        assert next_token_loss(model, rows) < before
