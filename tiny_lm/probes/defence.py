"""Chapter 09: a specification, and a design that has to meet it before our eyes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from tiny_lm.config import NORM_NAMES, ORDER_NAMES
from tiny_lm.corpus import Letters
from tiny_lm.initial import INITS
from tiny_lm.probes.designs import Design, start_of
from tiny_lm.probes.training import model_of
from tiny_lm.shapes import fail
from tiny_lm.train import next_token_loss

BLOCKS, STEPS, LR = 24, 6, 0.01  # 24 blocks are 48 layers
SEEDS = (0, 1)  # two: a verdict should not rest on one, nor take long
MOST_SPREAD, MOST_ENTRY, MOST_LOSS, MOST_GAP = 4.0, 16.0, 3.2, 0.05
KNOWN = {"norm": NORM_NAMES, "order": ORDER_NAMES, "init": tuple(INITS)}


@dataclass(frozen=True)
class Defence:
    """What a design did, the worse of two seeds each time.

    `spread`: longest / shortest gradient of a block at the first step; `entry`: the largest entry
    of the stream or of what a norm reads, before training; `loss`: after six steps without warm-up,
    in nats; `gap`: the largest difference between logits in float16 and in float32 after them.
    """

    spread: float
    entry: float
    loss: float
    gap: float

    @property
    def failed(self) -> tuple[str, ...]:
        """The conditions that are not met."""
        limits = {
            "spread": (self.spread, MOST_SPREAD),
            "entry": (self.entry, MOST_ENTRY),
            "loss": (self.loss, MOST_LOSS),
            "gap": (self.gap, MOST_GAP),
        }
        return tuple(name for name, (value, most) in limits.items() if not value <= most)


class Report(str):
    """A verdict on a design in words; two are equal when the same conditions failed."""

    failed: tuple[str, ...]

    def __new__(cls, found: Defence) -> Report:
        text = super().__new__(cls, _words(found))
        text.failed = found.failed
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.failed == other.failed

    def __hash__(self) -> int:
        return hash(self.failed)


def report(design: Mapping[str, str]) -> Report:
    """Run a design, such as {"norm": "rms", "order": "pre", "init": "gpt2"}.

    What is left out is as in the package's default. Raises ValueError for another key or name.
    """
    if not isinstance(design, Mapping):
        fail("defend", "a dict with norm, order and init", repr(design))
    for key, value in design.items():
        if key not in KNOWN:
            fail("defend", f"keys among {', '.join(KNOWN)}", repr(key))
        if value not in KNOWN[key]:
            fail("defend", f"{key} one of {', '.join(KNOWN[key])}", repr(value))
    chosen = {"norm": "rms", "order": "pre", "init": "gpt2"} | dict(design)
    return Report(defend(**chosen))


@lru_cache
def defend(norm: str, order: str, init: str) -> Defence:
    """Build 24 blocks of a design, train them for six steps, and measure, from both seeds."""
    found = [_defend(Design(title="", norm=norm, order=order, init=init), s) for s in SEEDS]
    return Defence(*(max(values) for values in zip(*found, strict=True)))


def _defend(design: Design, seed: int) -> tuple[float, float, float, float]:
    model, corpus = model_of(design.run(blocks=BLOCKS, seed=seed)), Letters(seed)
    rows = torch.tensor([corpus.row(number, 9) for number in range(8 * (STEPS + 1))]).split(8)
    optimizer = AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), fused=True)
    first = start_of(model, rows[0])  # leaves the gradients of the first step behind
    for step in range(STEPS):
        if step:
            next_token_loss(model, rows[step]).backward()
        length = clip_grad_norm_(model.parameters(), 1.0)
        if not length.isfinite():
            return first.spread, first.largest, inf, inf
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        loss = float(next_token_loss(model, rows[-1]))
    return first.spread, first.largest, loss, _gap(model, rows[-1][:, :-1])


@torch.no_grad()
def _gap(model: torch.nn.Module, tokens: Tensor) -> float:
    exact = model(tokens)
    gap = (model.half()(tokens).float() - exact).abs().max()
    return float(gap) if isfinite(gap) else inf


CONDITIONS = {"spread": "1 (gradients)", "entry": "2 (entries)", "loss": "3 (loss)"}
CONDITIONS |= {"gap": "4 (float16)"}


def _words(found: Defence) -> str:
    numbers = (
        f"gradients of the blocks apart by a factor of {found.spread:.2g} (at most "
        f"{MOST_SPREAD:g}), largest entry {found.entry:.2g} (at most {MOST_ENTRY:g}), loss after "
        f"{STEPS} steps {found.loss:.2f} (at most {MOST_LOSS:g}), float16 off by {found.gap:.1g} "
        f"(at most {MOST_GAP:g})"
    )
    missed = ", ".join(CONDITIONS[name] for name in found.failed)
    verdict = f"not met: {missed}" if missed else "meets the specification"
    return f"{verdict}. Measured: {numbers}"
