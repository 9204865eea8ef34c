"""Chapter 09: designs by name, and what is measured of each.

A design is a norm, an order and an initialisation; everything else is the model of chapter 06.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tiny_lm.corpus import Letters
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import training
from tiny_lm.probes.training import Run
from tiny_lm.taps import Recorder
from tiny_lm.train import next_token_loss
from tiny_lm.variants import NORMS

SEEDS = training.SEEDS


@dataclass(frozen=True, kw_only=True)
class Design:
    """A norm, an order and an initialisation by name; `title` is how pictures call it."""

    title: str
    norm: str = "rms"
    order: str = "pre"
    init: str = "fan_in"

    def run(self, **more: float) -> Run:
        """A training run of this design."""
        return Run(norm=self.norm, order=self.order, init=self.init, **more)


DESIGNS: dict[str, Design] = {
    "pre": Design(title="RMSNorm, pre"),
    "quiet": Design(title="pre, quiet branches", init="scaled_fan_in"),
    "layer": Design(title="LayerNorm, pre", norm="layer"),
    "rms_pure": Design(title="RMSNorm without gain", norm="rms_pure"),
    "rms_offset": Design(title="RMSNorm, gain 1 + g", norm="rms_offset"),
    "rms_floor": Design(title="RMSNorm, eps a floor", norm="rms_floor"),
    "dyt": Design(title="Dynamic Tanh", norm="dyt"),
    "qk_norm": Design(title="pre and QK-norm", order="qk_norm"),
    "embed_norm": Design(title="pre, embedding normed", order="embed_norm"),
    "parallel": Design(title="parallel branches", order="parallel"),
    "inverse_root": Design(title="pre, norms / √l", order="inverse_root"),
    "layerscale": Design(title="LayerScale", order="layerscale"),
    "hyper": Design(title="hyper, two streams", order="hyper"),
    "sandwich": Design(title="sandwich", order="sandwich"),
    "post": Design(title="post", order="post"),
    "deepnorm": Design(title="DeepNorm", order="deepnorm"),
    "rezero": Design(title="ReZero", order="rezero"),
    "bare": Design(title="no norms", order="bare"),
}


@dataclass(frozen=True)
class Trained:
    """One training: the mean loss of its last steps, and the largest entry there was to square.

    The largest entry, in absolute value, of the stream and of whatever a norm reads, over eight
    rows that were not trained on. Infinite where the run blew up.
    """

    loss: float
    largest: float
    parameters: int  # how many numbers the model learns


def trained(design: Design, *, lr: float, seed: int, blocks: int, steps: int) -> Trained:
    """Train one model of a design on Letters."""
    run = design.run(blocks=blocks, lr=lr, seed=seed, steps=steps)
    model = training.model_of(run)
    loss = training.result(run, model)
    rows = torch.tensor([Letters(seed).row(n, 17, "valid") for n in range(8)])
    largest = largest_entry(model, rows[:, :-1]) if isfinite(loss) else inf
    return Trained(loss, largest, sum(p.numel() for p in model.parameters()))


@dataclass(frozen=True)
class Start:
    """A model before training.

    `stream` is the RMS after the embedding and after each block; `gradient` the length of the
    loss's gradient by the parameters of each block; `largest` is the largest entry as in Trained.
    """

    stream: list[float]
    gradient: list[float]
    largest: float

    @property
    def spread(self) -> float:
        """The longest of the gradients / the shortest; infinite if one is 0 or not finite."""
        low, high = min(self.gradient), max(self.gradient)
        return high / low if low > 0 and isfinite(high) else inf

    @property
    def relative(self) -> list[float]:
        """The gradients / the longest of them; NaN where they are not finite."""
        longest = max(self.gradient)
        return [g / longest if isfinite(longest) and longest > 0 else nan for g in self.gradient]


def start(design: Design, *, seed: int, blocks: int) -> Start:
    """Look at a model of a design before its first step, in float64."""
    model = training.model_of(design.run(blocks=blocks, seed=seed)).double()
    return start_of(model, torch.tensor([Letters(seed).row(n, 17) for n in range(16)]))


def start_of(model: TinyLM, rows: Tensor) -> Start:
    """Look at a model as it is, with rows `[B, T + 1]`; leaves its gradients behind."""
    seen = Recorder()
    largest = largest_entry(model, rows[:, :-1], seen)
    next_token_loss(model, rows).backward()
    last = {name.split(".")[1]: name for name in seen if name.startswith("blocks.")}
    stream = [_finite(seen[name].square().mean().sqrt()) for name in ("embed", *last.values())]
    gradient = [
        _finite(torch.stack([_length(p) for p in block.parameters()]).norm())
        for block in model.blocks
    ]
    return Start(stream, gradient, largest)


@torch.no_grad()
def largest_entry(model: TinyLM, tokens: Tensor, seen: Recorder | None = None) -> float:
    """The largest absolute entry of the stream and of what norms read; infinite if not finite."""
    found: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, given: found.append(given[0].abs().max()))
        for module in model.modules()
        if isinstance(module, tuple(NORMS.values()))
    ]
    seen = Recorder() if seen is None else seen
    model(tokens, tap=seen)
    for hook in hooks:
        hook.remove()
    found += [value.abs().max() for name, value in seen.items() if _is_stream(name)]
    return _finite(torch.stack(found).max())


def _is_stream(name: str) -> bool:
    return name == "embed" or name.endswith(("resid.attn", "resid.ffn"))


def _length(p: nn.Parameter) -> Tensor:
    return torch.zeros((), dtype=p.dtype) if p.grad is None else p.grad.norm()


def _finite(x: Tensor) -> float:
    return float(x) if x.isfinite() else inf


# Live


@dataclass(frozen=True)
class Live:
    """The loss of every step, in nats: by title of the design, a list a seed."""

    blocks: int
    steps: int
    losses: dict[str, list[list[float]]]
    start: float = training.LN_V
    floor: float = training.FLOOR

    @property
    def survivors(self) -> dict[str, int]:
        """How many seeds of each design end below halfway, by the mean of the last four steps."""
        return {
            title: sum(
                len(losses) == self.steps and fmean(losses[-4:]) < training.HALFWAY
                for losses in runs
            )
            for title, runs in self.losses.items()
        }


def live(names: Sequence[str], *, blocks: int, lr: float, steps: int) -> Live:
    """Train a few designs now, from every seed."""
    found = {}
    for name in names:
        design = DESIGNS[name]
        runs = [design.run(blocks=blocks, lr=lr, steps=steps, seed=seed) for seed in SEEDS]
        found[design.title] = [training.losses(run) for run in runs]
    return Live(blocks, steps, found)


# The clock

TIMED = {"vocab_size": 256, "max_len": 64, "n_layers": 4, "d_model": 128, "n_heads": 4}
TIMED |= {"d_ff": 344, "tied": False}


def step_of(design: Design) -> Callable[[], None]:
    """One training step of a larger model, 4 rows of 64 tokens, ready to be called."""
    config = ModelConfig(norm=design.norm, order=design.order, **TIMED)
    model = TinyLM(config, init=design.init)
    optimizer = AdamW(model.parameters(), lr=1e-4, fused=True)
    rows = torch.randint(0, 256, (4, 65), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        next_token_loss(model, rows).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
