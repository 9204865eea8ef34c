"""Chapter 09: is RMSNorm faster than LayerNorm? Times in turns, and the verdict on stored ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import clock
from tiny_lm.probes.claims import CLAIMS
from tiny_lm.probes.court import SEEDS, Trial, hear
from tiny_lm.train import next_token_loss

FILE = Path(__file__).parent.parent / "data" / "norm_speed.json"
WIDTHS, STEP_WIDTHS = (64, 256, 1024), (64, 256)
ROUNDS, STEP_ROUNDS = 30, 8
CALLS = 4  # of a norm between two looks at the clock

Norm = Callable[[Tensor], Tensor]


def kernel(name: str, width: int) -> nn.Module:
    """PyTorch's own norm of this name, "rms" or "layer", with eps 1e-5."""
    return {"rms": nn.RMSNorm, "layer": nn.LayerNorm}[name](width, eps=1e-5)


def by_hand(name: str, width: int) -> nn.Module:
    """This package's norm of this name."""
    return {"rms": RMSNorm, "layer": LayerNorm}[name](width, eps=1e-5)


def compiled(name: str, width: int) -> Norm:
    """The package's, made into one kernel by torch.compile."""
    return torch.compile(by_hand(name, width))


WAYS: dict[str, Callable[[str, int], Norm]] = {"by hand": by_hand, "torch's kernels": kernel}
COMPILED = {"compiled": compiled}


def forward(norm: Norm, x: Tensor) -> None:
    """A few calls, no gradient."""
    with torch.no_grad():
        for _ in range(CALLS):
            norm(x)


def forward_and_backward(norm: Norm, x: Tensor, slope: Tensor) -> None:
    """A few calls and their gradients, to the input and to the gain."""
    for _ in range(CALLS):
        x.grad = None
        norm(x).backward(slope)


def norm_ratios(
    way: Callable[[str, int], Norm], rows: int, width: int, seed: int, device: str = "cpu"
) -> dict[str, float]:
    """Time of RMSNorm / time of LayerNorm, both made in the same way, median of the rounds."""
    torch.manual_seed(seed)
    pair = [_to(way(name, width), device) for name in ("rms", "layer")]
    x, slope = torch.randn(2, rows, width, device=device)
    x.requires_grad_()
    found = {}
    for name, jobs in {
        "forward": [partial(forward, norm, x) for norm in pair],
        "forward and backward": [partial(forward_and_backward, norm, x, slope) for norm in pair],
    }.items():
        mine, theirs = clock.in_turns(jobs, ROUNDS, _finish(device))
        found[name] = clock.ratio(mine, theirs)[1]
    return found


def step_ratios(width: int, seed: int, device: str = "cpu") -> dict[str, float]:
    """Time of a whole training step with RMSNorm, or with no norms in the blocks, / LayerNorm."""
    models = {
        "by hand": TinyLM(_config(width, "rms"), seed=seed),
        "by hand, LayerNorm": TinyLM(_config(width, "layer"), seed=seed),
        "torch's kernels": with_kernels(TinyLM(_config(width, "rms"), seed=seed), "rms"),
        "torch's kernels, LayerNorm": with_kernels(TinyLM(_config(width, "rms")), "layer"),
        "no norms": TinyLM(replace(_config(width, "rms"), order="bare"), seed=seed),
    }
    jobs = [_step(model.to(device), seed, device) for model in models.values()]
    times = dict(zip(models, clock.in_turns(jobs, STEP_ROUNDS, _finish(device)), strict=True))
    base = times["by hand, LayerNorm"]
    return {
        "by hand": clock.ratio(times["by hand"], base)[1],
        "torch's kernels": clock.ratio(
            times["torch's kernels"], times["torch's kernels, LayerNorm"]
        )[1],
        "no norms": clock.ratio(times["no norms"], base)[1],
    }


def with_kernels(model: TinyLM, name: str) -> TinyLM:
    """The model with each of its norms exchanged for PyTorch's, in place."""
    width = model.config.d_model
    for block in model.blocks:
        block.norm1, block.norm2 = kernel(name, width), kernel(name, width)
    model.norm_final = kernel(name, width)
    return model


def _config(width: int, norm: str) -> ModelConfig:
    return ModelConfig(d_model=width, n_heads=width // 32, d_ff=width * 8 // 3 // 8 * 8, norm=norm)


def _step(model: TinyLM, seed: int, device: str) -> Callable[[], None]:
    optimizer = AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 256, (4, 65), generator=generator).to(device)

    def step() -> None:
        next_token_loss(model, rows).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _to(norm: Norm, device: str) -> Norm:
    return norm.to(device) if isinstance(norm, nn.Module) else norm


def _finish(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device != "cpu" else lambda: None


def measure(
    device: str, rows: int, ways: Mapping[str, Callable], *, steps: bool = True
) -> Iterator[tuple[str, float]]:
    """Every ratio by the name of its setting, again for each seed: for the command that stores."""
    for seed in SEEDS:
        for way, make in ways.items():
            for width in WIDTHS:
                for what, found in norm_ratios(make, rows, width, seed, device).items():
                    yield f"{way}, {what}, {rows} x {width}", found
        for width in STEP_WIDTHS if steps else ():
            for what, found in step_ratios(width, seed, device).items():
                yield f"{what}, training step, D = {width}", found


# What is stored


@lru_cache
def stored() -> dict[str, dict[str, list[float]]]:
    """For each machine the ratios of every setting, one a seed, from the benchmark's command."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def first_machine() -> str:
    """The machine on which the rest of this chapter was measured, too."""
    return next(iter(stored()))


def measured(machine: str) -> list[str]:
    """The ways of making a norm that were timed on a machine."""
    ways = (*WAYS, *COMPILED)
    return [way for way in ways if any(name.startswith(f"{way}, ") for name in stored()[machine])]


CHARGED = (
    "by hand, forward, 256 x 64",
    "by hand, forward, 256 x 1024",
    "by hand, forward and backward, 256 x 64",
    "by hand, forward and backward, 256 x 1024",
    "torch's kernels, forward, 256 x 1024",
    "torch's kernels, forward and backward, 256 x 1024",
    "compiled, forward, 256 x 1024",
    "compiled, forward and backward, 256 x 1024",
    "by hand, training step, D = 64",
    "by hand, training step, D = 256",
    "torch's kernels, training step, D = 256",
)


@cache
def faster() -> Trial:
    """The claim that chapter 05 left to this one, on the stored times of the first machine."""
    machine = first_machine()
    times = stored()[machine]
    return hear(
        replace(
            CLAIMS["faster"],
            measured="time of RMSNorm / time of LayerNorm made in the same way; 30 % faster, read "
            "kindly = at least 20 % less time",
            fixed=f"float32; {machine}; five runs, each the median of rounds in turns",
            band=(0.0, 0.8),
            settings={name: partial(_at, times[name]) for name in CHARGED},
            tried_in="",
        )
    )


def _at(ratios: list[float], seed: int) -> float:
    return ratios[seed]


def by_width(machine: str, way: str, what: str) -> dict[int, float]:
    """The mean ratio at each width that was measured on a machine."""
    rows = stored()[machine]
    found = {
        int(name.split(" x ")[1]): fmean(ratios)
        for name, ratios in rows.items()
        if name.startswith(f"{way}, {what}, ")
    }
    return dict(sorted(found.items()))
