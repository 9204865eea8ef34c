"""A residual stream of two copies: hyper-connections."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tiny_lm.attention import KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.shapes import expect_same_shape
from tiny_lm.taps import Tap, ignore
from tiny_lm.variants.branches import PlacedBlock

STREAMS = 2


class HyperBlock(PlacedBlock):
    """Two streams; each branch learns which it reads and writes: `[B, T, 2, D] -> same`.

    S ← keep S + write · branch(norm(read · S)),  S `[2, D]`, read `[2]`, write `[2]`, keep `[2, 2]`

    The first block is given `[B, T, D]` and copies it; the last returns the sum of the streams. At
    first the branches read the streams in turn, write to both and keep both as they are: a model
    begins as the pre-norm model, its stream twice as large at the end. The numbers do not depend
    on the input: the static form.
    Source: Zhu et al. 2024, arXiv 2409.19606.
    """

    def __init__(self, config: ModelConfig, index: int = 0):
        super().__init__(config, index)
        self.is_last = index == config.n_layers - 1
        self.mix1 = nn.Parameter(start(2 * index))
        self.mix2 = nn.Parameter(start(2 * index + 1))

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        streams = x.unsqueeze(-2).expand(*x.shape[:-1], STREAMS, -1) if self.index == 0 else x

        def attend(mixed: Tensor) -> Tensor:
            return self.attention(tap("norm.attn", self.norm1(mixed)), cache=cache, tap=tap)

        def feed(mixed: Tensor) -> Tensor:
            return self.ffn(tap("norm.ffn", self.norm2(mixed)))

        streams = tap("resid.attn", through(self.mix1, streams, attend))
        streams = through(self.mix2, streams, feed)
        return tap("resid.ffn", streams.sum(dim=-2) if self.is_last else streams)


def start(layer: int) -> Tensor:
    """The numbers of a layer at first, in a row: read `[2]`, write `[2]`, keep `[2, 2]`.

    One row, because what has one axis is not drawn at random and does not decay.
    """
    read = torch.zeros(STREAMS)
    read[layer % STREAMS] = 1.0
    return torch.cat([read, torch.ones(STREAMS), torch.eye(STREAMS).flatten()])


def through(mix: Tensor, streams: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
    """Read, branch, write: `[8], [B, T, 2, D] -> [B, T, 2, D]`."""
    read, write, keep = mix.split([STREAMS, STREAMS, STREAMS**2])
    mixed = torch.einsum("n,...nd->...d", read, streams)
    change = branch(mixed)
    expect_same_shape("HyperBlock", mixed, change)
    kept = torch.einsum("mn,...nd->...md", keep.view(STREAMS, STREAMS), streams)
    return kept + write[:, None] * change.unsqueeze(-2)
