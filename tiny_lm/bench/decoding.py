"""How long a real model takes to load, to read a prompt and to write on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import torch
from torch import Tensor, nn

from tiny_lm import pretrained
from tiny_lm.bench.contest import Contest, Way, missing
from tiny_lm.bench.floor import FLOOR, floor
from tiny_lm.corpus import manual
from tiny_lm.fast import speed_up
from tiny_lm.fast.eight_bits import shrink
from tiny_lm.generate import generate
from tiny_lm.tokenizer import Tokenizer

NAME = "smollm2-135m"
BASE, FAST = "transformers", "tiny_lm, fast"
HALF, EIGHT = "tiny_lm, fast, bf16 weights", "tiny_lm, fast, int8 weights"
TEXT = "The capital of France is a city on the river Seine, and for two thousand years it has"
NEW, PROMPT, READ = 32, 256, 256  # tokens


def contests(device: str = "cpu", quick: bool = False) -> Iterator[Contest | str]:
    """Greedy writing with a cache, a prompt of 256 tokens to its first token, and the load."""
    path = pretrained.cached(NAME)
    absent = [*missing(["transformers", "gguf", "tokenizers"])]
    if path is None or absent:
        yield f"{NAME}: left out, for want of " + ", ".join(
            absent or [f"`python -m tiny_lm fetch {NAME}`"]
        )
        return
    models, tokenizer = everybody(device)
    ids = torch.tensor([tokenizer.encode(TEXT)], device=device)
    yield Contest(
        f"SmolLM2-135M, {NEW} tokens written with a cache",
        {name: writing(name, model, ids) for name, model in models.items()}
        | {FLOOR: floor(models[FAST], 1, 1, scored=1, passes=NEW)},
        {FAST: 1 / 1.5, HALF: 1 / 1.5, EIGHT: 1 / 1.5},
        3 if quick else 30,
    )
    text = torch.tensor([tokenizer.encode(manual()[: 8 * READ])[: READ + 1]], device=device)
    for name in (HALF, EIGHT):
        yield error(name, models[FAST], models[name], text)
    long = ids.repeat(1, PROMPT)[:, :PROMPT]
    yield Contest(
        f"SmolLM2-135M, a prompt of {PROMPT} tokens to the first token",
        {name: writing(name, model, long, new=1) for name, model in models.items()}
        | {FLOOR: floor(models[FAST], 1, PROMPT, scored=1)},
        {FAST: 0.8, HALF: 0.8},
        3 if quick else 30,
    )
    del models
    yield Contest(
        "SmolLM2-135M, loaded from its GGUF file, not the first time",
        {BASE: theirs, "tiny_lm": lambda: pretrained.load(NAME)},
        {"tiny_lm": 0.2},
        2 if quick else 5,
    )
    yield memory()


def everybody(device: str) -> tuple[dict[str, nn.Module], Tokenizer]:
    """The same weights as several models, and their tokenizer."""
    taught, tokenizer = pretrained.load(NAME)
    quick, half, eight = (pretrained.load(NAME)[0] for _ in range(3))
    models = {
        BASE: theirs().to(device),
        FAST: speed_up(quick.to(device)),
        HALF: speed_up(half.to(device, torch.bfloat16)),
        EIGHT: shrink(eight.to(device)),
        "tiny_lm, taught": taught.to(device),
    }
    return models, tokenizer


@torch.no_grad()
def error(name: str, exact: nn.Module, rounded: nn.Module, ids: Tensor) -> str:
    """What rounding changes: log-probabilities of a text's own tokens, and the likeliest ones."""
    logs = [log_probabilities(model, ids) for model in (exact, rounded)]
    own = [log.gather(-1, ids[:, 1:, None]) for log in logs]
    apart = (own[0] - own[1]).abs()
    same = (logs[0].argmax(-1) == logs[1].argmax(-1)).sum()
    return (
        f"error of {name}: log-probabilities of {apart.numel()} tokens of a text differ by "
        f"{apart.mean():.3f} nats on average and {apart.max():.3f} at most, their mean by "
        f"{(own[1] - own[0]).mean():+.3f}; the likeliest token is the same at {same} positions"
    )


def log_probabilities(model: nn.Module, ids: Tensor) -> Tensor:
    """Of every token after each position but the last: `[1, T] -> [1, T − 1, V]`, in float64.

    A few positions at a time with a cache, for that takes the same way as writing does.
    """
    cache = model.new_cache()
    logits = [model(part, cache=cache) for part in ids[:, :-1].split(16, dim=1)]
    return torch.cat(logits, dim=1).double().log_softmax(dim=-1)


def theirs() -> nn.Module:
    """The model as transformers loads it from the same file."""
    path = pretrained.fetch(NAME)
    transformers = import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    load = transformers.AutoModelForCausalLM.from_pretrained
    return load(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


def writing(name: str, model: nn.Module, ids: Tensor, new: int = NEW) -> Way:
    """Take the likeliest token so many times."""
    if name != BASE:
        return lambda: generate(model, ids, new, temperature=0)
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(ids)
    return lambda: model.generate(ids, attention_mask=mask, max_new_tokens=new, **options)


PEAK = """
import torch, tokenizers, safetensors.torch
from tiny_lm import pretrained

def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

before = peak()
model, _ = pretrained.load(NAME)
print(peak() - before, sum(p.nbytes for p in model.parameters()))
"""


def memory() -> str:
    """The peak of memory of a process that loads the model, above what its imports took."""
    if not sys.platform.startswith("linux"):
        return "peak memory of the load: measured on Linux only"
    done = subprocess.run(
        [sys.executable, "-c", PEAK.replace("NAME", repr(NAME))],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, weights = map(int, done.stdout.split())
    verdict = "reached" if peak / weights <= 1.3 else "missed"
    return (
        f"peak memory of that load, above the imports': {peak / 1e6:.0f} MB for weights of "
        f"{weights / 1e6:.0f} MB in float32, {peak / weights:.2f}   {verdict}: 1.3"
    )
