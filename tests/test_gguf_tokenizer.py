"""gguf_tokenizer.py: the ids of a text are those of the tokenizer that the file was made from."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tiny_lm.formats.gguf_tokenizer import CUTS, LLAMA_3, gguf_tokenizer
from tiny_lm.tokenizer import pieces

modest = settings(deadline=None, max_examples=80, derandomize=True)
TEXT = (
    """It's 1234 o'clock; we've 56 minutes. The cat sat on the mat and watched the rain,
    def f(x):\n\n        return x + 1\nNaïve été, 2024-01-31, 3.14159... the cat's the cats
1234 1234 1234 1234 12 12 12 34 34 a1234 b1234
"""
    * 2
)
CONTROL, USER_DEFINED, NORMAL, UNKNOWN, BYTE = 3, 4, 1, 2, 6


def steps_of(pre):
    """How each kind cuts text, written down once more, apart from the package."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "gpt-2":
        return byte_level
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    return pre_tokenizers.Sequence([split, whole])


def trained(pre):
    """A tokenizer of the library, and the metadata a GGUF file would have for it.

    The pairs are those of gpt-2 for all kinds: they have numbers of several digits, so that another
    way of cutting gives other ids.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = steps_of("gpt-2"), decoders.ByteLevel()
    special = ["<|end|>", "<|begin|>", "<|user|>"]
    tokenizer.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=special,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    tokenizer.pre_tokenizer = steps_of(pre)
    return tokenizer, {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3),
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }


TRAINED = {pre: trained(pre) for pre in ("gpt-2", "smollm", "llama-bpe")}
SMOLLM = TRAINED["smollm"][1]


@pytest.mark.parametrize("pre", TRAINED)
@modest
@given(text=st.text() | st.text("the cat's 1234 \n.<|end|>é", max_size=30))
def test_ids_are_those_of_the_original(pre, text):
    original, metadata = TRAINED[pre]
    tokenizer = gguf_tokenizer(metadata)
    assert tokenizer.encode(text) == original.encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_kinds_cut_differently():
    """Or the test above would not see one taken for another."""
    ids = {tuple(gguf_tokenizer(metadata).encode(" 1234")) for _, metadata in TRAINED.values()}
    assert len(ids) == 3


def test_special_tokens_are_never_cut_up():
    tokenizer = gguf_tokenizer(SMOLLM)
    assert tokenizer.encode("<|user|>hi<|end|>")[::3] == [2, 0]
    assert tokenizer.end_id == 0 and tokenizer.vocab_size == len(SMOLLM["tokenizer.ggml.tokens"])
    mine = SMOLLM | {"tokenizer.ggml.token_type": [CONTROL, CONTROL, USER_DEFINED]}
    assert gguf_tokenizer(mine).encode("<|user|>")[0] == 2


@pytest.mark.parametrize(
    ("pre", "said", "begins"),
    [
        ("smollm", None, False),
        ("smollm", True, True),
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
    ],
)
def test_the_token_that_begins_a_text(pre, said, begins):
    metadata = dict(TRAINED[pre][1])
    del metadata["tokenizer.ggml.add_bos_token"]
    if said is not None:
        metadata["tokenizer.ggml.add_bos_token"] = said
    assert (gguf_tokenizer(metadata).encode("cat")[0] == 1) == begins


def test_a_begin_token_that_tokenizers_cannot_place_is_named():
    metadata = dict(TRAINED["llama-bpe"][1])
    metadata["tokenizer.ggml.tokens"] = ["x:y", *metadata["tokenizer.ggml.tokens"][1:]]
    metadata |= {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True}
    with pytest.raises(ValueError, match=r"expected a token to begin a text with, got 'x:y' \("):
        gguf_tokenizer(metadata)


def test_llama_3_takes_a_whole_word_before_any_merge():
    """Its vocabulary has words that no list of merges leads to."""
    metadata = dict(TRAINED["llama-bpe"][1])
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "Ġxyzzy"]
    assert gguf_tokenizer(metadata).encode(" xyzzy") == [len(metadata["tokenizer.ggml.tokens"]) - 1]


def test_no_tokenizer_is_none():
    assert gguf_tokenizer({"general.architecture": "llama"}) is None


# SentencePiece

PIECES = {
    "<unk>": (0.0, UNKNOWN), "<s>": (0.0, CONTROL), "</s>": (0.0, CONTROL),
    **{f"<0x{byte:02X}>": (0.0, BYTE) for byte in range(256)},
    "▁c": (-0.0, NORMAL), "at": (-1.0, NORMAL), "▁cat": (-2.0, NORMAL), "▁ca": (-3.0, NORMAL),
    "▁": (-4.0, NORMAL), "a": (-5.0, NORMAL), "c": (-6.0, NORMAL), "t": (-7.0, NORMAL),
}  # fmt: skip
SENTENCE_PIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": list(PIECES),
    "tokenizer.ggml.scores": [score for score, _ in PIECES.values()],
    "tokenizer.ggml.token_type": [kind for _, kind in PIECES.values()],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def joined_by_score(text):
    """SentencePiece's own definition: join the pair that scores highest, leftmost first."""
    parts = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [parts[i] + parts[i + 1] for i in range(len(parts) - 1)]
        known = [(PIECES[pair][0], -i) for i, pair in enumerate(pairs) if pair in PIECES]
        if not known:
            break
        i = -max(known)[1]
        parts[i : i + 2] = [pairs[i]]
    ids = list(PIECES)
    out = []
    for part in parts:
        out += [ids.index(part)] if part in PIECES else [3 + byte for byte in part.encode()]
    return out


@modest
@given(st.text("cat é🎉", max_size=12))
def test_sentence_piece_joins_by_score(text):
    tokenizer = gguf_tokenizer(SENTENCE_PIECE)
    ids = tokenizer.encode(text)
    assert ids[0] == 1 and ids[1:] == joined_by_score(text)
    assert tokenizer.decode(ids[1:]) == text


@modest
@given(st.text("cat é🎉", max_size=12), st.text("cat é🎉", max_size=12))
def test_pieces_of_sentence_piece_keep_their_spaces(before, text):
    """A space at the very start is left out, one after other tokens is not."""
    tokenizer = gguf_tokenizer(SENTENCE_PIECE)
    after, ids = tokenizer.encode(before), tokenizer.encode(text)[1:]
    whole = tokenizer.decode([*after, *ids])
    assert tokenizer.decode(after) + "".join(pieces(tokenizer, ids, after=after)) == whole


def test_sentence_piece_without_a_space_before():
    metadata = SENTENCE_PIECE | {"tokenizer.ggml.add_space_prefix": False}
    tokens = list(PIECES)
    tokenizer = gguf_tokenizer(metadata)
    assert tokenizer.encode("cat") == [1, tokens.index("c"), tokens.index("at")]
    assert tokenizer.decode([tokens.index("▁cat")]) == " cat"


# What is not known is refused


def without(key):
    return {name: value for name, value in SMOLLM.items() if name != f"tokenizer.ggml.{key}"}


def changed(key, value):
    return SMOLLM | {f"tokenizer.ggml.{key}": value}


fit = r"tokens, merges and ids that fit together, got "


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (changed("model", "bert"), r"a family of gpt2 or llama, got 'bert'"),
        (changed("model", [1]), r"a family of gpt2 or llama, got \[1\]"),
        (changed("pre", "qwen2"), r"a pre-tokenizer of gpt-2, smollm, .*, got 'qwen2'"),
        (without("pre"), r"a pre-tokenizer of gpt-2, smollm, .*, got None"),
        (changed("tokens", "abc"), r"a list of different tokens, got str"),
        (changed("tokens", ["a", "a"]), r"a list of different tokens, got list"),
        (changed("tokens", []), r"a list of different tokens, got list"),
        (without("tokens"), r"a list of different tokens, got NoneType"),
        (changed("merges", ["Ġ the-cat"]), r"merges of known tokens, got "),
        (changed("merges", ["Ġ"]), r"merges of known tokens, got "),
        (changed("merges", [3]), fit + "AttributeError"),
        (changed("merges", 3), fit + "TypeError"),
        (without("merges"), fit + "KeyError"),
        (changed("pre", ["smollm"]), fit + "TypeError"),
        (changed("token_type", 3), fit + "TypeError"),
        (changed("add_bos_token", True) | {"tokenizer.ggml.bos_token_id": 999}, fit + "IndexError"),
        (
            changed("add_bos_token", True) | {"tokenizer.ggml.bos_token_id": "x"},
            r"bos_token_id, for texts that begin with it, got 'x'",
        ),
        (changed("add_bos_token", True) | {"tokenizer.ggml.bos_token_id": -1}, fit + "TypeError"),
        (changed("tokens", ["a" * 1001]), r"tokens of at most 1000 characters, got 1001"),
        ({**SENTENCE_PIECE, "tokenizer.ggml.scores": [0.0]}, fit + "IndexError"),
        ({**SENTENCE_PIECE, "tokenizer.ggml.unknown_token_id": 999}, fit + "IndexError"),
    ],
)
def test_what_is_not_known_is_refused(metadata, message):
    with pytest.raises(ValueError, match="GGUF tokenizer: expected " + message):
        gguf_tokenizer(metadata)


@pytest.mark.parametrize("end", [999, [1], "x"])
def test_an_end_token_outside_the_vocabulary_is_refused(end):
    with pytest.raises(
        ValueError, match=r"(token ids 0 … \d+, got 999|eos_token_id as a number, got)"
    ):
        gguf_tokenizer(changed("eos_token_id", end))


def test_every_kind_of_cut_is_one_of_the_tested_ones():
    assert set(CUTS.values()) == {None, "digits", LLAMA_3}
