"""train.py, history.py, resume.py: steps as they should be, resumable, divisible, honest."""

import json
import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, replace
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from forks import ended, forked, two_processes
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import distributed

from tiny_lm import resume
from tiny_lm.cli import main
from tiny_lm.config import TrainConfig
from tiny_lm.corpus import Stories, Text
from tiny_lm.history import Evaluation, History
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.train import _optimizer, evaluate, next_token_loss, train

CORPUS = Stories()
SMALL = ModelConfig(vocab_size=45, max_len=32, n_layers=2, d_model=16, n_heads=2, d_ff=32)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system makes no copies")
SHORT = TrainConfig(steps=12, batch=4, length=16, warmup=3, eval_every=5, eval_rows=8)


def model(seed=0, **changes):
    return TinyLM(replace(SMALL, **changes), seed=seed, init="scaled_fan_in")


# The learning rate


@given(st.integers(1, 50), st.integers(0, 60), st.floats(0, 1))
def test_the_rate_rises_then_falls_along_a_cosine(steps, warmup, lr_end):
    config = TrainConfig(steps=steps, warmup=warmup, lr=1.0, lr_end=lr_end)
    rates = [config.lr_at(step) for step in range(steps)]
    rising, falling = rates[:warmup], rates[warmup:]
    assert rising == [(step + 1) / warmup for step in range(len(rising))]
    assert falling == sorted(falling, reverse=True)
    if falling:
        assert falling[0] == 1.0 and falling[-1] >= lr_end - 1e-12


def test_rates_by_hand():
    config = TrainConfig(steps=6, warmup=2, lr=2.0, lr_end=0.5)
    wanted = [1.0, 2.0, 2.0, 1.0 + (1 + math.sqrt(0.5)) / 2, 1.5, 1.0 + (1 - math.sqrt(0.5)) / 2]
    assert [config.lr_at(step) for step in range(6)] == pytest.approx(wanted, rel=1e-12)
    assert config.lr_at(6) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps a whole number >= 1, got 0"),
        ({"batch": 1.5}, "batch a whole number >= 1, got 1.5"),
        ({"length": -1}, "length a whole number >= 1, got -1"),
        ({"eval_every": 0}, "eval_every a whole number >= 1, got 0"),
        ({"eval_rows": True}, "eval_rows a whole number >= 1, got True"),
        ({"warmup": -1}, "warmup a whole number >= 0, got -1"),
        ({"patience": 0}, r"patience >= 1, got 0 \(None never stops early\)"),
        ({"lr": 0.0}, "lr > 0, got 0.0"),
        ({"lr": math.nan}, "lr > 0, got nan"),
        ({"lr": math.inf}, "lr > 0, got inf"),
        ({"clip": -1.0}, "clip > 0, got -1.0"),
        ({"lr_end": 1.5}, "lr_end between 0 and 1, got 1.5"),
        ({"weight_decay": -0.1}, "weight_decay >= 0, got -0.1"),
        ({"betas": (0.9, 1.0)}, r"betas two numbers from 0 to below 1, got \(0.9, 1.0\)"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    with pytest.raises(ValueError, match=f"TrainConfig: expected {message}"):
        TrainConfig(**changes)


# The loss and the steps


def test_the_loss_is_the_mean_surprise_of_the_next_token():
    net, rows = model(), torch.tensor([CORPUS.row(n, 10) for n in range(3)])
    by_hand = [
        -net(row[None, : t + 1])[0, -1].double().softmax(-1)[row[t + 1]].log().item()
        for row in rows
        for t in range(9)
    ]
    assert next_token_loss(net, rows).item() == pytest.approx(sum(by_hand) / 27, rel=1e-5)


def test_the_loss_of_a_narrow_model_is_computed_in_float32():
    """Two bytes a number would leave of a loss of 3.8 two digits."""
    rows = torch.tensor([CORPUS.row(n, 10) for n in range(3)])
    logits = torch.randn(3, 9, 45, generator=torch.Generator().manual_seed(0)).bfloat16()
    loss = next_token_loss(lambda _: logits, rows)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(next_token_loss(lambda _: logits.float(), rows).item())


def test_steps_against_a_loop_written_out():
    """Rows, rate, clipping and AdamW's arithmetic in float64, every weight after 4 steps."""
    config = replace(SHORT, steps=4, warmup=2, clip=0.5, weight_decay=0.3)
    net, other = model().double(), model().double()
    history = train(net, CORPUS, config)
    first = {n: torch.zeros_like(p) for n, p in other.named_parameters()}
    second = {n: torch.zeros_like(p) for n, p in other.named_parameters()}
    for step in range(4):
        rows = [CORPUS.row(step * 4 + i, 17) for i in range(4)]
        loss = next_token_loss(other, torch.tensor(rows))
        assert history.loss[step] == pytest.approx(loss.item(), rel=1e-6)
        gradients = torch.autograd.grad(loss, list(other.parameters()))
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        assert history.grad_norm[step] == pytest.approx(norm, rel=1e-6)
        lr, t = config.lr_at(step), step + 1
        with torch.no_grad():
            for (name, p), g in zip(other.named_parameters(), gradients, strict=True):
                g = g * min(1.0, 0.5 / norm)
                if p.ndim >= 2:
                    p *= 1 - lr * 0.3
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.95 * second[name] + 0.05 * g * g
                mean, square = first[name] / (1 - 0.9**t), second[name] / (1 - 0.95**t)
                p -= lr * mean / (square.sqrt() + 1e-8)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-9)  # the clip's 1e-6 in its divisor


def test_another_process_trains_the_same():
    """These losses are of another process, with another seed for its hash()."""
    losses = train(model(), CORPUS, replace(SHORT, steps=3)).loss
    assert losses == pytest.approx([4.104802, 3.997239, 4.029544], rel=1e-5)


def test_gains_do_not_decay():
    net = model()
    optimizer = _optimizer(net, TrainConfig(weight_decay=0.1))
    for group in optimizer.param_groups:
        assert {p.ndim >= 2 for p in group["params"]} == {group["weight_decay"] == 0.1}
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(net.parameters()))


def test_what_is_evaluated():
    net = model()
    first = {name: p.detach().clone() for name, p in net.named_parameters()}
    config = replace(SHORT, steps=1)
    history = train(net, CORPUS, config)
    (found,) = history.evaluations
    assert found.step == 1 and found.loss == pytest.approx(evaluate(net, CORPUS, 8, 16), rel=1e-6)
    rows = torch.tensor([CORPUS.row(n, 17, "valid") for n in range(8)])
    assert found.loss == pytest.approx(next_token_loss(net, rows).item(), rel=1e-6)
    matrices = {n: p for n, p in net.named_parameters() if p.ndim >= 2}
    moved = sum(float((p - first[n]).square().sum()) for n, p in matrices.items())
    size = sum(float(first[n].square().sum()) for n in matrices)
    assert found.update_ratio == pytest.approx(math.sqrt(moved / size), rel=1e-5)
    assert len(found.stream_rms) == 3
    embedded = net.embedding(rows[:, :-1])
    assert found.stream_rms[0] == pytest.approx(float(embedded.square().mean().sqrt()), rel=1e-5)
    assert found.stream_rms[2] == pytest.approx(
        float(net.blocks[1](net.blocks[0](embedded)).square().mean().sqrt()), rel=1e-5
    )


@pytest.mark.parametrize("order", ["pre", "post", "plain", "bare", "sandwich", "rezero"])
def test_the_stream_ends_a_block_under_its_last_name(order):
    net = model(order=order)
    found = train(net, CORPUS, replace(SHORT, steps=1)).evaluations[0]
    if order == "post":  # what leaves a post-norm block has an RMS of 1
        assert found.stream_rms[1:] == pytest.approx([1.0, 1.0], abs=0.05)
    assert len(found.stream_rms) == 3


plans = st.builds(
    TrainConfig,
    steps=st.integers(1, 6), batch=st.integers(1, 3), length=st.integers(1, 8),
    lr=st.floats(1e-6, 0.1), lr_end=st.floats(0, 1), warmup=st.integers(0, 9),
    weight_decay=st.floats(0, 1), betas=st.sampled_from([(0.0, 0.0), (0.9, 0.0), (0.9, 0.999)]),
    clip=st.floats(1e-6, 10), eval_every=st.integers(1, 9), eval_rows=st.integers(1, 3),
    patience=st.none() | st.integers(1, 2),
)  # fmt: skip


@settings(deadline=None, max_examples=15, derandomize=True)
@given(plans)
def test_every_plan_that_can_be_made_is_carried_out(plan):
    net = model()
    history = train(net, CORPUS, plan)
    made = len(history.loss)
    assert history.lr == [plan.lr_at(step) for step in range(made)]
    assert all(map(math.isfinite, history.loss + history.grad_norm))
    assert all(weight.isfinite().all() for weight in net.parameters())
    due = [step for step in range(1, made + 1) if step % plan.eval_every == 0 or step == plan.steps]
    assert [found.step for found in history.evaluations] == due
    impatient = plan.patience is not None and history.waited >= plan.patience
    assert bool(history.stopped) is impatient and (impatient or made == plan.steps)
    assert History.from_json(history.to_json()) == history


def test_it_learns_and_says_when_it_looked():
    seen = []
    config = replace(SHORT, steps=60, lr=1e-2, eval_every=25)
    history = train(model(), CORPUS, config, on_step=lambda h: seen.append(len(h.loss)))
    assert seen == list(range(1, 61)) == list(range(1, len(history.loss) + 1))
    assert [e.step for e in history.evaluations] == [25, 50, 60]
    assert history.loss[0] > 3.5 > 2.2 > history.evaluations[-1].loss == history.best
    assert (history.stopped, history.waited) == ("", 0) and history.seconds > 0


def test_it_stops_when_nothing_gets_better():
    config = replace(SHORT, steps=50, lr=1e-9, warmup=0, eval_every=2, patience=3)
    flat = Text("a" * 40 + "b" * 4)  # validation is all b: learning a makes it worse
    history = train(model(vocab_size=2), flat, replace(config, length=4, lr=1e-2))
    assert history.stopped == "no better for 3 evaluations" and len(history.evaluations) == 4
    assert len(history.loss) == 8 and history.best == history.evaluations[0].loss


def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_weights():
    net = model()
    with torch.no_grad():
        net.blocks[0].ffn.down_proj.weight[0, 0] = math.inf
    others = [p.detach().clone() for p in net.parameters()]
    history = train(net, CORPUS, SHORT)
    assert history.stopped == "not finite at step 1" and len(history.loss) == 1
    assert history.evaluations == [] and history.best == math.inf
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), others, strict=True))


def test_a_first_step_that_is_not_finite_leaves_no_run_file(tmp_path):
    net = model()
    with torch.no_grad():
        net.norm_final.scale[0] = math.inf
    file = tmp_path / "run.safetensors"
    history = train(net, CORPUS, replace(SHORT, eval_every=1), run_file=file)
    assert history.stopped == "not finite at step 1" and list(tmp_path.iterdir()) == []


def test_a_gradient_that_is_not_finite_ends_the_run_and_leaves_the_weights():
    """The loss itself may be finite, as at a zero row where eps is small."""
    net = model()
    net.norm_final.scale.register_hook(lambda gradient: gradient * math.inf)
    others = [p.detach().clone() for p in net.parameters()]
    history = train(net, CORPUS, SHORT)
    assert history.stopped == "not finite at step 1" and math.isfinite(history.loss[0])
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), others, strict=True))


@pytest.mark.parametrize(
    ("net", "config", "message"),
    [
        (lambda: model(vocab_size=44), SHORT, "expected at most the model's 44 tokens, got 45"),
        (model, replace(SHORT, length=33), "expected length <= max_len, 32, got 33"),
    ],
)
def test_a_corpus_and_a_plan_that_do_not_fit(net, config, message):
    with pytest.raises(ValueError, match=f"train: {message}"):
        train(net(), CORPUS, config)


# History and run file


@given(st.lists(st.floats(allow_nan=False), max_size=5), st.floats(0, 10))
def test_a_history_comes_back_to_the_last_bit(loss, value):
    history = History(loss, loss, loss, [Evaluation(3, value, value, [value])], 1.5, "so")
    assert History.from_json(history.to_json()) == history


class Stop(Exception):
    pass


def stop_after(steps):
    def on_step(history):
        if len(history.loss) == steps:
            raise Stop

    return on_step


@pytest.mark.parametrize("order", ["pre", "rezero"])
def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tmp_path, order):
    whole = model(order=order)
    history = train(whole, CORPUS, SHORT)
    file = tmp_path / "run.safetensors"
    with pytest.raises(Stop):
        train(model(order=order), CORPUS, SHORT, run_file=file, on_step=stop_after(8))
    again = model(order=order, seed=5)  # its weights come from the file
    resumed = train(again, CORPUS, SHORT, run_file=file)
    assert asdict(resumed) | {"seconds": 0} == asdict(history) | {"seconds": 0}
    assert all(
        torch.equal(p, q) for p, q in zip(whole.parameters(), again.parameters(), strict=True)
    )
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
    finished = train(model(order=order), CORPUS, SHORT, run_file=file)
    assert finished.loss == history.loss  # a run that is over is not trained further


def train_slowly(pipe, file):
    def tell(history):
        pipe.send(history.loss)
        time.sleep(0.02)

    train(model(), CORPUS, SHORT, run_file=file, on_step=tell)


@needs_fork
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path):
    """SIGKILL, at moments that a test can't choose exactly, until one process gets to the end."""
    file = tmp_path / "run.safetensors"
    whole = train(model(), CORPUS, SHORT)
    for told in (7, 4, 99):
        ours, theirs = Pipe()
        number = forked(train_slowly, theirs, file)
        theirs.close()  # so that what we receive ends with the process
        with suppress(EOFError):
            for _ in range(told):
                loss = ours.recv()
                assert loss == pytest.approx(whole.loss[: len(loss)], rel=1e-6)
        os.kill(number, signal.SIGKILL)
        ended(number)
    assert train(model(), CORPUS, SHORT, run_file=file).loss == pytest.approx(whole.loss, rel=1e-6)
    assert len(loss) == 12 and [path.name for path in tmp_path.iterdir()] == [file.name]


def trained(path, steps=6):
    with pytest.raises(Stop):
        train(model(), CORPUS, SHORT, run_file=path, on_step=stop_after(steps))
    return path


def test_the_file_of_another_run_is_refused(tmp_path):
    file = trained(tmp_path / "run.safetensors")
    before = file.read_bytes()
    for net, corpus, config, named in (
        (model(d_ff=16), CORPUS, SHORT, "model.d_ff 16, got 32"),
        (model(), Stories(1), SHORT, r"corpus Stories\(seed=1\), got Stories\(seed=0\)"),
        (model(), CORPUS, replace(SHORT, lr=1e-2), "config.lr 0.01, got 0.003"),
    ):
        message = rf"resume.load: expected {named} \(remove .*run.safetensors to start again\)"
        with pytest.raises(ValueError, match=message):
            train(net, corpus, config, run_file=file)
    assert file.read_bytes() == before


def test_a_damaged_run_file_is_refused(tmp_path):
    file = trained(tmp_path / "run.safetensors")
    whole, tensors = file.read_bytes(), load_file(file)
    for damaged in (b"", b"hello", whole[:100], whole[:-10]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"resume.load: expected the state of a training run"):
            train(model(), CORPUS, SHORT, run_file=file)
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]
    for changes, message in (
        ({"history": "{}"}, "a history"),
        ({"history": "x"}, "a history"),
        (
            {"history": History([0.5], [0.5], []).to_json()},
            "a history, got .*as many losses as gradient norms and learning rates",
        ),
        (
            {"history": History([0.5], [0.5], [1]).to_json()},
            "a history, got .*numbers in all lists",
        ),
        ({"history": History("a", "b", "c").to_json()}, "a history, got .*lists of numbers"),
        ({"history": History(stopped=1).to_json()}, "a history, got .*words for why it stopped"),
        (
            {"history": History(evaluations=[Evaluation(0.5, 0.5, 0.5, [0.5])]).to_json()},
            "a history, got .*whole numbers of steps",
        ),
        (
            {"history": History([0.5], [0.5], [0.5]).to_json()},
            "a history up to its last evaluation, got 0 of 1 steps",
        ),
        ({"run": "x"}, "the settings of a run, got 'x'"),
        ({"run": "[1]"}, "the settings of a run"),
        ({"format": "tiny_lm"}, "the state of a training run"),
    ):
        save_file(tensors, file, metadata=header | changes)
        with pytest.raises(ValueError, match=f"resume.load: expected {message}"):
            train(model(), CORPUS, SHORT, run_file=file)
    name = "weight.norm_final.scale"
    for wrong in ({n: t for n, t in tensors.items() if n != name}, tensors | {name: torch.ones(3)}):
        save_file(wrong, file, metadata=header)
        net = model()
        others = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(ValueError, match=r"resume.load: expected"):
            train(net, CORPUS, SHORT, run_file=file)
        assert all(torch.equal(p, q) for p, q in zip(net.parameters(), others, strict=True))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OSError):
        train(model(), CORPUS, SHORT, run_file=tmp_path / "none" / "run.safetensors")


def test_no_run_file_is_no_run():
    net = model()
    optimizer = _optimizer(net, SHORT)
    assert resume.load("does-not-exist.safetensors", {}, net, optimizer) == History()


# Two processes


TRAIN = "--steps 12 --batch 4 --length 16 --warmup 3 --eval-every 4 --eval-rows 8 --max-len 32"
TRAIN += " --n-layers 2 --d-model 16 --n-heads 2 --d-ff 32"


def train_as_one_of_two(file):
    distributed.init_process_group("gloo")
    history = train(model(), CORPUS, SHORT, run_file=file)
    Path(f"{file}.{distributed.get_rank()}").write_text(history.to_json())
    distributed.destroy_process_group()


@needs_fork
def test_two_processes_train_as_one_does(tmp_path):
    """The same global batch: losses to 1e-5 relative, weights to what float32 sums can differ."""
    file = tmp_path / "run.safetensors"
    assert two_processes(train_as_one_of_two, file) == [0, 0]
    one = train(model(), CORPUS, SHORT)
    for rank in (0, 1):
        two = History.from_json((tmp_path / f"run.safetensors.{rank}").read_text())
        assert two.loss == pytest.approx(one.loss, rel=1e-5)
        assert two.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
        assert [e.loss for e in two.evaluations] == pytest.approx(
            [e.loss for e in one.evaluations], rel=1e-5
        )
    # One process goes on from where two were, and the other way round.
    assert train(model(), CORPUS, SHORT, run_file=file).loss == pytest.approx(one.loss, rel=1e-5)


@needs_fork
def test_a_batch_that_cannot_be_shared(tmp_path, capfd):
    command = ["train", str(tmp_path / "m.safetensors"), *TRAIN.split(), "--batch", "3"]

    def refused():
        assert main(command) == 2

    assert two_processes(refused) == [0, 0]
    assert "train: expected a batch divisible by 2 processes, got 3" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
