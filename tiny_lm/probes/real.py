"""Chapter 08: a real model on paragraphs of our own, whole and after operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from tiny_lm.generate import generate
from tiny_lm.model import TinyLM
from tiny_lm.probes.edits import Change, Edited, loss, only, removed
from tiny_lm.probes.streams import Reading
from tiny_lm.probes.surgery import Operation, cut_direct_path, skip_block
from tiny_lm.tokenizer import Tokenizer

DATA = Path(__file__).parents[1] / "data"
CUTS_FILE = DATA / "cuts.json"


def paragraphs() -> dict[str, str]:
    """Four short texts, written for this book, by the name of their kind."""
    parts = (DATA / "paragraphs.txt").read_text(encoding="utf-8").strip().split("\n\n# ")
    return {
        name: text for name, _, text in (part.removeprefix("# ").partition("\n") for part in parts)
    }


def tokens(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The ids of the paragraphs."""
    return {name: tokenizer.encode(text) for name, text in paragraphs().items()}


def perplexity(model: TinyLM | Edited, ids: Sequence[int]) -> float:
    """e to the mean surprise at each id after the first; infinity where that is no number."""
    nats = loss(model, [ids])
    return exp(nats) if nats < 700 else inf  # also for NaN


def after_operations(
    model: TinyLM, operations: Mapping[str, Operation], texts: Mapping[str, Sequence[int]]
) -> dict[str, list[float]]:
    """Perplexity on each text after each operation: `{operation: a number for each text}`."""
    table = {}
    for name, operation in operations.items():
        patient = operation(model)
        table[name] = [perplexity(patient, ids) for ids in texts.values()]
    return table


# One row of the stream, changed


def fixed(coordinate: int, value: float) -> Change:
    """One coordinate of the stream set to a number, whatever the text."""

    def change(before: Tensor, stream: Tensor, positions: range) -> Tensor:
        changed = stream.clone()
        changed[..., coordinate] = value
        return changed

    return change


def only_coordinate(coordinate: int) -> Change:
    """Every coordinate but one set to 0."""

    def change(before: Tensor, stream: Tensor, positions: range) -> Tensor:
        kept = torch.zeros_like(stream)
        kept[..., coordinate] = stream[..., coordinate]
        return kept

    return change


def everywhere_else(position: int) -> Change:
    """The write removed at every position but one."""

    def change(before: Tensor, stream: Tensor, positions: range) -> Tensor:
        keep = torch.tensor([p == position for p in positions])[:, None]
        return torch.where(keep, stream, before)

    return change


def row_changes(coordinate: int, constant: float) -> dict[str, Change]:
    """What to do with a massive activation at the first position, by name."""
    return {
        "as it is": lambda before, stream, positions: stream,
        f"the number := {constant:,.0f}": only(0, fixed(coordinate, constant)),
        "all others of its row := 0": only(0, only_coordinate(coordinate)),
        "the number := 0": only(0, fixed(coordinate, 0.0)),
        "no write, at position 0": only(0, removed),
        "no write, anywhere else": everywhere_else(0),
    }


# A unit that writes a coordinate


@dataclass(frozen=True)
class Unit:
    """One hidden unit of an FFN, and its part of what was written to one coordinate."""

    unit: int
    part: float
    active: list[float]  # by position


@torch.no_grad()
def writers(
    reading: Reading, block: int, coordinate: int, position: int, count: int = 2
) -> list[Unit]:
    """The hidden units that write most to a coordinate at a position, largest part first."""
    part, rows = reading.model.blocks[block], reading.read[f"blocks.{block}.norm2"]
    x = part.norm2(rows)
    hidden = torch.nn.functional.silu(part.ffn.gate_proj(x)) * part.ffn.up_proj(x)  # [T, F]
    parts = hidden[position] * part.ffn.down_proj.weight[coordinate]
    chosen = parts.abs().topk(count).indices.tolist()
    return [Unit(unit, float(parts[unit]), hidden[:, unit].tolist()) for unit in chosen]


# The direct path, block by block, computed beforehand

PARTS: dict[str, Callable[[TinyLM, int], Edited]] = {
    "block skipped": skip_block,
    "direct path cut at attention": lambda model, block: cut_direct_path(model, block, "attn"),
    "direct path cut at FFN": lambda model, block: cut_direct_path(model, block, "ffn"),
}
CUTS_SETTINGS = "SmolLM2-135M-Instruct, float32; perplexity on tiny_lm/data/paragraphs.txt"


@dataclass(frozen=True)
class Cuts:
    """Perplexity on one paragraph, with one kind of cut at each block in turn."""

    kind: str
    paragraph: str
    whole: float
    after: list[float]
    block: int

    @property
    def survived(self) -> int:
        """After how many cuts the perplexity at most doubles."""
        return sum(value <= 2 * self.whole for value in self.after)


def compute_cuts(model: TinyLM, ids: Sequence[int], kind: str, blocks: int) -> list[float]:
    """Perplexity after each cut; first, at index 0, without any."""
    cut = PARTS[kind]
    return [
        perplexity(model, ids),
        *(perplexity(cut(model, block), ids) for block in range(blocks)),
    ]


def cuts_key(kind: str, paragraph: str) -> str:
    """The name of a row in the stored file."""
    return f"{kind}: {paragraph}"


def cuts(kind: str, paragraph: str, block: int = 0) -> Cuts:
    """The stored row of one kind and one paragraph."""
    results = json.loads(CUTS_FILE.read_text(encoding="utf-8"))["results"]
    whole, *after = results[cuts_key(kind, paragraph)]
    return Cuts(kind, paragraph, whole, after, block)


def cuts_table() -> str:
    """The stored rows as text: how many of the cuts each paragraph survives."""
    rows = [cuts(kind, name) for kind in PARTS for name in paragraphs()]
    return "\n".join(
        f"{row.kind:<30}{row.paragraph:<14}{row.whole:>10.4g}  survives {row.survived} of "
        f"{len(row.after)}, worst {max(row.after):.3g}"
        for row in rows
    )


# The cache


@dataclass(frozen=True)
class Written:
    """What was written, and how many positions went through the blocks for it."""

    ids: list[int]
    positions: int


def write(model: TinyLM, ids: Sequence[int], new: int, use_cache: bool) -> Written:
    """The likeliest `new` ids after a prompt, counting the work."""
    fed: list[int] = []
    hook = model.embedding.register_forward_hook(
        lambda _, given, made: fed.append(given[0].numel())
    )
    try:
        row = generate(model, torch.tensor([list(ids)]), new, temperature=0, use_cache=use_cache)
    finally:
        hook.remove()
    return Written(row[0, len(ids) :].tolist(), sum(fed))


@torch.inference_mode()
def step_seconds(model: TinyLM, ids: Sequence[int], repeats: int = 3) -> tuple[float, float]:
    """Seconds to score the token after a text: (with the cache of all but its last, without)."""
    row, cache = torch.tensor([list(ids)]), model.new_cache()
    model.features(row[:, :-1], cache=cache)
    best = [inf, inf]
    for _ in range(repeats):  # in turns, so that both meet the same noise
        for k, (fed, kept) in enumerate(((row[:, -1:], cache), (row, None))):
            start = perf_counter()
            model.logits(model.features(fed, cache=kept)[:, -1])
            best[k] = min(best[k], perf_counter() - start)
    return best[0], best[1]
