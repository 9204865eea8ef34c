"""Chapter 07: what is done to the trained model, to its writes and to its weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log

from tiny_lm import grammar
from tiny_lm.probes import ablation, edits, stories, surgery

TOKENIZER = stories.CORPUS.tokenizer
ROWS = [stories.CORPUS.row(n, 65, "valid") for n in range(8)]
EXACT, HARMLESS = 1e-4, 0.05  # logits; nats a word
PROMPT = "Sam has a white lamp. He meets Lily at the market."


@dataclass(frozen=True)
class Result:
    """A model before and after something was done to it: eight rows, and what it writes."""

    done: str
    loss: float  # nats a word
    before: float
    nothing: float  # the loss of knowing nothing
    text: str  # its first impossible word in brackets
    largest: float | None = None  # change of any logit, where that was measured

    @property
    def verdict(self) -> str:
        """How bad it is, by a fixed rule.

        "exact" changes no logit by 1e-4; "harmless" costs less than 0.05 nats a word; "fatal" costs
        more than half of what the model had learned; anything between "hurts".
        """
        cost = self.loss - self.before
        if cost == 0 or (self.largest is not None and self.largest < EXACT):
            return "exact"
        if cost < HARMLESS:
            return "harmless"
        return "fatal" if cost > (self.nothing - self.before) / 2 else "hurts"


def board(**removed: bool) -> Result:
    """The shipped model without the ticked writes, by their short names."""
    return _board(tuple(name for name, is_removed in removed.items() if is_removed))


@lru_cache
def _board(names: tuple[str, ...]) -> Result:
    model = stories.shipped()
    taps = [tap for tap in edits.streams(model) if edits.short(tap) in names]
    prompt = TOKENIZER.ids([grammar.END, *TOKENIZER.split(PROMPT)])
    found = ablation.ablate(model, ROWS, prompt, taps, new=48, stop_id=TOKENIZER.end_id)
    done = f"without {', '.join(names)}" if names else "nothing removed"
    text = _text(found.written)
    return Result(done, found.loss, found.loss - found.change, log(TOKENIZER.vocab_size), text)


def _text(written: list[int]) -> str:
    return stories.mark_slip(f"{PROMPT} {TOKENIZER.decode(written)}")


OPERATIONS: dict[str, surgery.Operation] = {
    "gains folded into the next matrices": surgery.fold_gains,
    "stream doubled, eps four times": surgery.double_stream,
    "gains folded, stream rotated": surgery.rotate_stream,
    "stream rounded to bfloat16": surgery.bfloat16_stream,
    "LayerNorm for RMSNorm": surgery.layer_norm,
    "no final norm": surgery.no_final_norm,
    "block 2 skipped": lambda model: surgery.skip_block(model, 2),
    "direct path cut at attn 2": lambda model: surgery.cut_direct_path(model, 2),
    "eps 1e-5 → 1e-1": lambda model: surgery.with_eps(model, 0.1),
    "pre-norm → post-norm": surgery.post_norm,
}


@lru_cache
def bench(operation: str) -> Result:
    """One operation on the shipped model."""
    model = stories.shipped()
    prompt = TOKENIZER.ids([grammar.END, *TOKENIZER.split(PROMPT)])
    (found,) = surgery.operate(
        model,
        [(operation, OPERATIONS[operation])],
        ROWS,
        prompt,
        new=48,
        stop_id=TOKENIZER.end_id,
    )
    before, nothing = found.loss - found.change, log(TOKENIZER.vocab_size)
    return Result(operation, found.loss, before, nothing, _text(found.written), found.largest)


# Block by block

WIRINGS = ("attn removed", "ffn removed", "both skipped", "path cut at attn", "path cut at ffn")


@dataclass(frozen=True)
class Wirings:
    """The loss without a branch, and without the direct path beside it: [wiring][block]."""

    names: tuple[str, ...]
    losses: list[list[float]]
    before: float
    nothing: float


def wirings() -> Wirings:
    """Every block of the shipped model with one part taken away, on eight rows."""
    model = stories.shipped()
    blocks, parts = range(model.config.n_layers), ("attn", "ffn")
    gone = [
        [edits.Edited(model, {f"blocks.{i}.resid.{part}": edits.removed}) for i in blocks]
        for part in parts
    ]
    skipped = [surgery.skip_block(model, i) for i in blocks]
    cut = [[surgery.cut_direct_path(model, i, part) for i in blocks] for part in parts]
    losses = [[edits.loss(m, ROWS) for m in row] for row in (*gone, skipped, *cut)]
    return Wirings(WIRINGS, losses, edits.loss(model, ROWS), log(TOKENIZER.vocab_size))


# Two stories that differ in one fact

_START = "Sam has a white lamp. He meets {} at the market. "
PAIRS = {
    "place": (_START + "The lamp is white. They walk to the {}. Now Sam has the white lamp at the",
              ("Lily", "school"), ("Lily", "park")),
    "colour": (_START + "The lamp is white. Sam paints the lamp {}. Now Sam has the",
               ("Lily", "green"), ("Lily", "blue")),
    "who": (_START + "The lamp is white. Sam gives the lamp to {}. Now",
            ("Lily", "Lily"), ("Mia", "Mia")),
}  # fmt: skip
SHOWN = 20  # positions


@dataclass(frozen=True)
class Patched:
    """A map of patches, one of which is looked at."""

    words: list[str]  # ours, at the positions shown
    others: list[str]  # the other story's
    patching: ablation.Patching
    row: int
    column: int
    answers: tuple[str, str]  # ours and theirs
    says: str  # the likeliest word with this patch


def patches(question: str, write: str, word: int) -> Patched:
    """Every write at the last twenty words swapped, one by one; the given one is framed."""
    found, ours, others, answers = _patching(question)
    row = found.names.index(write)
    column = word - 1
    says = TOKENIZER.words([found.likeliest[row][column]])[0]
    return Patched(ours, others, found, row, column, answers, says)


@lru_cache
def _patching(question: str) -> tuple:
    text, *facts = PAIRS[question]
    ours, theirs = ([grammar.END, *TOKENIZER.split(text.format(*fact))] for fact in facts)
    answers = (facts[0][1], facts[1][1])
    places = range(len(ours) - SHOWN, len(ours))
    found = ablation.patching(
        stories.shipped(),
        TOKENIZER.ids(ours),
        TOKENIZER.ids(theirs),
        *TOKENIZER.ids(answers),
        positions=places,
    )
    return found, ours[-SHOWN:], theirs[-SHOWN:], answers
