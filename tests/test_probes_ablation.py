"""Chapters 07 and 08: removals and patches against models without the weights in question."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from small_models import IDS, OTHERS, small_model

from tiny_lm.probes import ablation, attribution, edits

ROWS = [IDS, OTHERS, [5, 5, 0, 10, 3, 3, 6]]


def without(model, name):
    """A copy whose branch has weights of zero where it writes."""
    copy = deepcopy(model)
    with torch.no_grad():
        if name == "embed":  # the output matrix keeps its rows
            copy.output = torch.nn.Linear(8, 11, bias=False).double()
            copy.output.weight.copy_(copy.embedding.weight)
            copy.embedding.weight.zero_()
        else:
            _, i, _, part = name.split(".")
            block = copy.blocks[int(i)]
            (block.attention.out_proj if part == "attn" else block.ffn.down_proj).weight.zero_()
    return copy


@pytest.mark.parametrize("rows", [ROWS, [IDS, OTHERS[:3]]])
def test_total_is_the_loss_of_a_model_whose_branch_cannot_write(rows):
    model = small_model()
    own = edits.loss(model, rows)
    found = ablation.removals(model, rows)
    assert [r.tap for r in found] == edits.streams(model)
    for removal in found:
        wanted = edits.loss(without(model, removal.tap), rows) - own
        assert removal.total == pytest.approx(wanted, abs=1e-12)


def test_direct_leaves_out_the_write_for_the_output_alone():
    model = small_model(n_kv_heads=1)
    own, names = edits.loss(model, ROWS), edits.streams(model)
    for m, removal in enumerate(ablation.removals(model, ROWS)):
        losses = []
        for row in ROWS:
            recorded = edits.read(model, row[:-1])
            others = [recorded[names[0]], *(recorded[b] - recorded[a] for a, b in pairwise(names))]
            with torch.no_grad():
                rest = sum(write for k, write in enumerate(others) if k != m)
                p = model.logits(model.norm_final(rest))[0].log_softmax(dim=-1)
            losses += [-float(p[t, token]) for t, token in enumerate(row[1:])]
        assert removal.direct == pytest.approx(sum(losses) / len(losses) - own, abs=1e-11)


def test_some_writes_alone():
    model, chosen = small_model(), ["blocks.2.resid.attn", "embed"]
    whole = {removal.tap: removal for removal in ablation.removals(model, ROWS)}
    assert ablation.removals(model, ROWS, chosen) == [whole[name] for name in chosen]


def test_after_the_last_write_direct_and_total_are_one():
    last = ablation.removals(small_model(), ROWS)[-1]
    assert last.direct == pytest.approx(last.total, abs=1e-12) and abs(last.total) > 1e-3
    first = ablation.removals(small_model(), ROWS)[0]
    assert abs(first.direct - first.total) > 1e-3


@pytest.mark.parametrize("changed", [{}, {"n_kv_heads": 1, "tied": False}])
def test_shares_and_drops_are_means_over_texts_of_any_length(changed):
    model, names = small_model(**changed), edits.streams(small_model())
    cases = [(IDS, 3, 4), (OTHERS[:4], 7, 0), (OTHERS, 1, 2)]
    shares, drops = (torch.zeros(7, dtype=torch.float64) for _ in range(2))
    for ids, target, other in cases:
        recorded = edits.read(model, ids)
        own = attribution.ledger(model, recorded, len(ids) - 1, target, other)
        for m, name in enumerate(names):
            edited = edits.Edited(model, {name: edits.removed})
            without = edits.read(edited, ids)
            less = attribution.ledger(edited, without, len(ids) - 1, target, other)
            shares[m] += own.entries[m].share / 3
            drops[m] += (own.logit - less.logit) / 3
    found = ablation.compare(model, cases)
    assert [c.tap for c in found] == names
    assert [c.share for c in found] == pytest.approx(shares.tolist(), abs=1e-11)
    assert [c.drop for c in found] == pytest.approx(drops.tolist(), abs=1e-11)
    some = ablation.compare(model, cases, ["blocks.1.resid.attn"])
    assert [c.tap for c in some] == ["blocks.1.resid.attn"] and some[0] == found[3]


def test_several_writes_are_removed_together():
    model, taps = small_model(), ["blocks.0.resid.ffn", "blocks.2.resid.attn"]
    found = ablation.ablate(model, ROWS, IDS, taps, new=6)
    silent = without(without(model, taps[0]), taps[1])
    assert found.loss == pytest.approx(edits.loss(silent, ROWS), abs=1e-12)
    assert found.change == pytest.approx(found.loss - edits.loss(model, ROWS), abs=1e-14)
    assert found.written == edits.write_on(silent, IDS, 6) and len(found.written) == 6


def test_nothing_removed_changes_nothing():
    model = small_model()
    found = ablation.ablate(model, ROWS, IDS, [], new=6)
    assert found.change == 0 and found.written == edits.write_on(model, IDS, 6)


def test_removal_at_one_position_is_another_thing():
    model = small_model()
    one, all_of_them = (
        ablation.ablate(model, ROWS, IDS, ["blocks.1.resid.ffn"], at=at, new=1).change
        for at in (2, None)
    )
    assert abs(one) > 1e-6 and abs(one - all_of_them) > 1e-6


def patched(positions=None, taps=None):
    return ablation.patching(small_model(), IDS, OTHERS, 3, 8, positions=positions, taps=taps)


def test_patching_moves_what_a_pass_with_that_one_write_says():
    model, names = small_model(), edits.streams(small_model())
    found = patched()
    mine, theirs = (edits.read(model, ids) for ids in (IDS, OTHERS))

    def lead(recorded):
        logits = model.logits(recorded["norm.final"][0, -1])
        return (logits[8] - logits[3]).item()

    assert found.ours == pytest.approx(lead(mine), abs=1e-12)
    assert found.theirs == pytest.approx(lead(theirs), abs=1e-12)
    for m, t in ((0, 6), (0, 2), (3, 4), (4, 0), (6, 6)):
        write = edits.writes(theirs, names, slice(None))[m]
        change = edits.only(t, edits.swapped(write))
        now = lead(edits.read(edits.Edited(model, {names[m]: change}), IDS))
        wanted = (now - found.ours) / (found.theirs - found.ours)
        with torch.no_grad():
            logits = edits.Edited(model, {names[m]: change})(torch.tensor([IDS]))
        assert found.likeliest[m][t] == int(logits[0, -1].argmax())
        assert found.moved[m][t] == pytest.approx(wanted, abs=1e-10)
    assert [row[:-1] for row in found.moved[-2:]] == [
        pytest.approx([found.moved[-2][t] for t in range(6)], abs=1e-10),
        pytest.approx([0.0] * 6, abs=1e-12),  # nobody reads the last FFN's earlier positions
    ]


def test_some_positions_and_taps():
    whole, part = patched(), patched([6, 1], ["blocks.1.resid.attn"])
    assert part.positions == [6, 1] and part.names == ["attn 1"]
    assert part.moved[0] == pytest.approx([whole.moved[3][6], whole.moved[3][1]], abs=1e-10)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="patching: expected a text of 7 tokens, got 6"):
        ablation.patching(small_model(), IDS, OTHERS[:-1], 3, 8)
    with pytest.raises(
        ValueError, match=r"expected two texts that the model answers differently, got .* in both"
    ):
        ablation.patching(small_model(), IDS, IDS, 3, 8)
