"""Weights of one byte, for writing: every token reads all weights once, so a quarter of the bytes.

`shrink(model)` is the one place where they are made. A weight is a whole number times the scale of
its row, which leaves half a scale of error at most; `python -m tiny_lm bench decoding` prints what
that does to the log-probabilities of a text, beside 16-bit weights. What is not a weight, the
stream and the norms among it, stays as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tiny_lm.fast import FAST, FastTinyLM, take
from tiny_lm.fast.memory import lay_side_by_side, multiply
from tiny_lm.model import TinyLM
from tiny_lm.shapes import fail

__all__ = ["EightBitEmbedding", "EightBitLinear", "EightBitTinyLM", "round_rows", "shrink"]


@torch.no_grad()
def shrink(model: TinyLM) -> TinyLM:
    """Keep the matrices of a model in 8 bits, and speed it up, in place: `model -> the same model`.

    For reading and writing only: where a gradient is wanted, its layers raise ValueError, and a
    checkpoint cannot be made of it. There is no way back, for what was rounded off is gone. An
    embedding that is also the output matrix is one matrix of bytes for both: looking up a row costs
    nothing, and floats beside them would take as much memory again as all the layers.

    Raises ValueError for weights that are not finite, with nothing changed.
    """
    if type(model) not in (TinyLM, FastTinyLM):
        fail("shrink", "a TinyLM, in floats", type(model).__name__)
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            fail("shrink", f"finite numbers in {name}", "others")
    take(model, FAST | EIGHT)
    for module in model.modules():
        if type(module) in (EightBitLinear, EightBitEmbedding):
            weight, scale = round_rows(module.weight)
            del module.weight
            module.register_buffer("weight", weight)
            module.register_buffer("scale", scale)
    lay_side_by_side(model)
    return model


def round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from −127 to 127 and a scale a row: `[N, K] -> int8 [N, K], bfloat16 [N]`.

    scale_n = max_k |w_nk| / 127,  q_nk = round(w_nk / scale_n),  |w − scale q| ≤ scale / 2

    The scale is rounded to bfloat16 before it is used, so that rounding it costs nothing.
    Source: absmax scaling by vectors, Dettmers et al. 2022 (LLM.int8()), arXiv 2208.07339; there
    the inputs are rounded likewise, here they are not.
    """
    wide = weight.float()
    scale = (wide.abs().amax(dim=1) / 127).bfloat16()
    scale.clamp_(min=torch.finfo(scale.dtype).tiny)  # a row of zeros is 0 times something
    return (wide / scale[:, None]).round().to(torch.int8), scale


class EightBitLinear(nn.Linear):
    """A matrix product with int8 weights: `[..., K] -> [..., N]`."""

    def forward(self, x: Tensor) -> Tensor:
        y = multiply(x, self)
        return y if self.bias is None else y + self.bias


class EightBitEmbedding(nn.Embedding):
    """Rows of int8 weights times their scales: `[...] -> [..., D]`, in float32."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens] * self.scale[tokens, None].float()


class EightBitTinyLM(FastTinyLM):
    """A TinyLM whose output matrix is int8; `slow_down` leaves it so, and slows its layers."""


EIGHT: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: EightBitLinear,
    nn.Embedding: EightBitEmbedding,
    TinyLM: EightBitTinyLM,
    FastTinyLM: EightBitTinyLM,
}
