"""Chapter 09: ratios of times, what is stored of them, and the verdict. No speed is asserted."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm, rms_norm

from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.plots.designs import SpeedPicture
from tiny_lm.probes import norm_speed
from tiny_lm.probes.court import SEEDS, interval, judge


@pytest.mark.parametrize("way", norm_speed.WAYS)
def test_both_ways_compute_the_same_norms(way):
    x = torch.randn(3, 16)
    make = norm_speed.WAYS[way]
    torch.testing.assert_close(make("rms", 16)(x), rms_norm(x, (16,), eps=1e-5))
    torch.testing.assert_close(make("layer", 16)(x), layer_norm(x, (16,), eps=1e-5))


def test_kernels_in_a_model_change_nothing_but_the_clock():
    config = ModelConfig(vocab_size=11)
    model, tokens = TinyLM(config), torch.tensor([[1, 2, 3]])
    wanted = model(tokens)
    replaced = norm_speed.with_kernels(model, "rms")
    assert isinstance(replaced.norm_final, nn.RMSNorm)
    assert all(type(b.norm1) is type(b.norm2) is nn.RMSNorm for b in replaced.blocks)
    torch.testing.assert_close(replaced(tokens), wanted, rtol=1e-4, atol=1e-5)


def test_the_gradients_reach_input_and_gain():
    norm, x = norm_speed.by_hand("rms", 4), torch.randn(2, 4, requires_grad=True)
    norm_speed.forward_and_backward(norm, x, torch.ones(2, 4))
    assert x.grad is not None and norm.scale.grad is not None


def test_a_measurement_on_a_small_scale(monkeypatch):
    for name, value in {
        "ROUNDS": 1,
        "STEP_ROUNDS": 1,
        "WIDTHS": (8,),
        "STEP_WIDTHS": (32,),
    }.items():
        monkeypatch.setattr(norm_speed, name, value)
    found: dict[str, list[float]] = {}
    for name, ratio in norm_speed.measure("cpu", 4, norm_speed.WAYS):
        found.setdefault(name, []).append(ratio)
    assert set(found) == {
        "by hand, forward, 4 x 8",
        "by hand, forward and backward, 4 x 8",
        "torch's kernels, forward, 4 x 8",
        "torch's kernels, forward and backward, 4 x 8",
        "by hand, training step, D = 32",
        "torch's kernels, training step, D = 32",
        "no norms, training step, D = 32",
    }
    assert all(len(ratios) == len(SEEDS) and min(ratios) > 0 for ratios in found.values())


def test_what_is_stored_is_whole():
    stored = norm_speed.stored()
    assert isinstance(stored, Mapping) and stored
    for times in stored.values():
        assert all(len(ratios) == len(SEEDS) for ratios in times.values())
    assert set(norm_speed.CHARGED) <= set(stored[norm_speed.first_machine()])


def test_the_verdict_follows_from_the_stored_times_by_the_courts_rule():
    trial = norm_speed.faster()
    times = norm_speed.stored()[norm_speed.first_machine()]
    for finding in trial.findings:
        low, mean, high = interval(times[finding.setting])
        assert (finding.low, finding.mean, finding.high) == (low, mean, high)
        assert finding.agrees is judge(low, high, (0.0, 0.8))
    assert trial.claim.sentence == "RMSNorm is 30 % faster than LayerNorm."
    assert norm_speed.first_machine() in trial.claim.fixed


def test_the_picture_draws_the_means():
    machine = norm_speed.first_machine()
    found = norm_speed.by_width(machine, "by hand", "forward")
    assert list(found) == sorted(norm_speed.WIDTHS)
    key = f"by hand, forward, 256 x {norm_speed.WIDTHS[0]}"
    assert found[norm_speed.WIDTHS[0]] == fmean(norm_speed.stored()[machine][key])
    picture = SpeedPicture({"by hand, forward": found})
    (line,) = [
        line for line in picture.figure.axes[0].lines if line.get_label() == "by hand, forward"
    ]
    assert list(line.get_ydata()) == list(found.values())
    assert "by hand, forward" in picture.sentence
