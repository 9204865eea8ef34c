"""tokenizer.py: text comes back as it went in, whatever the text and whatever the kind."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm.tokenizer import BytePairTokenizer, CharTokenizer, from_json, pieces
from tiny_lm.words import WordTokenizer

modest = settings(deadline=None, max_examples=60, derandomize=True)
TEXT = """The cat sat on the mat and watched the rain. There was a rat behind the door, and
another under the floor; neither of them cared about the weather, or about the cat. When the rain
had stopped, the cat went out, the rats came in, and the house was theirs for the afternoon."""

characters = CharTokenizer("hello")
byte_pairs = BytePairTokenizer.train(TEXT, 280, special=["<|end|>", "<|user|>"])


# Characters


def test_characters_are_numbered_in_alphabetical_order():
    assert characters.encode("hello") == [1, 0, 2, 2, 3]
    assert characters.decode([1, 0, 2, 2, 3]) == "hello"
    assert (characters.vocab_size, characters.end_id) == (4, None)


@modest
@given(st.text(min_size=1), st.data())
def test_every_text_of_known_characters_comes_back(text, data):
    tokenizer = CharTokenizer(text)
    other = data.draw(st.text(sorted(set(text))))
    assert tokenizer.decode(tokenizer.encode(other)) == other
    assert tokenizer.encode(other) == from_json(tokenizer.to_json()).encode(other)


def test_an_unknown_character_is_named():
    message = r"CharTokenizer: expected one of the 4 known characters, got 'w'"
    with pytest.raises(ValueError, match=message):
        characters.encode("hello world"[4:5] + "w")


def test_a_text_without_characters_is_refused():
    with pytest.raises(ValueError, match=r"expected a text with at least one character, got ''"):
        CharTokenizer("")


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_character_id_out_of_range_is_named(wrong):
    """-1 would count from the end, unseen."""
    with pytest.raises(ValueError, match=rf"CharTokenizer: expected token ids 0 … 3, got {wrong}"):
        characters.decode([0, wrong])


# Byte pairs


@modest
@given(st.text())
def test_every_text_comes_back_from_byte_pairs(text):
    ids = byte_pairs.encode(text)
    assert byte_pairs.decode(ids) == text
    assert all(0 <= i < byte_pairs.vocab_size for i in ids)


def test_what_utf_8_cannot_write_is_named():
    message = r"BytePairTokenizer: expected text that UTF-8 can write, got 'ab\\udcff'"
    with pytest.raises(ValueError, match=message):
        byte_pairs.encode("ab\udcff")


def test_pairs_that_are_frequent_become_one_token():
    assert byte_pairs.vocab_size == 280
    assert len(byte_pairs.encode(" the cat")) == 2


def test_training_is_the_same_every_time():
    again = BytePairTokenizer.train(TEXT, 280, special=["<|end|>", "<|user|>"])
    assert again.to_json() == byte_pairs.to_json()


def test_special_tokens_are_one_token_and_are_shown():
    assert byte_pairs.encode("<|user|>hi<|end|>")[::3] == [1, 0]
    assert byte_pairs.decode([1, 0]) == "<|user|><|end|>"
    assert byte_pairs.end_id == 0
    assert BytePairTokenizer.train(TEXT, 260).end_id is None


def test_a_vocabulary_below_the_bytes_is_refused():
    with pytest.raises(ValueError, match=r"expected vocab_size >= 257, got 256 \(every byte"):
        BytePairTokenizer.train(TEXT, 256, special=["<|end|>"])


@pytest.mark.parametrize("wrong", [-1, 280])
def test_a_byte_pair_id_out_of_range_is_named(wrong):
    """The library passes over them without a word."""
    with pytest.raises(ValueError, match=rf"expected token ids 0 … 279, got {wrong}"):
        byte_pairs.decode([3, wrong])


def test_an_end_token_must_exist():
    with pytest.raises(ValueError, match=r"BytePairTokenizer: expected token ids 0 … 279, got 280"):
        BytePairTokenizer(byte_pairs._tokenizer, 280)


def test_from_file_reads_a_tokenizer_json(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(byte_pairs.to_json())["tokenizer"]), encoding="utf-8")
    read = BytePairTokenizer.from_file(path, "<|user|>")
    assert read.end_id == 1 and read.encode(TEXT) == byte_pairs.encode(TEXT)
    assert BytePairTokenizer.from_file(path, 5).end_id == 5
    assert BytePairTokenizer.from_file(path).end_id is None
    with pytest.raises(ValueError, match=r"expected an end token of the vocabulary, got '<eos>'"):
        BytePairTokenizer.from_file(path, "<eos>")


def test_half_a_character_is_no_end_token(tmp_path):
    """JSON can hold one, in tokenizer_config.json."""
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_pairs._tokenizer.to_str(), encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected an end token of the vocabulary, got '\\ud800'"):
        BytePairTokenizer.from_file(path, "\ud800")


@pytest.mark.parametrize("wrong", [0, 2**31])
def test_ids_are_different_and_none_is_huge(tmp_path, wrong):
    """Written again, the one would lose a token, and the other would be a list of 2^31 places."""
    path, whole = tmp_path / "tokenizer.json", json.loads(byte_pairs._tokenizer.to_str())
    whole["model"]["vocab"]["z"] = wrong
    path.write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected different ids up to 10,000,000, got others in"):
        BytePairTokenizer.from_file(path)


@pytest.mark.parametrize("kept", ["truncation", "padding"])
def test_a_text_is_whole_and_alone_whatever_the_file_was_last_used_for(tmp_path, kept):
    """A file may say that texts were cut after 3 tokens, or filled up to a thousand million."""
    settings = {
        "truncation": {
            "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<end>",
        },
    }  # fmt: skip
    path = tmp_path / "tokenizer.json"
    whole = json.loads(byte_pairs._tokenizer.to_str()) | {kept: settings[kept]}
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert BytePairTokenizer.from_file(path).encode(TEXT) == byte_pairs.encode(TEXT)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", None])
def test_from_file_refuses_other_files(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"BytePairTokenizer: expected a tokenizer.json, got .*"):
        BytePairTokenizer.from_file(path)


# Carried by a checkpoint


@modest
@given(st.text())
def test_byte_pairs_survive_to_json(text):
    again = from_json(byte_pairs.to_json())
    assert (again.encode(text), again.end_id) == (byte_pairs.encode(text), byte_pairs.end_id)


words = st.lists(st.from_regex(r"[^\s.]+|[.\n]", fullmatch=True), min_size=1, unique=True)


@modest
@given(words, st.data())
def test_any_words_can_be_a_vocabulary(vocabulary, data):
    tokenizer = WordTokenizer(vocabulary, end=data.draw(st.sampled_from([None, *vocabulary])))
    told = data.draw(st.lists(st.sampled_from(vocabulary)))
    ids = tokenizer.ids(told)
    text = tokenizer.decode(ids)
    assert tokenizer.encode(text) == ids and tokenizer.words(ids) == tokenizer.split(text) == told
    again = from_json(tokenizer.to_json())
    assert (again.encode(text), again.end_id) == (ids, tokenizer.end_id)
    assert "".join(pieces(tokenizer, ids)) == text


@modest
@given(st.text(max_size=60), st.integers(0, 40), st.text(max_size=20))
def test_any_text_can_be_learned_from(text, more, other):
    """However little it is, and however strange: every other text can be written with it."""
    tokenizer = BytePairTokenizer.train(text, 256 + more)
    assert 256 <= tokenizer.vocab_size <= 256 + more
    for one in (text, other):
        ids = tokenizer.encode(one)
        assert tokenizer.decode(ids) == one and len(ids) <= len(one.encode())
        assert from_json(tokenizer.to_json()).encode(one) == ids


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"kind": "words"}', '{"kind": "characters"}', '{"kind": "byte pairs"}', "\0"],
)
def test_from_json_refuses_what_it_did_not_write(text):
    message = r"tokenizer.from_json: expected what to_json\(\) wrote, got " + re.escape(repr(text))
    with pytest.raises(ValueError, match=message):
        from_json(text)


def test_from_json_refuses_a_broken_inner_tokenizer():
    text = '{"kind": "byte pairs", "end_id": null, "tokenizer": {"model": 3}}'
    with pytest.raises(ValueError, match=r"BytePairTokenizer: expected a tokenizer.json, got"):
        from_json(text)


# As they come


@modest
@given(st.text(), st.text())
def test_pieces_add_up_to_the_text(before, text):
    ids, after = byte_pairs.encode(text), byte_pairs.encode(before)
    assert "".join(pieces(byte_pairs, ids)) == text
    assert "".join(pieces(byte_pairs, ids, after=after)) == text


@modest
@given(st.lists(st.integers(0, 279), max_size=30))
def test_pieces_add_up_for_bytes_that_are_no_text(ids):
    assert "".join(pieces(byte_pairs, ids)) == byte_pairs.decode(ids)


def test_no_piece_is_half_a_character():
    assert len(byte_pairs.encode("é🎉")) == 6
    assert list(pieces(byte_pairs, byte_pairs.encode("aé🎉b"))) == ["a", "é", "🎉", "b"]


def test_pieces_come_before_the_last_token_is_there():
    def ids():
        yield from byte_pairs.encode("ab")
        raise RuntimeError("asked for one token too many")

    came = pieces(byte_pairs, ids())
    assert [next(came), next(came)] == ["a", "b"]


def test_pieces_of_characters():
    assert list(pieces(characters, characters.encode("hello"))) == list("hello")
