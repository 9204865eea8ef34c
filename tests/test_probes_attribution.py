"""Chapters 07 and 08: the residual ledger against the branches asked alone and against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import IDS, small_model

from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import attribution, edits, stories

ANY = {"n_kv_heads": 1, "tied": False}


@pytest.mark.parametrize("changed", [{}, ANY, {"order": "bare"}, {"norm_eps": 0.5}])
@pytest.mark.parametrize("other", [None, 7])
def test_sums_are_the_last_stream_and_the_logit(changed, other):
    model = small_model(**changed)
    recorded = edits.read(model, IDS)
    with torch.no_grad():
        logits = model(torch.tensor([IDS]))[0, 4]
    found = attribution.ledger(model, recorded, 4, 3, other)
    wanted = logits[3] - (logits[other] if other is not None else 0)
    assert found.logit == pytest.approx(float(wanted), abs=1e-12)
    assert sum(e.share for e in found.entries) == pytest.approx(float(wanted), abs=1e-11)
    assert found.stream_gap < 1e-14 and found.logit_gap < 1e-11


def test_each_entry_against_the_branch_asked_alone():
    model = small_model()
    recorded, at = edits.read(model, IDS), 5
    found = attribution.ledger(model, recorded, at, 9)
    stream = torch.zeros(8, dtype=torch.float64)
    assert found.entries[0].cosine == 0
    for m, entry in enumerate(found.entries):
        with torch.no_grad():
            if m == 0:
                write = model.embedding.weight[IDS[at]]
            else:
                block, part = model.blocks[(m - 1) // 2], ("attn", "ffn")[(m - 1) % 2]
                branch = block.attention if part == "attn" else block.ffn
                write = branch(recorded[f"blocks.{(m - 1) // 2}.norm.{part}"])[0, at]
                wanted = torch.cosine_similarity(stream, write, dim=0)
                assert entry.cosine == pytest.approx(float(wanted), abs=1e-10)
            write = write.detach()
            stream = stream + write
        assert entry.size == pytest.approx(float(write.square().mean().sqrt()), abs=1e-12)
        assert entry.stream == pytest.approx(float(stream.square().mean().sqrt()), abs=1e-12)
    names = ["embed", "attn 0", "ffn 0", "attn 1", "ffn 1", "attn 2", "ffn 2"]
    assert [entry.name for entry in found.entries] == names


@given(st.integers(0, len(IDS) - 1), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_a_share_is_the_slope_along_the_write_with_the_denominator_held_fixed(position, target):
    model = small_model(**ANY)
    recorded = edits.read(model, IDS)
    names = edits.streams(model)
    last = recorded[names[-1]][0, position].clone().requires_grad_()
    denominator = (last.square().mean() + model.norm_final.eps).sqrt().detach()
    logit = model.logits(model.norm_final.scale * last / denominator)[target]
    (slope,) = torch.autograd.grad(logit, last)
    wanted = edits.writes(recorded, names, position) @ slope
    found = attribution.ledger(model, recorded, position, target)
    assert found.denominator == pytest.approx(float(denominator), abs=1e-14)
    assert [e.share for e in found.entries] == pytest.approx(wanted.tolist(), abs=1e-11)


def test_all_positions_at_once_give_the_same_shares():
    model = small_model(**ANY)
    recorded = edits.read(model, IDS)
    table = attribution.all_shares(model, recorded, [*IDS[1:], 0])
    assert table.shape == (7, len(IDS))
    for t, target in enumerate([*IDS[1:], 0]):
        alone = attribution.ledger(model, recorded, t, target)
        assert table[:, t].tolist() == pytest.approx([e.share for e in alone.entries], abs=1e-12)


def test_a_lead_is_the_difference_of_two_ledgers():
    model = small_model()
    recorded = edits.read(model, IDS)
    lead, one, two = (
        [e.share for e in attribution.ledger(model, recorded, 2, *ids).entries]
        for ids in ((3, 4), (3,), (4,))
    )
    assert lead == pytest.approx([a - b for a, b in zip(one, two, strict=True)], abs=1e-12)


def test_the_shipped_model_in_float64_and_in_float32():
    """In float32 the model's own sums round: 48 products of size 1, relative 6e-8 each."""
    row = stories.CORPUS.row(4, 44, "valid")
    for dtype, close in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        model = stories.pretrained.load("stories", dtype=dtype)[0]
        found = attribution.ledger(model, edits.read(model, row[:-1]), 40, row[41])
        assert found.stream_gap < 1e-14 and found.logit_gap < close
        assert (found.logit_gap > 1e-9) == (dtype == torch.float32)


def test_edited_models_have_ledgers_too():
    edited = edits.Edited(small_model(), {"blocks.1.resid.ffn": edits.removed})
    found = attribution.ledger(edited, edits.read(edited, IDS), 3, 2)
    assert [e.size > 0 for e in found.entries] == [True] * 4 + [False] + [True] * 2
    assert found.entries[4].share == found.entries[4].cosine == 0
    assert found.logit_gap < 1e-11


def test_what_cannot_be_is_refused():
    model = small_model()
    recorded = edits.read(model, IDS)
    with pytest.raises(ValueError, match="ledger: expected a position 0 … 6, got 7"):
        attribution.ledger(model, recorded, 7, 0)
    with pytest.raises(ValueError, match="ledger: expected token ids 0 … 10, got 11"):
        attribution.ledger(model, recorded, 0, 11)
    layer = TinyLM(ModelConfig(vocab_size=11, n_layers=1, norm="layer"))
    with pytest.raises(ValueError, match="ledger: expected a final RMSNorm, got LayerNorm"):
        attribution.ledger(layer, edits.read(layer, IDS), 0, 0)
