"""python -m tiny_lm train: a file at the end, one line that says how good, nothing half-written."""

import re

import pytest
import torch

from tiny_lm import checkpoint, cli_train
from tiny_lm.cli import main
from tiny_lm.corpus import Stories
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.train import TrainConfig, train

SMALL = "--steps 9 --batch 4 --length 16 --warmup 3 --eval-every 4 --eval-rows 8 --max-len 32"
SMALL = (SMALL + " --n-layers 2 --d-model 16 --n-heads 2 --d-ff 32").split()


def test_the_file_holds_what_train_would_make(tmp_path, capsys):
    out = tmp_path / "model.safetensors"
    options = ["--lr", "0.01", "--order", "post", "--norm-eps", "1e-3", "--seed", "3"]
    assert main(["train", str(out), *SMALL, *options]) == 0
    model, tokenizer = checkpoint.load(out)
    config = ModelConfig(
        vocab_size=45, max_len=32, n_layers=2, d_model=16, n_heads=2, d_ff=32,
        order="post", norm_eps=1e-3,
    )  # fmt: skip
    plan = TrainConfig(steps=9, batch=4, length=16, warmup=3, eval_every=4, eval_rows=8, lr=0.01)
    same = TinyLM(config, seed=3, init="scaled_fan_in")
    history = train(same, Stories(3), plan)
    assert model.config == config and tokenizer.vocab_size == 45
    for p, q in zip(model.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)
    said = capsys.readouterr()
    loss, floor = re.search(r"9 steps, validation loss (\S+) .*, floor (\S+)\n", said.out).groups()
    assert float(loss) == pytest.approx(history.evaluations[-1].loss, abs=1e-3)
    assert float(floor) == pytest.approx(Stories().floor(17), abs=1e-3)
    assert "9/9" in said.err and [p.name for p in tmp_path.iterdir()] == [out.name]


def test_half_is_half_as_large_and_generates(tmp_path, capsys):
    full, half = tmp_path / "full.safetensors", tmp_path / "half.safetensors"
    assert main(["train", str(full), *SMALL]) == 0
    assert main(["train", str(half), *SMALL, "--half"]) == 0
    assert half.stat().st_size < 0.75 * full.stat().st_size  # the header does not shrink
    capsys.readouterr()
    assert main(["generate", "--model", str(full), "Anna has", "--new", "5"]) == 0
    assert capsys.readouterr().out.startswith("Anna has ")


@pytest.mark.parametrize("source", ["--corpus=manual", "--text"])
def test_real_text_is_learnt_by_character(tmp_path, source, capsys):
    (tmp_path / "my.txt").write_text("To be, or not to be.\n" * 40, encoding="utf-8")
    options = ["--text", str(tmp_path / "my.txt")] if source == "--text" else [source]
    out = tmp_path / "model.safetensors"
    assert main(["train", str(out), *SMALL, *options]) == 0
    tokenizer = checkpoint.load(out)[1]
    assert tokenizer.decode(tokenizer.encode("to be")) == "to be"
    assert "floor" not in capsys.readouterr().out


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch, capsys):
    out, whole = tmp_path / "model.safetensors", tmp_path / "whole.safetensors"
    assert main(["train", str(whole), *SMALL]) == 0
    show = cli_train._Bar.__call__

    def interrupt(bar, history):
        show(bar, history)
        if len(history.loss) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_train._Bar, "__call__", interrupt)
    assert main(["train", str(out), *SMALL]) == 130
    assert {p.name for p in tmp_path.iterdir()} == {whole.name, "model.safetensors.run"}
    steps = []
    monkeypatch.setattr(cli_train._Bar, "__call__", lambda bar, h: steps.append(len(h.loss)))
    assert main(["train", str(out), *SMALL]) == 0
    assert steps == [5, 6, 7, 8, 9]  # from the evaluation after step 4
    resumed, straight = checkpoint.load(out)[0], checkpoint.load(whole)[0]
    for p, q in zip(resumed.parameters(), straight.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--order", "side"], "ModelConfig: expected order one of pre, post"),
        (["--d-model", "15"], "ModelConfig: expected d_model divisible by n_heads"),
        (["--steps", "0"], "TrainConfig: expected steps a whole number >= 1, got 0"),
        (["--lr", "-1"], "TrainConfig: expected lr > 0, got -1"),
        (["--length", "99"], "train: expected length <= max_len, 32, got 99"),
        (["--init", "he"], "TinyLM: expected init one of"),
        (
            ["--d-model", "200000"],
            "train: expected a model of at most 1,000,000,000 numbers, got more",
        ),
        (["--batch", "9" * 23], "train: expected at most 10,000,000 tokens in the rows of a step"),
        (["--seed", "9" * 23], "TinyLM: expected a seed from -2^63 to 2^64 - 1, got 99999"),
        (["--patience", "0"], "TrainConfig: expected patience >= 1, got 0"),
    ],
)
def test_bad_settings_are_one_line_and_no_file(tmp_path, options, message, capsys):
    assert main(["train", str(tmp_path / "m.safetensors"), *SMALL, *options]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert message in said and list(tmp_path.iterdir()) == []


def test_wrong_places_and_texts_are_one_line(tmp_path, capsys):
    there = tmp_path / "there.safetensors"
    there.write_text("precious")
    assert main(["train", str(there), *SMALL]) == 2
    message = f"train: expected a file that is not there yet, got {there} (--again replaces it)"
    assert message in capsys.readouterr().err and there.read_text() == "precious"
    assert main(["train", str(tmp_path / "no" / "m.safetensors"), *SMALL]) == 2
    assert "expected a folder that is there" in capsys.readouterr().err
    short = tmp_path / "short.txt"
    short.write_text("hello")
    out = str(tmp_path / "m.safetensors")
    assert main(["train", out, *SMALL, "--text", str(short)]) == 2
    assert "Text: expected a text of at least 20 tokens, got 5" in capsys.readouterr().err
    assert main(["train", out, *SMALL, "--text", str(tmp_path / "none.txt")]) == 1
    short.write_bytes(b"\xff\xfe\xfa" * 20)
    assert main(["train", out, *SMALL, "--text", str(short)]) == 2
    assert "expected a text in UTF-8" in capsys.readouterr().err
    assert main(["train", str(there), *SMALL, "--again"]) == 0 and there.stat().st_size > 1000


def test_a_diverged_run_says_so_and_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "m.safetensors"
    wild = ["--order", "bare", "--lr", "1e30", "--warmup", "0"]
    assert main(["train", str(out), *SMALL, *wild]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "expected a loss that stays finite" in said and "a lower --lr?" in said
    assert list(tmp_path.iterdir()) == []
