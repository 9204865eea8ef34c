"""Chapter 04: the values of one recorded forward pass, NumPy's or torch's, as maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tiny_lm.autograd import nn
from tiny_lm.shapes import fail
from tiny_lm.taps import Recorder


@dataclass(frozen=True)
class Inspection:
    """A recorded value beside its pair, T positions by D coordinates each (float64)."""

    names: list[str]  # the value asked for; then what it is compared with, if that was recorded
    maps: list[list[list[float]]]
    sizes: list[list[float]]  # RMS of each row
    reach: tuple[float, float]  # least and largest RMS of a row in the whole recording, 0 left out


def tap_names(recorded: Mapping[str, Any]) -> list[str]:
    """Names of the values that are `[B, T, D]`, in order; attention weights are not.

    Raises ValueError when there is none.
    """
    names = [name for name, value in recorded.items() if len(value.shape) == 3]
    if not names:
        fail("inspector", "a recorded pass with values [B, T, D]", f"{len(recorded)} values")
    return names


def pair_of(name: str, recorded: Mapping[str, Any]) -> str | None:
    """What a tap is compared with: what a branch reads, with the completed sum of that branch.

    The embedding goes with what the first norm makes of it, the final norm with what it reads.
    """
    if name == "embed":
        other = "blocks.0.norm.attn"
    elif name == "norm.final":
        other = next((n for n in reversed(list(recorded)) if n.endswith("resid.ffn")), "")
    elif "norm." in name:
        other = name.replace("norm.", "resid.")
    else:
        other = name.replace("resid.", "norm.")
    return other if other != name and other in recorded else None


def inspect(recorded: Mapping[str, Any], name: str) -> Inspection:
    """One value of a recording and its pair, for the first text: the batch axis is dropped."""
    other = pair_of(name, recorded)
    names = [name] if other is None else [name, other]
    maps = [_rows(recorded[n]) for n in names]
    sizes = torch.cat([_sizes(_rows(recorded[n])) for n in tap_names(recorded)])
    sizes = sizes[sizes > 0]
    return Inspection(
        names=names,
        maps=[rows.tolist() for rows in maps],
        sizes=[_sizes(rows).tolist() for rows in maps],
        reach=(float(sizes.min()), float(sizes.max())) if len(sizes) else (1.0, 1.0),
    )


def example() -> Recorder:
    """A pass of the NumPy decoder, four blocks of width 128, over six tokens of growing loudness.

    The vector of token 1 is 50 times as long as it was drawn, that of token 6 300 times.
    """
    model, tap = nn.Decoder(16), Recorder()
    model.embedding.weight.data[1:7] *= 50 * np.arange(1, 7)[:, None]
    model(np.arange(1, 7)[None], tap=tap)
    return tap


def _rows(value: Any) -> Tensor:
    """The first text of `[B, T, D]`, a torch or autograd tensor, as float64."""
    return torch.as_tensor(value.data)[0].detach().double().cpu()


def _sizes(rows: Tensor) -> Tensor:
    return rows.square().mean(dim=-1).sqrt()
