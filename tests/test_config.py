"""config.py: every good combination is accepted, every bad one named."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_lm.model
from tiny_lm.config import NORM_NAMES, ORDER_NAMES, ModelConfig
from tiny_lm.layers import NORMS, TransformerBlock
from tiny_lm.variants import ORDERS

modest = settings(deadline=None, max_examples=60, derandomize=True)


def test_the_defaults_alone_are_valid():
    assert dataclasses.asdict(ModelConfig()) == {
        "vocab_size": 256,
        "max_len": 256,
        "n_layers": 4,
        "d_model": 64,
        "n_heads": 2,
        "n_kv_heads": None,
        "d_ff": 128,
        "norm": "rms",
        "norm_eps": 1e-5,
        "order": "pre",
        "rope_theta": 10_000.0,
        "tied": True,
    }


def test_it_is_also_importable_from_the_model():
    assert tiny_lm.model.ModelConfig is ModelConfig


def test_it_is_frozen_and_takes_names_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().d_model = 32
    with pytest.raises(TypeError):
        ModelConfig(256)
    with pytest.raises(TypeError, match="d_modle"):
        ModelConfig(d_modle=64)


def test_equal_numbers_are_equal_configs():
    assert ModelConfig() == ModelConfig(n_heads=2)
    assert hash(ModelConfig()) == hash(ModelConfig(n_heads=2))
    assert ModelConfig() != ModelConfig(norm_eps=1e-6)
    assert ModelConfig(**dataclasses.asdict(ModelConfig(n_heads=4))) == ModelConfig(n_heads=4)


def test_width_of_a_head():
    assert ModelConfig().d_head == 32
    assert ModelConfig(d_model=576, n_heads=9, n_kv_heads=3).d_head == 64
    assert ModelConfig(d_model=2, n_heads=1).d_head == 2


@modest
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans(),
    st.sampled_from(NORM_NAMES), st.sampled_from(ORDER_NAMES), st.sampled_from([0.0, 1e-6, 1.0]),
)  # fmt: skip
def test_every_combination_that_fits_is_valid(groups, shared, half, grouped, norm, order, eps):
    heads = groups * shared
    config = ModelConfig(
        d_model=2 * half * heads, n_heads=heads, n_kv_heads=groups if grouped else None,
        norm=norm, order=order, norm_eps=eps,
    )  # fmt: skip
    assert config.d_head == 2 * half
    attention = TransformerBlock(config).attention
    assert attention.kv_heads == (groups if grouped else heads)


@modest
@given(st.integers(1, 24), st.integers(1, 6), st.integers(1, 6))
def test_a_combination_is_valid_exactly_when_its_sizes_fit(d_model, n_heads, n_kv_heads):
    fits = d_model % n_heads == 0 and d_model // n_heads % 2 == 0 and n_heads % n_kv_heads == 0
    try:
        ModelConfig(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)
    except ValueError:
        assert not fits
    else:
        assert fits


def test_the_names_are_those_of_the_layers():
    assert set(NORM_NAMES) == set(NORMS) and set(ORDER_NAMES) == set(ORDERS)


SIZES = ("vocab_size", "max_len", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [0, -1, 2.0, 2.5, True, "2"])
def test_sizes_are_whole_numbers_from_one(name, size):
    with pytest.raises(ValueError) as caught:
        ModelConfig(**{name: size})
    expected = f"ModelConfig: expected {name} a whole number >= 1, got {size!r}"
    assert str(caught.value) == expected


@pytest.mark.parametrize("name", [name for name in SIZES if name != "n_kv_heads"])
def test_only_n_kv_heads_may_be_left_to_the_others(name):
    with pytest.raises(ValueError, match=f"expected {name} a whole number >= 1, got None"):
        ModelConfig(**{name: None})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        # C34
        ({"n_heads": 5}, "d_model divisible by n_heads, got 64 and 5"),
        ({"d_model": 128, "n_heads": 3}, "d_model divisible by n_heads, got 128 and 3"),
        (
            {"d_model": 6},
            "an even head width, got 3 (RoPE turns pairs of coordinates)",
        ),
        # C35
        ({"n_heads": 4, "n_kv_heads": 3}, "n_heads divisible by n_kv_heads, got 4 and 3"),
        ({"n_kv_heads": 4}, "n_heads divisible by n_kv_heads, got 2 and 4"),
        # C04
        ({"norm_eps": -1e-5}, "norm_eps >= 0, got -1e-05"),
        ({"norm_eps": float("nan")}, "norm_eps >= 0, got nan"),
        ({"norm_eps": float("inf")}, "norm_eps >= 0, got inf"),
        ({"norm_eps": 10**400}, f"norm_eps >= 0, got {10**400}"),
        ({"rope_theta": 0}, "rope_theta > 0, got 0"),
        ({"rope_theta": float("inf")}, "rope_theta > 0, got inf"),
        ({"rope_theta": float("nan")}, "rope_theta > 0, got nan"),
        ({"norm": "batch"}, f"norm one of {', '.join(NORM_NAMES)}, got 'batch'"),
        ({"order": "beside"}, f"order one of {', '.join(ORDER_NAMES)}, got 'beside'"),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(ValueError) as caught:
        ModelConfig(**wrong)
    assert str(caught.value) == f"ModelConfig: expected {message}"


def test_eps_zero_is_allowed():
    assert ModelConfig(norm_eps=0).norm_eps == 0


def test_replace_keeps_one_key_head_for_every_query_head():
    """None stays None, so another number of heads does not become a grouped attention unseen."""
    for heads in (4, 1):
        config = dataclasses.replace(ModelConfig(n_heads=2), n_heads=heads)
        assert TransformerBlock(config).attention.kv_heads == heads
