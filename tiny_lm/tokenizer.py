"""Tokenizers: text to whole numbers and back, by character, by word or by byte pairs.

All kinds have `encode`, `decode`, `vocab_size`, `end_id` and `to_json`; `from_json` makes any
of them again from its text. The package `tokenizers` is imported only when byte pairs are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from tiny_lm.extras import need
from tiny_lm.shapes import expect_id, fail
from tiny_lm.words import WordTokenizer

LARGEST_ID = 10_000_000  # vocabularies have a few hundred thousand tokens at most


class Tokenizer(Protocol):
    """What the rest of the package asks of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def end_id(self) -> int | None: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def to_json(self) -> str: ...


class CharTokenizer:
    """One token for every different character of `text`, in alphabetical order.

    Raises ValueError when `text` is empty, and from encode and decode, for a character or an id
    that is not in the vocabulary.
    """

    end_id = None

    def __init__(self, text: str):
        self.characters = "".join(sorted(set(text)))
        if not self.characters:
            fail("CharTokenizer", "a text with at least one character", repr(text))
        self._ids = {character: i for i, character in enumerate(self.characters)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """The id of each character: `text -> list of T ids`."""
        unknown = next((character for character in text if character not in self._ids), None)
        if unknown is not None:
            known = f"one of the {self.vocab_size} known characters"
            fail("CharTokenizer", known, repr(unknown))
        return [self._ids[character] for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The characters side by side, the inverse of encode: `T ids -> text`."""
        known = range(self.vocab_size)
        return "".join(self.characters[expect_id("CharTokenizer", i, known)] for i in ids)

    def to_json(self) -> str:
        return json.dumps({"kind": "characters", "characters": self.characters})

    def __repr__(self) -> str:
        return f"CharTokenizer({self.vocab_size} characters)"


class BytePairTokenizer:
    """Byte-pair encoding by the `tokenizers` library, trained here or read from a file.

    Every text can be encoded. Special tokens written out in the text, such as `<|im_start|>`, are
    recognised, and decode shows them. `end_id` is the token after which a text has ended, None if
    there is none. Source: Sennrich, Haddow and Birch 2016, arXiv 1508.07909.
    """

    def __init__(self, tokenizer: Any, end_id: int | None = None):
        self._tokenizer, self.end_id = tokenizer, end_id
        if end_id is not None:
            expect_id("BytePairTokenizer", end_id, range(self.vocab_size))

    @classmethod
    def train(cls, text: str, vocab_size: int, *, special: Sequence[str] = ()) -> BytePairTokenizer:
        """Start from the 256 bytes and merge the most frequent pair until `vocab_size` tokens.

        `special` tokens come first; the first of them is `end_id`. A short text may run out of
        pairs before. Raises ValueError for a size below 256 and the special tokens.
        """
        least = 256 + len(special)
        if vocab_size < least:
            fail("BytePairTokenizer", f"vocab_size >= {least}", vocab_size, "every byte is a token")
        need("tokenizers")
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(special),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator([text], trainer)
        return cls(tokenizer, 0 if special else None)

    @classmethod
    def from_file(cls, path: str | Path, end: str | int | None = None) -> BytePairTokenizer:
        """Read a tokenizer.json; `end` is the end token, as text or as an id.

        Raises ValueError for another kind of file and for an end token it does not have.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail("BytePairTokenizer", "a tokenizer.json", path, str(error))
        tokenizer = _parsed(text, str(path))
        try:
            end_id = tokenizer.token_to_id(end) if isinstance(end, str) else end
        except UnicodeEncodeError:  # half a character, which JSON can hold and no token is
            end_id = None
        if end is not None and end_id is None:
            fail("BytePairTokenizer", "an end token of the vocabulary", repr(end))
        return cls(tokenizer, end_id)

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, after a begin token where the file asks for one: `text -> T ids`."""
        try:
            text.encode()
        except UnicodeEncodeError:  # such as bytes of a command line that are no UTF-8
            fail("BytePairTokenizer", "text that UTF-8 can write", ascii(text)[:80])
        return self._tokenizer.encode(text).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the tokens: `T ids -> text`; a character cut in the middle shows as U+FFFD.

        Raises ValueError for an id that is not in the vocabulary.
        """
        known = range(self.vocab_size)
        ids = [expect_id("BytePairTokenizer", i, known) for i in ids]
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def to_json(self) -> str:
        inner = json.loads(self._tokenizer.to_str())
        return json.dumps({"kind": "byte pairs", "end_id": self.end_id, "tokenizer": inner})

    def __repr__(self) -> str:
        return f"BytePairTokenizer({self.vocab_size} tokens, end_id={self.end_id})"


def from_json(text: str) -> CharTokenizer | WordTokenizer | BytePairTokenizer:
    """Make the tokenizer again that wrote this `to_json()`.

    Raises ValueError for anything else.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"kind": "characters", "characters": str(characters)}:
            return CharTokenizer(characters)
        case {"kind": "words", "words": list(words), "end": str() | None as end}:
            if all(isinstance(word, str) for word in words):
                return WordTokenizer(words, end)
        case {"kind": "byte pairs", "end_id": int() | None as end_id, "tokenizer": dict(inner)}:
            return BytePairTokenizer(_parsed(json.dumps(inner), "the text of one"), end_id)
    fail("tokenizer.from_json", "what to_json() wrote", repr(text[:40]))


def pieces(tokenizer: Tokenizer, ids: Iterable[int], after: Sequence[int] = ()) -> Iterator[str]:
    """The text of tokens as they come, never half a character: `ids -> pieces of text`.

    `after` are the ids before the first one, whose text is not repeated.
    """
    # The piece before is decoded again with each token: its end decides about spaces.
    held = list(after)
    complete, shown = len(held), tokenizer.decode(held)
    for i in ids:
        held.append(int(i))
        text = tokenizer.decode(held)
        if text.endswith("�") or len(text) <= len(shown):
            continue
        yield text[len(shown) :]
        held = held[complete:]
        complete, shown = len(held), tokenizer.decode(held)
    rest = tokenizer.decode(held)[len(shown) :]
    if rest:
        yield rest


def _parsed(text: str, what: str) -> Any:
    need("tokenizers")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises no narrower kind; a panic is no Exception
        fail("BytePairTokenizer", "a tokenizer.json", what, str(error))
    # What `tokenizers` writes again is a list from 0 to the largest id, in which each id has one
    # token; it ends the process where that list is too long.
    ids = tokenizer.get_vocab().values()
    if len(set(ids)) < len(ids) or max(ids, default=0) > LARGEST_ID:
        fail("BytePairTokenizer", f"different ids up to {LARGEST_ID:,}", f"others in {what}")
    tokenizer.no_truncation()  # a text is encoded whole, and nothing is put beside it,
    tokenizer.no_padding()  # whatever the file was last used for
    return tokenizer
