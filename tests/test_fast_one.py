"""One token alone through the fast blocks: the taught numbers by a shorter way, or the long way."""

import pytest
import torch
from test_fast import close, pair, small_model
from torch.testing import assert_close

from tiny_lm import fast
from tiny_lm.fast.eight_bits import shrink
from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.taps import Recorder

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])


@pytest.fixture
def short(monkeypatch):
    """Counts how often a layer is called by the short way."""
    calls = []
    for kind in (fast.FastRMSNorm, fast.FastAttention, fast.FastSwiGLU):
        way = kind.one
        monkeypatch.setattr(
            kind, "one", lambda *given, way=way: calls.append(type(given[0])) or way(*given)
        )
    return calls


@torch.no_grad()
def one_by_one(model, tokens=TOKENS, **more):
    cache = model.new_cache()
    parts = [model(part, cache=cache, **more) for part in tokens.split(1, dim=1)]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_each_token_is_what_the_taught_model_makes_of_the_text(dtype, kv_heads, short):
    taught, quick = pair(small_model(n_kv_heads=kv_heads, norm_eps=0.3))
    got = one_by_one(fast.speed_up(quick.to(dtype)))
    assert len(short) == 10 * 2 * 4, "ten tokens, two blocks, four layers"
    # The taught one on the numbers that the quick one has, in float64: roundings are its own.
    exact = taught.to(dtype).double()
    with torch.no_grad():
        close(got, exact(TOKENS), roundings=32)


def test_the_cache_grows_beyond_its_first_room():
    taught, quick = pair(small_model(max_len=200).double())
    tokens = torch.arange(200)[None] % 11
    with torch.no_grad():
        assert_close(one_by_one(quick, tokens), taught(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
def test_layers_of_another_design_are_called_as_they_are(norm, short):
    """Also those that came after speed_up."""
    taught, quick = pair(small_model().double())
    for model in (taught, quick):
        model.blocks[0].norm2 = norm(16, eps=0.1).double()
        model.blocks[1].ffn.register_forward_hook(lambda module, given, made: 2 * made)
    with torch.no_grad():
        assert_close(one_by_one(quick), taught(TOKENS), rtol=0, atol=1e-12)
    assert short == []


@pytest.mark.parametrize("order", ["post", "plain", "sandwich", "qk_norm"])
def test_other_orders_go_their_own_way(order, short):
    taught, quick = pair(small_model(order=order).double())
    with torch.no_grad():
        assert_close(one_by_one(quick), taught(TOKENS), rtol=0, atol=1e-12)
    assert short == []


@pytest.mark.parametrize("hook", ["register_forward_pre_hook", "register_forward_hook"])
def test_hooks_are_called(hook):
    _, quick = pair(small_model())
    block, seen = quick.blocks[0], []
    getattr(block.attention, hook)(lambda module, *given: seen.append(module))
    one_by_one(quick, TOKENS[:, :2])
    assert seen == [block.attention] * 2


def test_a_tap_hears_all_of_it():
    taught, quick = pair(small_model().double())
    heard = {}
    for name, model in {"taught": taught, "quick": quick}.items():
        one_by_one(model, TOKENS[:, :1], tap=(recorder := Recorder()))
        heard[name] = recorder
    assert list(heard["quick"]) == list(heard["taught"])


@pytest.mark.parametrize("way", ["learning", "two texts", "no cache"])
def test_the_long_way_where_the_short_one_would_be_wrong(way, short):
    taught, quick = pair(small_model().double())
    tokens = TOKENS[:, :1].repeat(1 + (way == "two texts"), 1)
    with torch.set_grad_enabled(way == "learning"):
        caches = (None, None) if way == "no cache" else (taught.new_cache(), quick.new_cache())
        wanted, got = (m(tokens, cache=c) for m, c in zip((taught, quick), caches, strict=True))
    assert_close(got, wanted, rtol=0, atol=1e-12)
    assert short == []
    if way == "learning":
        got.sum().backward()
        assert quick.blocks[0].ffn.up_proj.weight.grad.abs().sum() > 0


def test_a_compiled_block_writes_the_same():
    taught, quick = pair(small_model(n_layers=1))
    quick.blocks[0].compile(backend="aot_eager")
    close(one_by_one(quick), taught(TOKENS).detach(), roundings=64)


def rows():
    zeros, odd = torch.zeros(4), torch.tensor([1.0, float("nan"), 2.0, 3.0])
    large = torch.tensor([3e4, -6e4, 1.0, 0.0])
    return {"zeros": zeros, "NaN": odd, "infinity": 1 / zeros, "large": large}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
@pytest.mark.parametrize("name", rows())
@torch.no_grad()
def test_rows_that_a_norm_finds_hard(name, eps, dtype):
    """0/0 is no number, eps makes it 0, and float16 has no room for squares."""
    row = rows()[name].to(dtype)
    taught, quick = (kind(4, eps).to(dtype) for kind in (RMSNorm, fast.FastRMSNorm))
    step = 4 * torch.finfo(dtype).eps
    assert_close(quick.one(row), taught(row), rtol=step, atol=0, equal_nan=True)


@torch.no_grad()
def test_it_leaves_what_it_is_given():
    """The sum with the stream is made in place: in what a branch returned, never in the stream."""
    _, quick = pair(small_model())
    x = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    quick.blocks[0](x, cache=quick.new_cache()[0])
    assert torch.equal(x, before)


def test_weights_of_8_bits_take_it_too(short):
    """Rows are read one by one on both ways: the same bytes, the same roundings but of sums."""
    model = shrink(small_model())
    got = one_by_one(model)
    assert len(short) == 10 * 2 * 4
    fast.slow_down(model)
    assert_close(got, one_by_one(model), rtol=0.05, atol=0.05)
