"""variants.py: each design against its formula written out, and what it promises at the start."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import rms_norm

from tiny_lm.config import ModelConfig
from tiny_lm.layers import BLOCKS, NORMS
from tiny_lm.model import TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.variants import ORDERS

CONFIG = ModelConfig(d_model=16, n_heads=2, d_ff=24, norm_eps=1e-3, n_layers=3)
NEW = [order for order in ORDERS if order not in BLOCKS]


def block(order, seed=0):
    """A block in float64 whose every parameter is drawn, gains too."""
    layer = ORDERS[order](replace(CONFIG, order=order)).double()
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


@pytest.mark.parametrize("order", NEW)
def test_forward_and_backward_against_the_formula(order):
    b, x = block(order), stream(2, 5, 16)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    weights = stream(2, 5, 16, seed=2)
    y, wanted = b(ours), by_hand(order, b, theirs)
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
    assert set(seen) == {"norm.attn", "attn.weights", "resid.attn", "norm.ffn", "resid.ffn"}
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
        "bare": pre - 32, "sandwich": pre + 32, "rezero": pre - 32 + 2,
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
