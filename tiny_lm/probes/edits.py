"""Chapters 07 and 08: the stream of a model by name, and the same model with some of it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tiny_lm.attention import KVCache
from tiny_lm.generate import generate
from tiny_lm.model import TinyLM
from tiny_lm.shapes import expect_same_shape, fail
from tiny_lm.taps import Recorder, Tap, ignore

# A change sees the stream before a sum, the sum, and the positions they belong to; it returns what
# the stream is to be instead: `[B, T, D], [B, T, D], T positions -> [B, T, D]`.
Change = Callable[[Tensor, Tensor, range], Tensor]

DIRECT = ("pre", "sandwich", "bare", "rezero")  # orders in which a stream is a sum of writes


def streams(model: TinyLM | Edited) -> list[str]:
    """The taps of the stream, in order: the embedding, then the sum after each branch.

    Raises ValueError for an order of norms in which the stream is not a sum.
    """
    if model.config.order not in DIRECT:
        fail(
            "streams", f"an order with a free direct path: {', '.join(DIRECT)}", model.config.order
        )
    blocks = range(model.config.n_layers)
    return ["embed", *(f"blocks.{i}.resid.{part}" for i in blocks for part in ("attn", "ffn"))]


def short(name: str) -> str:
    """The short name of a write, from that of its sum: `blocks.3.resid.attn -> attn 3`."""
    _, _, rest = name.partition(".")
    block, _, part = rest.partition(".resid.")
    return f"{part} {block}" if part else name


@torch.no_grad()
def read(model: TinyLM | Edited, ids: Sequence[int]) -> Recorder:
    """Everything that a pass over one text makes, by name: `T ids -> values [1, T, …]`."""
    recorder = Recorder()
    model.features(torch.tensor([list(ids)]), tap=recorder)
    return recorder


def writes(recorded: Mapping[str, Tensor], names: Sequence[str], at: slice | int) -> Tensor:
    """What was added to the stream, name by name: `[M, D]` at one position, or `[M, T, D]`.

    A write is the difference of two consecutive streams, in float64. `names` are all of
    `streams(model)`.
    """
    stack = torch.stack([recorded[name][0, at].double() for name in names])
    return torch.cat([stack[:1], stack.diff(dim=0)])


# Changes


def removed(before: Tensor, value: Tensor, positions: range) -> Tensor:
    """As if the branch had written nothing."""
    return before


def alone(before: Tensor, value: Tensor, positions: range) -> Tensor:
    """What the branch wrote, without the direct path beside it."""
    return value - before


def rounded(before: Tensor, value: Tensor, positions: range) -> Tensor:
    """The sum as bfloat16 would keep it: 8 significant bits."""
    return value.to(torch.bfloat16).to(value.dtype)


def swapped(write: Tensor) -> Change:
    """Another text's write, `[T, D]`, in place of this one's; later positions keep their own."""

    def change(before: Tensor, value: Tensor, positions: range) -> Tensor:
        other = write[positions.start : positions.stop].to(value.dtype)
        known = len(other)
        return torch.cat([before[:, :known] + other, value[:, known:]], dim=1)

    return change


def only(position: int | Sequence[int], change: Change) -> Change:
    """A change at one position, counted from 0; elsewhere the stream stays, bit for bit.

    Several positions are one for each row of a batch.
    """
    place = torch.tensor(position).reshape(-1, 1)  # [B, 1], or [1, 1] for all rows

    def here(before: Tensor, value: Tensor, positions: range) -> Tensor:
        chosen = (place == torch.tensor(list(positions))).to(value.device)
        return torch.where(chosen[..., None], change(before, value, positions), value)

    return here


class Edited:
    """A model whose stream is changed on its way, by name: `tokens [B, T] -> logits [B, T, V]`.

    Its weights are the model's own and stay as they are: every change is made by a Recorder's
    edit. It goes wherever a model that only runs may go: into `generate`, `loss` and `read`.
    Raises ValueError for a name that is not a tap of the stream.
    """

    def __init__(self, model: TinyLM, changes: Mapping[str, Change]):
        self.model, self.config, self.changes = model, model.config, dict(changes)
        names = streams(model)
        self._before = dict(zip(names, [None, *names], strict=False))
        strange = [name for name in self.changes if name not in self._before]
        if strange:
            fail("Edited", f"one of {names[0]}, {names[1]} … {names[-1]}", repr(strange[0]))

    def __call__(self, tokens: Tensor, *, tap: Tap = ignore) -> Tensor:
        return self.logits(self.features(tokens, tap=tap))

    def features(
        self, tokens: Tensor, *, cache: list[KVCache] | None = None, tap: Tap = ignore
    ) -> Tensor:
        """The changed stream after the final norm: `[B, T] -> [B, T, D]`."""
        start = len(cache[0]) if cache else 0
        positions = range(start, start + tokens.shape[1])

        def edit(name: str) -> Callable[[Tensor], Tensor]:
            def apply(value: Tensor) -> Tensor:
                before = self._before[name]  # recorded by now, with the changes made so far
                there = recorder[before] if before else torch.zeros_like(value)
                changed = self.changes[name](there, value, positions)
                expect_same_shape("Edited", value, changed)
                return changed

            return apply

        recorder = Recorder({name: edit(name) for name in self.changes})
        return self.model.features(
            tokens, cache=cache, tap=lambda name, value: tap(name, recorder(name, value))
        )

    def logits(self, features: Tensor) -> Tensor:
        """As the model's own."""
        return self.model.logits(features)

    def new_cache(self) -> list[KVCache]:
        """As the model's own."""
        return self.model.new_cache()


# What a model does, whole or changed


def batches(rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Rows of one length together, `[B, T]`; rows of several lengths one by one."""
    if len({len(row) for row in rows}) == 1:
        return [torch.tensor(rows)]
    return [torch.tensor([row]) for row in rows]


def surprise(logits: Tensor, ids: Tensor) -> float:
    """The sum of −ln p over all next ids, in nats: logits `[B, T, V]` of `ids[:, :-1]`."""
    return float(cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"))


@torch.no_grad()
def loss(model: TinyLM | Edited, rows: Sequence[Sequence[int]]) -> float:
    """The mean surprise at each id after the first of its row, in nats."""
    total = sum(surprise(model(ids[:, :-1]), ids) for ids in batches(rows))
    return total / sum(len(row) - 1 for row in rows)


def write_on(
    model: TinyLM | Edited, ids: Sequence[int], new: int, stop_id: int | None = None
) -> list[int]:
    """The `new` ids that a model goes on with, always the likeliest; fewer after `stop_id`."""
    row = generate(model, torch.tensor([list(ids)]), new, temperature=0, stop_id=stop_id)
    written = row[0, len(ids) :].tolist()
    return written[: written.index(stop_id) + 1] if stop_id in written else written
