"""fast/ against the taught layers: the same numbers, slopes and names, whichever way is taken."""

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import AdamW
from torch.testing import assert_close

from tiny_lm import checkpoint, fast
from tiny_lm.attention import CausalSelfAttention, KVCache
from tiny_lm.generate import generate
from tiny_lm.layers import PostNormBlock, RMSNorm, SwiGLU
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.train import next_token_loss

modest = settings(deadline=None, max_examples=40, derandomize=True)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])
shapes = st.lists(st.integers(1, 5), max_size=2).map(tuple)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def wide(module, std=0.3, seed=1):
    """The module with weights wide enough for its mistakes to show, gains among them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(1.0 if weight.ndim == 1 else 0.0, std, generator=generator)
    return module


def pair(module):
    """The same layer twice: taught and fast."""
    wide(module)
    return module, fast.speed_up(copy.deepcopy(module))


def close(got, wanted, roundings=8, scale=None):
    """Equal to a number of roundings of the dtype of `got`, relative to the largest entry."""
    step = torch.finfo(got.dtype).eps
    scale = wanted.abs().max().item() if scale is None else scale
    assert_close(got.double(), wanted.double(), rtol=0, atol=roundings * step * max(scale, 1e-30))


def small_model(**changed):
    config = {"vocab_size": 11, "max_len": 24, "n_layers": 2, "d_model": 16, "n_heads": 4}
    config |= {"n_kv_heads": 2, "d_ff": 24} | changed
    return TinyLM(ModelConfig(**config)).eval()


TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])


@pytest.fixture(autouse=True, scope="module")
def many():
    """What is tested here has few numbers, and is to take the way for many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast.FastRMSNorm, "few", 0)
        yield


# The norm


def slopes(norm, x, slope):
    x = x.detach().clone().requires_grad_()
    y = norm(x)
    return y.detach(), *torch.autograd.grad(y, (x, norm.scale), slope.to(y.dtype))


@modest
@given(
    shapes,
    st.integers(1, 40),
    dtypes,
    st.sampled_from([0.0, 1e-5, 0.3]),
    st.floats(-8, 8),
    st.booleans(),
)
def test_the_norm_has_the_taught_outputs_and_slopes(shape, width, dtype, eps, power, turned):
    """Both are measured against the taught norm in float64, on the very numbers of the dtype."""
    x = (normal(*shape, width) * 2.0**power).to(dtype)
    if turned and len(shape) == 2:
        x = x.transpose(0, 1)
    slope = normal(*x.shape, seed=2, dtype=dtype)
    taught, quick = (wide(norm(width, eps)).to(dtype) for norm in (RMSNorm, fast.FastRMSNorm))
    got = slopes(quick, x, slope)
    exact = slopes(copy.deepcopy(taught).double(), x.double(), slope.double())
    rows, r = x[..., 0].numel(), 1 / x.double().square().mean(-1, keepdim=True).add(eps).sqrt()
    dot = (slope.double() * taught.scale.detach().double()).abs().max() * r.max() * 2
    sums = [None, float(dot * (1 + width**0.5)), float(rows * slope.double().abs().max() * 4)]
    for value, wanted, scale in zip(got, exact, sums, strict=True):
        assert value.dtype == dtype and value.shape == wanted.shape
        close(value, wanted, scale=scale)


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
@pytest.mark.parametrize("layout", ["plain", "transposed", "every second", "one row"])
def test_the_slopes_of_the_norm_and_their_slopes_are_those_of_its_forward(eps, layout):
    x = normal(3, 4, 5)
    x = {
        "plain": x,
        "transposed": x.transpose(0, 1),
        "every second": normal(3, 4, 10)[..., ::2],
        "one row": x[0, 0],
    }[layout]
    x, scale = x.detach().requires_grad_(), normal(5, seed=1).requires_grad_()

    def norm(x, scale):
        return fast.Normalise.apply(x, scale, eps)

    assert gradcheck(norm, (x, scale))
    assert gradgradcheck(norm, (x, scale))


def test_second_slopes_of_the_norm_equal_the_taught_ones():
    taught, quick = pair(RMSNorm(7))
    found = []
    for norm in (taught.double(), quick.double()):
        x = normal(3, 7).requires_grad_()
        both = torch.autograd.grad(norm(x).cos().sum(), (x, norm.scale), create_graph=True)
        seconds = torch.autograd.grad(both[0].square().sum(), (x, norm.scale))
        found.append([*both, *seconds])
    for got, wanted in zip(*found, strict=True):
        assert_close(got, wanted)


def test_a_zero_row_gives_what_the_taught_norm_gives():
    x = torch.zeros(2, 4)
    x[1] = torch.tensor([3.0, 4.0, 0.0, 0.0])
    for eps in (0.0, 1e-5):
        taught, quick = RMSNorm(4, eps), fast.FastRMSNorm(4, eps)
        for got, wanted in zip(
            slopes(quick, x, torch.ones(2, 4)), slopes(taught, x, torch.ones(2, 4)), strict=True
        ):
            assert_close(got, wanted, equal_nan=True)
    assert slopes(quick, x, torch.ones(2, 4))[1][0].tolist() == pytest.approx([316.2278] * 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_squared_in_thirty_two(dtype):
    """C13: 300² is past float16, and 1e-4² below it."""
    for size in (300.0, 1e-4):
        x = torch.full((1, 8), size, dtype=dtype)
        got, d_x, _ = slopes(fast.FastRMSNorm(8, eps=0.0), x, torch.eye(8, dtype=dtype)[:1])
        assert got.tolist() == [[1.0] * 8]
        wanted = (torch.eye(8)[0] - 1 / 8) / float(x[0, 0])
        assert_close(d_x[0].float(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_a_gain_of_another_dtype_keeps_its_own():
    x, norm = normal(2, 6, dtype=torch.bfloat16), wide(fast.FastRMSNorm(6))
    y, d_x, d_scale = slopes(norm, x, torch.ones(2, 6))
    assert (y.dtype, d_x.dtype, d_scale.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    close(y, wide(RMSNorm(6))(x))


def test_the_norm_under_autocast_is_not_rounded_to_sixteen_bits():
    """There, torch would do matrix times vector, which the backward uses, in bfloat16."""
    taught, quick = pair(RMSNorm(64))
    x, slope = normal(5, 64, dtype=torch.float32), normal(5, 64, seed=3, dtype=torch.float32)
    wanted = slopes(taught, x, slope)
    with torch.autocast("cpu", torch.bfloat16):
        got = slopes(quick, x, slope)
    for one, other in zip(got, wanted, strict=True):
        close(one, other, roundings=32)


def test_the_norm_takes_no_rows_and_refuses_what_the_taught_one_refuses():
    norm = fast.FastRMSNorm(4)
    y, d_x, d_scale = slopes(norm, torch.zeros(0, 4), torch.zeros(0, 4))
    assert y.shape == d_x.shape == (0, 4) and d_scale.tolist() == [0.0] * 4
    with pytest.raises(ValueError, match=r"RMSNorm: expected \[\.\.\., 4\], got \[1, 3, 1\]"):
        norm(torch.ones(1, 3, 1))
    with pytest.raises(ValueError, match="RMSNorm: expected floating-point numbers"):
        norm(torch.ones(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="RMSNorm: expected eps >= 0, got -1"):
        fast.FastRMSNorm(4, eps=-1)


def test_few_numbers_take_a_shorter_way_and_say_the_same(monkeypatch):
    taught, quick = pair(RMSNorm(64, 1e-2))
    x, slope = normal(1, 65, 64, dtype=torch.float32), normal(1, 65, 64, seed=3)
    monkeypatch.setattr(fast.FastRMSNorm, "few", 64 * 64)
    for rows in (64, 65):
        taken = type(quick(x[:, :rows]).grad_fn).__name__
        assert taken == ("MulBackward0" if rows == 64 else "NormaliseBackward")
        got, wanted = (slopes(norm, x[:, :rows], slope[:, :rows]) for norm in (quick, taught))
        for one, other in zip(got, wanted, strict=True):
            close(one, other, roundings=32)
    for dtypes in ((torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)):
        taught, quick = (norm.to(dtypes[1]) for norm in (taught, quick))
        few = x[:, :1].to(dtypes[0])
        assert quick(few).dtype == torch.bfloat16
        close(quick(few), taught(few), roundings=1)


@pytest.mark.parametrize("eps", [0.0, 0.3])
@pytest.mark.parametrize("row", [[3.0, 4.0], [0.0, 0.0], [1e30, 1.0], [1e-30, 0], [torch.nan, 1]])
def test_one_row_alone_says_what_the_taught_norm_says(monkeypatch, row, eps):
    taught, quick = pair(RMSNorm(2, eps))
    monkeypatch.setattr(fast.FastRMSNorm, "few", 2)
    with torch.no_grad():
        for x in (torch.tensor(row), torch.tensor([[row]])):
            assert_close(quick(x), taught(x), rtol=1e-6, atol=0, equal_nan=True)
        assert quick(torch.tensor(row, dtype=torch.float16)).dtype == torch.float16
    found = [slopes(norm, torch.tensor(row), torch.tensor([1.0, 2.0])) for norm in (quick, taught)]
    for got, wanted in zip(*found, strict=True):
        assert_close(got, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_what_the_fast_norm_cannot_do_torch_says():
    """Per-example slopes by torch.func are for the taught norm."""
    norm, x = fast.FastRMSNorm(4), torch.ones(2, 4)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: norm(x).sum())(x)
    assert torch.func.grad(lambda x: fast.slow_down(norm)(x).sum())(x).shape == (2, 4)


def test_the_norm_keeps_no_more_than_its_input_and_a_number_a_row():
    kept = []
    x = normal(64, 32, dtype=torch.float32).requires_grad_()
    with saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        fast.FastRMSNorm(32)(x)
    assert sum(kept) == 64 * 32 + 32 + 64


# Attention and SwiGLU


@st.composite
def attentions(draw):
    kv_heads, shared = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    heads, d = kv_heads * shared, 2 * draw(st.integers(1, 4))
    return CausalSelfAttention(heads * d, heads, theta=50.0, n_kv_heads=kv_heads)


@modest
@given(attentions(), st.integers(1, 3), st.integers(1, 9), dtypes)
def test_attention_has_the_taught_outputs_and_slopes(layer, batch, positions, dtype):
    taught, quick = (one.to(dtype) for one in pair(layer))
    fast.speed_up(quick)
    x = normal(batch, positions, layer.width, dtype=dtype)
    found = []
    exact = copy.deepcopy(taught).double()
    for one in (quick, exact):
        read = x.to(one.q_proj.weight.dtype).requires_grad_()
        y = one(read)
        found.append([y, *torch.autograd.grad(y.sum(), (read, *one.parameters()))])
    for got, wanted in zip(*found, strict=True):
        assert got.dtype == dtype
        # A sum of rounded numbers may be smaller than they are, down to nothing.
        roundings = 16 if got.dtype.itemsize == 2 else 128
        close(got, wanted, roundings, scale=wanted.abs().max().item() + 1)


@modest
@given(attentions(), st.lists(st.integers(1, 4), min_size=1, max_size=5), dtypes)
def test_a_cache_may_be_fed_in_any_pieces(layer, pieces, dtype):
    """The mask lines up the last query with the last key; is_causal would line up the first."""
    _, quick = pair(layer)
    fast.speed_up(quick.to(dtype))
    x = normal(2, sum(pieces), layer.width, dtype=dtype)
    exact = wide(copy.deepcopy(layer)).double()(x.double())
    cache = KVCache()
    with torch.no_grad():
        parts = [quick(part, cache=cache) for part in x.split(pieces, dim=1)]
    assert len(cache) == x.shape[1]
    close(torch.cat(parts, dim=1), exact, roundings=16, scale=exact.abs().max().item() + 1)


def test_taught_and_fast_attention_can_share_a_cache():
    taught, quick = pair(CausalSelfAttention(16, 4, n_kv_heads=2).double())
    x, cache = normal(1, 6, 16), KVCache()
    with torch.no_grad():
        parts = [quick(x[:, :2], cache=cache), taught(x[:, 2:5], cache=cache)]
        parts.append(quick(x[:, 5:], cache=cache))
        assert_close(torch.cat(parts, dim=1), taught(x))


def test_a_listener_gets_the_weights():
    taught, quick = pair(small_model().double())
    heard = Recorder()
    with torch.no_grad():
        assert_close(quick(TOKENS, tap=heard), taught(TOKENS))
    same = Recorder()
    taught(TOKENS, tap=same)
    assert list(heard) == list(same)
    assert heard["blocks.1.attn.weights"].shape == (2, 4, 8, 8)
    edit = Recorder(edit={"blocks.0.attn.weights": torch.zeros_like})
    assert not torch.allclose(quick(TOKENS, tap=edit), taught(TOKENS))


@modest
@given(shapes, st.integers(1, 9), st.integers(1, 9), dtypes)
def test_swiglu_has_the_taught_outputs_and_slopes(shape, width, hidden, dtype):
    taught, quick = (one.to(dtype) for one in pair(SwiGLU(width, hidden)))
    x = normal(*shape, width, dtype=dtype)
    found = []
    for one in (quick, taught.double()):
        read = x.to(one.up_proj.weight.dtype).requires_grad_()
        y = one(read)
        found.append([y, *torch.autograd.grad(y.sum(), (read, *one.parameters()))])
    for got, wanted in zip(*found, strict=True):
        close(got, wanted, roundings=16, scale=wanted.abs().max().item() + 1)


def test_the_slopes_of_the_gate_and_their_slopes_are_those_of_its_forward():
    both = normal(2, 3, 8).requires_grad_()
    assert gradcheck(fast.Gate.apply, both)
    assert gradgradcheck(fast.Gate.apply, both)
    y, slope = fast.Gate.apply(both), normal(2, 3, 4, seed=1)
    once, twice = (
        torch.autograd.grad(y, both, slope, retain_graph=True, create_graph=again)[0]
        for again in (False, True)
    )
    assert_close(once, twice)


def test_errors_are_those_of_the_taught_layers():
    attention, swiglu = fast.FastAttention(8, 2), fast.FastSwiGLU(8, 4)
    with pytest.raises(
        ValueError, match=r"CausalSelfAttention: expected \[B, T, D\], got \[3, 8\]"
    ):
        attention(torch.ones(3, 8))
    with pytest.raises(ValueError, match=r"CausalSelfAttention: expected \[\.\.\., 8\]"):
        attention(torch.ones(1, 3, 6))
    with pytest.raises(ValueError, match=r"SwiGLU: expected \[\.\.\., 8\], got \[1, 3, 6\]"):
        swiglu(torch.ones(1, 3, 6))


# Weights side by side


def is_copy(*layers):
    return fast.side_by_side(*layers).data_ptr() != layers[0].weight.data_ptr()


def test_weights_lie_side_by_side_and_stay_there_through_training():
    model = fast.speed_up(wide(small_model()))
    layer = model.blocks[0].attention
    optimizer = AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        next_token_loss(model, TOKENS).backward()
        optimizer.step()
        optimizer.zero_grad()
    for layers in (
        (layer.q_proj, layer.k_proj, layer.v_proj),
        (model.blocks[1].ffn.gate_proj, model.blocks[1].ffn.up_proj),
    ):
        with torch.no_grad():
            assert not is_copy(*layers) and is_copy(*layers[::-1])
            for some in (layers, layers[::-1]):
                together = fast.side_by_side(*some)
                assert torch.equal(together, torch.cat([one.weight for one in some]))


@pytest.mark.parametrize("how", ["to", "load", "one by one", "turned"])
def test_weights_that_were_moved_apart_give_the_same_answer(how):
    model = fast.speed_up(wide(small_model()))
    other = wide(small_model(), seed=9)
    if how == "to":
        model.double(), other.load_state_dict(model.state_dict()), other.double()
    elif how == "load":
        model.load_state_dict(other.state_dict(), assign=True)
    elif how == "one by one":
        model.load_state_dict(other.state_dict())
    else:
        weight = model.blocks[0].attention.q_proj.weight
        weight.data = weight.data.T  # at the same place
        other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert_close(model(TOKENS), other(TOKENS))


def test_weights_that_are_neighbours_by_chance_are_copied():
    """Two pieces of memory may touch; what reads on from one into the other reads too far."""
    both = torch.arange(24.0).reshape(6, 4)
    layers = [nn.Linear(4, 3, bias=False) for _ in range(2)]
    for layer, half in zip(layers, both.split(3), strict=True):
        layer.weight.data = torch.from_numpy(half.numpy())  # a storage of its own over these bytes
    with torch.no_grad():
        assert layers[1].weight.data_ptr() == layers[0].weight.data_ptr() + 48
        assert torch.equal(fast.side_by_side(*layers), both)


# The whole model


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_is_sped_up_in_place_and_slowed_down_again(tied):
    model = wide(small_model(tied=tied))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    optimizer = AdamW(model.parameters())
    assert fast.speed_up(fast.speed_up(model)) is model
    assert {type(m) for m in model.modules()} >= {fast.FastRMSNorm, fast.FastSwiGLU}
    assert all(parameters[name] is value for name, value in model.named_parameters())
    assert optimizer.param_groups[0]["params"] == list(parameters.values())
    assert fast.slow_down(model) is model
    assert {type(m) for m in model.modules()}.isdisjoint(fast.FAST.values())
    assert list(before) == list(model.state_dict())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_layers_of_other_designs_are_left_alone():
    class Mine(RMSNorm):
        def forward(self, x):
            return x

    model = small_model()
    model.norm_final = Mine(16)
    assert type(fast.speed_up(model).norm_final) is Mine
    assert type(fast.speed_up(small_model(order="post")).blocks[0]) is PostNormBlock
    normed = fast.speed_up(small_model(order="qk_norm")).blocks[0].attention
    assert type(normed) is CausalSelfAttention, "its q and k are more than a product"
    assert type(normed.q_proj.norm) is fast.FastRMSNorm


@pytest.mark.parametrize("order", ["pre", "post", "plain", "sandwich", "deepnorm", "qk_norm"])
def test_training_takes_the_same_steps(order):
    """Three steps of AdamW in float64, where only a mistake could make a difference."""
    taught, quick = pair(small_model(order=order).double())
    fast.speed_up(quick)
    for model in (taught, quick):
        optimizer = AdamW(model.parameters(), lr=0.01)
        for _ in range(3):
            next_token_loss(model, TOKENS).backward()
            optimizer.step()
            optimizer.zero_grad()
    for (name, got), wanted in zip(quick.named_parameters(), taught.parameters(), strict=True):
        assert_close(got, wanted, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, nullcontext])
def test_generation_writes_the_same_text(grad, tied):
    taught, quick = pair(small_model(tied=tied).double())
    prompt = TOKENS[:, :5]
    with grad():
        wanted = generate(taught, prompt, 12, temperature=0)
        assert torch.equal(generate(quick, prompt, 12, temperature=0), wanted)
        assert torch.equal(generate(quick, prompt, 12, temperature=0, use_cache=False), wanted)


def test_training_under_autocast_follows_float32():
    """bfloat16 has 8 bits: losses agree to parts in a thousand, slopes to hundredths."""
    exact, mixed = (fast.speed_up(wide(small_model(), std=0.1)) for _ in range(2))
    loss = next_token_loss(exact, TOKENS)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = next_token_loss(mixed, TOKENS)
    assert rounded.item() == pytest.approx(loss.item(), rel=0.01)
    loss.backward(), rounded.backward()
    for got, wanted in zip(mixed.parameters(), exact.parameters(), strict=True):
        assert got.grad.dtype == torch.float32
        apart = (got.grad - wanted.grad).norm() / wanted.grad.norm()
        assert apart < 0.05


def test_one_token_under_autocast():
    """A vector of 16 bits and a matrix of 32: the kernel for one vector would refuse them."""
    taught, quick = pair(small_model())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got, wanted = quick(TOKENS[:1, :1]), taught(TOKENS[:1, :1])
    assert_close(got.float(), wanted.float(), rtol=0, atol=0.1)


def test_a_table_made_for_reading_serves_for_training():
    fast._turns.cache_clear()
    model = fast.speed_up(wide(small_model()))
    with torch.inference_mode():
        model(TOKENS)
    next_token_loss(model, TOKENS).backward()
    assert model.blocks[0].attention.q_proj.weight.grad.abs().sum() > 0


def test_positions_beyond_the_first_table():
    taught, quick = pair(small_model(max_len=600, n_layers=1))
    tokens = torch.arange(600)[None] % 11
    with torch.no_grad():
        close(quick(tokens), taught(tokens), roundings=64)


def test_checkpoints_do_not_notice(tmp_path):
    model = fast.speed_up(wide(small_model()))
    checkpoint.save(tmp_path / "m.safetensors", model)
    loaded, _ = checkpoint.load(tmp_path / "m.safetensors")
    assert type(loaded.blocks[0].attention) is CausalSelfAttention
    for (name, value), same in zip(
        model.state_dict().items(), loaded.state_dict().values(), strict=True
    ):
        assert torch.equal(value, same), name
    slow = fast.slow_down(model)
    checkpoint.save(tmp_path / "s.safetensors", slow)
    sizes = [(tmp_path / name).stat().st_size for name in ("m.safetensors", "s.safetensors")]
    assert sizes[0] == sizes[1]


def test_a_copy_stands_alone():
    model = fast.speed_up(wide(small_model()))
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        assert other(TOKENS).abs().max() > 0
        layers = other.blocks[0].ffn.gate_proj, other.blocks[0].ffn.up_proj
        assert is_copy(*layers)  # a copy moves them apart, as `.to(...)` does
        fast.speed_up(other)
        assert not is_copy(*layers)


def test_compiled_blocks_say_the_same():
    taught, quick = pair(small_model(n_layers=1))  # a second is compiled like the first
    for block in quick.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    for model in (taught, quick):
        next_token_loss(model, TOKENS).backward()
    for got, wanted in zip(quick.parameters(), taught.parameters(), strict=True):
        close(got.grad, wanted.grad, roundings=64)


@pytest.mark.parametrize("shares", [False, fast.SHARES])
def test_heads_are_shared_by_torch_or_copied(monkeypatch, shares):
    """C35: heads 0, 1 read the first key/value head; torch 2.4 needs copies for it."""
    monkeypatch.setattr(fast, "SHARES", shares)
    taught, quick = pair(CausalSelfAttention(24, 6, n_kv_heads=2))
    x, found = normal(2, 7, 24, dtype=torch.float32), []
    for attention in (taught, quick):
        read = x.clone().requires_grad_()
        y = attention(read)
        slopes = torch.autograd.grad(y, (read, *attention.parameters()), x)
        with torch.no_grad():
            cache = KVCache()
            parts = [attention(part, cache=cache) for part in x.split([3, 3, 1], dim=1)]
        found.append([y.detach(), *slopes, *parts])
    for got, wanted in zip(*found[::-1], strict=True):
        close(got, wanted, roundings=64)


def test_compiled_attention_computes_its_cosines_once():
    """A compiler merges cos and sin into what uses them: a quarter of a step, for each row anew."""
    traced = []

    def look(graph, inputs):
        traced.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    taught, quick = pair(CausalSelfAttention(16, 4, n_kv_heads=2))
    x = normal(2, 6, 16, dtype=torch.float32)
    close(torch.compile(quick, backend=look)(x), taught(x), roundings=64)
    assert len([op for op in traced if "polar" in op]) == 1
    assert not [op for op in traced if "cos" in op or "sin" in op]


def test_compiled_attention_continues_a_cache():
    taught, quick = pair(CausalSelfAttention(16, 4, n_kv_heads=2))
    quick.compile(backend="aot_eager")
    x, cache = normal(1, 6, 16, dtype=torch.float32), KVCache()
    with torch.no_grad():
        parts = [quick(part, cache=cache) for part in x.split([4, 2], dim=1)]
        close(torch.cat(parts, dim=1), taught(x), roundings=64)
