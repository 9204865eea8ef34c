"""WordTokenizer: one token a word, for the little stories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tiny_lm.shapes import expect_id, fail


class WordTokenizer:
    """One token for each of the given words; `.` and the newline are words too.

    In a text, words stand apart by one blank, and none stands before `.` or around a newline.
    `end` is the word after which a text has ended. Raises ValueError when two words are equal or
    one is not a word, and from encode and decode, for a word or an id that is not known.
    """

    _WORD = re.compile(r"[^\s.]+|[.\n]")

    def __init__(self, words: Sequence[str], end: str | None = None):
        self.vocabulary = list(words)
        self._ids = {word: i for i, word in enumerate(self.vocabulary)}
        who = "WordTokenizer"
        strange = [word for word in self.vocabulary if not self._WORD.fullmatch(word)]
        if strange or not self.vocabulary:
            fail(who, "at least one word, and no blanks in any", repr(strange[:1] or ""))
        if len(self._ids) < len(self.vocabulary):
            fail(who, "words that differ", f"{len(self.vocabulary) - len(self._ids)} twice")
        self.end_id = None if end is None else self.ids([end])[0]

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def split(self, text: str) -> list[str]:
        """The words of a text, known or not."""
        return self._WORD.findall(text)

    def ids(self, words: Iterable[str]) -> list[int]:
        """`T words -> T ids`."""
        words = list(words)
        unknown = next((word for word in words if word not in self._ids), None)
        if unknown is not None:
            fail("WordTokenizer", f"one of the {self.vocab_size} known words", repr(unknown))
        return [self._ids[word] for word in words]

    def words(self, ids: Iterable[int]) -> list[str]:
        """`T ids -> T words`."""
        known = range(self.vocab_size)
        return [self.vocabulary[expect_id("WordTokenizer", i, known)] for i in ids]

    def encode(self, text: str) -> list[int]:
        """The id of each word: `text -> T ids`."""
        return self.ids(self.split(text))

    def decode(self, ids: Iterable[int]) -> str:
        """The words with blanks between them, the inverse of encode: `T ids -> text`."""
        return re.sub(r" (?=[.\n])|(?<=\n) ", "", " ".join(self.words(ids)))

    def to_json(self) -> str:
        end = None if self.end_id is None else self.vocabulary[self.end_id]
        return json.dumps({"kind": "words", "words": self.vocabulary, "end": end})

    def __repr__(self) -> str:
        return f"WordTokenizer({self.vocab_size} words)"
