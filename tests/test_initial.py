"""initial.py: each way to draw weights has the spread that it says."""

import math

import pytest
import torch

from tiny_lm.initial import INITS
from tiny_lm.model import ModelConfig, TinyLM

CONFIG = ModelConfig(vocab_size=300, d_model=64, n_heads=4, d_ff=160, n_layers=8, tied=False)


def spreads(init):
    model = TinyLM(CONFIG, seed=1, init=init)
    return {name: p.detach() for name, p in model.named_parameters() if p.ndim >= 2}


@pytest.mark.parametrize("init", INITS)
def test_every_matrix_has_the_spread_it_should(init):
    """Within 5 standard errors, std / sqrt(2 n)."""
    for name, p in spreads(init).items():
        writes = name.endswith(("out_proj.weight", "down_proj.weight"))
        fan_in = 1 / math.sqrt(p.shape[1])
        wanted = {
            "gpt2": 0.02 / 4 if writes else 0.02,
            "small": 0.02,
            "fan_in": fan_in,
            "scaled_fan_in": fan_in / 4 if writes else fan_in,
        }[init]
        error = 5 * wanted / math.sqrt(2 * p.numel())
        assert abs(float(p.std()) - wanted) < error, name
        assert abs(float(p.mean())) < 5 * wanted / math.sqrt(p.numel()), name


def test_gains_stay_ones_and_a_seed_decides():
    one, same, other = (TinyLM(CONFIG, seed=s, init="fan_in") for s in (1, 1, 2))
    assert all(bool((p == 1).all()) for p in one.parameters() if p.ndim < 2)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert all(not torch.equal(a, c) for a, _, c in pairs if a.ndim >= 2)


def test_an_unknown_way_is_named():
    message = "TinyLM: expected init one of gpt2, small, fan_in, scaled_fan_in, got 'he'"
    with pytest.raises(ValueError, match=message):
        TinyLM(CONFIG, init="he")
