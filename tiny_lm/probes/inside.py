"""Chapter 07: the trained model on the little stories, and what its labs ask of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tiny_lm import grammar
from tiny_lm.probes import ablation, attribution, edits, lens, stories
from tiny_lm.taps import Recorder

TOKENIZER = stories.CORPUS.tokenizer
KINDS = {"who": 0, "colour": 3, "place": 7}  # words after "Now"
NAMED = (*grammar.NAMES, *grammar.COLOURS, *grammar.THINGS, *grammar.PLACES)
NEXT, NOTHING = "the word that comes", "no other word"


def story(number: int) -> list[str]:
    """The words of the first story of a validation row, the ends before and after it too."""
    words = TOKENIZER.words(stories.CORPUS.row(number, stories.LONGEST + 2, "valid"))
    return words[: words.index(grammar.END, 1) + 1]


@lru_cache(maxsize=64)
def recorded(number: int) -> Recorder:
    """What the shipped model makes of a story, by name, in float64."""
    return edits.read(stories.shipped(), TOKENIZER.ids(story(number)))


# Questions that the last sentence answers


@dataclass(frozen=True)
class Question:
    """A story as far as a word that has to be remembered."""

    number: int
    words: list[str]  # the first is the end of another story
    right: str
    other: str  # what was true before, or of somebody else
    at: int  # where the answer stood last

    @property
    def case(self) -> ablation.Case:
        """The question as ids."""
        right, other = TOKENIZER.ids([self.right, self.other])
        return TOKENIZER.ids(self.words), right, other


def questions(kind: str, count: int) -> list[Question]:
    """The first stories in which who, colour or place could be mixed up: something changed."""
    found, number = [], 0
    while len(found) < count:
        words = story(number)
        asked = words.index("Now") + 1 + KINDS[kind]
        right, read = words[asked], words[:asked]
        known = {"who": grammar.NAMES, "colour": grammar.COLOURS, "place": grammar.PLACES}[kind]
        others = [word for word in read[: words.index("Now")] if word in known and word != right]
        if others:
            at = max(i for i, word in enumerate(read) if word == right)
            found.append(Question(number, read, right, others[0], at))
        number += 1
    return found


def heads_on_answer(kind: str, count: int = 64) -> list[list[float]]:
    """How much each head takes, just before the answer, from where it stood last: [block][head]."""
    model = stories.shipped()
    blocks, heads = model.config.n_layers, model.config.n_heads
    total = [[0.0] * heads for _ in range(blocks)]
    for question in questions(kind, count):
        read = edits.read(model, TOKENIZER.ids(question.words))
        for block in range(blocks):
            weights = read[f"blocks.{block}.attn.weights"][0, :, -1, question.at]
            for head, weight in enumerate(weights.tolist()):
                total[block][head] += weight / count
    return total


# Labs: the ledger and the lens


def ledger(
    number: int, after: int, target: str = NEXT, other: str = NOTHING
) -> attribution.Account:
    """The ledger of a story after so many words (at most all), for one word, or its lead."""
    words = story(number)
    position = min(after, len(words) - 2)
    target = words[position + 1] if target == NEXT else target
    against = None if other in (NOTHING, target) else other
    ids = TOKENIZER.ids([target, *([against] if against else [])])
    found = attribution.ledger(stories.shipped(), recorded(number), position, *ids)
    read = " ".join(words[max(1, position - 4) : position + 1]).replace(" .", ".")
    return attribution.Account(found, f"… {read}" if position > 5 else read, target, against)


@dataclass(frozen=True)
class LensMap:
    """A logit lens in words: what the stream at each tap and position would say."""

    names: list[str]
    first: int  # number of the first word shown, from 1
    read: list[str]  # the words read
    comes: list[str]  # the words that come
    says: list[list[str]]  # [tap][position], the likeliest
    probability: list[list[float]]  # its
    settled: list[int]  # per position, the first tap from which on the word that comes is likeliest


COLUMNS = 9


def lens_map(number: int, first: int) -> LensMap:
    """Nine words of a story through the lens, from the given one on."""
    words = story(number)
    start = min(first, len(words) - 1 - COLUMNS)
    places = range(start, start + COLUMNS)
    comes = [words[p + 1] for p in places]
    ids = TOKENIZER.ids(comes)
    found = lens.lens(stories.shipped(), recorded(number), ids, positions=places, top=1)
    right = [[r.tokens[0] == i for r, i in zip(row, ids, strict=True)] for row in found.readings]
    return LensMap(
        names=found.names,
        first=start,
        read=[words[p] for p in places],
        comes=comes,
        says=[TOKENIZER.words(r.tokens[0] for r in row) for row in found.readings],
        probability=[[r.probabilities[0] for r in row] for row in found.readings],
        settled=[_settled([row[c] for row in right]) for c in range(COLUMNS)],
    )


def _settled(right: list[bool]) -> int:
    """How many taps pass before all that follow are right."""
    wrong = [m for m, is_right in enumerate(right) if not is_right]
    return wrong[-1] + 1 if wrong else 0


@dataclass(frozen=True)
class ByDepth:
    """Many texts through the lens: means at each tap, in nats."""

    names: list[str]
    entropy: list[float]  # how unsure the reading is
    surprise: list[float]  # at the words that really come: the loss of a model that ended here
    loss: float  # of the whole model


def by_depth(rows: int = 16, length: int = 65) -> ByDepth:
    """Entropy and loss of a model that ended early, on validation rows."""
    model, found = stories.shipped(), []
    for n in range(rows):
        ids = stories.CORPUS.row(n, length, "valid")
        found.append(lens.lens(model, edits.read(model, ids[:-1]), ids[1:], top=1))
    mean = lambda columns: [sum(column) / rows for column in zip(*columns, strict=True)]  # noqa: E731
    surprise = mean(each.surprises() for each in found)
    return ByDepth(found[0].names, mean(e.entropies() for e in found), surprise, surprise[-1])


# Labs: one head


@dataclass(frozen=True)
class HeadOnStory:
    """What one word takes from each word of a story, in one head."""

    block: int
    head: int
    words: list[str]  # without the end before the story
    at: int  # number of the word that looks, from 1
    weights: list[float]  # as many as `at`
    before: float  # taken from the end before the story


def head(number: int, block: int, head: int, word: int) -> HeadOnStory:
    """The attention weights of one head of the shipped model, from one word of a story."""
    words = story(number)
    at = min(word, len(words) - 1)
    weights = recorded(number)[f"blocks.{block}.attn.weights"][0, head, at, : at + 1].tolist()
    return HeadOnStory(block, head, words[1:], at, weights[1:], weights[0])
