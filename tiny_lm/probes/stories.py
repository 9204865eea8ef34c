"""Chapter 06: how surprising the little stories are, to the grammar and to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from math import isfinite, sqrt
from statistics import fmean, stdev

import torch
from torch.nn.functional import cross_entropy

from tiny_lm import grammar, pretrained
from tiny_lm.corpus import Stories
from tiny_lm.generate import generate
from tiny_lm.model import TinyLM

CORPUS = Stories()
LONGEST = 59  # words of the longest story
DECIDED = 1e-9  # nats: below, a word could not have been another


# What a model writes


def tell(model: TinyLM, count: int, seed: int = 0) -> list[str]:
    """`count` texts drawn from a model, each up to its first newline or one word too many."""
    tokenizer = CORPUS.tokenizer
    prompts = torch.full((count, 1), tokenizer.end_id)  # a row begins with a newline
    rows = generate(model, prompts, LONGEST + 1, seed=seed, stop_id=tokenizer.end_id).tolist()
    return [_first_story(tokenizer.decode(row[1:])) for row in rows]


def grammatical_share(texts: Sequence[str]) -> float:
    """The part of the texts that are whole stories, all of whose claims hold."""
    return sum(map(CORPUS.is_grammatical, texts)) / len(texts)


def words_before_a_slip(text: str) -> int:
    """How many words stand before the first that no story has there."""
    words = CORPUS.tokenizer.split(text)
    return sum(1 for _ in takewhile(isfinite, grammar.surprise(words)))


def mark_slip(text: str) -> str:
    """The text with its first impossible word in brackets; as it is when there is none."""
    words = CORPUS.tokenizer.split(text)
    good = words_before_a_slip(text)
    if good < len(words):
        words[good] = f"[{words[good]}]".replace("\n", "END")
    return " ".join(words).replace(" .", ".").strip()


def _first_story(text: str) -> str:
    story, end, _ = text.partition("\n")
    return story + end


# Surprise, word by word


@dataclass(frozen=True)
class Surprises:
    """A story by sentences, and −log p of each word in nats: by the grammar, and by a model."""

    number: int
    words: list[list[str]]
    grammar: list[list[float]]
    model: list[list[float]]  # empty without a model


def surprises(number: int, model: TinyLM | None = None) -> Surprises:
    """The first story of a validation row, word by word."""
    ids = CORPUS.row(number, LONGEST + 1, "valid")
    words = CORPUS.tokenizer.words(ids)[1:]
    length = words.index(grammar.END) + 1
    known = list(grammar.surprise(words[:length]))
    learned = model_surprise(model, ids)[:length] if model else []
    ends = [i + 1 for i, word in enumerate(words[:length]) if word == "."]
    ends[-1] = length  # the newline belongs to the last sentence
    cut = lambda values: [values[a:b] for a, b in zip([0, *ends], ends, strict=False)]  # noqa: E731
    return Surprises(number, cut(words), cut(known), cut(learned) if learned else [])


def model_surprise(model: TinyLM, ids: Sequence[int]) -> list[float]:
    """−log p of each id after the first, by a model: `T ids -> T - 1`, in nats."""
    row = torch.tensor([ids])
    with torch.no_grad():
        logits = model(row[:, :-1])[0]
    return cross_entropy(logits, row[0, 1:], reduction="none").tolist()


@lru_cache
def shipped() -> TinyLM:
    """The trained model that comes with the package, in float64."""
    model, _ = pretrained.load("stories", dtype=torch.float64)
    return model


@dataclass(frozen=True)
class Estimate:
    """The mean of independent values, and its standard error."""

    mean: float
    error: float


def estimate_floor(length: int, rows: int = 200) -> Estimate:
    """The grammar's mean surprise over many rows of `length` ids, in nats a word."""
    each = [fmean(CORPUS.surprise(CORPUS.row(number, length))) for number in range(rows)]
    return Estimate(fmean(each), stdev(each) / sqrt(rows))


# Where the gap between a model and the grammar lies

KINDS: dict[str, Callable[[list[str], int, float], bool]] = {
    "last sentence: who": lambda sentence, i, nats: sentence[0] == "Now" and i == 1,
    "last sentence: colour": lambda sentence, i, nats: sentence[0] == "Now" and i == 4,
    "last sentence: thing": lambda sentence, i, nats: sentence[0] == "Now" and i == 5,
    "last sentence: place": lambda sentence, i, nats: sentence[0] == "Now" and i == 8,
    "decided elsewhere": lambda sentence, i, nats: nats < DECIDED,
    "free to be chosen": lambda sentence, i, nats: True,
}


@dataclass(frozen=True)
class Gap:
    """How much more a kind of word surprises the model than the grammar, in nats a word."""

    kind: str
    words: int
    mean: float  # over the words of this kind
    share: float  # of the whole gap


def gap_by_kind(model: TinyLM, rows: int = 40) -> list[Gap]:
    """The gap of a model on the first story of each validation row, kind by kind."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rows):
        story = surprises(number, model)
        for words, known, learned in zip(story.words, story.grammar, story.model, strict=True):
            for i, (nats, models) in enumerate(zip(known, learned, strict=True)):
                kind = next(kind for kind, fits in KINDS.items() if fits(words, i, nats))
                found[kind].append(models - nats)
    total = sum(map(sum, found.values()))
    return [Gap(k, len(gaps), fmean(gaps), sum(gaps) / total) for k, gaps in found.items()]


@dataclass(frozen=True)
class Places:
    """The expected surprise at each place of a row, their running mean, and the entropy rate."""

    expected: list[float]
    running: list[float]  # the floor of a row that ends here
    rate: float


def places(count: int = 96) -> Places:
    """What the grammar expects at the first `count` places of a row, in nats."""
    expected = grammar.expected_surprise(count)
    running = [total / (i + 1) for i, total in enumerate(accumulate(expected))]
    return Places(expected, running, grammar.entropy_rate())
