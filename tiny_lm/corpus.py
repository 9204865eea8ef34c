"""Something to learn from: little stories whose entropy is known exactly, and real text.

A corpus has a `tokenizer` and numbered rows: `row(number, length, split)` is always the same row,
and there is no last one. That makes a training run repeatable, resumable and divisible among
processes, with nothing to keep but a number.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import islice
from math import isfinite, log
from random import Random
from string import ascii_lowercase
from typing import Protocol
from zlib import crc32

from tiny_lm import grammar
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import CharTokenizer, Tokenizer
from tiny_lm.words import WordTokenizer

SPLITS = ("train", "valid")


class Corpus(Protocol):
    """What training asks of a corpus; rows of "train" and "valid" share nothing but a source."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def row(self, number: int, length: int, split: str = "train") -> list[int]: ...


class Stories:
    """Little stories, told by `tiny_lm.grammar`. A row is a newline, then story after story."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.tokenizer = WordTokenizer(grammar.vocabulary(), end=grammar.END)

    def row(self, number: int, length: int, split: str = "train") -> list[int]:
        """`length` ids, of whole stories up to the last, which may be cut.

        Raises ValueError for a number below 0, a length below 1 and another split.
        """
        _expect_row(number, length, split)
        words = grammar.tell(Random(f"{self.seed} {split} {number}"))
        return self.tokenizer.ids([grammar.END, *islice(words, length - 1)])

    def surprise(self, ids: list[int]) -> list[float]:
        """−log p, in nats, of each id after the first, by the grammar itself: `T ids -> T - 1`.

        Its mean is the loss of a reader who knows the grammar by heart, on just this row.
        """
        words = self.tokenizer.words(ids)
        if words[:1] != [grammar.END]:
            fail("Stories.surprise", "a row that begins with a newline", repr(words[:3]))
        return list(grammar.surprise(words[1:]))

    def floor(self, length: int) -> float:
        """The expected mean of `surprise` over rows of `length` ids, in nats: no loss is lower.

        A little above `grammar.entropy_rate()`, for a row starts where a story does, at its least
        predictable words.
        """
        if length < 2:
            fail("Stories.floor", "length >= 2", length)
        return sum(_expected_surprise(length - 1)) / (length - 1)

    def is_grammatical(self, text: str) -> bool:
        """Whether a text is one whole story or several, and all that they claim holds."""
        words = self.tokenizer.split(text.removeprefix(grammar.END))
        return words[-1:] == [grammar.END] and all(map(isfinite, grammar.surprise(words)))

    def __repr__(self) -> str:
        return f"Stories(seed={self.seed})"


_expected_surprise = lru_cache(grammar.expected_surprise)


class Letters:
    """A chain of letters, each of which has four successors: the quickest thing to learn.

    Wherever the chain is, its next letter is one of four with probabilities 1/2, 1/4, 1/8 and 1/8.
    So the entropy is 1.75 bits a letter, 1.2130 nats, at every place; nothing before the last
    letter helps.
    """

    SHARES = (1 / 2, 3 / 4, 7 / 8, 1.0)
    JUMPS = (0, 1, 3, 7)

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.tokenizer = CharTokenizer(ascii_lowercase + "012345")
        keys = Random(f"{seed} letters")
        self._order = sorted(range(self.tokenizer.vocab_size), key=lambda _: keys.random())

    def row(self, number: int, length: int, split: str = "train") -> list[int]:
        """`length` ids; the first is any letter. Raises ValueError as Stories does."""
        _expect_row(number, length, split)
        random, V = Random(f"{self.seed} {split} {number}"), len(self._order)
        ids = [int(random.random() * V)]
        for _ in range(length - 1):
            jump = self.JUMPS[bisect_right(self.SHARES, random.random())]
            ids.append(self._order[(ids[-1] + jump) % V])
        return ids

    def floor(self, length: int) -> float:
        """The entropy of a letter given the one before, in nats, whatever the length."""
        return 1.75 * log(2)

    def __repr__(self) -> str:
        return f"Letters(seed={self.seed})"


class Text:
    """Windows of one text; its last tenth is for validation. A token is a character by default.

    Raises ValueError for a text too short to divide.
    """

    def __init__(self, text: str, *, tokenizer: Tokenizer | None = None, seed: int = 0):
        self.seed = seed
        self.tokenizer = tokenizer or CharTokenizer(text)
        ids = self.tokenizer.encode(text)
        if len(ids) < 20:
            fail("Text", "a text of at least 20 tokens", len(ids))
        cut = len(ids) * 9 // 10
        self._ids = {"train": ids[:cut], "valid": ids[cut:]}
        self._checksum = crc32(text.encode())

    def row(self, number: int, length: int, split: str = "train") -> list[int]:
        """`length` ids from a place that seed, split and number decide.

        Raises ValueError as Stories does, and for a length the split does not have.
        """
        _expect_row(number, length, split)
        ids = self._ids[split]
        if length > len(ids):
            fail("Text.row", f"at most the {len(ids)} tokens of {split}", length, "a longer text?")
        random = Random(f"{self.seed} {split} {number}")
        start = int(random.random() * (len(ids) - length + 1))
        return ids[start : start + length]

    def __repr__(self) -> str:
        tokens = sum(map(len, self._ids.values()))
        return (
            f"Text({tokens:,} tokens, {self.tokenizer}, crc={self._checksum:08x}, seed={self.seed})"
        )


def manual() -> str:
    """The language reference that every Python carries: half a million characters of real prose.

    It differs a little from one version of Python to the next. Source: `pydoc_data.topics`.
    """
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def _expect_row(number: int, length: int, split: str) -> None:
    who = "Corpus.row"
    if not isinstance(number, int) or number < 0:
        fail(who, "a row number >= 0", repr(number))
    if length < 1:
        fail(who, "length >= 1", length)
    if split not in SPLITS:
        fail(who, f"split one of {', '.join(SPLITS)}", repr(split))
