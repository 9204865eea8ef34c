"""What one text does inside any model: its stream, what every norm reads, who looks at whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import torch
from torch import Tensor

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.model import TinyLM
from tiny_lm.taps import Recorder

# As Sun et al. 2024, arXiv 2402.17762, define a massive activation: above 100, and a thousand times
# the median entry of the stream in the same place.
MASSIVE, TIMES_THE_MEDIAN = 100.0, 1000.0


@dataclass(frozen=True)
class Reading:
    """A text of T tokens as it went through a model, in float32.

    `stream[k]` is the stream `[T, D]` at `taps[k]`: after the embedding and after each addition.
    `read` holds what every norm read, by the name of the module: `[T, D]`.
    `weights[i]` are the attention weights of block i, `[H, T, T]`.
    """

    model: TinyLM
    ids: list[int]
    words: list[str]
    taps: list[str]
    stream: Tensor  # [taps, T, D]
    read: dict[str, Tensor]
    weights: Tensor  # [blocks, H, T, T]
    logits: Tensor  # [T, V]

    @cached_property
    def rms(self) -> Tensor:
        """Size of the stream: `[taps, T]`."""
        return self.stream.double().square().mean(dim=-1).sqrt()


def norms(model: TinyLM) -> dict[str, RMSNorm | LayerNorm]:
    """Every norm of a model by name, such as `blocks.0.norm1`."""
    kinds = (RMSNorm, LayerNorm)
    return {name: part for name, part in model.named_modules() if isinstance(part, kinds)}


@torch.no_grad()
def read(model: TinyLM, ids: Sequence[int], words: Sequence[str] = ()) -> Reading:
    """Run a model on one text and keep what happened: `T ids -> Reading`.

    `words` are the tokens as text, to be shown; without them their ids are. Raises ValueError as
    the model does for ids it does not have.
    """
    tap, inputs = Recorder(), {}

    def keep(name: str) -> object:
        return lambda module, given: inputs.update({name: given[0][0].float()})

    # Hooks and not taps: in each order of norms something else is read.
    hooks = [norm.register_forward_pre_hook(keep(name)) for name, norm in norms(model).items()]
    try:
        logits = model(torch.tensor([list(ids)], dtype=torch.long), tap=tap)
    finally:
        for hook in hooks:
            hook.remove()
    taps = [name for name in tap if name == "embed" or ".resid." in name]
    weights = [value[0].float() for name, value in tap.items() if name.endswith("attn.weights")]
    return Reading(
        model=model,
        ids=list(ids),
        words=list(words) or [str(i) for i in ids],
        taps=taps,
        stream=torch.stack([tap[name][0].float() for name in taps]),
        read=inputs,
        weights=torch.stack(weights),
        logits=logits[0].float(),
    )


# Large entries


@dataclass(frozen=True)
class Entry:
    """One number of the stream. `times` is its size over that of the median entry at its tap."""

    tap: str
    position: int
    coordinate: int
    value: float
    times: float


def largest(reading: Reading, tap: str, count: int = 1) -> list[Entry]:
    """The largest entries of the stream at one tap, without regard to sign, largest first."""
    sizes = reading.stream[reading.taps.index(tap)].abs()
    width, middle = sizes.shape[-1], _median(sizes)
    found = []
    for place in sizes.flatten().topk(min(count, sizes.numel())).indices.tolist():
        position, coordinate = divmod(place, width)
        found.append(_entry(reading, tap, position, coordinate, middle))
    return found


def _entry(reading: Reading, tap: str, position: int, coordinate: int, middle: float) -> Entry:
    value = float(reading.stream[reading.taps.index(tap), position, coordinate])
    return Entry(tap, position, coordinate, value, abs(value) / middle if middle else float("inf"))


def _median(sizes: Tensor) -> float:
    return float(sizes.median())  # the lower one of the two in the middle


@dataclass(frozen=True)
class Massive:
    """A massive activation: a position, a coordinate, and the taps between which it is one."""

    position: int
    coordinate: int
    since: str
    until: str
    peak: Entry
    companions: list[Entry]  # other entries of the row above MASSIVE, where it is largest


def massive(reading: Reading) -> list[Massive]:
    """Entries above 100 and a thousand times the median of their tap, joined over taps."""
    places: dict[tuple[int, int], list[Entry]] = {}
    for tap, stream in zip(reading.taps, reading.stream, strict=True):
        sizes = stream.abs()
        middle = _median(sizes)
        there = (sizes > MASSIVE) & (sizes >= TIMES_THE_MEDIAN * middle)
        for position, coordinate in there.nonzero().tolist():
            entry = _entry(reading, tap, position, coordinate, middle)
            places.setdefault((position, coordinate), []).append(entry)
    found = []
    for (position, coordinate), entries in places.items():
        peak = max(entries, key=lambda entry: abs(entry.value))
        since, until = entries[0].tap, entries[-1].tap
        others = _companions(reading, peak)
        found.append(Massive(position, coordinate, since, until, peak, others))
    return sorted(found, key=lambda one: -abs(one.peak.value))


def _companions(reading: Reading, peak: Entry) -> list[Entry]:
    row = reading.stream[reading.taps.index(peak.tap), peak.position].abs()
    order = [c for c in row.argsort(descending=True).tolist() if row[c] > MASSIVE]
    middle = abs(peak.value) / peak.times
    others = [c for c in order if c != peak.coordinate]
    return [_entry(reading, peak.tap, peak.position, c, middle) for c in others]


# Gains and eps


@dataclass(frozen=True)
class Gain:
    """The gains of one norm, without their signs."""

    norm: str
    least: float
    median: float
    most: float


def gains(model: TinyLM) -> list[Gain]:
    """Smallest, middle and largest gain of every norm."""
    found = []
    for name, norm in norms(model).items():
        scale = norm.scale.detach().abs().double().tolist()
        found.append(Gain(name, min(scale), median(scale), max(scale)))
    return found


def eps_share(reading: Reading) -> dict[str, list[float]]:
    """eps over the mean square of each row that a norm reads: `{norm: T numbers}`.

    LayerNorm subtracts the mean first. A row of zeros has infinity.
    """
    shares = {}
    for name, norm in norms(reading.model).items():
        rows = reading.read[name].double()
        if isinstance(norm, LayerNorm):
            rows = rows - rows.mean(dim=-1, keepdim=True)
        shares[name] = (norm.eps / rows.square().mean(dim=-1)).tolist()
    return shares


# Attention


@dataclass(frozen=True)
class Sinks:
    """How much of each head's attention goes to the first position, over all later queries."""

    shares: list[list[float]]  # [block][head]
    equal: float  # what weights that are all alike would give

    @property
    def mean(self) -> float:
        return sum(map(sum, self.shares)) / sum(map(len, self.shares))


def sinks(reading: Reading) -> Sinks:
    """The share of the first position; a text of one token has no later query: all zeros."""
    T = len(reading.ids)
    if T == 1:
        return Sinks(torch.zeros(reading.weights.shape[:2]).tolist(), 0.0)
    shares = reading.weights[:, :, 1:, 0].double().mean(dim=-1)
    return Sinks(shares.tolist(), sum(1 / (t + 1) for t in range(1, T)) / (T - 1))
