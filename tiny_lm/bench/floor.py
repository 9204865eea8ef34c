"""What no way of doing the work can leave out: matrix products and attention, and nothing else.

Beside the whole it says how much there is to win.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from tiny_lm.bench.contest import Way
from tiny_lm.fast.memory import multiply, side_by_side
from tiny_lm.model import TinyLM

FLOOR = "products and attention alone"


def floor(
    model: TinyLM, B: int, T: int, *, scored: int, learned: bool = False, passes: int = 1
) -> Way:
    """The products of a fast model that reads B texts of T tokens, `scored` of which get logits.

    `learned`: with those of the backward, two for each of the forward. The attention of a token
    that is alone, which is next to nothing, is left out.
    """
    device = model.embedding.weight.device
    layers = [
        [group, *(torch.randn(rows, size, device=device) for size in sizes(group))]
        for group, rows in products(model, B * T, scored)
    ]
    heads = (B, model.config.n_heads, T, model.config.d_head)
    qkv = [torch.randn(heads, device=device, requires_grad=learned) for _ in range(3)]

    def way() -> None:
        for _ in range(passes):
            with torch.no_grad():
                for group, x, slope in layers:
                    multiply(x, *group)
                    if learned:
                        slope.T @ x
                        slope @ side_by_side(*group)
            for _ in range(model.config.n_layers if T > 1 else 0):
                y = scaled_dot_product_attention(*qkv, is_causal=True)
                if learned:
                    torch.autograd.grad(y, qkv, qkv[0].detach())

    return way


Layers = tuple[nn.Linear | nn.Embedding, ...]


def products(model: TinyLM, rows: int, scored: int) -> Iterator[tuple[Layers, int]]:
    """Layers that are multiplied as one, and by how many rows."""
    for block in model.blocks:
        attention, ffn = block.attention, block.ffn
        yield (attention.q_proj, attention.k_proj, attention.v_proj), rows
        yield (attention.out_proj,), rows
        yield (ffn.gate_proj, ffn.up_proj), rows
        yield (ffn.down_proj,), rows
    yield (model.embedding if model.output is None else model.output,), scored


def sizes(layers: Layers) -> tuple[int, int]:
    """The width of what they read, and of what they make together."""
    return layers[0].weight.shape[1], sum(len(layer.weight) for layer in layers)
