"""Command lines of any kind: a status, one line on stderr, and what was there is left alone."""

import re
import time

import pytest
import torch
from damage import PATIENCE, cases
from damage import little_memory as limit
from llama_writers import small_model, write_folder

from tiny_lm import checkpoint, cli_bench, colab, host, pretrained, release
from tiny_lm.cli import main
from tiny_lm.probes import comparing
from tiny_lm.tokenizer import CharTokenizer


@pytest.fixture(autouse=True)
def little_memory():
    with limit():
        yield


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with a model in each form, and verbs that would take long cut short."""
    monkeypatch.chdir(tmp_path)
    letters = CharTokenizer("".join(map(chr, range(65, 65 + 50))))
    checkpoint.save("model.safetensors", small_model(), letters)
    write_folder(tmp_path / "folder", small_model())
    (tmp_path / "file").write_text("precious")
    (tmp_path / "text").write_bytes(b"\xff\xfe" * 30)
    (tmp_path / "empty").mkdir()
    quick = comparing.Plan(blocks=1, steps=2, lower=1e-3, higher=(), depths=(1,), rounds=1)
    monkeypatch.setattr(comparing, "QUICK", quick)
    monkeypatch.setattr(comparing, "FULL", quick)
    monkeypatch.setattr(cli_bench, "tables", lambda *_: iter(()))
    monkeypatch.setattr(cli_bench, "_growth", lambda *_: "")
    for function in (release.release, release.nbgrader, colab.release):
        monkeypatch.setattr(function, "__defaults__", (tmp_path / "empty",))
    monkeypatch.setattr(host.host, "__defaults__", (tmp_path / "empty", "main"))
    monkeypatch.setattr(pretrained, "_folder", lambda: tmp_path / "cache")

    def offline(*_):
        raise OSError("no connection")

    monkeypatch.setattr(pretrained, "download", offline)
    yield tmp_path
    torch.set_flush_denormal(False)


PLACES = (
    "file", "file/x", "none/x", "empty", "", ".", "/dev/null/x", "x" * 300, "\udcff", "a\nb", "new",
    "model.safetensors", "folder", "none.safetensors", "none.gguf", "stories", "smollm2-135m", "-",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "-0.5", "nan", "inf", "-inf", "1e400", "1e-320", "9" * 23, "-" + "9" * 23,
    "9" * 5000, "0x10", "1_0", "", " ", "ten", "3.5", "2", "١",
)  # fmt: skip
TEXTS = ("ABC", "", "é", "\udcff", "A" * 100, "\n", "-x", "A" * 32)
SMALL = "--steps 3 --batch 2 --length 8 --warmup 1 --eval-every 2 --eval-rows 4 --max-len 16"
SMALL = (SMALL + " --n-layers 1 --d-model 8 --n-heads 2 --d-ff 8").split()
OPTIONS = (
    "batch", "length", "lr", "lr-end", "warmup", "weight-decay", "clip", "eval-every",
    "eval-rows", "max-len", "n-layers", "d-model", "n-heads", "d-ff", "norm-eps", "rope-theta",
    "seed", "patience",
)  # fmt: skip


def generate(r):
    option = r.choice(("new", "temperature", "top-k", "top-p", "seed"))
    model = r.choice((*PLACES, *["model.safetensors"] * 20))
    return ["--model", model, r.choice(TEXTS), f"--{option}", r.choice(NUMBERS)]


def train_line(r):
    wild = r.choice(
        (
            [f"--{r.choice(OPTIONS)}", r.choice(NUMBERS)],
            [r.choice(("--norm", "--order", "--init", "--corpus")), r.choice(TEXTS)],
            ["--text", r.choice((*PLACES, "text"))],
            ["--again"],
            ["--steps", r.choice(("0", "-1", "nan", "", "ten"))],
        )
    )
    return [r.choice(PLACES), *SMALL, *wild]


LINES = {
    "generate": generate,
    "train": train_line,
    "inspect": lambda r: [r.choice(PLACES), "--prompt", r.choice(TEXTS), "--out", r.choice(PLACES)],
    "fetch": lambda r: [r.choice((*PLACES, *TEXTS))],
    "compare": lambda r: [r.choice(PLACES), "--designs", r.choice(("pre", "best", "", "pre,post"))],
    "bench": lambda r: [
        *([r.choice(("norms", "x", ""))] * r.randrange(2)),
        *("--threads", r.choice(NUMBERS), "--device", r.choice(("cpu", "gpu", "", "cuda:9"))),
    ],
    "host": lambda r: [r.choice((*PLACES, "https://a", "https://a b", "x" * 9)), "--branch", "x"],
    "release": lambda r: [r.choice(PLACES), *r.choice(([], ["--nbgrader"], ["--colab"]))],
    "lesson": lambda r: [r.choice(PLACES)],
    "sing": lambda r: [r.choice(TEXTS)],
}
BAR = re.compile(r"\d*(%|step|run|it)?.*\[\d\d:\d\d.*")  # of tqdm: it shows that something happens


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", LINES)
def test_any_command_line_ends_with_a_status_and_one_line(workplace, capfd, verb):
    refused = 0
    for random in cases(verb, 40 if verb in ("generate", "train", "inspect") else 15):
        line = [verb, *LINES[verb](random)]
        start = time.process_time()
        try:
            status = main(line)
        except SystemExit as leaves:  # argparse, of what it cannot read
            status = leaves.code
        said = [s for s in re.split(r"[\r\n]+", capfd.readouterr().err) if s.strip()]
        said = [s for s in said if not BAR.match(s.strip())]
        case = f"{random.name}: {line} -> {status}: {said}"
        assert status in (0, 1, 2), case
        if status:
            refused += 1
            assert len(said) == 1 and said[0].startswith(("tiny_lm: ", "python -m tiny_lm")), case
        assert not list(workplace.rglob("*.part")), case
        if "--again" not in line:
            assert (workplace / "file").read_text() == "precious", case
        assert time.process_time() - start < PATIENCE, case
    assert refused > 5
