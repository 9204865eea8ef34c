"""Chapter 06: runs and their survival, orders, claims; and what the pictures draw."""

import json
from dataclasses import replace
from math import inf, log, nan

import pytest

from tiny_lm.config import TrainConfig
from tiny_lm.history import Evaluation, History
from tiny_lm.plots.survival import RatePicture, SurvivalPicture, TablePicture
from tiny_lm.plots.training import (
    CurvePicture,
    HistoryPicture,
    OrdersPicture,
    SchedulePicture,
    StoriesOrdersPicture,
)
from tiny_lm.probes import orders, training, trials
from tiny_lm.probes.orders import Comparison, OrderRun, Stored
from tiny_lm.probes.progress import progress, schedule
from tiny_lm.probes.training import FLOOR, HALFWAY, LN_V, Run, Survival
from tiny_lm.probes.trials import CLAIMS, Claim, Finding, Results, Trial, hear, verdict

SHORT = Run(blocks=1, steps=25)


# One run


def test_the_two_ends_of_the_scale():
    assert log(32) == LN_V and 1.75 * log(2) == FLOOR and HALFWAY == (LN_V + FLOOR) / 2


def test_a_run_is_repeatable_and_its_seed_matters():
    losses = training.losses(SHORT)
    assert len(losses) == 25 and losses == training.losses(SHORT)
    assert losses != training.losses(replace(SHORT, seed=1))
    assert training.result(SHORT) == pytest.approx(sum(losses[-20:]) / 20, rel=1e-12)


@pytest.mark.parametrize(
    "change", [{"order": "post"}, {"init": "small"}, {"embedding": 1.0}, {"blocks": 2}]
)
def test_each_setting_changes_the_first_loss(change):
    assert training.losses(replace(SHORT, **change))[0] != training.losses(SHORT)[0]


@pytest.mark.parametrize("change", [{"lr": 1e-3}, {"warmup": 20}])
def test_each_setting_of_the_rate_changes_the_later_losses(change):
    usual, other = training.losses(SHORT), training.losses(replace(SHORT, **change))
    assert usual[0] == other[0] and usual[1] != other[1]


def test_a_run_that_blows_up_is_infinitely_bad(monkeypatch):
    monkeypatch.setattr(
        training, "losses", lambda run, model: [3.0] * 24
    )  # stopped at step 24 of 25
    assert training.result(SHORT) == inf
    monkeypatch.setattr(training, "losses", lambda run, model: [1e6] * 25)
    assert training.result(SHORT) == inf


def test_labels_tell_all_runs_apart():
    runs = training.survival_runs()
    assert len({run.label for run in runs}) == len(runs) == 4 * 4 * 5 * 3
    table = [run for row in training.TABLE for run in training.with_seeds(row)]
    assert len({run.label for run in table}) == len(table) == 3 * len(training.TABLE)
    assert Run(order="post", lr=0.01, seed=2).label == "order=post lr=0.01 seed=2"


# The map


def forget():
    training._stored.cache_clear()
    training.survival.cache_clear()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Stored results in a folder of their own; returns a function that writes one."""
    monkeypatch.setattr(training, "SURVIVAL_FILE", tmp_path / "survival.json")
    monkeypatch.setattr(training, "TABLE_FILE", tmp_path / "training.json")
    forget()

    def write(name, results):
        (tmp_path / name).write_text(json.dumps({"results": results}), encoding="utf-8")

    yield write
    forget()


def test_the_map_finds_each_run_in_its_cell(files):
    runs = training.survival_runs()
    files("survival.json", {run.label: float(i) for i, run in enumerate(runs)})
    for o, order in enumerate(training.MAP_ORDERS):
        found = training.survival(order)
        for row in range(4):
            for column in range(5):
                first = 60 * o + 15 * row + 3 * column
                assert found.losses[row][column] == [first, first + 1, first + 2]


def test_what_was_not_run_is_not_counted_as_dead_or_alive(files):
    known = Run(order="pre", blocks=2, lr=1e-3)
    files("survival.json", {run.label: 1.3 for run in training.with_seeds(known)})
    found = training.survival("pre")
    assert found.is_known(0, 0) and not found.is_known(0, 1)
    assert found.survived(0, 0) == 3 and found.survived(0, 1) == 0 and found.whole == 1
    by_rate = training.by_rate("pre", 2)
    assert by_rate.survived == [3, 0, 0, 0, 0] and by_rate.losses[0] == [1.3] * 3


def a_map(order="pre"):
    losses = [[[1.3, 1.3, 1.3], [1.3, HALFWAY, inf]], [[nan, 1.3, 1.3], [3.5, 3.5, inf]]]
    return Survival(order, (2, 4), (0.1, 0.2), losses)


def test_survivors_are_below_halfway():
    found = a_map()
    counts = [[found.survived(row, column) for column in (0, 1)] for row in (0, 1)]
    assert counts == [[3, 1], [2, 0]] and found.whole == 1
    assert [found.is_known(1, column) for column in (0, 1)] == [False, True]


def test_the_map_is_drawn_as_it_is():
    picture = SurvivalPicture([a_map("pre"), a_map("post")])
    for axes in picture.figure.axes:
        assert [text.get_text() for text in axes.texts] == ["3", "1", "–", "0"]
        assert axes.images[0].get_array().tolist() == [[3, 1], [2, 0]]
    assert "of 4 in which all three seeds survive: pre 1, post 1." in picture.sentence
    assert picture.sentence.endswith("Not run yet: 2 cells.")


def test_ends_by_rate_are_drawn_as_they_are():
    losses = [[1.3, 1.4, 1.5], [1.3, inf, nan]]
    numbers = training.ByRate("post", 8, (0.01, 0.1), losses, [3, 1])
    picture = RatePicture(numbers)
    assert list(picture.ends.get_ydata()) == [1.3, 1.4, 1.5, 1.3]
    assert list(picture.blown.get_ydata()) == [picture.TOP]
    assert picture.blown.get_xdata()[0] == 0.1
    assert "of three seeds survive 3, 1 at learning rates 0.01, 0.1" in picture.sentence


# Orders


def test_a_comparison_knows_who_survives():
    losses = {"pre": [3.0] * 5 + [1.3] * 20, "post": [1.3] * 5 + [3.0] * 20, "bare": [1.3] * 24}
    found = Comparison(4, 25, losses)
    assert [found.survives(order) for order in losses] == [True, False, False]
    picture = OrdersPicture(found)
    assert "floor: pre. Not: post, bare." in picture.sentence
    for line, order in zip(picture.figure.axes[0].get_lines(), losses, strict=False):
        assert list(line.get_ydata()) == losses[order]


def test_a_live_comparison_is_of_the_runs_it_says():
    found = orders.compare(blocks=1, orders=("pre", "plain"), steps=4)
    for order in ("pre", "plain"):
        run = Run(order=order, blocks=1, steps=4, lr=3e-3)
        assert found.losses[order] == training.losses(run)


def test_an_order_is_trained_and_writes():
    plan = TrainConfig(steps=4, batch=2, length=16, eval_every=2, eval_rows=2, warmup=1)
    found = orders.compute("post", 0, plan, told=3)
    assert found.steps == [2, 4] and len(found.losses) == 2 and found.stopped == ""
    assert len(found.stream_rms) == 1 + orders.MODEL["n_layers"]
    assert found.stream_rms[1:] == pytest.approx([1.0] * 4, rel=0.1)  # as post-norm leaves it
    assert 0 <= found.share <= 1 and found.sample


def an_order(order, seed, losses):
    return OrderRun(order, seed, [1, 2], losses, [1.0], 0.5, 20.0, "Anna", "")


def test_stored_orders_are_read_and_drawn(tmp_path, monkeypatch):
    results = {
        orders.key(order, seed): vars(an_order(order, seed, [3.0, 1.0 + seed]))
        for order in orders.ORDERS
        for seed in (0, 2)  # seed 1 was not run
    }
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"results": results}), encoding="utf-8")
    monkeypatch.setattr(orders, "FILE", path)
    orders.stored.cache_clear()
    found = orders.stored()
    orders.stored.cache_clear()
    assert [run.seed for run in found.runs["bare"]] == [0, 2]
    assert found.start == log(45) and 0.4 < found.floor < 0.5
    picture = StoriesOrdersPicture(found)
    assert "pre 1.00 to 3.00, post 1.00 to 3.00" in picture.sentence
    drawn = [line.get_ydata()[-1] for line in picture.figure.axes[2].get_lines()[:2]]
    assert drawn == [1.0, 3.0]


def test_the_stored_orders_are_of_the_settings_the_code_has():
    found = json.loads(orders.FILE.read_text(encoding="utf-8"))
    assert found["settings"] == orders.SETTINGS
    assert isinstance(orders.stored(), Stored)
    for runs in orders.stored().runs.values():
        for run in runs:
            assert run.steps[-1] == orders.PLAN.steps or run.stopped


# Claims


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([True, True], "holds in these settings"),
        ([False, False], "does not hold in these settings"),
        ([True, False], "holds if: a"),
        ([True, False, None], "holds if: a (open: c)"),
        ([True, None], "not settled here (open: b)"),
        ([False, None], "not settled here (open: b)"),
    ],
)
def test_the_verdict_follows_the_rule(answers, wanted):
    findings = [Finding("abc"[i], [], agrees) for i, agrees in enumerate(answers)]
    assert verdict(findings) == wanted


@pytest.mark.parametrize(
    ("losses", "trains", "not_trains"),
    [
        ([1.3, 1.3, 1.3], True, False),
        ([3.4, inf, 3.4], False, True),
        ([1.3, 1.3, 3.4], None, None),
        ([1.3, 1.3, nan], None, None),
        ([3.4, 3.4, nan], None, None),
    ],
)
def test_a_setting_agrees_when_all_seeds_do(losses, trains, not_trains):
    for said, agrees in ((True, trains), (False, not_trains)):
        claim = Claim("It trains.", {"here": SHORT}, trains=said)
        (finding,) = hear(claim, lambda run: losses).findings
        assert finding.agrees is agrees and finding.losses == losses


def test_a_claim_looks_its_own_runs_up():
    asked = []
    for claim in CLAIMS:
        hear(claim, lambda run: asked.append(run) or [1.3] * 3)
    assert asked == [run for claim in CLAIMS for run in claim.settings.values()]
    assert set(asked) <= set(training.TABLE), "stored by tests/benchmarks/training_table.py"


def test_a_trial_reads_as_a_card():
    found = [Finding("fan-in", [1.3, 1.25, inf], None)]
    lines = repr(Trial("It trains.", found, "not settled here")).splitlines()
    assert lines == [
        "“It trains.”",
        "  fan-in   1.30  1.25   inf  open",
        "Verdict: not settled here.",
    ]


def test_all_settings_of_the_table_have_a_name_and_a_place():
    rows = trials.results().rows
    assert len(rows) == len(training.TABLE)
    ends = {"a": [1.3, 1.4, 1.5], "b": [1.3, inf, 3.4], "c": [nan] * 3, "d": [3.4] * 3}
    picture = TablePicture(Results(ends))
    axes = picture.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(ends)
    drawn = [list(line.get_xdata()) for line in axes.get_lines()]
    assert drawn[:4] == [[1.3, 1.4, 1.5], [1.3, 3.4], [4.1], []]
    assert "4 settings: in 1 all three seeds" in picture.sentence
    assert picture.sentence.endswith("in 2 none.")


# Schedule, curve, history


def test_the_schedule_is_that_of_training():
    numbers = schedule(steps=50, warmup=10, lr_end=0.2)
    plan = TrainConfig(steps=50, warmup=10, lr_end=0.2, lr=1.0)
    assert numbers.rates == [plan.lr_at(step) for step in range(50)]
    assert numbers.mean == pytest.approx(sum(numbers.rates) / 50, rel=1e-12)
    picture = SchedulePicture(numbers)
    assert list(picture.curve.get_ydata()) == numbers.rates
    assert set(picture.mean.get_ydata()) == {numbers.mean}
    assert f"the last {numbers.rates[-1]:.3f}" in picture.sentence


def a_history():
    history = History(loss=[3.0, 2.0, 1.0], grad_norm=[2.0, 1.5, 0.5], lr=[0.1] * 3)
    history.evaluations = [
        Evaluation(1, 2.5, 0.02, [1.0, 2.0]),
        Evaluation(3, 1.1, 0.01, [1.0, 3.0]),
    ]
    return history


def test_a_curve_is_drawn_as_far_as_it_has_come():
    picture = CurvePicture(progress(History(), 10, start=3.8, floor=0.5))
    assert len(picture.loss.get_ydata()) == len(picture.checked.get_ydata()) == 0
    sentence = picture.show(progress(a_history(), 10, start=3.8, floor=0.5))
    assert list(picture.loss.get_xdata()) == [1, 2, 3]
    assert list(picture.loss.get_ydata()) == [3.0, 2.0, 1.0]
    assert picture.checked.get_xydata().tolist() == [[1, 2.5], [3, 1.1]]
    assert sentence == CurvePicture.SENTENCE, "the same at all times: notebooks compare it"


def test_a_history_is_drawn_and_judged():
    picture = HistoryPicture(a_history())
    gradient, ratio, stream = picture.figure.axes
    assert list(gradient.get_lines()[0].get_ydata()) == [2.0, 1.5, 0.5]
    assert ratio.get_lines()[0].get_xydata().tolist() == [[1, 0.02], [3, 0.01]]
    assert [list(line.get_ydata()) for line in stream.get_lines()] == [[1.0, 2.0], [1.0, 3.0]]
    assert picture.sentence.count("yes") == 3
    worse = a_history()
    worse.grad_norm = [0.5, 0.5, 2.0]
    worse.evaluations[1] = Evaluation(3, 1.1, 0.06, [1.0, 0.9])
    assert HistoryPicture(worse).sentence.count("no.") == 3
