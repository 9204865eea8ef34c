"""Chapter 04: exercises on attention, heads, RoPE and SwiGLU."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from tiny_lm.attention import attention_weights
from tiny_lm.exercises.core import Exercise
from tiny_lm.rope import rotate


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / sqrt(q.shape[-1])


def _future(scores: Tensor, diagonal: int | None = None) -> Tensor:
    """True where a query must not look; the last query lines up with the last key."""
    queries, keys = scores.shape[-2:]
    shift = keys - queries + 1 if diagonal is None else diagonal
    return torch.ones_like(scores).triu(shift).bool()


def _masked(scores: Tensor, diagonal: int | None = None) -> Tensor:
    return scores.masked_fill(_future(scores, diagonal), -torch.inf)


def _mask_after(q: Tensor, k: Tensor) -> Tensor:
    scores = _scores(q, k)
    return scores.softmax(dim=-1).masked_fill(_future(scores), 0.0)


def _exp_by_hand(q: Tensor, k: Tensor) -> Tensor:
    raw = _masked(_scores(q, k)).exp()
    return raw / raw.sum(dim=-1, keepdim=True)


def _half_split(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _pairs(x: Tensor, angles: Tensor, mix) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack(mix(a, b, angles.cos(), angles.sin()), dim=-1).flatten(-2)


def _attend(weights):
    return lambda q, k, v: weights(q, k) @ v


def _masked_with(constant: float):
    """A finite number where the future should be -inf."""
    return lambda q, k: _scores(q, k).masked_fill(_future(_scores(q, k)), constant).softmax(dim=-1)


_FINITE = "A finite number hides the future only while all other scores are far above it. Here the"
_COLUMN = torch.tensor([[1.0], [3.0]])
_QK = [
    (torch.zeros(2, 1), torch.zeros(2, 1)),
    (_normal(3, 4), _normal(3, 4, seed=1)),
    (_normal(2, 1, 3, 4), _normal(2, 1, 3, 4, seed=1)),
    (_normal(2, 4), _normal(5, 4, seed=1)),
    (200 * torch.ones(2, 4), torch.ones(2, 4)),
    (-200 * torch.ones(2, 4), torch.ones(2, 4)),
]
_QKV = [(*_QK[i], v) for i, v in ((0, _COLUMN), (1, _normal(3, 4, seed=2)), (5, _COLUMN))]
_ANGLES = torch.tensor([[0.0, 0.0], [1.0, 0.01], [2.0, 0.02]])

EXERCISES = (
    Exercise(
        name="causal_weights",
        chapter=4,
        title="Write the causal attention weights",
        difficulty=3,
        minutes=10,
        reference=attention_weights,
        cases=_QK,
        wrong={
            "There is no mask: the future shows.": lambda q, k: _scores(q, k).softmax(dim=-1),
            "The square root of the width is missing below the scores.": (
                lambda q, k: _masked(q @ k.transpose(-2, -1)).softmax(dim=-1)
            ),
            "This divides by the width, not by its square root.": (
                lambda q, k: _masked(q @ k.transpose(-2, -1) / q.shape[-1]).softmax(dim=-1)
            ),
            "The mask lines up the first query with the first key. The last ones belong "
            "together.": (lambda q, k: _masked(_scores(q, k), 1).softmax(dim=-1)),
            "The mask also hides a query's own key, and the first row has nothing left: nan.": (
                lambda q, k: _masked(_scores(q, k), k.shape[-2] - q.shape[-2]).softmax(dim=-1)
            ),
            "The mask comes after the softmax: rows no longer sum to 1, and their "
            "divisor saw the future.": _mask_after,
            "The softmax runs over the queries. Each row must sum to 1, so it runs over the keys, "
            "the last axis.": lambda q, k: _masked(_scores(q, k)).softmax(dim=-2),
            "exp() of a large score overflows; softmax() subtracts the largest.": _exp_by_hand,
            f"{_FINITE} scores are -400: hide it with -inf.": _masked_with(-100.0),
        },
        hints=[
            "Three steps: scores q @ k.transpose(-2, -1) / sqrt(d); -inf where the key lies in the "
            "future; softmax(dim=-1).",
            "With T queries and S keys, torch.ones(T, S).triu(S - T + 1).bool() is True for the "
            "future; scores.masked_fill(that, float('-inf')) hides it.",
        ],
    ),
    Exercise(
        name="split_heads",
        chapter=4,
        title="Split into heads",
        difficulty=2,
        minutes=5,
        reference=lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(1, 2),
        cases=[
            (torch.arange(12.0).view(1, 3, 4), 2),
            (torch.arange(48.0).view(2, 4, 6), 3),
            (torch.arange(8.0).view(1, 2, 4), 2),
        ],
        wrong={
            "Right shape, wrong content: cut the last axis into (H, d), and then swap T and H.": (
                lambda x, heads: x.reshape(x.shape[0], heads, x.shape[1], -1)
            ),
            "This is [B, T, H, d]: the heads must come before the positions.": (
                lambda x, heads: x.unflatten(-1, (heads, -1))
            ),
            "A head must be a run of neighbouring coordinates; this takes every H-th one.": (
                lambda x, heads: x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)
            ),
        },
        hints=["Cut the last axis D into (H, d), giving [B, T, H, d]; then swap axes 1 and 2."],
    ),
    Exercise(
        name="rotate",
        chapter=4,
        title="Turn every pair",
        difficulty=3,
        minutes=8,
        reference=rotate,
        cases=[
            (torch.tensor([[1.0, 2.0, 3.0, 4.0]]), _ANGLES[1:2]),
            (_normal(2, 3, 4), _ANGLES),
        ],
        wrong={
            "This pairs coordinate i with i + d/2. Here the pairs are neighbours.": _half_split,
            "This turns the other way.": lambda x, angles: rotate(x, -angles),
            "Every pair was turned by the first pair's angle.": (
                lambda x, angles: rotate(x, angles[:, :1].expand_as(angles))
            ),
            "The two signs are the same, so this does not turn: lengths change.": (
                lambda x, angles: _pairs(
                    x, angles, lambda a, b, cos, sin: [a * cos - b * sin, a * sin - b * cos]
                )
            ),
            "Each coordinate was multiplied on its own; a turn mixes the two of a pair.": (
                lambda x, angles: _pairs(x, angles, lambda a, b, cos, sin: [a * cos, b * sin])
            ),
        },
        hints=[
            "x[..., 0::2] holds the first of every pair, x[..., 1::2] the second.",
            "(a, b) becomes (a·cos − b·sin, a·sin + b·cos). Put them back in order with "
            "torch.stack([...], dim=-1).flatten(-2).",
        ],
    ),
    Exercise(
        name="cache_positions",
        chapter=4,
        title="Which positions?",
        difficulty=1,
        minutes=2,
        reference=[7, 8, 9],
        wrong={
            "New tokens would seem to stand before the old ones.": [0, 1, 2],
            "Off by one: positions count from 0, so seven stored keys are 0 … 6.": [8, 9, 10],
            "Position 6 is taken: the seven stored keys are 0 … 6.": [6, 7, 8],
        },
        hints=["Seven keys at 0, 1, 2, 3, 4, 5, 6. What comes next?"],
    ),
    Exercise(
        name="kv_heads",
        chapter=4,
        title="Who shares with whom?",
        difficulty=2,
        minutes=3,
        reference=[0, 0, 0, 1, 1, 1],
        wrong={
            "That is repeat, which tiles; neighbours share.": [0, 1, 0, 1, 0, 1],
            "That would be one key/value head for all; there are two.": [0, 0, 0, 0, 0, 0],
            "That is a key/value head for every query head: nothing is shared.": [0, 1, 2, 3, 4, 5],
        },
        hints=["6 / 2 = 3 neighbouring query heads share each key/value head."],
    ),
    Exercise(
        name="leaky_attention",
        chapter=4,
        title="Repair a leak",
        difficulty=2,
        minutes=6,
        reference=_attend(attention_weights),
        cases=_QKV,
        wrong={
            "Still masked after the softmax: the weights' divisor contains future scores.": (
                _attend(_mask_after)
            ),
            "Now there is no mask at all.": _attend(lambda q, k: _scores(q, k).softmax(dim=-1)),
            "A score of 0 is not a weight of 0: exp(0) = 1. Hide the future with -inf.": _attend(
                lambda q, k: _scores(q, k).masked_fill(_future(_scores(q, k)), 0.0).softmax(dim=-1)
            ),
            f"{_FINITE} scores are -400: hide it with -inf.": _attend(_masked_with(-100.0)),
            "The mask hides a query's own key as well.": (
                _attend(lambda q, k: _masked(_scores(q, k), 0).softmax(dim=-1))
            ),
        },
        hints=["Which numbers does the softmax add up? Hide the future before that."],
    ),
)
