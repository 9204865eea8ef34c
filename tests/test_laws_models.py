"""Laws of a whole model, in every order of norms, taught and fast: what it sees, when it
remembers, who listens, how it is kept.

An order added to variants.ORDERS, or a norm added to layers.NORMS, is held to them at once.
"""

import copy
from dataclasses import asdict, replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from implementations import drawn, normal
from torch.testing import assert_close

from tiny_lm import checkpoint, fast
from tiny_lm.config import ModelConfig, TrainConfig
from tiny_lm.corpus import Letters
from tiny_lm.generate import generate
from tiny_lm.initial import INITS
from tiny_lm.layers import NORMS
from tiny_lm.model import TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.train import train
from tiny_lm.variants import ORDERS

few = settings(deadline=None, max_examples=5, derandomize=True)
SMALL = ModelConfig(
    vocab_size=11, max_len=32, n_layers=2, d_model=16, n_heads=4, n_kv_heads=2, d_ff=12,
    norm_eps=1e-3,
)  # fmt: skip
WAYS = {"taught": lambda model: model, "fast": fast.speed_up}

every_order = pytest.mark.parametrize("order", ORDERS)
every_norm = pytest.mark.parametrize("norm", NORMS)
both_ways = pytest.mark.parametrize("way", WAYS)


@cache
def model(order, way="taught", norm="rms"):
    """In float64, with weights of std 0.2, at which a wrong position or mask is off by 1 and more
    (CASES); no test may change them."""
    return WAYS[way](drawn(TinyLM(replace(SMALL, order=order, norm=norm)))).eval()


def some_tokens(*shape, seed=0):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


# What a position sees


@every_order
@both_ways
def test_each_position_sees_all_of_the_past_and_nothing_else(order, way):
    """C10, C28: by the slope of every position's logits in every position's embedding."""
    T, seen = 6, torch.zeros(6, 6)
    net, noise = model(order, way), normal(1, T, 16) / 5

    def logits(noise):
        """The embedding by hand, for a listener would send fast attention the taught way."""
        x = net.embedding(some_tokens(1, T)) + noise
        for block in net.blocks:
            x = block(x)
        return net.logits(net.norm_final(x))

    noise.requires_grad_()
    y = (logits(noise) * normal(11, seed=3)).sum(-1)[0]
    for t in range(T):
        (slope,) = torch.autograd.grad(y[t], noise, retain_graph=True)
        seen[t] = slope[0].abs().amax(-1)
    assert torch.equal(seen.triu(1), torch.zeros(T, T)), "not the least of the future"
    assert (seen + torch.ones(T, T).triu(1) > 1e-4).all(), "and all of the past"


@every_order
@both_ways
@torch.no_grad()
def test_a_cache_may_be_fed_in_any_chunks(order, way):
    """C32, C46: by one token, by many, by the two in turn, up to all that the model takes."""
    for chunks in ([1, 1, 1, 1, 1], [5, 1, 3], [2, 7, 1, 1, 6], [8], [9, 9, 9, 5]):
        net, tokens = model(order, way), some_tokens(2, sum(chunks), seed=len(chunks))
        held = net.new_cache()
        parts = [net(part, cache=held) for part in tokens.split(chunks, dim=1)]
        assert_close(torch.cat(parts, dim=1), net(tokens), rtol=0, atol=1e-10)
        assert [len(one) for one in held] == [sum(chunks)] * 2


@both_ways
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("then", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_cache_is_filled_and_gone_on_with_in_any_mode(way, mode, then):
    """And a copy of it goes its own way: two texts that begin alike."""
    net, tokens, other = model("pre", way), some_tokens(1, 8), some_tokens(1, 8, seed=1)
    held = net.new_cache()
    with mode():
        net(tokens[:, :5], cache=held)
    branch = copy.deepcopy(held)
    with then():
        ends = [net(tokens[:, 5:], cache=held), net(other[:, 5:], cache=branch)]
        ends.append(net(tokens[:, 4:5], cache=held))
    with torch.no_grad():
        whole = net(torch.cat([tokens, tokens[:, 4:5]], dim=1))
        mixed = net(torch.cat([tokens[:, :5], other[:, 5:]], dim=1))
    wanted = whole[:, 5:8], mixed[:, 5:], whole[:, 8:]
    for got, right in zip(ends, wanted, strict=True):
        assert_close(got.detach().clone(), right, rtol=0, atol=1e-10)


@every_order
@both_ways
@few
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 9), st.sampled_from([0.0, 1.0]))
def test_what_is_written_does_not_depend_on_the_cache(order, way, rows, columns, new, temperature):
    net, prompt = model(order, way), some_tokens(rows, columns, seed=new)
    options = {"temperature": temperature, "seed": columns}
    written = [generate(net, prompt, new, use_cache=use, **options) for use in (True, False)]
    assert torch.equal(*written) and torch.equal(written[0][:, :columns], prompt)


@every_order
def test_for_equal_tokens_attention_depends_on_the_distance_only(order):
    """RoPE: log w[t, s] - log w[t, t] is one number along each diagonal, however far in the text;
    also where the keys come out of a cache."""
    net, heard = model(order), Recorder()
    cache, weights = net.new_cache(), []
    with torch.no_grad():
        for part in torch.full((1, 9), 4).split([5, 1, 3], dim=1):
            net(part, cache=cache, tap=heard)
            weights.append(heard["blocks.0.attn.weights"][0])
    log = torch.zeros(4, 9, 9).double()
    for start, part in zip((0, 5, 6), weights, strict=True):
        log[:, start : start + part.shape[1], : part.shape[2]] = part.log()
    by_distance = log - log.diagonal(dim1=1, dim2=2)[..., None]
    for distance in range(1, 9):
        diagonal = by_distance.diagonal(-distance, dim1=1, dim2=2)
        assert_close(diagonal, diagonal[:, :1].expand(diagonal.shape), rtol=0, atol=1e-11)
        assert diagonal.abs().amax() > 1e-3, "and on the distance it does depend"


@every_order
@both_ways
def test_tokens_may_lie_in_memory_as_they_like(order, way):
    net, tokens = model(order, way), some_tokens(3, 5)
    room = torch.full((5, 12), 99)
    room[:, 1:7:2] = tokens.T
    turned = room[:, 1:7:2].T
    assert torch.equal(turned, tokens) and not turned.is_contiguous()
    assert torch.equal(net(turned), net(tokens))
    assert_close(net(tokens[:1].expand(3, 5)), net(tokens[[0, 0, 0]]), rtol=0, atol=1e-12)


# The direct path

NOT_DIRECT = {
    "post": "its norms stand on the path",
    "deepnorm": "its norms stand on the path",
    "plain": "it has no path",
    "embed_norm": "its first block norms the embedding",
    "hyper": "its path is two copies, added up at the end",
}


@every_order
@every_norm
@both_ways
def test_with_silent_branches_a_block_is_the_identity(order, norm, way):
    """To the last bit, and so are its slopes; or else it says why not."""
    config = replace(SMALL, order=order, norm=norm, n_layers=1)
    block, x = drawn(ORDERS[order](config)), normal(2, 3, 16).requires_grad_()
    with torch.no_grad():
        for name, weight in block.named_parameters():
            if name.endswith(("out_proj.weight", "down_proj.weight", "shift")):
                weight.zero_()
    y, dy = WAYS[way](block)(x), normal(2, 3, 16, seed=1)
    (dx,) = torch.autograd.grad(y, x, dy)
    assert (torch.equal(y, x) and torch.equal(dx, dy)) is (order not in NOT_DIRECT)


# Who listens


@every_order
@both_ways
def test_names_come_in_the_order_of_computation_and_listening_changes_nothing(order, way):
    net, tokens, heard = model(order, way), some_tokens(2, 5), Recorder()
    y = net(tokens, tap=heard)
    # A listener is shown the weights, which fast attention does not make.
    assert_close(y, net(tokens), rtol=0, atol=1e-11 if way == "fast" else 0)
    names = list(heard)
    assert names[0] == "embed" and names[-1] == "norm.final"
    blocks = [name.split(".")[1] for name in names[1:-1]]
    assert blocks == sorted(blocks) and set(blocks) == {"0", "1"}
    same = Recorder(edit={name: lambda value: value for name in names})
    assert torch.equal(net(tokens, tap=same), y) and list(same) == names and not same.unused
    for place, name in enumerate(names):
        edited = Recorder(edit={name: lambda value: value * 0.5 + 0.25})
        assert (net(tokens, tap=edited) - y).abs().max() > 1e-6, f"{name} is not what goes on"
        for before in names[:place]:
            assert torch.equal(edited[before], heard[before]), f"{before} came after {name}"


# Every config that can be made works

configs = st.builds(
    lambda kv, shared, half, **rest: ModelConfig(
        n_kv_heads=kv, n_heads=kv * shared, d_model=kv * shared * 2 * half, **rest
    ),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
    vocab_size=st.integers(1, 9), max_len=st.integers(4, 9), n_layers=st.integers(1, 4),
    d_ff=st.integers(1, 9), norm_eps=st.sampled_from([0.0, 1e-12, 1e-5, 1.0, 1e3]),
    rope_theta=st.sampled_from([1e-3, 1.0, 10_000.0, 1e9]), tied=st.booleans(),
)  # fmt: skip


@every_order
@every_norm
@few
@given(configs, st.sampled_from(list(INITS)), st.booleans())
def test_every_config_that_can_be_made_works(order, norm, config, init, quick):
    """Forward and backward, in float32 as it comes, with no number that is none."""
    config = replace(config, order=order, norm=norm)
    net = TinyLM(config, init=init, seed=1)
    net = fast.speed_up(net) if quick else net
    tokens = torch.arange(8).reshape(2, 4) % config.vocab_size
    y = net(tokens)
    assert y.shape == (2, 4, config.vocab_size) and y.dtype == torch.float32
    assert y.isfinite().all()
    torch.nn.functional.cross_entropy(y.flatten(0, 1), tokens.flatten()).backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name


# How it is kept


@every_order
@every_norm
def test_every_model_is_kept_by_a_checkpoint(order, norm, tmp_path):
    """Config and logits come back, these to the last bit; half of them tied, half of them fast."""
    tied = len(order + norm) % 2 == 0
    config = replace(SMALL, order=order, norm=norm, tied=tied)
    net, file = drawn(TinyLM(config)).float(), tmp_path / "m.safetensors"
    wanted = net(some_tokens(2, 5))
    checkpoint.save(file, net if tied else fast.speed_up(net))
    again, _ = checkpoint.load(file)
    assert again.config == config and torch.equal(again(some_tokens(2, 5)), wanted)


class Stop(Exception):
    pass


@every_order
def test_a_run_of_any_order_goes_on_where_it_was_stopped(order, tmp_path):
    letters, file = Letters(), tmp_path / "run.safetensors"
    config = TrainConfig(
        steps=6, batch=2, length=8, eval_every=2, eval_rows=2, warmup=2, weight_decay=0.3
    )

    def fresh(seed=0):
        return TinyLM(replace(SMALL, order=order, vocab_size=32), seed=seed, init="scaled_fan_in")

    def stop(history):
        if len(history.loss) == 5:  # one step after it was last kept
            raise Stop

    whole, resumed = fresh(), fresh(seed=7)
    history = train(whole, letters, config)
    with pytest.raises(Stop):
        train(fresh(), letters, config, run_file=file, on_step=stop)
    again = train(resumed, letters, config, run_file=file)
    assert asdict(again) | {"seconds": 0} == asdict(history) | {"seconds": 0}
    for (name, one), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other), name
