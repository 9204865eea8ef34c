"""Chapters 07 and 08: operations against models that were built that way."""

from dataclasses import replace

import pytest
import torch
from small_models import IDS, OTHERS, small_model

from tiny_lm.model import TinyLM
from tiny_lm.probes import edits, stories, surgery

KINDS = [{}, {"n_kv_heads": 1, "norm_eps": 0.02}, {"tied": False}]
ROWS = [IDS, OTHERS]
OPERATIONS = {
    "fold": surgery.fold_gains,
    "double": surgery.double_stream,
    "rotate": surgery.rotate_stream,
    "layer": surgery.layer_norm,
    "eps": lambda model: surgery.with_eps(model, 0.1),
    "no final": surgery.no_final_norm,
    "post": surgery.post_norm,
    "skip": lambda model: surgery.skip_block(model, 1),
    "cut": lambda model: surgery.cut_direct_path(model, 1, "ffn"),
    "bf16": surgery.bfloat16_stream,
}
EXACT = ("fold", "double", "rotate")


def logits(model, ids=IDS):
    with torch.no_grad():
        return model(torch.tensor([ids]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_leaves_the_patient_as_it_was(name, kind):
    model = small_model(**kind)
    state, before = {k: v.clone() for k, v in model.state_dict().items()}, logits(model)
    epsilons = [m.eps for m in model.modules() if hasattr(m, "eps")]
    config = model.config
    after = logits(OPERATIONS[name](model))
    assert after.dtype == torch.float64
    assert torch.equal(after, before) == (name == "double")
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in state.items())
    assert state.keys() == model.state_dict().keys() and model.config == config
    assert epsilons == [m.eps for m in model.modules() if hasattr(m, "eps")]
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_exact_ones_agree_and_the_others_do_not(name, kind):
    model = small_model(**kind)
    gap = (logits(OPERATIONS[name](model)) - logits(model)).abs().max()
    assert gap < 1e-11 if name in EXACT else gap > 1e-3


def test_doubling_is_exact_to_the_last_bit():
    assert torch.equal(logits(surgery.double_stream(small_model())), logits(small_model()))


def test_folding_leaves_gains_of_one_and_rotation_turns_every_stream():
    model = small_model()
    folded, turned = surgery.fold_gains(model), surgery.rotate_stream(model)
    for name, weight in folded.named_parameters():
        if weight.ndim == 1:
            assert torch.equal(weight, torch.ones_like(weight)), name
    before, after = edits.read(folded, IDS), edits.read(turned, IDS)
    for name in edits.streams(model):
        sizes = [recorded[name].norm(dim=-1) for recorded in (before, after)]
        torch.testing.assert_close(*sizes, rtol=1e-12, atol=0)
        assert (before[name] - after[name]).abs().max() > 0.1


def rebuilt(model, **changed):
    """A model of another config that was made from scratch and given the same weights."""
    other = TinyLM(replace(model.config, **changed)).double()
    other.load_state_dict(model.state_dict(), strict="norm" not in changed)
    return other


@pytest.mark.parametrize("kind", KINDS)
def test_other_norms_orders_and_eps_are_the_package_s_own(kind):
    model = small_model(**kind)
    pairs = [
        (surgery.layer_norm(model), rebuilt(model, norm="layer")),
        (surgery.with_eps(model, 0.3), rebuilt(model, norm_eps=0.3)),
        (surgery.post_norm(model), rebuilt(model, order="post")),
    ]
    for operated, wanted in pairs:
        assert torch.equal(logits(operated), logits(wanted))
        assert operated.config == wanted.config


def test_on_a_stream_without_a_mean_layer_norm_is_rms_norm():
    model = TinyLM(small_model().config).double()
    with torch.no_grad():
        for block in model.blocks:
            for linear in (block.attention.out_proj, block.ffn.down_proj):
                linear.weight -= linear.weight.mean(dim=0)
        model.embedding.weight -= model.embedding.weight.mean(dim=1, keepdim=True)
    gap = (logits(surgery.layer_norm(model)) - logits(model)).abs().max()
    assert gap < 1e-12


def test_without_the_final_norm_the_output_reads_the_stream():
    model = small_model(tied=False)
    last = edits.read(model, IDS)["blocks.2.resid.ffn"]
    assert torch.equal(logits(surgery.no_final_norm(model)), last @ model.output.weight.T)


def test_a_skipped_block_is_a_block_less():
    model = small_model()
    shorter = surgery._twin(model)
    del shorter.blocks[1]
    assert torch.equal(logits(surgery.skip_block(model, 1)), logits(shorter))


def test_a_cut_direct_path_leaves_the_branch_alone():
    model = small_model()
    for part in ("attn", "ffn"):
        recorded = edits.read(surgery.cut_direct_path(model, 1, part), IDS)
        block = model.blocks[1]
        branch = block.attention if part == "attn" else block.ffn
        with torch.no_grad():
            wanted = branch(recorded[f"blocks.1.norm.{part}"])
        torch.testing.assert_close(recorded[f"blocks.1.resid.{part}"], wanted, rtol=0, atol=1e-12)


def test_the_bench_measures_the_same_texts_before_and_after():
    model, rows = small_model(), [IDS, OTHERS[:5]]
    found = surgery.operate(model, OPERATIONS.items(), rows, IDS, new=5)
    assert [o.name for o in found] == list(OPERATIONS)
    for operated in found:
        patient = OPERATIONS[operated.name](model)
        after = edits.loss(patient, rows)
        assert operated.loss == pytest.approx(after, abs=1e-12)
        assert operated.change == pytest.approx(after - edits.loss(model, rows), abs=1e-12)
        gap = max((logits(patient, r[:-1]) - logits(model, r[:-1])).abs().max() for r in rows)
        assert operated.largest == pytest.approx(float(gap), abs=1e-12)
        assert operated.written == edits.write_on(patient, IDS, 5)


def test_on_the_shipped_model_exact_ones_are_exact_and_fatal_ones_fatal():
    rows = [stories.CORPUS.row(n, 65, "valid") for n in range(4)]
    found = {
        o.name: o
        for o in surgery.operate(stories.shipped(), OPERATIONS.items(), rows, rows[0][:5], new=2)
    }
    for name in EXACT:
        assert found[name].largest < 1e-10 and abs(found[name].change) < 1e-10
    for name in ("eps", "post"):
        assert found[name].change > 2  # nats a word: most of what was learned is gone
    single = stories.pretrained.load("stories")[0]
    for operated in surgery.operate(single, [(n, OPERATIONS[n]) for n in EXACT], rows, [0], new=1):
        assert operated.largest < 1e-4
