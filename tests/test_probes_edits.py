"""Chapters 07 and 08: the stream as a sum of writes, and models with changed writes."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import IDS, OTHERS, small_model

from tiny_lm.generate import generate
from tiny_lm.probes import edits, surgery
from tiny_lm.probes.edits import Edited
from tiny_lm.taps import Recorder

CLOSE = {"rtol": 0, "atol": 1e-12}  # float64, values near 1, dozens of additions


@pytest.fixture(params=[{}, {"n_kv_heads": 1}, {"tied": False}, {"order": "sandwich"}])
def model(request):
    return small_model(**request.param)


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(torch.tensor([ids]))


def test_streams_are_the_taps_of_the_sums_in_order(model):
    names = edits.streams(model)
    assert names[:3] == ["embed", "blocks.0.resid.attn", "blocks.0.resid.ffn"]
    assert names[-1] == "blocks.2.resid.ffn" and len(names) == 7
    recorded = edits.read(model, IDS)
    assert [name for name in recorded if name in names] == names
    assert [edits.short(name) for name in names[:3]] == ["embed", "attn 0", "ffn 0"]


@pytest.mark.parametrize("order", ["post", "plain", "deepnorm"])
def test_an_order_without_a_free_direct_path_has_no_writes(order):
    with pytest.raises(
        ValueError, match=f"expected an order with a free direct path: pre, .*, got {order}"
    ):
        edits.streams(small_model(order=order))


@pytest.mark.parametrize("changed", [{}, {"n_kv_heads": 1}])
def test_a_write_is_what_the_branch_gives_when_it_is_asked_alone(changed):
    model = small_model(**changed)
    recorded = edits.read(model, IDS)
    found = edits.writes(recorded, edits.streams(model), slice(None))
    with torch.no_grad():
        alone = [model.embedding(torch.tensor([IDS]))]
        for i, block in enumerate(model.blocks):
            alone.append(block.attention(recorded[f"blocks.{i}.norm.attn"]))
            alone.append(block.ffn(recorded[f"blocks.{i}.norm.ffn"]))
    torch.testing.assert_close(found, torch.cat(alone), **CLOSE)
    last = edits.writes(recorded, edits.streams(model), -1)
    assert torch.equal(last, found[:, -1])


def test_without_changes_the_edited_model_is_the_model(model):
    assert torch.equal(logits(Edited(model, {})), logits(model))


@pytest.mark.parametrize("block", [0, 1, 2])
@pytest.mark.parametrize("part", ["attn", "ffn"])
def test_removing_a_write_is_silencing_the_norm_that_its_branch_reads(block, part):
    """A branch without biases writes nothing when it reads zeros."""
    model = small_model()
    silent = Recorder({f"blocks.{block}.norm.{part}": torch.zeros_like})
    with torch.no_grad():
        expected = model(torch.tensor([IDS]), tap=silent)
    changed = logits(Edited(model, {f"blocks.{block}.resid.{part}": edits.removed}))
    assert torch.equal(changed, expected)
    assert (changed - logits(model)).abs().max() > 1e-3


def test_without_its_first_write_every_token_reads_the_same():
    out = logits(Edited(small_model(), {"embed": edits.removed}))
    assert torch.equal(out, torch.zeros_like(out))


def test_cutting_every_direct_path_is_the_plain_order():
    model, plain = small_model(), small_model(order="plain")
    plain.load_state_dict(model.state_dict())
    cut = Edited(model, dict.fromkeys(edits.streams(model)[1:], edits.alone))
    torch.testing.assert_close(logits(cut), logits(plain), rtol=0, atol=1e-10)


def test_a_rounded_stream_holds_numbers_of_bfloat16_only():
    model = small_model()
    edited = surgery.bfloat16_stream(model)
    recorded = edits.read(edited, IDS)
    for name in edits.streams(model):
        assert torch.equal(recorded[name], recorded[name].bfloat16().double())
    assert not torch.equal(logits(edited), logits(model))


def test_all_writes_of_another_text_make_its_logits():
    model = small_model()
    names = edits.streams(model)
    written = edits.writes(edits.read(model, OTHERS), names, slice(None))
    changes = {name: edits.swapped(write) for name, write in zip(names, written, strict=True)}
    torch.testing.assert_close(logits(Edited(model, changes)), logits(model, OTHERS), **CLOSE)


def test_swapping_the_last_write_adds_the_difference_of_the_writes():
    model, name = small_model(), "blocks.2.resid.ffn"
    mine, other = (edits.read(model, ids) for ids in (IDS, OTHERS))
    names = edits.streams(model)
    write = edits.writes(other, names, slice(None))[-1]
    recorded = edits.read(Edited(model, {name: edits.swapped(write)}), IDS)
    expected = mine["blocks.2.resid.attn"][0] + write
    torch.testing.assert_close(recorded[name][0], expected, **CLOSE)


@given(st.integers(0, len(IDS) - 1), st.integers(0, 6))
@settings(max_examples=20, deadline=None)
def test_a_change_at_one_position_leaves_the_earlier_ones_bit_for_bit(position, m):
    model = small_model()
    name = edits.streams(model)[m]
    changed = logits(Edited(model, {name: edits.only(position, edits.removed)}))
    whole = logits(model)
    assert torch.equal(changed[:, :position], whole[:, :position])
    assert not torch.equal(changed[:, position], whole[:, position])
    own = edits.read(Edited(model, {name: edits.only(position, edits.removed)}), IDS)[name]
    kept = [p for p in range(len(IDS)) if p != position]
    if m == 0:  # nothing came before that could have changed it
        assert torch.equal(own[:, kept], edits.read(model, IDS)[name][:, kept])


def test_several_positions_are_one_for_each_row():
    model, name = small_model(), "blocks.1.resid.attn"
    rows = torch.tensor([IDS] * 3)
    with torch.no_grad():
        together = Edited(model, {name: edits.only([1, 4, 5], edits.removed)})(rows)
    for row, position in zip(together, [1, 4, 5], strict=True):
        alone = logits(Edited(model, {name: edits.only(position, edits.removed)}))
        torch.testing.assert_close(row, alone[0], **CLOSE)


def in_pieces(edited, ids, cuts):
    """The features of a text that is fed piece by piece, with a cache."""
    cache, cuts = edited.new_cache(), [0, *cuts, len(ids)]
    with torch.no_grad():
        return torch.cat(
            [edited.features(torch.tensor([ids[a:b]]), cache=cache) for a, b in pairwise(cuts)], 1
        )


def other_write(count):
    model = small_model()
    return edits.writes(edits.read(model, OTHERS), edits.streams(model), slice(None))[3, :count]


@pytest.mark.parametrize(
    "change",
    [
        edits.removed,
        edits.rounded,
        edits.only(0, edits.removed),
        edits.only(4, edits.removed),
        edits.swapped(other_write(7)),
        edits.swapped(other_write(3)),  # holds for three positions and not for what follows
    ],
)
def test_with_a_cache_an_edited_model_does_the_same(change):
    edited = Edited(small_model(), {"blocks.1.resid.attn": change})
    whole = in_pieces(edited, IDS, [])
    for cuts in ([1], [3, 4], [2, 5, 6]):
        torch.testing.assert_close(in_pieces(edited, IDS, cuts), whole, **CLOSE)
    full = generate(edited, torch.tensor([IDS]), 8, temperature=0, use_cache=False)
    assert edits.write_on(edited, IDS, 8) == full[0, len(IDS) :].tolist()


def test_what_is_written_ends_with_the_stop_id():
    model = small_model()
    written = edits.write_on(model, IDS, 10)
    stop = written[4]
    assert edits.write_on(model, IDS, 10, stop) == written[: written.index(stop) + 1]


def test_no_weight_is_touched():
    model = small_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    for change in (edits.removed, edits.alone, edits.rounded):
        logits(Edited(model, {"embed": change, "blocks.2.resid.ffn": change}))
    after = model.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


def test_loss_is_the_mean_over_all_next_tokens_whatever_the_lengths():
    model = small_model()
    rows = [IDS, OTHERS[:4], OTHERS]
    each = []
    for row in rows:
        p = logits(model, row[:-1])[0].softmax(dim=-1)
        each += [-float(p[i, token].log()) for i, token in enumerate(row[1:])]
    assert edits.loss(model, rows) == pytest.approx(sum(each) / len(each), abs=1e-12)
    same = edits.loss(model, [IDS, OTHERS])
    apart = [edits.loss(model, [IDS]), edits.loss(model, [OTHERS])]
    assert same == pytest.approx(sum(apart) / 2, abs=1e-12)


def test_a_name_that_is_no_stream_is_refused():
    with pytest.raises(
        ValueError,
        match=r"Edited: expected one of embed, blocks.0.* … blocks.2.*, got 'blocks.9.resid.ffn'",
    ):
        Edited(small_model(), {"blocks.9.resid.ffn": edits.removed})
    broken = Edited(small_model(), {"embed": lambda before, value, positions: value[:, :1]})
    with pytest.raises(ValueError, match="Edited: expected"):
        logits(broken)
