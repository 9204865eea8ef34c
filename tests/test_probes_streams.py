"""Streams, half precision, findings: computed in other ways, and oddities planted and found."""

from math import sqrt

import numpy as np
import pytest
import torch
from llama_writers import small_model

from tiny_lm import pretrained
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.plots import streams as plots
from tiny_lm.probes import findings, half, streams
from tiny_lm.taps import Recorder

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def kinds(model, ids=IDS):
    return {one.kind for one in findings.inspect(streams.read(model, ids)).findings}


def recorded(model, ids=IDS):
    tap = Recorder()
    with torch.no_grad():
        logits = model(torch.tensor([ids]), tap=tap)
    return tap, logits[0]


def planted(value, position_id=3, coordinate=20, block=1, **changes):
    """A model whose given block writes one huge entry where token `position_id` stands."""
    model = small_model(**({"n_layers": 4, "vocab_size": 50} | changes))
    ffn, detect = model.blocks[block].ffn, torch.zeros(64)
    with torch.no_grad():
        model.embedding.weight[:, 5] = 0.0
        model.embedding.weight[position_id, 5] = 4.0  # a feature of its own
        for part in model.blocks:  # that nobody else writes to
            part.attention.out_proj.weight[5] = 0.0
            part.ffn.down_proj.weight[5] = 0.0
        detect[5] = 1.0
        ffn.gate_proj.weight[0], ffn.up_proj.weight[0] = 30.0 * detect, detect
        ffn.down_proj.weight[:, 0] = 0.0
        ffn.down_proj.weight[coordinate, 0] = value
    return model


def test_a_reading_is_what_the_taps_say():
    model = small_model()
    found, (tap, logits) = streams.read(model, IDS), recorded(model)
    assert found.taps == [
        "embed",
        *(f"blocks.{i}.resid.{p}" for i in (0, 1) for p in ("attn", "ffn")),
    ]
    for k, name in enumerate(found.taps):
        assert torch.equal(found.stream[k], tap[name][0])
    assert torch.equal(found.weights[1], tap["blocks.1.attn.weights"][0])
    assert torch.equal(found.logits, logits)
    assert found.words == [str(i) for i in IDS]
    wanted = torch.stack([tap[name][0].double().square().mean(-1).sqrt() for name in found.taps])
    assert torch.allclose(found.rms, wanted, rtol=1e-12)


def test_norms_read_the_stream_before_a_branch():
    found = streams.read(small_model(), IDS)
    assert list(found.read) == [
        "blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2", "norm_final",
    ]  # fmt: skip
    for k, rows in enumerate(found.read.values()):
        assert torch.equal(rows, found.stream[k])


def test_in_post_norm_they_read_the_sums():
    model = small_model(order="post")
    found = streams.read(model, IDS)
    assert torch.equal(found.read["blocks.0.norm1"], found.stream[1])
    assert not torch.equal(found.read["norm_final"], found.stream[-1])


def test_a_reading_that_fails_leaves_no_hooks():
    model = small_model()
    with pytest.raises(ValueError, match="token ids"):
        streams.read(model, [99])
    assert not any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("count", range(1, 10))
def test_the_largest_entries(count):
    found = streams.read(small_model(seed=count), IDS)
    entries = streams.largest(found, "blocks.0.resid.ffn", count)
    values = found.stream[2].numpy()
    assert [abs(e.value) for e in entries] == sorted(np.abs(values).ravel(), reverse=True)[:count]
    assert all(values[e.position, e.coordinate] == np.float32(e.value) for e in entries)
    middle = np.sort(np.abs(values).ravel())[(values.size - 1) // 2]
    assert entries[0].times == pytest.approx(abs(entries[0].value) / middle, rel=1e-6)


def test_a_planted_massive_activation_is_found_with_its_place():
    """Token 3 stands at position 0; block 1's FFN writes to coordinate 20."""
    (one,) = streams.massive(streams.read(planted(200.0), IDS))
    assert (one.position, one.coordinate, one.since) == (0, 20, "blocks.1.resid.ffn")
    assert one.until == "blocks.3.resid.ffn"
    assert one.peak.times > 1000 and abs(one.peak.value) > 100
    assert "massive activation" in kinds(planted(200.0))


def test_a_large_entry_alone_is_not_massive():
    """Above 100, but less than a thousand times the median; and the other way round."""
    grown = small_model()
    with torch.no_grad():
        grown.embedding.weight *= 10_000
    assert streams.massive(streams.read(grown, IDS)) == []
    shrunk = planted(200.0)
    with torch.no_grad():
        for name, weight in shrunk.named_parameters():
            if name.endswith(("embedding.weight", "out_proj.weight", "down_proj.weight")):
                weight *= 1e-3
    found = streams.read(shrunk, IDS)
    assert found.stream.abs().max() < 100 and streams.massive(found) == []


def test_gains_and_eps():
    model = small_model(norm_eps=0.5)
    found = streams.read(model, IDS)
    scale = model.blocks[1].norm2.scale.detach().abs().double().numpy()
    gain = {one.norm: one for one in streams.gains(model)}["blocks.1.norm2"]
    assert gain.least == scale.min() and gain.most == scale.max()
    assert gain.median == pytest.approx(np.median(scale), rel=1e-12)
    share = streams.eps_share(found)["blocks.0.norm1"]
    rows = model.embedding.weight[IDS].detach().double().numpy()
    assert share == pytest.approx(0.5 / (rows**2).mean(-1), rel=1e-9)
    assert "epsilon" in kinds(model) and "epsilon" not in kinds(small_model())


def test_layer_norm_measures_eps_against_the_variance():
    model = small_model(norm="layer")
    with torch.no_grad():
        model.embedding.weight += 3.0
    rows = model.embedding.weight[IDS].detach().double().numpy()
    share = streams.eps_share(streams.read(model, IDS))["blocks.0.norm1"]
    assert share == pytest.approx(1e-5 / rows.var(-1), rel=1e-6)


def test_sinks():
    model = small_model()
    found, weights = streams.sinks(streams.read(model, IDS)), recorded(model)[0]
    wanted = weights["blocks.1.attn.weights"][0, 2, 1:, 0].double().mean()
    assert found.shares[1][2] == pytest.approx(float(wanted), rel=1e-12)
    assert found.equal == pytest.approx(np.mean([1 / t for t in range(2, 9)]), rel=1e-12)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.q_proj.weight.zero_()
    found = streams.sinks(streams.read(model, IDS))
    assert np.array(found.shares) == pytest.approx(found.equal, rel=1e-6)
    assert streams.sinks(streams.read(model, [7])).mean == 0


# Half precision


def test_the_safe_entry_is_safe_and_the_next_one_is_not():
    for width in (1, 2, 64, 576, 4096):
        row = np.full(width, half.safe_entry(width))
        assert (row**2).sum() <= half.LARGEST * (1 + 1e-12)
        assert width == 1 or ((row * 1.01) ** 2).sum() > half.LARGEST
    assert half.safe_entry(576) == pytest.approx(sqrt(65504 / 576))
    assert np.isfinite(np.float16(half.SAFE_ENTRY) ** 2)
    with np.errstate(over="ignore"):
        assert np.isinf(np.nextafter(np.float16(half.SAFE_ENTRY), np.float16(300)) ** 2)


@pytest.mark.parametrize(
    ("size", "entry", "square", "total"),
    [(31.0, 0, 0, 0), (33.0, 0, 0, 8), (255.0, 0, 0, 8), (257.0, 0, 8, 8), (7e4, 8, 8, 8)],
)
def test_what_overflows(size, entry, square, total):
    """Rows of 64 equal entries: the sum of squares passes 65,504 from 32 on."""
    model = small_model()
    with torch.no_grad():
        model.embedding.weight[:] = size
    first = half.overflows(streams.read(model, IDS))[0]
    assert (first.norm, first.rows) == ("blocks.0.norm1", 8)
    assert (first.entry, first.square, first.total) == (entry, square, total)
    assert first.largest == pytest.approx(size)
    assert ("float16" in kinds(model)) == (total > 0)


def test_an_update_below_half_the_spacing_is_swallowed():
    """256 + 0.9 is 256 in bfloat16 (spacing 2, C43); 1 + 0.9 is not 1."""
    model = small_model()
    found = streams.read(model, IDS)
    for start, share in ((256.0, 1.0), (1.0, 0.0)):
        stream = torch.full_like(found.stream, start)
        stream[1:] += 0.9
        made = streams.Reading(model, IDS, [], found.taps, stream, {}, found.weights, found.logits)
        assert half.swallowed(made)[0].shares == [share] * 8
        assert half.swallowed(made)[1].shares == [0.0] * 8  # nothing added, nothing lost


def test_no_updates_where_a_norm_stands_on_the_path():
    assert half.swallowed(streams.read(small_model(order="post"), IDS)) == []
    assert len(half.swallowed(streams.read(small_model(), IDS))) == 4


# Findings


FRESH = [
    ("pre", "gpt2", 4, 64),
    ("pre", "gpt2", 64, 64),
    ("pre", "small", 12, 128),
    ("pre", "fan_in", 30, 128),
    ("pre", "scaled_fan_in", 32, 128),
    ("pre", "gpt2", 4, 576),
    ("post", "gpt2", 8, 64),
    ("post", "fan_in", 8, 64),
    ("deepnorm", "gpt2", 8, 64),
    ("rezero", "gpt2", 8, 64),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("order", "init", "layers", "width"), FRESH)
def test_a_fresh_model_has_no_findings(order, init, layers, width, seed):
    config = ModelConfig(order=order, n_layers=layers, d_model=width, n_heads=4)
    assert kinds(TinyLM(config, seed=seed, init=init)) == set()


def test_the_shipped_model_has_no_massive_activation_and_no_overflowing_square():
    model, tokenizer = pretrained.load("stories")
    ids = tokenizer.encode("Anna has a red ball .")
    found = findings.inspect(streams.read(model, ids))
    assert found.massive == [] and all(one.square == 0 for one in found.overflows)


def test_attention_all_on_the_first_token_is_a_sink():
    def look(tap):
        tap[..., :, :] = 0.0
        tap[..., 0] = 1.0
        return tap

    model = small_model()
    found = streams.read(model, IDS)
    sunk = streams.Reading(
        model, IDS, found.words, found.taps, found.stream, found.read,
        look(found.weights.clone()), found.logits,
    )  # fmt: skip
    assert "attention sink" in {f.kind for f in findings.inspect(sunk).findings}
    assert findings.inspect(sunk).sinks.mean == 1.0


@pytest.fixture(scope="module")
def real():
    if not pretrained.cached("smollm2-135m"):
        pytest.skip("the real model is not in the cache: python -m tiny_lm fetch")
    model, tokenizer = pretrained.load("smollm2-135m")
    ids = tokenizer.encode("The capital of France is")
    return findings.inspect(streams.read(model, ids, [tokenizer.decode([i]) for i in ids]))


def test_the_real_model_is_found_out(real):
    """By itself: position 0, coordinate 507, since the FFN of block 11; and float16."""
    (one,) = real.massive
    assert (one.position, one.coordinate) == (0, 507)
    assert one.since == one.peak.tap == "blocks.11.resid.ffn"
    assert one.peak.value == pytest.approx(22_552, rel=1e-3)
    assert [entry.coordinate for entry in one.companions[:3]] == [247, 14, 100]
    by_kind = {finding.kind: finding.what for finding in real.findings}
    massive = by_kind["massive activation"]
    assert "token 0 ('The'), coordinate 507" in massive and "blocks.11.resid.ffn" in massive
    assert {"float16", "bfloat16", "attention sink"} < set(by_kind) and "epsilon" not in by_kind


def test_the_real_model_s_stream(real):
    """Values of an independent implementation."""
    rms = dict(zip(real.reading.taps, real.rms, strict=True))
    first = {"embed": 0.083, "blocks.2.resid.ffn": 28.2, "blocks.11.resid.ffn": 946.4}
    for tap, value in (first | {"blocks.28.resid.ffn": 350.9}).items():
        assert rms[tap][0] == pytest.approx(value, rel=5e-3)
    assert all(2 < value < 4 for value in rms["blocks.2.resid.ffn"][1:])


# Pictures


def test_pictures_draw_the_numbers():
    found = findings.inspect(streams.read(small_model(), IDS, list("abcdefgh")))
    drawn = plots.StreamMapPicture((found.reading.taps, found.reading.words, found.rms))
    (image,) = drawn.figure.axes[0].images
    assert np.array(image.get_array()) == pytest.approx(np.array(found.rms))
    ticks = [label.get_text() for label in drawn.figure.axes[0].get_xticklabels()]
    assert ticks == list("abcdefgh")
    rows = plots.RowsPicture(found.rows)
    drawn = {line.get_label(): line.get_ydata() for line in rows.figure.axes[0].get_lines()}
    assert list(drawn["largest square"]) == pytest.approx(found.rows.square)
    wanted = found.reading.read["blocks.1.norm2"].double().square()
    assert found.rows.square[3] == pytest.approx(float(wanted.max()))
    assert found.rows.least[3] == pytest.approx(float(wanted.mean(-1).min()))
    assert found.rows.most[3] == pytest.approx(float(wanted.mean(-1).max()))
    sinks = plots.SinksPicture(found.sinks).figure.axes[0].images[0].get_array()
    assert pytest.approx(np.array(found.sinks.shares)) == np.array(sinks).T
    gains = plots.GainsPicture(found.gains)
    medians = [y for line in gains.figure.axes[0].get_lines()[:-1] for y in line.get_ydata()]
    assert sorted(medians) == sorted(gain.median for gain in found.gains)


def test_pictures_of_odd_models_can_be_drawn():
    """One token; all zeros; forty words."""
    model = small_model(max_len=64)
    with torch.no_grad():
        model.embedding.weight[2] = 0.0
    for ids in ([7], [2], [2] * 40):
        found = findings.inspect(streams.read(model, ids))
        numbers = found.reading.taps, found.reading.words, found.rms
        assert len(plots.StreamMapPicture(numbers).sentence) > 60
        for picture in (plots.RowsPicture(found.rows), plots.SinksPicture(found.sinks)):
            assert "nan" not in picture.sentence
