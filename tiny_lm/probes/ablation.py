"""Chapters 07 and 08: take a write away, or swap it with another text's, and see what changes.

Everything is done by a Recorder's edit; no weight is touched. What a write adds to a logit (its
share in the ledger) and what its removal changes are two things: later branches read it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiny_lm.model import TinyLM
from tiny_lm.probes.attribution import final_gain, unembedding
from tiny_lm.probes.edits import (
    Edited,
    loss,
    only,
    read,
    removed,
    short,
    streams,
    surprise,
    swapped,
    write_on,
    writes,
)
from tiny_lm.shapes import fail
from tiny_lm.taps import Recorder, Tap, ignore


@dataclass(frozen=True)
class Removal:
    """How much the loss of many texts rises without one write, in nats a token."""

    tap: str
    name: str
    direct: float  # the write is missing in the last stream alone: only the output does without
    total: float  # it is missing from its place on: every later branch does without, too


@torch.no_grad()
def removals(
    model: TinyLM, rows: Sequence[Sequence[int]], taps: Sequence[str] | None = None
) -> list[Removal]:
    """Each write of the model, or each of some, removed in turn at all positions."""
    names, count = streams(model), sum(len(row) - 1 for row in rows)
    chosen = list(taps or names)
    own, direct = loss(model, rows), dict.fromkeys(chosen, 0.0)
    for row in rows:
        recorded, ids = read(model, row[:-1]), torch.tensor([row])
        last = recorded[names[-1]]
        written = dict(zip(names, writes(recorded, names, slice(None)), strict=True))
        for name in chosen:
            without = model.norm_final(last - written[name].to(last.dtype))
            direct[name] += surprise(model.logits(without), ids) / count
    total = {name: loss(Edited(model, {name: removed}), rows) for name in chosen}
    return [Removal(name, short(name), direct[name] - own, total[name] - own) for name in chosen]


Case = tuple[Sequence[int], int, int]  # a text, the token that should follow, another one


@dataclass(frozen=True)
class Compared:
    """One write in many texts: what it adds to a lead, and what the lead loses without it."""

    tap: str
    name: str
    share: float  # mean, logits: its part of the target's lead over the other token
    drop: float  # mean, logits: by how much the lead is smaller when the write is removed


@torch.no_grad()
def compare(
    model: TinyLM, cases: Sequence[Case], taps: Sequence[str] | None = None
) -> list[Compared]:
    """Attribution beside causation, for every write or some, over many texts.

    Writes are removed at all positions. Shorter texts are filled up behind their end, which no
    earlier position can see.
    """
    names, longest = streams(model), max(len(ids) for ids, _, _ in cases)
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text, _, _ in cases])
    rows, ends = torch.arange(len(cases)), torch.tensor([len(text) - 1 for text, _, _ in cases])
    matrix = unembedding(model)
    direction = torch.stack([matrix[target] - matrix[other] for _, target, other in cases]).double()

    def leads(changed: TinyLM | Edited, tap: Tap = ignore) -> Tensor:
        features = changed.features(ids, tap=tap)[rows, ends]
        return (features.double() * direction).sum(dim=-1)

    own = leads(model, recorder := Recorder())
    last = {name: recorder[name][rows, ends][None] for name in names}  # as one text of B positions
    written = writes(last, names, slice(None))  # [M, B, D]
    shares = (written * direction * final_gain(model, last[names[-1]][0])).sum(dim=-1)
    del recorder
    found = []
    for name, share in zip(names, shares, strict=True):
        if taps is None or name in taps:
            drop = own - leads(Edited(model, {name: removed}))
            found.append(Compared(name, short(name), float(share.mean()), float(drop.mean())))
    return found


@dataclass(frozen=True)
class Ablation:
    """A model without some of its writes: its loss, and what it writes then."""

    taps: list[str]
    loss: float  # nats a token
    change: float  # against the whole model
    written: list[int]


def ablate(
    model: TinyLM,
    rows: Sequence[Sequence[int]],
    prompt: Sequence[int],
    taps: Sequence[str],
    *,
    new: int = 40,
    stop_id: int | None = None,
    at: int | None = None,
) -> Ablation:
    """Remove several writes, at all positions or at one, counted from 0."""
    change = removed if at is None else only(at, removed)
    edited = Edited(model, dict.fromkeys(taps, change))
    after = loss(edited, rows)
    written = write_on(edited, prompt, new, stop_id)
    return Ablation(list(taps), after, after - loss(model, rows), written)


@dataclass(frozen=True)
class Patching:
    """How far each write, taken from another text, moves the answer at the last position."""

    taps: list[str]
    names: list[str]
    positions: list[int]
    ours: float  # lead, in logits, of the other text's answer over ours: in our text
    theirs: float  # and in the other text
    moved: list[list[float]]  # [M][positions]: 0 stays as it was, 1 all the way to the other
    likeliest: list[list[int]]  # [M][positions]: the token that would be written then


@torch.no_grad()
def patching(
    model: TinyLM,
    ids: Sequence[int],
    others: Sequence[int],
    answer: int,
    other_answer: int,
    *,
    taps: Sequence[str] | None = None,
    positions: Sequence[int] | None = None,
) -> Patching:
    """Swap one write at one position with that of another text of as many tokens.

    Raises ValueError for texts of different lengths, and where both have the same lead.
    """
    if len(ids) != len(others):
        fail("patching", f"a text of {len(ids)} tokens", len(others))
    names, places = streams(model), list(range(len(ids)) if positions is None else positions)

    def ask(edited: TinyLM | Edited, text: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        last = edited.features(torch.tensor([list(text)] * count))[:, -1]
        logits = edited.logits(last)
        return logits[:, other_answer] - logits[:, answer], logits.argmax(dim=-1)

    ours, theirs = (float(ask(model, text, 1)[0]) for text in (ids, others))
    if ours == theirs:
        fail("patching", "two texts that the model answers differently", f"{ours:g} in both")
    written = dict(zip(names, writes(read(model, others), names, slice(None)), strict=True))
    chosen = list(taps or names)
    moved, likeliest = [], []
    for name in chosen:
        patched = Edited(model, {name: only(places, swapped(written[name]))})
        lead, first = ask(patched, ids, len(places))
        moved.append(((lead - ours) / (theirs - ours)).tolist())
        likeliest.append(first.tolist())
    shorts = [short(name) for name in chosen]
    return Patching(chosen, shorts, places, ours, theirs, moved, likeliest)
