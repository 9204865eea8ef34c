"""Chapters 07 and 08: the residual ledger, what each branch wrote and what a logit owes to it.

The final logits are linear in the stream but for one number, the final norm's denominator. Held
fixed, it lets every write have its own part of a logit: `(gain · write / denominator) · row`.
Source: the stream as a sum that branches write to, and reading logits off its parts, Elhage et al.
2021, "A mathematical framework for transformer circuits".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiny_lm.layers import RMSNorm
from tiny_lm.model import TinyLM
from tiny_lm.probes.edits import Edited, short, streams, writes
from tiny_lm.shapes import expect_id, fail


@dataclass(frozen=True)
class Write:
    """One entry of a ledger."""

    tap: str  # of the sum it made
    name: str  # "embed", "attn 0", "ffn 0", …
    size: float  # RMS of what was written
    stream: float  # RMS of the stream after it
    cosine: float  # with the stream it was added to; 0 for the embedding, which is the first
    share: float  # of the target's logit, or of its lead over the other token


@dataclass(frozen=True)
class ResidualLedger:
    """All writes at one position, for one token; computed in float64 from what was recorded."""

    position: int  # from 0
    target: int
    other: int | None  # with another token, shares and logit are leads of the target over it
    entries: list[Write]
    denominator: float  # of the final norm: sqrt(mean(x²) + eps)
    logit: float  # the model's own, in its own dtype
    stream_gap: float  # |sum of writes − last stream| / |last stream|
    logit_gap: float  # |sum of shares − logit|


@torch.no_grad()
def ledger(
    model: TinyLM | Edited,
    recorded: Mapping[str, Tensor],
    position: int,
    target: int,
    other: int | None = None,
) -> ResidualLedger:
    """The ledger of one position, counted from 0, from a recorded pass over one text.

    Raises ValueError for a position or id that is not there, for an order of norms in which the
    stream is not a sum, and for a final norm other than RMSNorm.
    """
    names = streams(model)
    if position not in range(length := recorded["embed"].shape[1]):
        fail("ledger", f"a position 0 … {length - 1}", position)
    written = writes(recorded, names, position)  # [M, D]
    stream = written.cumsum(dim=0)
    last = recorded[names[-1]][0, position].double()
    before = torch.cat([torch.zeros_like(stream[:1]), stream[:-1]])
    direction = _row(model, target) - (0 if other is None else _row(model, other))
    denominator = _denominator(model, last)
    shares = written @ (direction * _gain(model)) / denominator
    features = recorded["norm.final"][0, position]
    logit = float(features @ direction.to(features.dtype))
    entries = [
        Write(name, short(name), *map(float, row))
        for name, *row in zip(
            names, _rms(written), _rms(stream), _cosine(before, written), shares, strict=True
        )
    ]
    return ResidualLedger(
        position=position,
        target=target,
        other=other,
        entries=entries,
        denominator=float(denominator),
        logit=logit,
        stream_gap=float((written.sum(dim=0) - last).norm() / last.norm()),
        logit_gap=abs(float(shares.sum()) - logit),
    )


@torch.no_grad()
def all_shares(
    model: TinyLM | Edited, recorded: Mapping[str, Tensor], targets: Sequence[int]
) -> Tensor:
    """The share of every write in the logit of each position's target: `T targets -> [M, T]`."""
    names = streams(model)
    written = writes(recorded, names, slice(None))  # [M, T, D]
    denominators = _denominator(model, recorded[names[-1]][0].double())  # [T]
    rows = torch.stack([_row(model, target) for target in targets]) * _gain(model)
    return torch.einsum("mtd,td->mt", written, rows) / denominators


def unembedding(model: TinyLM | Edited) -> Tensor:
    """The matrix that scores tokens: `[V, D]`, in the model's own dtype."""
    taught = getattr(model, "model", model)
    return taught.embedding.weight if taught.output is None else taught.output.weight


def final_norm(model: TinyLM | Edited) -> RMSNorm:
    """The final norm. Raises ValueError if it is no RMSNorm."""
    norm = getattr(model, "model", model).norm_final
    if not isinstance(norm, RMSNorm):
        fail("ledger", "a final RMSNorm", type(norm).__name__)
    return norm


def _row(model: TinyLM | Edited, token: int) -> Tensor:
    return unembedding(model)[expect_id("ledger", token, range(model.config.vocab_size))].double()


def _gain(model: TinyLM | Edited) -> Tensor:
    return final_norm(model).scale.double()


def _denominator(model: TinyLM | Edited, last: Tensor) -> Tensor:
    return (last.square().mean(dim=-1) + final_norm(model).eps).sqrt()


def _rms(x: Tensor) -> Tensor:
    return x.square().mean(dim=-1).sqrt()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """Of each pair of rows; 0 where one of them is zero."""
    return (a * b).sum(dim=-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-300)
