"""Chapter 09: what is measured of a design, the plan of the comparison, and its reading."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, isnan, log, sqrt

import pytest
import torch

from tiny_lm.config import NORM_NAMES, ORDER_NAMES
from tiny_lm.initial import INITS
from tiny_lm.layers import RMSNorm
from tiny_lm.plots.designs import CurvesPicture, DepthsPicture, LivePicture, MeasurePicture
from tiny_lm.plots.tables import Table
from tiny_lm.probes import choices, clock, compared, comparing, curves, defence, designs
from tiny_lm.probes.comparing import FULL, LR, QUICK, Plan, start_key, times_key, train_key
from tiny_lm.probes.designs import DESIGNS, SEEDS, Design, Start, start, trained

# Designs


def test_a_design_is_three_names_that_exist():
    for design in DESIGNS.values():
        assert design.norm in NORM_NAMES and design.order in ORDER_NAMES and design.init in INITS
    assert len({(d.norm, d.order, d.init) for d in DESIGNS.values()}) == len(DESIGNS)
    assert len({d.title for d in DESIGNS.values()}) == len(DESIGNS)
    assert {d.norm for d in DESIGNS.values()} == set(NORM_NAMES)
    assert {d.order for d in DESIGNS.values()} == set(ORDER_NAMES) - {"plain"}


def test_before_training_pre_norm_follows_the_law_of_chapter_05():
    """The mean square grows by about 1 a layer: two layers a block."""
    found = start(DESIGNS["pre"], seed=0, blocks=8)
    assert len(found.stream) == 9 and len(found.gradient) == 8
    grown = found.stream[-1] ** 2 - found.stream[0] ** 2
    assert 0.3 * 16 < grown < 1.5 * 16
    quiet = start(DESIGNS["quiet"], seed=0, blocks=8)
    assert quiet.stream[-1] < found.stream[-1] / 2 and quiet.spread < found.spread


def test_before_training_some_designs_are_exact():
    rezero = start(DESIGNS["rezero"], seed=0, blocks=3)
    assert rezero.stream == pytest.approx([rezero.stream[0]] * 4, rel=1e-12)
    post = start(DESIGNS["post"], seed=0, blocks=3)
    assert post.stream[1:] == pytest.approx([1, 1, 1], rel=1e-4)
    pre, hyper = (start(DESIGNS[name], seed=0, blocks=3) for name in ("pre", "hyper"))
    assert hyper.stream[-1] == pytest.approx(2 * pre.stream[-1], rel=1e-9)


def test_gradients_of_a_start_are_those_of_the_loss():
    model = designs.training.model_of(DESIGNS["pre"].run(blocks=2)).double()
    rows = torch.tensor([designs.Letters(0).row(n, 9) for n in range(4)])
    found = designs.start_of(model, rows)
    model.zero_grad()
    designs.next_token_loss(model, rows).backward()
    for block, length in zip(model.blocks, found.gradient, strict=True):
        flat = torch.cat([p.grad.flatten() for p in block.parameters()])
        assert length == pytest.approx(float(flat.norm()), rel=1e-12)


def test_the_largest_entry_is_seen_where_norms_read():
    """Sandwich's second norm reads a branch that no tap shows."""
    model = designs.training.model_of(DESIGNS["sandwich"].run(blocks=1))
    tokens = torch.tensor([[1, 2, 3]])
    before = designs.largest_entry(model, tokens)
    with torch.no_grad():
        model.blocks[0].ffn.down_proj.weight *= 1e4
    assert designs.largest_entry(model, tokens) > 100 * before
    with torch.no_grad():
        model.blocks[0].ffn.down_proj.weight *= inf
    assert designs.largest_entry(model, tokens) == inf


def test_spread_and_relative_lengths():
    assert Start([1.0], [2.0, 0.5, 1.0], 3.0).spread == 4
    assert Start([1.0], [2.0, 0.5, 1.0], 3.0).relative == [1, 0.25, 0.5]
    assert Start([1.0], [2.0, 0.0], 3.0).spread == inf == Start([1.0], [inf, 1.0], 3.0).spread
    assert all(map(isnan, Start([1.0], [inf, 1.0], 3.0).relative))


def test_a_training_run_of_a_design():
    found = trained(DESIGNS["pre"], lr=3e-3, seed=0, blocks=1, steps=25)
    run = DESIGNS["pre"].run(blocks=1, lr=3e-3, seed=0, steps=25)
    assert found.loss == designs.training.result(run) < 2 * log(32)
    assert 1 < found.largest < 50
    model = designs.training.model_of(run)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    blown = trained(DESIGNS["bare"], lr=3e-3, seed=0, blocks=16, steps=25)
    assert blown.loss == blown.largest == inf


# The plan

SMALL = Plan(blocks=1, steps=20, lower=1e-3, higher=(0.03, 0.1), depths=(1,), rounds=1)


def known(name, rate, *losses):
    return {train_key(name, rate, seed): {"loss": loss} for seed, loss in enumerate(losses)}


def test_jobs_climb_until_a_seed_fails():
    jobs = SMALL.jobs(["pre"], {})
    assert [start_key("pre", 1, s) for s in SEEDS] == jobs[:3] and jobs[-1] == "times pre"
    assert train_key("pre", 0.1, 2) in jobs and train_key("pre", 1e-3, 0) not in jobs
    found = known("pre", LR, 1.3, 1.3, 1.3) | known("pre", 0.03, 1.3, 3.4, 1.3)
    left = SMALL.jobs(["pre"], found)
    assert not any(" lr=" in job for job in left), "0.1 need not be tried, nor 0.001"


def test_where_the_first_rate_fails_a_lower_one_is_tried():
    left = SMALL.jobs(["pre"], known("pre", LR, 1.3, inf, 1.3))
    rates = {job.split()[1] for job in left if " lr=" in job}
    assert rates == {"lr=0.001"}


def test_every_job_of_a_small_plan_and_nothing_left():
    results = {}
    names = ["pre", "dyt"]
    while jobs := SMALL.jobs(names, results):
        results[jobs[0]] = SMALL.measure(jobs[0], names)
    stored = {"settings": SMALL.settings, "machine": "a machine", "results": results}
    stored = json.loads(json.dumps(stored))
    found = compared.Comparison.of(stored, names)
    assert list(found.rows) == names
    row = found.rows["dyt"]
    assert len(row.losses) == 3 and list(row.starts) == [1] and len(row.starts[1]) == 3
    assert found.rows["pre"].time[1] == 1 and row.parameters > found.rows["pre"].parameters
    text = compared.table(found)
    assert "a machine" in text and "Dynamic Tanh" in text and SMALL.settings in text
    assert compared.agreement(found, found) == {"pre": True, "dyt": True}


def test_settings_tell_plans_apart():
    assert FULL.settings != QUICK.settings
    assert "6 blocks, 100 steps" in FULL.settings and "lr 0.001, 0.003, 0.03" in FULL.settings


def test_unknown_designs_are_named():
    with pytest.raises(ValueError, match=r"compare: expected designs among pre, .*, got 'prenorm'"):
        comparing.expect_names(["pre", "prenorm"])
    assert comparing.expect_names(["post", "pre", "post"]) == ["post", "pre"]
    assert times_key(list(DESIGNS)) == "times" and times_key(["pre"]) == "times pre"


# Reading it


def row(losses=(1.3, 1.3, 1.3), by_rate=None, **more):
    starts = {2: [Start([0.5, 1.0, 3.0], [2.0, 1.0], 4.0)] * 3}
    values = {"name": "pre", "title": "t", "losses": list(losses), "by_rate": by_rate or {},
              "starts": starts, "largest": [2.0, 3.0, 4.0], "time": [0.9, 1.0, 1.1],
              "parameters": 10}  # fmt: skip
    return compared.Row(**values | more)


@pytest.mark.parametrize(
    ("by_rate", "safe"),
    [
        ({0.003: [1.3] * 3, 0.03: [1.4] * 3, 0.1: [1.4, 1.4, 2.5]}, 0.03),
        ({0.001: [1.3] * 3, 0.003: [1.3, 3.4, 1.3]}, 0.001),
        ({0.001: [3.4] * 3, 0.003: [1.3] * 3}, 0.0),
        ({0.003: [inf, 1.3, 1.3]}, 0.0),
    ],
)
def test_the_safe_rate_has_no_gap_below(by_rate, safe):
    assert row(by_rate=by_rate).safe_rate == safe


def test_growth_and_spread_of_a_row():
    assert row().growth == [3.0] * 3 and row().spread == [2.0] * 3


def test_the_interval_of_three():
    low, mean, high = compared.interval([1.0, 2.0, 3.0])
    assert mean == 2 and high - mean == pytest.approx(4.303 / sqrt(3)) == mean - low
    assert compared.interval([1.0, inf, 3.0]) == (inf, inf, inf)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([1.40, 1.50, 1.60], [1.45, 1.56, 1.64], "lower"),  # the two intervals overlap
        ([1.45, 1.56, 1.64], [1.40, 1.50, 1.60], "higher"),
        ([1.40, 1.50, 1.60], [1.43, 1.51, 1.66], "not told apart"),
        ([inf, 1.5, 1.6], [1.4, 1.5, 1.6], "higher"),
        ([1.4, 1.5, 1.6], [inf] * 3, "lower"),
        ([inf, 1.0, 1.0], [inf, 2.0, 2.0], "not told apart"),
    ],
)
def test_told_apart(ours, theirs, verdict):
    assert compared.told_apart(ours, theirs) == verdict


def test_the_stored_comparison_is_whole():
    found = compared.stored()
    assert list(found.rows) == list(DESIGNS) and found.settings == FULL.settings
    assert found.machine
    for row in found.rows.values():
        assert len(row.losses) == 3 and list(row.starts) == list(FULL.depths)
        assert LR in row.by_rate and len(row.time) == 3 and row.time[0] <= row.time[2]
        if row.safe_rate >= LR:
            climbed = [rate for rate in FULL.higher if rate in row.by_rate]
            assert climbed == list(FULL.higher[: len(climbed)]) and climbed
        assert all(loss > 1.1 for loss in row.losses), (
            "nobody is below the floor by more than noise"
        )


def test_the_stored_comparison_can_be_computed_again():
    """Where it is quick: the starts of two designs, and one training within its interval."""
    for name in ("pre", "deepnorm"):
        stored, again = (
            compared.stored().rows[name].starts[4][1],
            start(DESIGNS[name], seed=1, blocks=4),
        )
        assert stored.stream == pytest.approx(again.stream, rel=1e-3)
        assert stored.gradient == pytest.approx(again.gradient, rel=1e-3)


def test_what_the_chapter_says_of_the_comparison():
    rows = compared.stored().rows
    assert rows["qk_norm"].safe_rate == max(row.safe_rate for row in rows.values()) == 0.3
    for name in ("quiet", "embed_norm"):
        assert compared.told_apart(rows[name].losses, rows["pre"].losses) == "lower"
    assert compared.told_apart(rows["rms_offset"].losses, rows["pre"].losses) == "not told apart"
    assert max(rows["deepnorm"].spread) < 2 < 5 < min(rows["pre"].spread)


def test_measures_and_their_errors():
    found = compared.measured("loss", "quiet", "pre")
    assert found.first == DESIGNS["quiet"].title and found.verdict == "lower"
    assert found.spans[found.second] == compared.interval(compared.stored().rows["pre"].losses)
    assert compared.measured("time", "pre", "post").verdict == ""
    with pytest.raises(ValueError, match=r"measured: expected one of loss, .*, got 'beauty'"):
        compared.measured("beauty", "pre", "post")
    with pytest.raises(ValueError, match=r"measured: expected designs among pre, .*, got 'best'"):
        compared.measured("loss", "pre", "best")


def test_depths_are_medians_of_the_stored_starts():
    found = compared.depths("post", 8)
    starts = compared.stored().rows["post"].starts[8]
    assert found.stream[3] == sorted(start.stream[3] for start in starts)[1]
    assert len(found.gradient) == 8 and len(found.stream) == 9
    assert found.base_stream == compared.depths("pre", 8).stream


# Curves


def test_one_coordinate_through_a_norm():
    found = curves.curves(others=2.0, alpha=0.25, scale=4.0)
    x = found.x[100]
    assert found.norm[100] == pytest.approx(x / sqrt((x * x + 63 * 4) / 64 + 1e-5))
    assert found.norm_slope == pytest.approx(1 / sqrt(4 * 63 / 64), rel=1e-3)
    assert found.tanh_slope == 1 and found.bound == 8
    assert found.tanh[100] == pytest.approx(float(4 * torch.tanh(torch.tensor(0.25 * x).double())))
    assert max(found.norm) < 8
    rows = torch.zeros(1, 64).double()
    rows[0, 0] = 1e9
    assert RMSNorm(64).double()(rows)[0, 0].item() == pytest.approx(8)


# Defence


def test_the_report_is_equal_when_the_same_conditions_fail():
    good = defence.Defence(1.0, 2.0, 3.0, 0.01)
    assert good.failed == () and defence.Report(good) == defence.Report(replace(good, loss=2.0))
    bad = replace(good, loss=3.5)
    assert bad.failed == ("loss",) and defence.Report(bad) != defence.Report(good)
    assert "not met: 3 (loss)" in defence.Report(bad) and "3.5" in defence.Report(bad)
    assert replace(good, gap=float("nan")).failed == ("gap",)
    assert len({defence.Report(good), defence.Report(replace(good, loss=2.0))}) == 1


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"norm": "rms", "place": "pre"}, "expected keys among norm, order, init, got 'place'"),
        ({"order": "deep"}, "expected order one of pre, .*, got 'deep'"),
        ({"init": 3}, "expected init one of gpt2, .*, got 3"),
        ("pre", "expected a dict with norm, order and init, got 'pre'"),
    ],
)
def test_a_design_that_is_none(design, message):
    with pytest.raises(ValueError, match=f"defend: {message}"):
        defence.report(design)


def test_a_defence_on_a_small_scale(monkeypatch):
    monkeypatch.setattr(defence, "BLOCKS", 2)
    found = [defence._defend(Design(title="", order=o), 0) for o in ("pre", "bare")]
    for spread, entry, loss, gap in found:
        assert 1 <= spread < 10 and 0.5 < entry < 100 and 1 < loss < 5 and 0 < gap < 0.1


def test_no_norms_do_not_get_through_the_first_step():
    assert defence.defend("rms", "bare", "fan_in").failed == ("spread", "entry", "loss", "gap")


# Clock, live, tables


def test_jobs_take_turns_and_the_first_round_does_not_count():
    seen = []
    times = clock.in_turns([lambda: seen.append("a"), lambda: seen.append("b")], 3)
    assert seen == ["a", "b"] * 4 and [len(t) for t in times] == [3, 3]
    assert clock.ratio([2.0, 4.0, 9.0, 8.0], [1.0, 2.0, 3.0, 2.0]) == [2.0, 2.5, 3.0]
    assert "torch" in clock.machine()


def test_live_counts_survivors():
    found = designs.Live(2, 5, {"a": [[3.0] * 5, [1.5] * 5, [1.5] * 4], "b": [[3, 1, 1, 1, 1]]})
    assert found.survivors == {"a": 1, "b": 1}


def test_a_table_says_the_same_in_both_forms():
    table = Table(["model", "norm"], [["A & B", "RMSNorm in float32"]], [6, 8])
    assert repr(table).splitlines() == [
        "model   norm",
        "A & B   RMSNorm",
        "        in",
        "        float32",
    ]
    assert "<td style='text-align:left;vertical-align:top'>A &amp; B</td>" in table._repr_html_()


def test_the_choices_of_known_models_are_complete():
    rows = choices.rows()
    assert len(rows) >= 12 and len({row[0] for row in rows}) == len(rows)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    assert all(all(cell for cell in row) and len(row) == len(choices.HEADINGS) for row in rows)
    assert len(choices.WIDTHS) == len(choices.HEADINGS)


# Pictures


def test_what_the_measure_picture_draws():
    numbers = compared.measured("loss", "pre", "quiet")
    picture = MeasurePicture(numbers)
    low, mean, high = numbers.spans[DESIGNS["pre"].title]
    place = list(DESIGNS).index("pre")
    assert picture.dots[place].get_xdata()[0] == mean
    assert list(picture.bars[place].get_xdata()) == [low, high]
    assert "lower" not in picture.sentence and "higher" in picture.sentence
    picture.show(compared.measured("stream", "bare", "pre"))
    bare = list(DESIGNS).index("bare")
    assert not len(picture.dots[bare].get_xdata()) and bare in picture.beyond.get_ydata()
    assert "not finite" in picture.sentence and picture.axes.get_xscale() == "log"


def test_what_the_depths_picture_draws():
    numbers = compared.depths("post", 16)
    picture = DepthsPicture(numbers)
    assert list(picture.curves[0][0].get_ydata()) == numbers.stream
    assert list(picture.curves[1][1].get_ydata()) == numbers.base_gradient
    assert "post, 16 blocks" in picture.sentence
    assert "beyond float64" in picture.show(compared.depths("bare", 32))


def test_what_the_curves_and_live_pictures_draw():
    numbers = curves.curves(others=4.0)
    picture = CurvesPicture(numbers)
    assert list(picture.norm.get_ydata()) == numbers.norm and "4.00" in picture.sentence
    live = designs.Live(2, 5, {"a": [[3.0] * 5] * 3, "b": [[1.5] * 5] * 3})
    assert "a 0 of 3, b 3 of 3" in LivePicture(live).sentence
