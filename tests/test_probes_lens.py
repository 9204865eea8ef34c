"""Chapters 07 and 08: the logit lens against models that really end early."""

from copy import deepcopy
from math import exp, log

import pytest
import torch
from small_models import IDS, small_model

from tiny_lm.probes import edits, lens

TARGETS = [*IDS[1:], 0]


@pytest.mark.parametrize("changed", [{}, {"n_kv_heads": 1, "tied": False}])
def test_a_reading_is_what_a_model_of_fewer_blocks_says(changed):
    model = small_model(**changed)
    found = lens.lens(model, edits.read(model, IDS), TARGETS, top=3)
    for blocks in range(4):
        shorter = deepcopy(model)
        shorter.blocks = shorter.blocks[:blocks]
        with torch.no_grad():
            p = shorter(torch.tensor([IDS]))[0].softmax(dim=-1)
        for t, reading in enumerate(found.readings[2 * blocks]):
            best = p[t].argsort(descending=True)
            assert reading.tokens == best[:3].tolist()
            assert reading.probabilities == pytest.approx(p[t, best[:3]].tolist(), abs=1e-12)
            assert reading.entropy == pytest.approx(
                -sum(float(q) * log(q) for q in p[t]), abs=1e-11
            )
            assert exp(-reading.surprise) == pytest.approx(float(p[t, TARGETS[t]]), abs=1e-12)
            assert best[reading.rank - 1] == TARGETS[t]


def test_the_last_tap_is_the_models_own_loss():
    model = small_model()
    found = lens.lens(model, edits.read(model, IDS[:-1]), IDS[1:])
    assert found.surprises()[-1] == pytest.approx(edits.loss(model, [IDS]), abs=1e-12)
    last = [reading.entropy for reading in found.readings[-1]]
    assert found.entropies()[-1] == pytest.approx(sum(last) / len(last), abs=1e-14)


def test_some_positions_and_some_taps():
    model = small_model()
    recorded = edits.read(model, IDS)
    whole = lens.lens(model, recorded, TARGETS)
    part = lens.lens(model, recorded, [TARGETS[5], TARGETS[2]], positions=[5, 2], taps=["embed"])
    assert part.names == ["embed"] and part.positions == [5, 2]
    for found, wanted in zip(part.readings[0], [whole.readings[0][t] for t in (5, 2)], strict=True):
        assert (found.tokens, found.rank) == (wanted.tokens, wanted.rank)
        assert found.surprise == pytest.approx(wanted.surprise, abs=1e-12)


def test_a_certain_reading_has_entropy_zero_and_no_infinities():
    """Probabilities that round to 0 count as 0 · ln 0 = 0."""
    model = deepcopy(small_model())
    with torch.no_grad():
        model.norm_final.scale *= 1e4
    found = lens.lens(model, edits.read(model, IDS), TARGETS)
    flat = [reading for row in found.readings for reading in row]
    assert min(r.entropy for r in flat) == pytest.approx(0, abs=1e-9)
    assert all(0 <= r.entropy < log(11) and r.surprise < 1e6 for r in flat)
    assert max(r.surprise for r in flat) > 1000  # where a probability itself would be 0


def test_what_cannot_be_is_refused():
    model = small_model()
    recorded = edits.read(model, IDS)
    with pytest.raises(ValueError, match="lens: expected 7 targets, one for each position, got 6"):
        lens.lens(model, recorded, IDS[1:])
    with pytest.raises(ValueError, match="lens: expected a recorded tap, got 'blocks"):
        lens.lens(model, recorded, TARGETS, taps=["blocks.7.resid.ffn"])
