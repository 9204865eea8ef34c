"""Chapter 08: perplexity, changed rows, norms in 16 bits, stored cuts, the cache; pictures."""

from math import exp, inf, isfinite, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llama_writers import small_model
from torch.nn.functional import cross_entropy

from tiny_lm import pretrained
from tiny_lm.generate import generate
from tiny_lm.layers import RMSNorm
from tiny_lm.plots import real as plots
from tiny_lm.probes import explorer, half_norms, real, streams, surgery
from tiny_lm.probes.edits import Edited, removed
from tiny_lm.taps import Recorder

IDS = [3, 1, 4, 1, 5, 9, 2, 6]
PLAIN, SUMMED = "float16, mean of squares", "float16, sum of squares"
DIVIDED, INSIDE = "float16, divided first", "float32 inside"


def changed(change, model=None, ids=IDS, name="blocks.0.resid.ffn"):
    """A stream before and after a change at one tap."""
    model = model or small_model()
    plain, tap = Recorder(), Recorder()
    with torch.no_grad():
        model(torch.tensor([ids]), tap=plain)
        Edited(model, {name: change}).features(torch.tensor([ids]), tap=tap)
    return plain["blocks.0.resid.attn"][0], plain[name][0], tap[name][0]


# Paragraphs and perplexity


def test_four_paragraphs_of_several_kinds():
    texts = real.paragraphs()
    assert list(texts) == ["story", "explanation", "letter", "program"]
    assert all(text == text.strip() and 100 < len(text) < 250 for text in texts.values())
    compile(texts["program"], "program", "exec")


def test_perplexity_is_e_to_the_mean_surprise():
    model, row = small_model(), torch.tensor([IDS])
    with torch.no_grad():
        wanted = cross_entropy(model(row)[0, :-1].double(), row[0, 1:]).exp()
    assert real.perplexity(model, IDS) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.parametrize("loss", [750.0, 1e4, inf, nan])
def test_a_perplexity_beyond_all_numbers_is_infinite(monkeypatch, loss):
    monkeypatch.setattr(real, "loss", lambda *_: loss)
    assert real.perplexity(small_model(), IDS) == inf


def test_a_table_of_operations():
    model, texts = small_model(), {"one": IDS, "two": IDS[:4]}
    operations = {"none": lambda model: model, "skip": lambda m: surgery.skip_block(m, 1)}
    table = real.after_operations(model, operations, texts)
    assert table["none"] == [real.perplexity(model, ids) for ids in texts.values()]
    cut = small_model(n_layers=1)
    cut.load_state_dict({n: w for n, w in model.state_dict().items() if "blocks.1." not in n})
    assert table["skip"] == pytest.approx([real.perplexity(cut, ids) for ids in texts.values()])


# A changed row


def test_changes_of_a_row():
    changes = real.row_changes(7, 24_000.0)
    before, stream, after = changed(changes["the number := 24,000"])
    assert after[0, 7] == 24_000 and torch.equal(after[1:], stream[1:])
    assert torch.equal(after[0, :7], stream[0, :7]) and torch.equal(after[0, 8:], stream[0, 8:])
    _, stream, after = changed(changes["the number := 0"])
    assert after[0, 7] == 0 and (after != stream).sum() == 1
    _, stream, after = changed(changes["all others of its row := 0"])
    assert after[0, 7] == stream[0, 7] and after[0].count_nonzero() == 1
    assert torch.equal(after[1:], stream[1:])
    before, stream, after = changed(changes["no write, at position 0"])
    assert torch.equal(after[0], before[0]) and torch.equal(after[1:], stream[1:])
    before, stream, after = changed(changes["no write, anywhere else"])
    assert torch.equal(after[1:], before[1:]) and torch.equal(after[0], stream[0])
    _, stream, after = changed(changes["as it is"])
    assert torch.equal(after, stream)


def test_positions_go_on_with_a_cache():
    """The second token with a cache is position 1, not 0."""
    edited = Edited(
        small_model(), {"blocks.0.resid.ffn": real.row_changes(7, 9.0)["no write, anywhere else"]}
    )
    row = torch.tensor([IDS])
    with torch.no_grad():
        whole, cache = edited.features(row), edited.new_cache()
        steps = [edited.features(row[:, t : t + 1], cache=cache) for t in range(len(IDS))]
    assert torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-5)


def test_the_parts_of_all_units_are_the_write():
    model = small_model()
    reading = streams.read(model, IDS)
    units = real.writers(reading, block=1, coordinate=20, position=3, count=96)
    write = reading.stream[4, 3, 20] - reading.stream[3, 3, 20]
    assert sum(unit.part for unit in units) == pytest.approx(float(write), rel=1e-4)
    assert [abs(u.part) for u in units] == sorted((abs(u.part) for u in units), reverse=True)
    first = units[0]
    weight = model.blocks[1].ffn.down_proj.weight[20, first.unit]
    assert first.active[3] * weight.item() == pytest.approx(first.part, rel=1e-5)


# Norms in 16 bits


def right(x, gain, eps=1e-5):
    x = x.double()
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * gain.double()


@given(st.integers(0, 1000), st.sampled_from(list(half_norms.WAYS)), st.floats(-1.0, 0.9))
def test_all_ways_agree_on_ordinary_rows(seed, way, power):
    """Within a few roundings: 11 significant bits in float16, 8 in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    x = 10**power * torch.randn(2, 64, generator=generator)
    gain = torch.rand(64, generator=generator) + 0.5
    y, wanted = half_norms.norm_in(way, x, gain, 1e-5), right(x, gain)
    unit = 2.0**-8 if way.startswith("bfloat16") else 2.0**-11
    assert y.dtype == (torch.bfloat16 if way.startswith("bfloat16") else torch.float16)
    gap = (y.double() - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    assert gap.max() < 4 * unit


@pytest.mark.parametrize(
    ("row", "zeros"),
    [
        ([300.0, 400.0], [PLAIN, SUMMED]),  # C01: a square overflows
        ([200.0] * 512, [SUMMED]),  # C01: only the sum of squares does
        ([22_552.0, 1644.0, 45.0, -3.0], [PLAIN, SUMMED]),
        ([100.0, 50.0], []),
    ],
)
def test_what_overflows_comes_out_as_zeros(row, zeros):
    x = torch.tensor(row)
    for way in half_norms.WAYS:
        y = half_norms.norm_in(way, x, torch.ones(len(x)), 1e-5)
        assert y.isfinite().all()
        if way in zeros:
            assert not y.any(), way
        else:
            assert torch.allclose(y.double(), right(x, torch.ones(len(x))), rtol=2e-2), way


def test_dividing_first_divides_eps_too():
    """[1e-3, −1e-3] and eps 1e-5: 0.3015, not 1: a row of RMS r comes out r / √(r² + eps)."""
    y = half_norms.norm_in(DIVIDED, torch.tensor([1e-3, -1e-3]), torch.ones(2), 1e-5)
    assert float(y[0]) == pytest.approx(0.30151, rel=2e-3)
    assert not half_norms.norm_in(DIVIDED, torch.zeros(2), torch.ones(2), 1e-5).any()


@given(st.floats(-6.0, 4.5), st.sampled_from([1e-8, 1e-6, 1e-5, 1e-2, 0.5]))
def test_dividing_first_works_at_every_size(power, eps):
    """Within a few roundings, or one step of float16's smallest numbers."""
    x = 10**power * torch.tensor([1.0, -0.3, 0.01, 0.5])
    x = x.clamp(-65_504, 65_504).half().float()  # its own rounding is not the norm's
    y, wanted = half_norms.norm_in(DIVIDED, x, torch.ones(4), eps), right(x, torch.ones(4), eps)
    assert torch.allclose(y.double(), wanted, rtol=8 * 2.0**-11, atol=2.0**-24)


def test_a_model_with_half_norms_is_a_twin():
    model = small_model()
    before = model(torch.tensor([IDS]))
    twin = half_norms.with_half_norms(model, INSIDE)
    assert len([m for m in twin.modules() if isinstance(m, half_norms.HalfNorm)]) == 5
    assert twin.blocks[0].ffn.up_proj.weight is model.blocks[0].ffn.up_proj.weight
    assert (twin(torch.tensor([IDS])) - before).abs().max() < 0.05
    assert isinstance(model.norm_final, RMSNorm) and torch.equal(model(torch.tensor([IDS])), before)


def test_outcomes_of_a_model_with_a_huge_row():
    """Token 3 is 5,000 times as long: in plain float16 its rows are zeros in all five norms."""
    model = small_model(tied=False)
    with torch.no_grad():
        model.embedding.weight[3] *= 5000.0
    found = {one.way: one for one in half_norms.outcomes(model, [1, 4, 3], IDS)}
    assert all(one.rows == 15 for one in found.values())
    assert (found[PLAIN].zero_rows, found[SUMMED].zero_rows) == (5, 5)
    assert found[INSIDE].zero_rows == found[DIVIDED].zero_rows == 0
    assert found[PLAIN].probability == pytest.approx(1 / 50)  # all logits are zero
    own = model(torch.tensor([[1, 4, 3]]))[0, -1].softmax(-1)
    assert found[INSIDE].token == int(own.argmax())
    assert exp(found[INSIDE].loss) == pytest.approx(real.perplexity(model, IDS), rel=0.05)


def test_the_steps_of_a_row():
    model = small_model()
    with torch.no_grad():
        model.embedding.weight[3] = 200.0
    reading = streams.read(model, IDS, list("abcdefgh"))
    plain, summed = (half_norms.steps(reading, 0, 0, way) for way in (PLAIN, SUMMED))
    assert (plain.norm, plain.word, plain.entry, plain.square) == (
        "blocks.0.norm1",
        "a",
        200,
        40_000,
    )
    assert plain.mean == 40_000 and plain.total == 64 * 40_000 and not plain.forms_sum
    assert (summed.total, summed.mean, summed.is_zero) == (None, None, True)
    assert plain.computed == pytest.approx(plain.right, rel=2e-3) and not plain.is_zero
    wanted = right(reading.read["blocks.0.norm1"][0], model.blocks[0].norm1.scale.detach())
    assert plain.right == pytest.approx(wanted.tolist(), rel=1e-9)
    divided = half_norms.steps(reading, 0, 0, DIVIDED)
    assert divided.entry == divided.square == 1


# Stored cuts


def test_every_stored_row_is_whole():
    for kind in real.PARTS:
        for name in real.paragraphs():
            row = real.cuts(kind, name)
            assert len(row.after) == 30 and all(map(isfinite, row.after))
            assert row.whole == real.cuts("block skipped", name).whole
    assert len(real.cuts_table().splitlines()) == 12


def test_what_the_chapter_says_of_the_stored_cuts():
    skipped, attention, ffn = (real.cuts(kind, "story") for kind in real.PARTS)
    assert (skipped.survived, attention.survived, ffn.survived) == (25, 0, 1)
    hard = [b for b, value in enumerate(skipped.after) if value > 2 * skipped.whole]
    assert hard == [0, 1, 11, 28, 29]
    assert ffn.after[0] < 2 * ffn.whole


def test_cuts_are_computed_block_by_block():
    model = small_model()
    found = real.compute_cuts(model, IDS, "block skipped", 2)
    assert found[0] == real.perplexity(model, IDS)
    assert found[2] == real.perplexity(surgery.skip_block(model, 1), IDS)


@pytest.fixture(scope="module")
def smollm2():
    if not pretrained.cached("smollm2-135m"):
        pytest.skip("the real model is not in the cache: python -m tiny_lm fetch")
    return pretrained.load("smollm2-135m")


@pytest.mark.parametrize(
    ("kind", "block"),
    [("block skipped", 11), ("block skipped", 20), ("direct path cut at FFN", 0)],
)
def test_stored_cuts_are_what_the_model_does(smollm2, kind, block):
    model, tokenizer = smollm2
    ids, stored = real.tokens(tokenizer)["program"], real.cuts(kind, "program")
    assert real.perplexity(model, ids) == pytest.approx(stored.whole, rel=1e-3)
    after = real.perplexity(real.PARTS[kind](model, block), ids)
    assert after == pytest.approx(stored.after[block], rel=1e-2)


@pytest.fixture(scope="module")
def story(smollm2):
    model, tokenizer = smollm2
    return streams.read(model, real.tokens(tokenizer)["story"])


def test_what_the_chapter_says_of_rows(story):
    size = dict(zip(story.taps, story.rms, strict=True))
    for tap, low, high in (("blocks.2.resid.ffn", 26, 29), ("blocks.8.resid.ffn", 26, 29)):
        assert low < size[tap][13] < high
    assert size["blocks.9.resid.ffn"][13] < 16
    ends = size["blocks.29.resid.ffn"][1:]
    assert (round(ends.min().item()), round(ends.max().item())) == (27, 48)
    row, *others = story.stream[story.taps.index("blocks.11.resid.ffn")].abs()
    assert row.median() < 45 and max(other.median() for other in others) < 2.5
    row[507] = 0.0
    assert row.square().mean().sqrt().item() == pytest.approx(112, abs=0.5)


def test_what_the_chapter_says_of_the_ffn_of_block_0(story):
    before, after = (story.taps.index(f"blocks.0.resid.{part}") for part in ("attn", "ffn"))
    write = (story.stream[after] - story.stream[before]).square().mean(dim=-1).sqrt()
    assert story.rms[before].mean().item() == pytest.approx(0.14, abs=0.005)
    assert write.mean().item() == pytest.approx(2, abs=0.15)


def test_what_the_chapter_says_of_gains(smollm2):
    norms = streams.norms(smollm2[0])
    assert all(norms[f"blocks.{i}.norm2"].scale.abs().min() < 0.001 for i in range(1, 27))
    gain = norms["blocks.15.norm2"].scale.abs()
    assert (gain.median() / gain[507]).item() == pytest.approx(800, rel=0.02)


def test_what_the_chapter_says_of_changed_rows(smollm2):
    model, tokenizer = smollm2
    ids, changes = real.tokens(tokenizer)["program"], real.row_changes(507, 24_000)
    found = {
        name: real.perplexity(Edited(model, {"blocks.11.resid.ffn": changes[name]}), ids)
        for name in ("as it is", "the number := 0", "no write, at position 0")
    }
    assert found["the number := 0"] > 1e6
    assert 35 < found["no write, at position 0"] / found["as it is"] < 40


def test_what_the_chapter_says_of_the_lead_of_paris(smollm2):
    model, tokenizer = smollm2
    ids, paris, london = map(tokenizer.encode, ("The capital of France is", " Paris", " London"))
    without = Edited(model, {"blocks.23.resid.attn": removed})
    with torch.no_grad():
        whole, cut = (one(torch.tensor([ids]))[0, -1] for one in (model, without))
    falls = (whole - cut)[paris] - (whole - cut)[london]
    assert falls.item() == pytest.approx(4.3, abs=0.05)


# The cache


@pytest.mark.parametrize(("prompt", "new"), [(3, 1), (3, 12), (5, 4)])
def test_positions_are_counted(prompt, new):
    model, ids = small_model(), IDS[:prompt]
    cached, fresh = (real.write(model, ids, new, use_cache=flag) for flag in (True, False))
    assert cached.positions == prompt + new - 1
    assert fresh.positions == sum(range(prompt, prompt + new))
    wanted = generate(model, torch.tensor([ids]), new, temperature=0)[0, prompt:].tolist()
    assert cached.ids == fresh.ids == wanted
    assert not model.embedding._forward_hooks


def test_seconds_of_a_step():
    assert all(0 < seconds < 5 for seconds in real.step_seconds(small_model(), IDS, repeats=1))


# Pictures


def test_the_view_is_where_it_is_asked_for():
    reading = streams.read(small_model(), IDS, list("abcdefgh"))
    view = explorer.view(reading, tap=3, position=5, coordinate=20)
    assert (
        view.row == reading.stream[3, 5].tolist() and view.path == reading.stream[:, 5, 20].tolist()
    )
    picture = plots.ViewPicture(view)
    assert picture.cross.get_xydata().tolist() == [[5, 3]]
    assert picture.row.get_ydata() == pytest.approx(np.abs(view.row))
    assert picture.chosen.get_xydata()[0] == pytest.approx([20, abs(view.row[20])])
    assert picture.here.get_xydata()[0] == pytest.approx([3, abs(view.row[20])])
    assert "position 5, “f”" in picture.sentence and "blocks.1.resid.attn" in picture.sentence


def test_steps_are_drawn_with_what_overflows():
    model = small_model()
    with torch.no_grad():
        model.embedding.weight[3] = 300.0
    reading = streams.read(model, IDS)
    picture = plots.StepsPicture(half_norms.steps(reading, 0, 0, PLAIN))
    assert [label.get_text().strip() for label in picture.labels[:2]] == ["300", "Inf"]
    assert picture.points.get_ydata() == pytest.approx(np.zeros(64))
    assert picture.sentence.endswith("Every output is 0.")
    picture.show(half_norms.steps(reading, 0, 0, INSIDE))
    assert picture.bars[1].get_xdata()[1] == 90_000
    assert picture.sentence.endswith("less than 0.5 % of its length.")


def test_a_hopeless_perplexity_is_an_arrow():
    table = {"as it is": [150.0, 2.5], "worse": [290.0, 4.9], "ruin": [inf, 3.0]}
    picture = plots.PerplexityPicture((table, ["story", "program"]))
    lines = picture.figure.axes[0].get_lines()[:6]
    assert [line.get_marker() for line in lines] == ["o", "^", "o", "^", ">", "^"]
    assert lines[2].get_xydata().tolist() == [[290.0, 1.0]]
    assert "At most doubled on all of them: worse. The other 1 " in picture.sentence


def test_cuts_are_drawn():
    cuts = real.cuts("direct path cut at attention", "story", block=26)
    picture = plots.CutsPicture(cuts)
    off = [block for block, value in enumerate(cuts.after) if value > plots.WORST]
    assert 26 in off and picture.off.get_xdata().tolist() == off
    assert len(picture.dots.get_xdata()) + len(off) == 30
    assert picture.here.get_xydata().tolist() == [[26, plots.WORST]]
    assert "above 10,000 at block 26, 151 for the whole model" in picture.sentence


@pytest.mark.parametrize(
    ("value", "words"),
    [(22_552.0, "22,600"), (-718.3, "−718"), (0.04782, "0.0478"), (0.0, "0"), (999.7, "1,000")],
)
def test_three_digits(value, words):
    assert plots._digits(value) == words
