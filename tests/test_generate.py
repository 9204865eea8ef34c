"""generate.py: what is drawn, from what, and that the cache changes nothing."""

from math import exp, inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_writers import small_model, some_tokens
from torch.testing import assert_close

from tiny_lm.generate import generate, probabilities, stream

modest = settings(deadline=None, max_examples=25, derandomize=True)
MODEL = small_model()


# probabilities


def filtered(logits, temperature, top_k, top_p):
    """The definition, on a list: drop from the least likely up, one token at a time."""
    highest = max(logits)
    weights = [exp((logit - highest) / temperature) for logit in logits]
    p = [weight / sum(weights) for weight in weights]
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kept = order[:top_k]
    total = sum(p[i] for i in kept)
    while top_p is not None and sum(p[i] for i in kept[:-1]) / total >= top_p:
        kept.pop()
    total = sum(p[i] for i in kept)
    return [p[i] / total if i in kept else 0.0 for i in range(len(p))]


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9),
    st.floats(0.1, 3),
    st.data(),
)
def test_probabilities_are_those_of_the_definition(logits, temperature, data):
    top_k = data.draw(st.none() | st.integers(1, len(logits)))
    # away from sums that only rounding decides
    top_p = data.draw(st.none() | st.sampled_from([0.0123, 0.2345, 0.5678, 0.8912, 0.9987, 1.0]))
    got = probabilities(torch.tensor(logits), temperature=temperature, top_k=top_k, top_p=top_p)
    assert got.tolist() == pytest.approx(filtered(logits, temperature, top_k, top_p), abs=1e-12)


def test_top_p_keeps_the_token_that_reaches_it_and_no_more():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    for top_p, kept in ((0.01, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.88, 4), (1, 4)):
        assert (probabilities(logits, top_p=top_p) > 0).sum() == kept, top_p
    # Four quarters are exact: half is reached by the second.
    assert probabilities(torch.zeros(4), top_p=0.5).tolist() == [0.5, 0.5, 0, 0]
    # 1 keeps all, even those that add nothing to a sum which is 1 already.
    assert (probabilities(torch.tensor([0.0, -100.0]), top_p=1) > 0).all()


def test_top_k_keeps_k_tokens_even_among_equals():
    """C40: a threshold keeps both threes and gives [0, .5, .5, 0]."""
    assert probabilities(torch.tensor([1.0, 3, 3, 0]), top_k=1).tolist() == [0, 1, 0, 0]


def test_temperature_0_takes_the_first_of_the_most_likely():
    """C39: dividing by 0 gives [inf, inf, inf, nan]."""
    assert probabilities(torch.tensor([1.0, 3, 3, 0]), temperature=0).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e-8, 1e-40, 5e-324])
def test_a_tiny_temperature_is_no_overflow(temperature):
    got = probabilities(torch.tensor([1.0, 3, 3, 0]), temperature=temperature)
    assert got.tolist() == [0, 0.5, 0.5, 0]


def test_temperature_comes_before_top_p():
    """At temperature 4 the first token alone no longer reaches 0.9."""
    logits = torch.tensor([3.0, 0.0, 0.0])
    assert (probabilities(logits, top_p=0.9) > 0).tolist() == [True, False, False]
    assert (probabilities(logits, temperature=4, top_p=0.9) > 0).all()


def test_half_precision_logits_still_give_probabilities_that_sum_to_1():
    p = probabilities(torch.linspace(-9, 9, 1000).bfloat16(), top_k=700, top_p=0.99)
    assert p.dtype == torch.float64
    assert p.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("broken", [nan, inf])
def test_logits_that_are_not_finite_are_refused(broken):
    with pytest.raises(
        ValueError, match=r"generate: expected finite logits, got (nan|inf) \(an ov"
    ):
        probabilities(torch.tensor([[0.0, 1.0], [broken, 0.0]]))


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_model_that_overflows_writes_nothing(temperature):
    model = small_model()
    with torch.no_grad():
        model.norm_final.scale[0] = nan
    with pytest.raises(ValueError, match="generate: expected finite logits, got nan"):
        generate(model, torch.tensor([[1, 2]]), 3, temperature=temperature)


def test_a_token_can_be_forbidden_with_minus_infinity():
    assert probabilities(torch.tensor([0.0, -inf, 0.0])).tolist() == [0.5, 0, 0.5]


# Drawing


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"top_k": 5},
        {"top_p": 0.6},
        {"temperature": 2.0, "top_k": 20, "top_p": 0.9},
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_their_probability_says(options):
    draws = 20_000
    model, prompt = small_model(n_layers=1, n_heads=2, d_ff=8), some_tokens(1, 1)
    with torch.no_grad():
        p = probabilities(model(prompt)[0, -1], **options)
    drawn = generate(model, prompt.expand(draws, -1), 1, **options)[:, -1]
    counts = torch.bincount(drawn, minlength=len(p)).double()
    assert counts[p == 0].sum() == 0
    # five standard deviations of a binomial count, and one draw for the rare ones
    slack = 5 * (draws * p * (1 - p)).sqrt() + 1
    assert ((counts - draws * p).abs() <= slack).all()


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 1), (0.5, 3), (1 - 2**-53, 3)])
def test_no_draw_is_a_token_of_probability_0(monkeypatch, uniform, expected):
    """Not even at the ends of the unit interval, where a search may fall on the wrong side."""
    model = small_model()
    monkeypatch.setattr(torch, "rand", lambda *s, **_: torch.full(s, uniform, dtype=torch.float64))
    wanted = torch.full((50,), -inf)
    wanted[1] = wanted[3] = 0.0
    monkeypatch.setattr(model, "logits", lambda features: wanted.expand(len(features), -1))
    assert generate(model, some_tokens(2, 3), 1)[:, -1].tolist() == [expected] * 2


def test_a_draw_above_a_sum_that_was_rounded_down_is_still_a_token(monkeypatch):
    """Ten times 0.1 is 1 − 2⁻⁵³ in float64, and so can a uniform number be."""
    model, last = small_model(), 1 - 2**-53
    assert torch.full((10,), 0.1, dtype=torch.float64).cumsum(0)[-1] == last
    monkeypatch.setattr(torch, "rand", lambda *s, **_: torch.full(s, last, dtype=torch.float64))
    wanted = torch.full((50,), -inf)
    wanted[:10] = 0.0
    monkeypatch.setattr(model, "logits", lambda features: wanted.expand(len(features), -1))
    assert generate(model, some_tokens(1, 3), 1)[0, -1] == 9


def test_the_seed_decides_and_nothing_else_does():
    prompt = some_tokens(2, 3)
    torch.manual_seed(0)
    first = generate(MODEL, prompt, 12, seed=3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(generate(MODEL, prompt, 12, seed=3), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(generate(MODEL, prompt, 12, seed=4), first)
    zero = generate(MODEL, prompt, 12, seed=0)
    assert torch.equal(generate(MODEL, prompt, 12), zero)
    assert torch.equal(torch.stack(list(stream(MODEL, prompt, 12)), dim=1), zero[:, 3:])


def test_temperature_0_is_the_argmax_of_a_full_pass():
    text = some_tokens(3, 4)
    with torch.no_grad():
        for _ in range(10):
            text = torch.cat([text, MODEL(text)[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(generate(MODEL, some_tokens(3, 4), 10, temperature=0), text)


def test_a_model_without_preferences_writes_the_first_token():
    model = small_model()
    torch.nn.init.zeros_(model.embedding.weight)
    assert generate(model, some_tokens(1, 2), 3, temperature=0)[0, 2:].tolist() == [0, 0, 0]


# With and without cache


@modest
@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 12), st.integers(0, 99))
def test_the_cache_changes_nothing(rows, columns, new, seed):
    """In float64 and at std 0.2, where a wrong position moves logits by 4 and more."""
    model, prompt = small_model(seed=seed).double(), some_tokens(rows, columns, seed=seed)
    for options in ({"temperature": 0}, {"temperature": 1.5, "top_k": 30}, {"top_p": 0.95}):
        with_cache = generate(model, prompt, new, seed=seed, **options)
        without = generate(model, prompt, new, seed=seed, use_cache=False, **options)
        assert torch.equal(with_cache, without)
        assert with_cache.shape == (rows, columns + new)
        assert torch.equal(with_cache[:, :columns], prompt)


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_distribution_at_each_step_is_that_of_a_full_pass(use_cache):
    """Not only the tokens: the logits behind them."""
    model, seen = small_model().double(), []
    logits_of = model.logits
    model.logits = lambda features: seen.append(logits_of(features)) or seen[-1]
    text = generate(model, some_tokens(2, 5), 8, use_cache=use_cache)
    del model.logits
    with torch.no_grad():
        expected = model(text)[:, 4:-1]
    assert_close(torch.stack(seen, dim=1), expected, rtol=0, atol=1e-10)


def test_only_what_is_needed_is_computed(monkeypatch):
    """One token a step with the cache; the output matrix for the last position only."""
    model, fed, scored = small_model(), [], []
    features, logits = model.features, model.logits
    monkeypatch.setattr(
        model, "features", lambda t, **kw: fed.append(tuple(t.shape)) or features(t, **kw)
    )
    monkeypatch.setattr(model, "logits", lambda f: scored.append(tuple(f.shape)) or logits(f))
    generate(model, some_tokens(2, 5), 3)
    generate(model, some_tokens(2, 5), 3, use_cache=False)
    list(stream(model, some_tokens(2, 5), 2))
    assert fed == [(2, 5), (2, 1), (2, 1), (2, 5), (2, 6), (2, 7), (2, 5), (2, 1)]
    assert scored == [(2, 64)] * 8


# Stopping


def test_a_row_that_has_ended_is_filled_up():
    prompt = some_tokens(6, 2)
    free = generate(MODEL, prompt, 20)
    stop_id = free[0, 5].item()
    stopped = generate(MODEL, prompt, 20, stop_id=stop_id)
    new = free[:, 2:].tolist()
    lengths = [row.index(stop_id) + 1 if stop_id in row else 20 for row in new]
    assert stopped.shape[1] == 2 + max(lengths) and min(lengths) < 20
    for row, whole in zip(stopped[:, 2:].tolist(), new, strict=True):
        end = row.index(stop_id) if stop_id in row else len(row)
        assert row[:end] == whole[:end]
        assert set(row[end:]) <= {stop_id}


def test_nothing_is_written_after_every_row_has_ended():
    prompt = some_tokens(1, 2)
    greedy = generate(MODEL, prompt, 9, temperature=0)
    stop_id = greedy[0, 4].item()
    first = greedy[0, 2:].tolist().index(stop_id)
    stopped = generate(MODEL, prompt, 9, temperature=0, stop_id=stop_id)
    assert torch.equal(stopped, greedy[:, : 2 + first + 1])


# As they come


def test_stream_is_generate_one_token_at_a_time():
    prompt = some_tokens(3, 4)
    whole = generate(MODEL, prompt, 7, seed=5, top_k=9)
    came = stream(MODEL, prompt, 7, seed=5, top_k=9)
    assert torch.equal(torch.stack(list(came), dim=1), whole[:, 4:])


def test_stream_computes_a_token_only_when_asked(monkeypatch):
    model, steps = small_model(), []
    features = model.features
    monkeypatch.setattr(model, "features", lambda t, **kw: steps.append(1) or features(t, **kw))
    came = stream(model, some_tokens(1, 4), 20)
    assert len(steps) == 0
    next(came), next(came)
    assert len(steps) == 2


def test_nothing_leaks_out_of_inference_mode():
    """Between two tokens gradients work, and a model can be trained on what was written."""
    prompt = some_tokens(1, 4)
    for token in stream(MODEL, prompt, 3):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        assert not token.is_inference()
    model = small_model()
    model(generate(model, prompt, 3)).sum().backward()
    assert model.embedding.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_stays(training):
    model = small_model().train(training)
    model.blocks[0].train(not training)
    generate(model, some_tokens(1, 2), 2)
    assert (model.training, model.blocks[0].training) == (training, not training)


def test_no_new_tokens_are_none():
    prompt = some_tokens(2, 3)
    assert torch.equal(generate(MODEL, prompt, 0), prompt)


def test_whole_numbers_keep_their_type():
    assert generate(MODEL, some_tokens(1, 3).int(), 2).dtype == torch.int32


def test_a_text_may_fill_max_len():
    assert generate(MODEL, some_tokens(1, 30), 2).shape == (1, 32)


# Errors


ids = some_tokens(1, 3)


@pytest.mark.parametrize(
    ("tokens", "new", "options", "message"),
    [
        (ids, 1, {"temperature": -0.5}, r"temperature >= 0, got -0.5 \(0 takes the most"),
        (ids, 1, {"temperature": nan}, "temperature >= 0, got nan"),
        (ids, 1, {"temperature": inf}, "temperature >= 0, got inf"),
        (ids, 1, {"top_k": 51}, r"top_k 1 … 50, got 51 \(None keeps all tokens\)"),
        (ids, 1, {"top_k": 0}, "top_k 1 … 50, got 0"),
        (ids, 1, {"top_k": 2.5}, "top_k 1 … 50, got 2.5"),
        (ids, 1, {"top_p": 0.0}, "top_p above 0 and at most 1, got 0.0"),
        (ids, 1, {"top_p": 1.01}, "top_p above 0 and at most 1, got 1.01"),
        (ids, 1, {"top_p": nan}, "top_p above 0 and at most 1, got nan"),
        (ids, 1, {"temperature": 0, "top_k": 51}, "top_k 1 … 50, got 51"),
        (ids, 1, {"stop_id": 50}, "stop_id 0 … 49, got 50"),
        (ids, -1, {}, "new a whole number >= 0, got -1"),
        (ids, 1.0, {}, "new a whole number >= 0, got 1.0"),
        (ids, 30, {}, r"at most 32 positions, got 3 \+ 30 \(prompt and new tokens, config.max_len"),
        (ids[:, :0], 1, {}, r"at least one token, got \[1, 0\] \(begin with a token"),
        (ids[0], 1, {}, r"tokens \[B, T\], got \[3\] \(add a batch axis: tokens\[None\]\)"),
        (ids.float(), 1, {}, r"whole-number tokens, got torch.float32 \(call .long\(\)\)"),
        (ids + 50, 0, {}, r"token ids 0 … 49, got \d\d"),
        (ids * 0 - 1, 0, {}, "token ids 0 … 49, got -1"),
    ],
)  # fmt: skip
def test_errors_come_before_any_work(monkeypatch, tokens, new, options, message):
    model = small_model()
    monkeypatch.setattr(model, "features", lambda *a, **k: pytest.fail("it began to work"))
    for function in (generate, stream):
        with pytest.raises(ValueError, match="generate: expected " + message):
            function(model, tokens, new, **options)
