"""SIGKILL at every step and at any time: what was there is whole, the next run begins clean.

What a killed process leaves is `.NAME.….part`: nothing reads it, and a later run removes it.
"""

import itertools
import json
import os
import runpy
import signal
import sys
import time
from multiprocessing import Pipe
from random import Random

import pytest
import torch
from forks import ended, forked
from killing import (
    MEASURED,
    NEW,
    OPERATIONS,
    PATCHED,
    PLAN,
    dies_at,
    expect_clean_next_time,
    killed_after,
    left,
    results,
    run_compare,
    stand_in,
    train,
    trained,
    wheel,
    write,
)
from safetensors import safe_open

from tiny_lm import cli_train, files, pretrained
from tiny_lm.history import History
from tiny_lm.probes import comparing

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="this system makes no copies of a process"
)
each = pytest.mark.parametrize("name", OPERATIONS)


@pytest.fixture(autouse=True)
def undone(monkeypatch):
    """What the operations put in place of others is put back."""
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))


@each
def test_killed_at_every_step(tmp_path, name):
    operation = OPERATIONS[name]
    for step in itertools.count(1):
        operation.begin(tmp_path)
        assert operation.look(tmp_path) == 1
        status = ended(forked(dies_at, step, str(tmp_path), write, name, tmp_path, NEW))
        found = operation.look(tmp_path)  # whole, or this fails
        if status == 0:
            break
        assert status == -signal.SIGKILL, step
        if found != NEW:
            operation.write(tmp_path, NEW)
        assert operation.look(tmp_path) == NEW, step
    assert found == NEW and step > 3
    assert left(tmp_path), "at some step there was something to be left"
    expect_clean_next_time(name, tmp_path)


@each
def test_killed_at_any_time(tmp_path, name):
    operation, random = OPERATIONS[name], Random(name)
    operation.begin(tmp_path)
    start = time.perf_counter()
    operation.write(tmp_path, NEW)
    takes = time.perf_counter() - start
    for _ in range(3):
        operation.begin(tmp_path)
        killed_after(random.uniform(0, takes), write, name, tmp_path, NEW)
        assert operation.look(tmp_path) in (1, NEW)
    expect_clean_next_time(name, tmp_path)


def test_what_others_are_writing_is_left_alone(tmp_path):
    """Two processes may save to one path; a file just written to belongs to somebody."""
    path = tmp_path / "m.safetensors"
    with files.replacing(path) as mine:
        mine.write_text("mine")
        with files.replacing(path) as theirs:
            theirs.write_text("theirs")
        assert path.read_text() == "theirs"
        alike = tmp_path / ".m.safetensors.notes.txt"
        alike.touch()
        os.utime(alike, (0, 0))
    assert path.read_text() == "mine" and alike.exists() and left(tmp_path) == []


# Training and comparing, which go on


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return trained(folder)


def done(run_file):
    """How many steps of training a run file holds."""
    if not run_file.exists():
        return 0
    with safe_open(run_file, framework="pt") as file:
        return len(History.from_json(file.metadata()["history"]).loss)


def test_training_killed_at_many_steps_goes_on(tmp_path, whole, monkeypatch, capfd):
    """From the last evaluation, to the same weights as if nothing had happened."""
    out, steps, seen = tmp_path / "m.safetensors", [], set()
    run_file = out.with_name(out.name + ".run")
    monkeypatch.setattr(cli_train._Bar, "__call__", lambda bar, h: steps.append(len(h.loss)))
    for step in sorted(Random(2).sample(range(1, 31), 10)):  # five evaluations and the end
        assert ended(forked(dies_at, step, str(tmp_path), train, tmp_path)) == -signal.SIGKILL
        if not out.exists():
            before = done(run_file)
            steps.clear()
            train(tmp_path)
            assert steps == list(range(before + 1, 10)), step
            seen.add(before)
        assert torch.equal(trained(tmp_path), whole), step
        for path in (out, run_file):
            path.unlink(missing_ok=True)
    assert len(seen) > 3
    assert {path.suffix for path in tmp_path.iterdir()} <= {".safetensors", ".part"}


def test_training_killed_at_any_time_goes_on(tmp_path, whole, capfd):
    random, out = Random(0), tmp_path / "m.safetensors"
    for _ in range(4):
        killed_after(random.uniform(0, 0.15), train, tmp_path)
    if not out.exists():
        train(tmp_path)
    assert torch.equal(trained(tmp_path), whole)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".safetensors", ".part", ".run"}


def test_comparing_killed_at_many_steps_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(comparing, "QUICK", PLAN)
    monkeypatch.setattr(comparing.Plan, "measure", results)
    path = tmp_path / "designs.json"
    run_compare(tmp_path)
    whole, jobs = json.loads(path.read_text()), list(MEASURED)
    random, seen = Random(1), set()
    for step in sorted(random.sample(range(1, 4 * len(jobs)), 15)):
        path.unlink()
        status = ended(forked(dies_at, step, str(tmp_path), run_compare, tmp_path))
        assert status == -signal.SIGKILL, step
        known = list(json.loads(path.read_text())["results"]) if path.exists() else []
        run_compare(tmp_path)
        assert known + MEASURED == jobs, step  # nothing is lost that was done, nothing done twice
        assert json.loads(path.read_text())["results"] == whole["results"]
        seen.add(len(known))
    assert len(seen) > 5
    torch.set_flush_denormal(False)


# Asked to end


def fetch_slowly(pipe, folder):
    class Slow:
        def update(self, chunk):
            pipe.send("reading")
            time.sleep(30)

    stand_in(folder)
    pretrained.hashlib = type("hashlib", (), {"sha256": Slow})
    sys.argv = ["tiny_lm", "fetch", "tiny"]
    try:
        runpy.run_module("tiny_lm", run_name="__main__")
    except SystemExit as end:
        os._exit(end.code)


def test_a_fetch_that_is_asked_to_end_leaves_nothing(tmp_path, capfd):
    """SIGTERM, as from a machine that shuts down: an exit by the usual way, not a death."""
    wheel(tmp_path)
    before = os.listdir(tmp_path)
    ours, theirs = Pipe()
    number = forked(fetch_slowly, theirs, tmp_path)
    assert ours.poll(60) and ours.recv() == "reading"
    os.kill(number, signal.SIGTERM)
    assert ended(number, 20) == 128 + signal.SIGTERM
    assert capfd.readouterr() == ("", "")
    assert os.listdir(tmp_path) == before
