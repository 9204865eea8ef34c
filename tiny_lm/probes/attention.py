"""Chapter 04: the numbers behind RoPE and causality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt

import torch
from torch import Tensor

from tiny_lm.attention import attention_weights, merge_heads, split_heads
from tiny_lm.config import ModelConfig
from tiny_lm.layers import RMSNorm, TransformerBlock
from tiny_lm.rope import apply_rope, rope_angles, rotate


@dataclass(frozen=True)
class RopeScore:
    """A query and a key of two coordinates, turned by their positions (float64)."""

    query_at: int
    key_at: int
    speed: float  # radians a position
    query: list[float]  # turned
    key: list[float]
    score: float  # query · key
    distances: list[float]  # query_at − key_at, for the curve
    curve: list[float]  # the score at each distance


def rope_score(query_at: int, key_at: int, pair: int = 0) -> RopeScore:
    """Turn q = [0.8, 0.6] and k = [1, 0] as pair 0 … 3 of a head of width 8, theta 10,000."""
    q = torch.tensor([0.8, 0.6], dtype=torch.float64)
    k = torch.tensor([1.0, 0.0], dtype=torch.float64)
    speed = rope_angles(torch.tensor([1]), 8)[0, pair]
    turned = [rotate(x[None], speed.view(1, 1) * at)[0] for x, at in ((q, query_at), (k, key_at))]
    distances = torch.linspace(-20, 20, 401, dtype=torch.float64)
    return RopeScore(
        query_at=query_at,
        key_at=key_at,
        speed=float(speed),
        query=turned[0].tolist(),
        key=turned[1].tolist(),
        score=float(turned[0] @ turned[1]),
        distances=distances.tolist(),
        curve=(rotate(q.expand(401, 2), speed * distances[:, None]) @ k).tolist(),
    )


WORDS = ("the", "cat", "saw", "the", "dog", "and", "the", "cat", "ran")
HEADS = ("the word before", "the same word", "all alike")


@dataclass(frozen=True)
class HeadWeights:
    """What each word of a text takes from each, in one head (float64)."""

    head: str
    rope: bool
    words: tuple[str, ...]
    query_at: int  # from 1
    weights: list[list[float]]  # [query][key], each row sums to 1


def head_weights(head: str, query_at: int, sharpness: float, rope: bool = True) -> HeadWeights:
    """Attention weights of one of three heads, whose queries and keys are made by hand.

    Head width 16. "The word before": every key is the same vector and every query too, turned back
    by one position, so that only RoPE tells keys apart. "The same word": one coordinate for each
    word, in the four slow pairs. "All alike": queries of zeros.
    """
    q, k = (torch.zeros(1, 1, len(WORDS), 16, dtype=torch.float64) for _ in range(2))
    if head == "the word before":
        k[..., 0:8:2] = 1.0
        q = rotate(k, -rope_angles(torch.ones(len(WORDS)), 16))
    elif head == "the same word":
        names = sorted(set(WORDS))
        q[..., range(len(WORDS)), [8 + names.index(word) for word in WORDS]] = 1.0
        k = q
    if rope:
        q, k = apply_rope(q, k)
    weights = attention_weights(sharpness * q, k)[0, 0]
    return HeadWeights(head, rope, WORDS, query_at, weights.tolist())


def _mask_off_by_one(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones_like(scores).triu(2).bool(), -torch.inf).softmax(dim=-1)


def _mask_after_softmax(q: Tensor, k: Tensor) -> Tensor:
    return attention_weights(q, k, causal=False).tril()


def _softmax_over_queries(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax(dim=-2)


def _norm_over_positions(norm: RMSNorm, x: Tensor) -> Tensor:
    return x / (x.square().mean(dim=(-2, -1), keepdim=True) + norm.eps).sqrt()


Weights = Callable[[Tensor, Tensor], Tensor]
Normalise = Callable[[RMSNorm, Tensor], Tensor]

# What each fault puts in place of the block's attention weights and of its first norm.
FAULTS: dict[str, tuple[Weights, Normalise]] = {
    "none": (attention_weights, RMSNorm.__call__),
    "no mask": (lambda q, k: attention_weights(q, k, causal=False), RMSNorm.__call__),
    "mask off by one": (_mask_off_by_one, RMSNorm.__call__),
    "mask after softmax": (_mask_after_softmax, RMSNorm.__call__),
    "softmax over queries": (_softmax_over_queries, RMSNorm.__call__),
    "norm over (T, D)": (attention_weights, _norm_over_positions),
}
POSITIONS = 6


@dataclass(frozen=True)
class Causality:
    """How far each output of a block moves when one input position changes (float64).

    `moves[i][j]` is the RMS of output i's move when input j changes; both count from 0. A leak is
    a pair (i, j) with i < j whose output moved, by more than rounding could explain.
    """

    fault: str
    changed: int  # from 1, as people count positions
    moves: list[list[float]]
    leaks: list[tuple[int, int]]


@cache
def _causality_block() -> tuple[TransformerBlock, Tensor]:
    config = ModelConfig(d_model=8, n_heads=2, d_ff=16)
    block, generator = TransformerBlock(config).double(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in block.parameters():
            if weight.ndim == 2:
                weight.normal_(0.0, 0.5, generator=generator)
    return block, torch.randn(POSITIONS, 8, generator=generator, dtype=torch.float64)


@torch.no_grad()
def causality(changed: int, fault: str = "none") -> Causality:
    """Add 5 to one position of six at a time, in a block of width 8 with the given fault."""
    block, x = _causality_block()
    weights, normalise = FAULTS[fault]
    inputs = x.repeat(POSITIONS + 1, 1, 1)  # the last one stays as it is
    inputs[range(POSITIONS), range(POSITIONS)] += 5.0

    attention, read = block.attention, normalise(block.norm1, inputs)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    q, k, v = (split_heads(projection(read), attention.heads) for projection in projections)
    q, k = apply_rope(q, k)
    h = inputs + attention.out_proj(merge_heads(weights(q, k) @ v))
    y = h + block.ffn(block.norm2(h))

    moves = (y[:-1] - y[-1]).square().mean(dim=-1).sqrt().T.tolist()
    above = [(i, j) for i in range(POSITIONS) for j in range(i + 1, POSITIONS)]
    # Not 0: in one large product, equal rows of different inputs may be rounded differently.
    return Causality(fault, changed, moves, [(i, j) for i, j in above if moves[i][j] > 1e-9])
