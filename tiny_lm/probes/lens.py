"""Chapters 07 and 08: the logit lens, the stream read before all blocks have written to it.

The final norm and the output matrix are applied to the stream at every tap, as if the model ended
there. They were trained on the last stream only, so an early reading is a projection, and no proof
of what the model "thinks". Sources: nostalgebraist 2020, "Interpreting GPT: the logit lens";
Belrose et al. 2023, arXiv 2303.08112, train a correction for each layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiny_lm.model import TinyLM
from tiny_lm.probes.edits import Edited, short, streams
from tiny_lm.shapes import fail


@dataclass(frozen=True)
class Reading:
    """What a stream at one tap and position would say if it were the last."""

    tokens: list[int]  # the likeliest, first to last
    probabilities: list[float]  # theirs
    entropy: float  # nats
    surprise: float  # −ln p of the target, nats
    rank: int  # of the target: 1 is the likeliest


@dataclass(frozen=True)
class Lens:
    """Readings by tap and position: `readings[m][t]`."""

    taps: list[str]
    names: list[str]  # "embed", "attn 0", …
    positions: list[int]
    readings: list[list[Reading]]

    def entropies(self) -> list[float]:
        """The mean entropy at each tap, in nats."""
        return [sum(r.entropy for r in row) / len(row) for row in self.readings]

    def surprises(self) -> list[float]:
        """The mean surprise at each tap, in nats: the loss of a model that ended there."""
        return [sum(r.surprise for r in row) / len(row) for row in self.readings]


@torch.no_grad()
def lens(
    model: TinyLM | Edited,
    recorded: Mapping[str, Tensor],
    targets: Sequence[int],
    *,
    positions: Sequence[int] | None = None,
    taps: Sequence[str] | None = None,
    top: int = 5,
) -> Lens:
    """Read a recorded pass at every tap of the stream: one target for each position.

    Only one tap's probabilities, `[positions, V]`, are held at a time. Raises ValueError when
    targets and positions are not as many, and for a tap that was not recorded.
    """
    names = list(taps or streams(model))
    places = list(range(recorded["embed"].shape[1]) if positions is None else positions)
    if len(places) != len(targets):
        fail("lens", f"{len(places)} targets, one for each position", len(targets))
    missing = [name for name in names if name not in recorded]
    if missing:
        fail("lens", "a recorded tap", repr(missing[0]))
    wanted = torch.tensor(list(targets))[:, None]
    final = getattr(model, "model", model).norm_final
    rows = [
        _readings(model.logits(final(recorded[name][0, places])), wanted, top) for name in names
    ]
    return Lens(names, [short(name) for name in names], places, rows)


def _readings(logits: Tensor, wanted: Tensor, top: int) -> list[Reading]:
    """`[T, V], [T, 1] -> T readings`."""
    log_p = logits.double().log_softmax(dim=-1)
    best = log_p.topk(min(top, log_p.shape[-1]), dim=-1)
    found = log_p.gather(-1, wanted)
    p = log_p.exp()
    columns = (
        best.indices.tolist(),
        best.values.exp().tolist(),
        torch.special.entr(p).sum(dim=-1).tolist(),
        (-found[:, 0]).tolist(),
        (1 + (log_p > found).sum(dim=-1)).tolist(),
    )
    return [Reading(*values) for values in zip(*columns, strict=True)]
