"""How time and memory grow with depth, width, length and batch, one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tiny_lm.bench.contest import Contest, Way, run
from tiny_lm.fast import speed_up
from tiny_lm.generate import generate
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.train import next_token_loss

# What does not grow, and the sizes of what does.
STILL = {"depth": 4, "width": 128, "prompt": 128, "batch": 8}
SIZES = {
    "depth": (1, 2, 4, 8, 16, 32),
    "width": (64, 128, 256, 512),
    "prompt": (64, 128, 256, 512, 1024),
    "batch": (1, 2, 4, 8, 16, 32),
    "written": (32, 64, 128, 256, 512),
}
LEGEND = {
    "depth": "depth, in blocks",
    "width": "width D",
    "prompt": "length T of a row",
    "batch": "batch B",
    "written": "tokens written with a cache",
}


@dataclass(frozen=True)
class Growth:
    """One thing that grows: its sizes, and the seconds and bytes at each of them."""

    name: str
    sizes: Sequence[int]
    seconds: Sequence[float]
    bytes: Sequence[int]

    @property
    def time_exponent(self) -> float:
        """p where time ~ size^p, fitted to the larger half of the sizes."""
        return exponent(self.sizes, self.seconds)

    @property
    def memory_exponent(self) -> float:
        """p where memory ~ size^p, fitted likewise."""
        return exponent(self.sizes, self.bytes)

    @property
    def straightness(self) -> float:
        """R² of the line seconds = a + b · size."""
        line = np.polyval(np.polyfit(self.sizes, self.seconds, 1), self.sizes)
        rest = np.square(np.subtract(self.seconds, line)).sum()
        return float(1 - rest / np.square(self.seconds - np.mean(self.seconds)).sum())


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log(value) over log(size); what costs the same at every size bends its start."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(values[half:]), 1)[0])


def measure(
    name: str, repetitions: int = 7, progress: Callable[[], object] | None = None
) -> Growth:
    """Let one thing grow: the fastest of some repetitions, for what disturbs only adds."""
    sizes = SIZES[name]
    ways = {str(size): work(name, size) for size in sizes}
    result = run(Contest(LEGEND[name], ways, repetitions=repetitions), progress=progress)
    seconds = [min(result.seconds[str(size)]) for size in sizes]
    return Growth(name, sizes, seconds, [memory(name, size) for size in sizes])


def work(name: str, size: int) -> Way:
    """Forward, loss and backward; or a text written with a cache."""
    model, rows = setting(name, size)
    if name == "written":
        return lambda: generate(model, rows[:1, :1], size, temperature=0)

    def way() -> None:
        next_token_loss(model, rows).backward()
        model.zero_grad()

    return way


def memory(name: str, size: int) -> int:
    """Bytes that a forward keeps for its backward; or bytes in the cache of a text."""
    model, rows = setting(name, size)
    if name == "written":
        cache, text = model.new_cache(), rows[:1, :1].expand(1, size)
        none = torch.empty(1, model.config.n_heads, 0, model.config.d_head)
        with torch.no_grad():
            model(text, cache=cache)
            return sum(part.nbytes for layer in cache for part in layer.append(none, none))
    kept: dict[int, int] = {}
    mine = {weight.untyped_storage().data_ptr() for weight in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        piece = tensor.untyped_storage()
        kept[piece.data_ptr()] = piece.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = next_token_loss(model, rows)
    del loss
    return sum(size for at, size in kept.items() if at not in mine)


def setting(name: str, size: int) -> tuple[TinyLM, Tensor]:
    """A fast model and rows of tokens where only one thing has another size."""
    s = {**STILL, name: size}
    config = ModelConfig(
        vocab_size=256,
        max_len=max(s["prompt"], SIZES["written"][-1]) + 1,
        n_layers=s["depth"],
        d_model=s["width"],
        n_heads=s["width"] // 32,
        d_ff=s["width"] * 8 // 3,
    )
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(256, (s["batch"], s["prompt"] + 1), generator=generator)
    return speed_up(TinyLM(config)), rows


def table(growths: Sequence[Growth]) -> str:
    """The fitted laws as text."""
    head = f"{'what grows':<28} {'from, to':>12}  time ~ size^p  memory ~ size^p  R² of a line"
    return "\n".join([head, *_lines(growths)])


def _lines(growths: Sequence[Growth]) -> Iterator[str]:
    for growth in growths:
        span = f"{growth.sizes[0]}, {growth.sizes[-1]}"
        yield (
            f"{LEGEND[growth.name]:<28} {span:>12}  {growth.time_exponent:13.2f}"
            f"  {growth.memory_exponent:15.2f}  {growth.straightness:12.4f}"
        )
