"""Chapter 04: the numbers behind the wiring of a block and its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tiny_lm.config import ModelConfig
from tiny_lm.layers import BLOCKS
from tiny_lm.shapes import fail
from tiny_lm.taps import Recorder, Tap, ignore


class _StandIn(nn.Module):
    """A branch that keeps what it read and wrote."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, *, cache: object = None, tap: Tap = ignore) -> Tensor:
        self.read, self.wrote = x, self.function(x)
        return self.wrote


@dataclass(frozen=True)
class Wiring:
    """What flows through a block of width 2 whose branches are stand-ins (float64, eps 1e-5).

    `attention` and `ffn` are (read, wrote); `taps` are the block's four named values.
    """

    order: str
    norms: bool
    attention_on: bool
    ffn_on: bool
    x: list[float]
    attention: tuple[list[float], list[float]]
    ffn: tuple[list[float], list[float]]
    taps: dict[str, list[float]]
    y: list[float]


@torch.no_grad()
def wiring(
    order: str = "pre",
    attention_on: bool = True,
    ffn_on: bool = True,
    norms: bool = True,
    size: float = 1.0,
) -> Wiring:
    """Send x = size · [3, 4] through a block: attention writes [1, 0], the FFN twice what it reads.

    A branch that is off writes [0, 0]; without norms their inputs pass unchanged.
    """
    block = BLOCKS[order](ModelConfig(d_model=2, n_heads=1, d_ff=2, order=order)).double()
    first = torch.tensor([1.0, 0.0], dtype=torch.float64) * attention_on
    block.attention = _StandIn(lambda x: first.expand_as(x))
    block.ffn = _StandIn(lambda x: 2.0 * ffn_on * x)
    if not norms:
        block.norm1, block.norm2 = nn.Identity(), nn.Identity()
    x, tap = torch.tensor([[[3.0, 4.0]]], dtype=torch.float64) * size, Recorder()
    y = block(x, tap=tap)
    return Wiring(
        order=order,
        norms=norms,
        attention_on=attention_on,
        ffn_on=ffn_on,
        x=_row(x),
        attention=(_row(block.attention.read), _row(block.attention.wrote)),
        ffn=(_row(block.ffn.read), _row(block.ffn.wrote)),
        taps={name: _row(value) for name, value in tap.items()},
        y=_row(y),
    )


@dataclass(frozen=True)
class Station:
    """A place on the way through a block, and the vector that is there."""

    step: int
    vector: list[float]
    stream: list[float]  # what the direct path carries meanwhile
    wrote: list[float]  # what the last branch wrote


STATIONS = 7


def walk(step: int = 1) -> Station:
    """The vector at one of seven stations of the block that `wiring` runs: x, norm, branch, sum …

    Raises ValueError for another step.
    """
    if not 1 <= step <= STATIONS:
        fail("walk", f"a step from 1 to {STATIONS}", step)
    block = wiring()
    x, h, y = block.x, block.taps["resid.attn"], block.y
    norm1, attention = block.attention
    norm2, ffn = block.ffn
    stream, none = (x, x, x, h, h, h, y), [0.0, 0.0]
    wrote = (none, none, attention, attention, none, ffn, ffn)
    return Station(
        step=step,
        vector=(x, norm1, attention, h, norm2, ffn, y)[step - 1],
        stream=stream[step - 1],
        wrote=wrote[step - 1],
    )


def _row(x: Tensor) -> list[float]:
    return x[0, 0].tolist()


def _rms(x: Tensor) -> list[float]:
    """Size of the vector at each position: `[1, T, D] -> T numbers`, in float64."""
    return x[0].double().square().mean(dim=-1).sqrt().tolist()


@dataclass(frozen=True)
class StreamSizes:
    """The stream after the embedding (0) and after each block: RMS at each position."""

    sizes: list[list[float]]  # [blocks passed][position]
    largest: list[float]  # largest entry of the stream, without its sign


@torch.no_grad()
def stream_sizes(model: nn.Module, tokens: Tensor) -> StreamSizes:
    """Run a model on one text `[1, T]` and measure its stream."""
    tap = Recorder()
    model(tokens, tap=tap)
    stream = [v for name, v in tap.items() if name == "embed" or name.endswith("resid.ffn")]
    return StreamSizes([_rms(v) for v in stream], [float(v.abs().max()) for v in stream])
