"""Sections 8 to 10 of the core lesson: attention, the block, and questions; width 64."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tiny_lm import plain
from tiny_lm.attention import CausalSelfAttention, attention_2d, merge_heads, split_heads
from tiny_lm.config import ModelConfig
from tiny_lm.layers import TransformerBlock
from tiny_lm.lessons.l15_numbers import EPS, D, drawn, slope
from tiny_lm.lessons.result import Result
from tiny_lm.rope import apply_rope
from tiny_lm.taps import Recorder


def attention_branch() -> Iterator[Result]:
    """Section 8: attention, assembled from its parts."""
    title = "8. The attention branch"
    layer, x = drawn(CausalSelfAttention(D, 2)), _stream(4)
    text = (
        "Attention lets a position read others. From one x, three matrices make a query (what I "
        "look for), a key (what I offer) and a value (what I hand over). Each is cut into two "
        "heads of width 32, which read separately. The shape of the queries of 4 positions:"
    )
    q, k, v = (split_heads(p(x), 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    yield Result(title, text, list(q.shape), [1, 2, 4, 32])
    text = (
        "RoPE turns queries and keys, not values, by an angle that grows with the position. So a "
        "score, query times key, knows how far apart two positions are. Turning keeps lengths. "
        "Length afterwards over length before:"
    )
    turned_q, turned_k = apply_rope(q, k)
    ratio = (turned_q.norm(dim=-1) / q.norm(dim=-1)).flatten().tolist()
    yield Result(title, text, [min(ratio), max(ratio)], [1, 1], 1e-5)
    text = (
        "Softmax turns scores into shares of 1. A later position gets exactly nothing: that is "
        "causal. The shares of positions 1 to 4 taken by later ones, in the first head:"
    )
    context, weights = attention_2d(turned_q, turned_k, v)
    yield Result(title, text, weights[0, 0].triu(1).sum(-1).tolist(), [0, 0, 0, 0])
    text = (
        "Values are summed by these shares, the heads are put side by side, and a fourth matrix "
        "mixes them. Step by step or by the layer at once, it is the same. Largest difference:"
    )
    by_hand = layer.out_proj(merge_heads(context))
    yield Result(title, text, (by_hand - layer(x)).abs().max().item(), 0, 1e-5)
    text = (
        "The layer keeps its four matrices of 64 x 64, where training finds them. Numbers in all:"
    )
    yield Result(title, text, sum(p.numel() for p in layer.parameters()), 16384)
    text = (
        "The test that matters: add 5 to position 3 of 4. A look at shapes would not notice a "
        "missing mask. Positions 1 and 2 must not move, not by a bit. They moved by:"
    )
    changed = x.clone()
    changed[:, 2] += 5
    moved = (layer(changed) - layer(x)).abs().amax(dim=-1).flatten()
    yield Result(title, text, moved[:2].tolist(), [0, 0])
    yield Result(title, "Do positions 3 and 4 move?", bool((moved[2:] > 0.01).all()), True)


def pre_norm_block() -> Iterator[Result]:
    """Section 9: two branches, two norms, one direct path."""
    title = "9. The pre-norm block"
    layer, x, tap = drawn(TransformerBlock(ModelConfig(norm_eps=EPS))), _stream(3), Recorder()
    x.requires_grad_()
    y = layer(x, tap=tap)
    h = x + layer.attention(layer.norm1(x))
    text = (
        "A block makes two additions. h = x + attention(norm1(x)), then y = h + ffn(norm2(h)), "
        "where ffn, the feed-forward branch, works on each position alone. Only what enters a "
        "branch is normalised. Written out or by the layer, largest difference:"
    )
    by_hand = h + layer.ffn(layer.norm2(h))
    yield Result(title, text, (by_hand - y).abs().max().item(), 0, 1e-4)
    text = "The second norm reads h, not x. What it gave, against norm2(h), largest difference:"
    yield Result(title, text, (tap["norm.ffn"] - layer.norm2(h)).abs().max().item(), 0, 1e-4)
    text = "Are the two norms two objects, each with gains of its own?"
    yield Result(title, text, layer.norm1.scale is not layer.norm2.scale, True)
    yield Result(
        title, "Three positions go in. The shape that comes out:", list(y.shape), [1, 3, D]
    )
    y.square().sum().backward()
    text = "Is every slope at the input an ordinary number, and not all of them zero?"
    yield Result(title, text, bool(x.grad.isfinite().all() and x.grad.abs().max() > 0), True)


def questions() -> Iterator[Result]:
    """Section 10: questions to answer before looking."""
    title = "10. Questions"
    text = "What is the RMS of [30, 40]? Ten times that of [3, 4]."
    yield Result(title, text, plain.rms([30, 40]), 35.355339059, 1e-9)
    text = "And after RMSNorm, with eps left out? The same as [3, 4]."
    yield Result(title, text, plain.rms_norm([30, 40], eps=0), [0.848528137, 1.131370850], 1e-9)
    text = "And if 10 is added instead? [13, 14] has this RMS,"
    yield Result(title, text, plain.rms([13, 14]), 13.509256086, 1e-9)
    text = "and it comes out different. RMSNorm undoes a scale, not a shift."
    yield Result(title, text, plain.rms_norm([13, 14], eps=0), [0.9623031733, 1.0363264943], 1e-9)
    layer, x = drawn(TransformerBlock(ModelConfig(norm_eps=EPS))), _stream(3).requires_grad_()
    nn.init.zeros_(layer.attention.out_proj.weight)
    nn.init.zeros_(layer.ffn.down_proj.weight)
    y = layer(x)
    text = "What does a block give when both branches answer zero? x itself. Largest difference:"
    yield Result(title, text, (y - x).abs().max().item(), 0)
    y.sum().backward()
    text = "Its slopes are then exactly 1. Smallest and largest:"
    yield Result(title, text, [x.grad.min().item(), x.grad.max().item()], [1, 1])
    text = (
        "Does that prove that slopes never vanish? No: with F(x) = -x, in section 2, there was "
        "nothing left."
    )
    yield Result(title, text, slope(-1), 0)


SECTIONS = (attention_branch, pre_norm_block, questions)


def _stream(positions: int) -> Tensor:
    return torch.randn(1, positions, D, generator=torch.Generator().manual_seed(15))
