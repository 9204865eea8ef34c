"""Chapters 07 and 08: take a write away, or swap it with another text's, and see what changes.

Everything is done by a Recorder's edit; no weight is touched. What a write adds to a logit (its
share in the ledger) and what its removal changes are two things: later branches read it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tiny_lm.model import TinyLM
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


@dataclass(frozen=True)
class Removal:
    """How much the loss of many texts rises without one write, in nats a token."""

    tap: str
    name: str
    direct: float  # the write is missing in the last stream alone: only the output does without
    total: float  # it is missing from its place on: every later branch does without, too


@torch.no_grad()
def removals(model: TinyLM, rows: Sequence[Sequence[int]]) -> list[Removal]:
    """Each write of the model removed in turn, at all positions."""
    names, count = streams(model), sum(len(row) - 1 for row in rows)
    own, direct = loss(model, rows), [0.0] * len(names)
    for row in rows:
        recorded, ids = read(model, row[:-1]), torch.tensor([row])
        last = recorded[names[-1]]
        for m, write in enumerate(writes(recorded, names, slice(None))):
            without = model.norm_final(last - write.to(last.dtype))
            direct[m] += surprise(model.logits(without), ids) / count
    total = [loss(Edited(model, {name: removed}), rows) for name in names]
    return [
        Removal(name, short(name), alone - own, everywhere - own)
        for name, alone, everywhere in zip(names, direct, total, strict=True)
    ]


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

    def leads(edited: TinyLM | Edited, text: Sequence[int], count: int) -> list[float]:
        last = edited.features(torch.tensor([list(text)] * count))[:, -1]
        logits = edited.logits(last)
        return (logits[:, other_answer] - logits[:, answer]).tolist()

    (ours,), (theirs,) = leads(model, ids, 1), leads(model, others, 1)
    if ours == theirs:
        fail("patching", "two texts that the model answers differently", f"{ours:g} in both")
    written = dict(zip(names, writes(read(model, others), names, slice(None)), strict=True))
    chosen = list(taps or names)
    moved = [
        [
            (lead - ours) / (theirs - ours)
            for lead in leads(
                Edited(model, {name: only(places, swapped(written[name]))}), ids, len(places)
            )
        ]
        for name in chosen
    ]
    return Patching(chosen, [short(name) for name in chosen], places, ours, theirs, moved)
