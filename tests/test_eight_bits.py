"""fast/eight_bits.py: the numbers that int8 weights stand for, whichever way they are read."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fast import TOKENS, close, normal, small_model, wide
from torch import nn
from torch.testing import assert_close

from tiny_lm import checkpoint, fast
from tiny_lm.attention import CausalSelfAttention
from tiny_lm.config import ORDER_NAMES, TrainConfig
from tiny_lm.corpus import Stories
from tiny_lm.fast import eight_bits, memory
from tiny_lm.fast.eight_bits import round_rows, shrink
from tiny_lm.generate import generate
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.train import train

modest = settings(deadline=None, max_examples=60, derandomize=True)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])
STEP = 2.0**-8  # the most that rounding to bfloat16 changes a number, relative to it


@pytest.fixture
def taken(monkeypatch):
    """The inputs that the kernel was given, in order."""
    seen = []
    kernel = memory.int8_product
    monkeypatch.setattr(memory, "int8_product", lambda *given: seen.append(given) or kernel(*given))
    return seen


@pytest.fixture
def plainly(monkeypatch):
    """As where torch has no such kernel: weights become floats, nothing else is rounded."""
    monkeypatch.setattr(memory, "int8_product", None)


# Rows


@modest
@given(st.integers(1, 6), st.integers(1, 40), dtypes, st.integers(-12, 12), st.integers(0, 99))
def test_a_rounded_row_is_within_half_a_scale(rows, width, dtype, power, seed):
    weight = (normal(rows, width, seed=seed) * 2.0**power).to(dtype)
    whole, scale = round_rows(weight)
    assert (whole.dtype, whole.shape, scale.dtype) == (torch.int8, weight.shape, torch.bfloat16)
    most, exact = weight.double().abs().amax(dim=1), scale.double()
    assert_close(exact, most / 127, rtol=STEP, atol=1e-38)
    apart = (weight.double() - whole * exact[:, None]).abs()
    assert (apart <= exact[:, None] / 2 * (1 + 1e-4)).all()  # w / scale is rounded to 24 bits
    assert whole.min() >= -127 and (whole.abs().amax(dim=1) >= 126).all()


def test_rows_by_hand():
    weight = torch.tensor([[127.0, -64.4, 0.6, 0.0], [0.0] * 4, [-2.54, 1.0, 0.009, 0.011]])
    whole, scale = round_rows(weight)
    assert whole.tolist() == [[127, -64, 1, 0], [0] * 4, [-127, 50, 0, 1]]
    assert scale[0] == 1 and scale[1] > 0 and scale[2].item() == pytest.approx(0.02, rel=STEP)


def test_the_largest_number_of_a_row_never_leaves_the_range():
    """A scale that was rounded down asks for up to 127.496."""
    most = 1 + torch.arange(4096) / 4096
    whole, scale = round_rows(torch.stack([most, -most], dim=1))
    assert (scale.float() * 127 < most).any() and (scale.float() * 127 > most).any()
    assert (whole == torch.tensor([127, -127])).all(dim=1).sum() > 3000
    assert whole[:, 0].min() >= 126 and (whole[:, 0] == -whole[:, 1]).all()


# The product


def explicit(x, whole, scale):
    """Σ x w in float64, and what it would be if nothing cancelled."""
    w = whole.double() * scale.double()[:, None]
    return x.double() @ w.T, x.double().abs() @ w.abs().T


@settings(modest, max_examples=150)
@given(st.integers(0, 30), st.integers(1, 80), st.integers(1, 9), dtypes)
def test_the_product_is_the_explicit_sum(rows, width, out, dtype):
    """x and y are rounded to bfloat16 at most, and to their own dtype; the sum to 24 bits."""
    whole, scale = round_rows(normal(out, width, seed=3))
    x = normal(rows, width, dtype=dtype)
    got = memory.multiply_int8(x, whole, scale)
    assert got.dtype == dtype and got.shape == (rows, out)
    wanted, most = explicit(x, whole, scale)
    few = rows <= memory.FEW and width % 16 == 0
    step = STEP if few else torch.finfo(torch.promote_types(dtype, torch.bfloat16)).eps
    own = torch.finfo(dtype).eps
    bound = most * (step + width * 2.0**-23 * (dtype != torch.float64 or few)) + own * most
    bound += wanted.abs() * (2 * step + own) + 1e-7
    assert ((got.double() - wanted).abs() <= bound).all()


@pytest.mark.parametrize("rows", [1, 7, 24])
def test_both_ways_read_the_same_numbers(rows, taken, monkeypatch):
    """Inputs that bfloat16 holds and sums below 2^8: no way has anything to round."""
    whole = torch.randint(-3, 4, (13, 32), generator=torch.Generator().manual_seed(0))
    whole, scale = whole.to(torch.int8), torch.full((13,), 0.5).bfloat16()
    x = torch.randint(-1, 2, (rows, 32), generator=torch.Generator().manual_seed(1)).float()
    quick = memory.multiply_int8(x, whole, scale)
    assert len(taken) == 1
    monkeypatch.setattr(memory, "int8_product", None)
    assert torch.equal(quick, memory.multiply_int8(x, whole, scale))
    assert torch.equal(quick.double(), explicit(x, whole, scale)[0])


def test_the_kernel_gets_only_what_it_can_read(taken):
    """It reads 16 numbers at a time from whole addresses and checks nothing: others may crash."""
    whole, scale = round_rows(normal(8, 64, seed=3))
    bytes_ = torch.zeros(8 * 64 + 1, dtype=torch.int8)
    shifted = bytes_[1:].view(8, 64).copy_(whole)
    turned = whole.T.contiguous().T
    x = normal(24, 64, dtype=torch.float32)
    asked = [
        (x, whole, True),
        (x[:1], whole, True),
        (normal(25, 64, dtype=torch.float32), whole, False),
        (x, shifted, False),
        (x, turned, False),
        (x[:, :40], whole[:, :40].contiguous(), False),
    ]
    for x, weight, by_kernel in asked:
        taken.clear()
        got = memory.multiply_int8(x, weight, scale)
        assert bool(taken) == by_kernel
        close(got, explicit(x, weight, scale)[0], scale=100 * STEP / torch.finfo(got.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_kernel_gets_its_input_on_bounds_of_32_bytes(dtype, taken):
    whole, scale = round_rows(normal(8, 16, seed=3))
    x = normal(3 * 16 + 1, dtype=dtype)[1:].view(3, 16)
    close(memory.multiply_int8(x, whole, scale), explicit(x, whole, scale)[0], 2**18)
    ((half, _, _),) = taken
    assert half.data_ptr() % 32 == 0 and half.dtype == torch.bfloat16 and half.is_contiguous()


def test_sums_that_float16_has_no_room_for(plainly):
    """127 · 600 · 1 is past 65,504; scaled, it is not."""
    whole, scale = torch.full((2, 600), 127, dtype=torch.int8), torch.full((2,), 0.01).bfloat16()
    got = memory.multiply_int8(torch.ones(1, 600, dtype=torch.float16), whole, scale)
    assert got.tolist() == [[pytest.approx(127 * 600 * scale[0].item(), rel=1e-3)] * 2]


# The model


def floats(model, shrunk):
    """The state of a model whose matrices hold the very numbers that the rounded ones stand for."""
    state, rounded = model.state_dict(), shrunk.state_dict()
    for name, value in rounded.items():
        if value.dtype == torch.int8:
            scale = rounded[name.replace("weight", "scale")]
            state[name] = value.double() * scale.double()[:, None]
    return state


def pair(**changed):
    """A shrunk model, and a taught one in float64 with the same numbers."""
    model = wide(small_model(**{"n_heads": 2, "n_kv_heads": 1, "d_ff": 32} | changed))
    shrunk = shrink(copy.deepcopy(model))
    model.double().load_state_dict(floats(model, shrunk))
    return shrunk, model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("order", ORDER_NAMES)
@torch.no_grad()
def test_a_shrunk_model_is_the_taught_one_with_rounded_weights(order, tied, plainly):
    shrunk, taught = pair(order=order, tied=tied)
    close(shrunk(TOKENS), taught(TOKENS), roundings=256)


@pytest.mark.parametrize("order", ["pre", "post", "qk_norm"])
@torch.no_grad()
def test_the_kernel_differs_by_roundings_to_bfloat16(order, taken):
    shrunk, taught = pair(order=order)
    got, wanted = shrunk(TOKENS), taught(TOKENS)
    assert len(taken) == 2 * 4 + 1  # QK-norm: v, out, gate and up, down
    apart = (got - wanted).abs().max() / wanted.abs().max()
    assert 0 < apart < 8 * STEP


@torch.no_grad()
def test_what_is_not_a_matrix_stays(plainly):
    model = wide(small_model(order="qk_norm"))
    shrunk = shrink(copy.deepcopy(model))
    kept = {n: v for n, v in shrunk.state_dict().items() if v.dtype == torch.float32}
    assert len(kept) == 2 * 2 + 1 + 2 * 2 * 2  # norms; QK-norm's projections and their norms
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in kept.items())


@torch.no_grad()
def test_weights_lie_side_by_side_in_a_quarter_of_the_room():
    model = small_model(vocab_size=500, d_model=64, d_ff=128)
    before = sum(p.nbytes for p in model.parameters())
    shrink(model)
    left = [*model.parameters(), *model.buffers()]
    assert sum(value.nbytes for value in left) < 0.3 * before
    block = model.blocks[0]
    a, f = block.attention, block.ffn
    for layers in ((a.q_proj, a.k_proj, a.v_proj), (f.gate_proj, f.up_proj)):
        for part in ("weight", "scale"):
            one = fast.side_by_side(*layers, part=part)
            assert one.data_ptr() == getattr(layers[0], part).data_ptr()
            assert torch.equal(one, torch.cat([getattr(layer, part) for layer in layers]))
    assert model.output is None and model.embedding.weight.dtype == torch.int8


@torch.no_grad()
def test_a_listener_and_a_slow_model_get_the_same_numbers(plainly):
    shrunk, taught = pair()
    heard, wanted = Recorder(), Recorder()
    shrunk(TOKENS, tap=heard)
    taught(TOKENS, tap=wanted)
    assert list(heard) == list(wanted)
    for name in heard:
        close(heard[name], wanted[name], roundings=256)
    assert fast.slow_down(shrunk) is shrunk
    assert type(shrunk.blocks[0].attention) is CausalSelfAttention
    close(shrunk(TOKENS), taught(TOKENS), roundings=256)


def test_it_writes_what_the_rounded_weights_say(plainly):
    shrunk, taught = pair()
    wanted = generate(taught, TOKENS[:, :5], 12, temperature=0)
    assert torch.equal(generate(shrunk, TOKENS[:, :5], 12, temperature=0), wanted)


@torch.no_grad()
def test_a_cache_may_be_fed_in_any_pieces(taken):
    """One token alone, a few by the kernel, many at once."""
    shrunk, taught = pair(max_len=40)
    tokens = torch.arange(38)[None] * 7 % 11
    cache = shrunk.new_cache()
    got = torch.cat([shrunk(part, cache=cache) for part in tokens.split([30, 1, 1, 6], 1)], 1)
    wanted = taught(tokens)
    assert {len(given[0]) for given in taken} == {1, 6}
    assert (got - wanted).abs().max() < 8 * STEP * wanted.abs().max()


@torch.no_grad()
def test_a_copy_and_a_state_come_back():
    shrunk, _ = pair()
    wanted = shrunk(TOKENS)
    twin = copy.deepcopy(shrunk)
    other = shrink(wide(small_model(n_heads=2, n_kv_heads=1, d_ff=32), seed=7))
    assert not torch.allclose(other(TOKENS), wanted)
    other.load_state_dict(shrunk.state_dict())
    for value in shrunk.state_dict().values():
        value.zero_()
    assert torch.equal(twin(TOKENS), wanted) and torch.equal(other(TOKENS), wanted)


def test_a_bias_is_added():
    layer = wide(nn.Linear(16, 3))
    whole, scale = round_rows(layer.weight.detach())
    model = small_model()
    model.extra = layer
    shrink(model)
    x = normal(2, 16, dtype=torch.float32)
    with torch.no_grad():
        wanted = explicit(x, whole, scale)[0] + layer.bias.double()
        assert (model.extra(x) - wanted).abs().max() < 8 * STEP


# What is refused


def test_training_is_refused_and_nothing_moves():
    model = small_model(vocab_size=45, max_len=32)
    shrunk = shrink(model)
    before = copy.deepcopy(shrunk.state_dict())
    message = r"int8 weights: expected torch.no_grad\(\), got an input that wants a gradient"
    with pytest.raises(ValueError, match=message):
        train(shrunk, Stories(), TrainConfig(steps=2, batch=2, length=8))
    with pytest.raises(ValueError, match=message):
        shrunk(TOKENS)
    assert all(torch.equal(before[name], value) for name, value in shrunk.state_dict().items())
    with torch.no_grad():
        assert shrunk(TOKENS).isfinite().all()


def test_a_checkpoint_of_it_is_refused(tmp_path):
    message = r"floating-point numbers in embedding.weight, got torch.int8 \(save a model before"
    with pytest.raises(ValueError, match=f"checkpoint.save: expected {message}"):
        checkpoint.save(tmp_path / "m.safetensors", shrink(small_model()))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_shrunk():
    for other in (nn.Linear(2, 2), shrink(small_model())):
        with pytest.raises(ValueError, match="shrink: expected a TinyLM, in floats, got"):
            shrink(other)
    model = small_model()
    with torch.no_grad():
        model.blocks[1].ffn.up_proj.weight[0, 0] = float("nan")
    names = list(model.state_dict())
    with pytest.raises(ValueError, match=r"finite numbers in blocks.1.ffn.up_proj.weight, got"):
        shrink(model)
    assert type(model) is TinyLM and list(model.state_dict()) == names
    assert type(model.blocks[0].ffn.up_proj) is nn.Linear


def test_a_fast_model_can_be_shrunk_too():
    model = wide(small_model())
    one, two = shrink(copy.deepcopy(model)), shrink(fast.speed_up(copy.deepcopy(model)))
    with torch.no_grad():
        assert torch.equal(one(TOKENS), two(TOKENS))
    assert type(one) is type(two) is eight_bits.EightBitTinyLM


def test_the_error_is_a_few_hundredths_of_a_nat():
    """Seeded weights of a usual size; half a scale is a 254th of the largest entry of a row."""
    model = TinyLM(ModelConfig(), seed=0, init="scaled_fan_in").eval()
    tokens = torch.arange(64)[None] * 37 % 256
    with torch.no_grad():
        logs = [m(tokens).log_softmax(-1) for m in (model, shrink(copy.deepcopy(model)))]
    apart = (logs[0] - logs[1]).abs()
    assert 1e-5 < apart.mean() < 0.03
