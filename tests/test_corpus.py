"""grammar.py, corpus.py, words.py: the stories hold together, and their entropy is what it says."""

import math
from collections import Counter
from itertools import islice, pairwise
from random import Random
from statistics import mean, stdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm import grammar
from tiny_lm.corpus import Letters, Stories, Text, manual
from tiny_lm.grammar import Scene, sentences
from tiny_lm.tokenizer import CharTokenizer, from_json
from tiny_lm.words import WordTokenizer

modest = settings(deadline=None, max_examples=40, derandomize=True)
stories = Stories()
numbers = st.integers(0, 10**9)


def walk(random, steps):
    """Scenes that come up when stories are told."""
    scene = Scene()
    for _ in range(steps):
        yield scene
        scene = random.choice(sentences(scene)).scene


# The grammar


@modest
@given(st.randoms(use_true_random=False))
def test_the_ways_to_go_on_are_certain_together_and_told_apart(random):
    for scene in walk(random, 30):
        possible = sentences(scene)
        assert math.isclose(math.fsum(s.probability for s in possible), 1.0, rel_tol=1e-12)
        texts = {s.words for s in possible}
        assert len(texts) == len(possible)
        beginnings = {words[:n] for words in texts for n in range(len(words))}
        assert not texts & beginnings  # else a text could be made in two ways


@modest
@given(st.randoms(use_true_random=False))
def test_surprises_multiply_to_the_probability_of_the_sentences(random):
    """In any text, likely or not, over the borders of stories; and wherever it is cut."""
    scene, words, wanted = Scene(), [], 0.0
    for _ in range(random.randrange(1, 30)):
        told = random.choice(sentences(scene))
        words, scene = [*words, *told.words], told.scene
        wanted -= math.log(told.probability)
    found = list(grammar.surprise(words))
    assert math.fsum(found) == pytest.approx(wanted, rel=1e-12)
    cut = random.randrange(len(words))
    assert list(grammar.surprise(words[:cut])) == found[:cut] and min(found) >= 0


def test_a_story_is_what_a_reader_expects():
    text = stories.tokenizer.decode(stories.row(3, 200))
    assert text.startswith("\n") and text.count("\n") >= 4
    whole = text[: text.rindex("\n") + 1]
    assert stories.is_grammatical(whole)
    for story in whole.strip().split("\n"):
        assert 5 <= story.count(".") <= 8 and story.split(". ")[-1].startswith("Now ")


RIGHT = (
    "Anna has a red ball. She meets Tom at the lake. Anna gives the ball to Tom. "
    "Tom paints the ball blue. Now Tom has the blue ball at the lake.\n"
)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("She meets", "He meets"),
        ("meets Tom", "meets Anna"),
        ("ball to Tom", "ball to Anna"),
        ("Tom paints", "Anna paints"),
        ("ball blue", "ball red"),
        ("the blue ball", "the red ball"),
        ("Now Tom", "Now Anna"),
        ("at the lake.\n", "at the park.\n"),
        (" Tom paints the ball blue.", ""),  # one event is too few, and the colour is wrong
        ("lake.\n", "lake."),
        ("a red", "a a red"),
        ("Anna has", "Zoe has"),
    ],
)
def test_the_parser_knows_each_fact(right, wrong):
    assert stories.is_grammatical(RIGHT) and RIGHT.count(right) >= 1
    before, after = RIGHT.rsplit(right, 1)
    assert not stories.is_grammatical(before + wrong + after)


def test_surprise_of_each_word_by_hand():
    given = list(grammar.surprise(stories.tokenizer.split(RIGHT)))
    words = dict(zip(stories.tokenizer.split(RIGHT)[:13], given, strict=False))
    assert words["Anna"] == pytest.approx(math.log(8))
    assert words["red"] == pytest.approx(math.log(6))
    assert words["ball"] == pytest.approx(math.log(8))
    assert words["Tom"] == pytest.approx(math.log(7))
    assert words["lake"] == pytest.approx(math.log(6))
    assert words["She"] == words["meets"] == words["at"] == 0.0
    # The first event: two of the four kinds begin with the holder's name, and share it.
    assert given[13] == pytest.approx(math.log(2))
    assert given[14] == pytest.approx(math.log(2))
    # After two events the story ends with probability 1/3.
    assert given[-11] == pytest.approx(math.log(3)) and given[-10:] == [0.0] * 10


def test_surprise_after_a_mistake_is_infinite_to_the_end():
    words = ["Anna", "has", "a", "a", "ball"]
    wanted = [math.log(8), 0.0, 0.0, math.inf, math.inf]
    assert list(grammar.surprise(words)) == pytest.approx(wanted, abs=1e-12)


# The entropy, by three ways that share no code but the grammar


def test_entropy_rate_against_sums_by_hand():
    """Entropy of a story by the chain rule, over its mean length, both as sums of plain terms."""
    go_on = [
        1,
        1,
        2 / 3,
        2 / 3,
        2 / 3,
    ]  # to event 1, 2, 3, 4, 5 from the one before
    reach = [math.prod(go_on[: n + 1]) for n in range(5)]
    events = sum(reach)
    event_nats = math.log(4) + (0 + 0 + math.log(5) + math.log(5)) / 4
    event_words = (7 + 5 + 6 + 6) / 4
    stop = math.log(3) / 3 + math.log(1.5) * 2 / 3  # a choice of 1/3 against 2/3
    nats = math.log(8 * 6 * 8) + math.log(7 * 6) + events * event_nats + sum(reach[1:4]) * stop
    words = 6 + 7 + events * event_words + 11
    assert grammar.entropy_rate() == pytest.approx(nats / words, rel=1e-12)


def test_entropy_rate_against_the_surprise_of_a_long_text():
    """Word by word instead of sentence by sentence; within 4 standard errors, of whole stories."""
    words = list(islice(grammar.tell(Random("estimate")), 60_000))
    ends = [i + 1 for i, word in enumerate(words) if word == grammar.END]
    surprises = list(grammar.surprise(words[: ends[-1]]))
    rate = grammar.entropy_rate()
    starts = [0, *ends[:-1]]
    # A ratio of two means: its error is that of nats - rate · words, which has mean 0.
    off = [sum(surprises[a:b]) - rate * (b - a) for a, b in zip(starts, ends, strict=True)]
    assert abs(mean(off)) < 4 * stdev(off) / math.sqrt(len(off))
    length = ends[-1] / len(ends)
    assert stdev(off) / math.sqrt(len(off)) / length < 0.003  # nats a word: the test can tell


def test_floor_against_the_surprise_of_rows():
    """The exact floor of rows of 33 ids, against 1,500 rows, within 4 standard errors."""
    means = [mean(stories.surprise(stories.row(i, 33, "valid"))) for i in range(1500)]
    assert abs(mean(means) - stories.floor(33)) < 4 * stdev(means) / math.sqrt(len(means))


def test_floor_of_the_first_words_by_hand():
    first_sentence = math.log(8) + math.log(6) + math.log(8)
    assert stories.floor(7) == pytest.approx(first_sentence / 6, rel=1e-12)
    assert stories.floor(2) == pytest.approx(math.log(8), rel=1e-12)


def test_floor_falls_to_the_entropy_rate():
    rate = grammar.entropy_rate()
    floors = [stories.floor(n) for n in (33, 65, 129, 1025)]
    assert floors == sorted(floors, reverse=True) and rate < floors[-1] < rate + 0.004


# Rows


@modest
@given(numbers, st.integers(1, 200), st.sampled_from(["train", "valid"]))
def test_a_row_is_always_the_same_and_begins_the_longer_one(number, length, split):
    row = stories.row(number, length, split)
    assert len(row) == length and row[0] == stories.tokenizer.end_id
    assert row == Stories().row(number, length, split)
    assert stories.row(number, length + 7, split)[:length] == row
    assert all(map(math.isfinite, stories.surprise(row)))


def test_rows_differ_by_number_split_and_seed():
    rows = [stories.row(0, 99), stories.row(1, 99), stories.row(0, 99, "valid")]
    rows.append(Stories(seed=1).row(0, 99))
    assert len({tuple(row) for row in rows}) == 4


def test_each_word_of_the_vocabulary_is_used():
    words = set(islice(grammar.tell(Random("vocabulary")), 20_000))
    assert sorted(words) == grammar.vocabulary() == stories.tokenizer.vocabulary


def test_words_are_drawn_as_often_as_the_grammar_says():
    """2,400 openings: each of 8 heroes and 6 colours within 5 standard deviations of its share."""
    rows = [stories.tokenizer.words(stories.row(n, 5)) for n in range(2400)]
    for place, choices in ((1, grammar.NAMES), (4, grammar.COLOURS)):
        counts, p = Counter(row[place] for row in rows), 1 / len(choices)
        spread = math.sqrt(2400 * p * (1 - p))
        assert all(abs(counts[word] - 2400 * p) < 5 * spread for word in choices)


@pytest.mark.parametrize("corpus", [stories, Letters(), Text("abc " * 200)])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 5), r"Corpus.row: expected a row number >= 0, got -1"),
        ((1.5, 5), r"Corpus.row: expected a row number >= 0, got 1.5"),
        ((0, 0), r"Corpus.row: expected length >= 1, got 0"),
        ((0, 5, "test"), r"Corpus.row: expected split one of train, valid, got 'test'"),
    ],
)
def test_rows_that_are_not_there(corpus, arguments, message):
    with pytest.raises(ValueError, match=message):
        corpus.row(*arguments)


def test_surprise_and_floor_refuse_what_they_cannot_judge():
    with pytest.raises(
        ValueError, match=r"Stories.surprise: expected a row that begins with a newline, got \["
    ):
        stories.surprise(stories.row(0, 9)[1:])
    with pytest.raises(ValueError, match=r"Stories.floor: expected length >= 2, got 1"):
        stories.floor(1)


CORPORA = {
    "stories": Stories,
    "letters": Letters,
    "text": lambda seed: Text("0123456789" * 70, seed=seed),
}


@pytest.mark.parametrize("make", CORPORA.values(), ids=CORPORA)
@modest
@given(numbers, st.integers(1, 60), st.sampled_from(["train", "valid"]), st.integers(0, 9))
def test_a_row_is_its_number_and_nothing_else(make, number, length, split, seed):
    """Whatever was read before: a run can be resumed, or shared, by numbers alone."""
    corpus = make(seed)
    row = corpus.row(number, length, split)
    corpus.row(number + 1, length + 1, split)
    assert row == corpus.row(number, length, split) == make(seed).row(number, length, split)
    assert len(row) == length and set(row) <= set(range(corpus.tokenizer.vocab_size))
    assert corpus.tokenizer.encode(corpus.tokenizer.decode(row)) == row
    assert repr(corpus) == repr(make(seed)) != repr(make(seed + 1))


# Letters


def test_letters_follow_each_other_as_often_as_they_should():
    """20,000 pairs: four successors each, their shares within 5 standard deviations."""
    letters = Letters(seed=3)
    follow = {i: Counter() for i in range(32)}
    for number in range(20):
        row = letters.row(number, 1001)
        assert row[:10] == letters.row(number, 10) and max(row) < 32
        for a, b in pairwise(row):
            follow[a][b] += 1
    for counts in follow.values():
        n = counts.total()
        shares = [count for _, count in counts.most_common()]
        assert len(shares) == 4
        for count, p in zip(shares, (1 / 2, 1 / 4, 1 / 8, 1 / 8), strict=True):
            assert abs(count - n * p) < 5 * math.sqrt(n * p * (1 - p))
    p = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8], dtype=torch.float64)
    assert letters.floor(9) == pytest.approx(float(-(p * p.log()).sum()), rel=1e-12)


def test_letters_differ_by_number_split_and_seed():
    rows = [Letters().row(0, 50), Letters().row(1, 50), Letters().row(0, 50, "valid")]
    assert len({tuple(row) for row in [*rows, Letters(1).row(0, 50)]}) == 4


# Real text


@modest
@given(numbers, st.integers(1, 30), st.sampled_from(["train", "valid"]))
def test_a_window_of_a_text_stays_on_its_side(number, length, split):
    text = "0123456789" * 29 + "abcdefghij" * 3 + "z" * 2
    corpus = Text(text)
    cut = len(text) * 9 // 10
    window = corpus.tokenizer.decode(corpus.row(number, length, split))
    assert window in (text[:cut] if split == "train" else text[cut:])
    assert corpus.row(number, length, split) == Text(text).row(number, length, split)


def test_every_window_comes_up():
    corpus = Text("abcdefghijklmnopqrstuvwxyz" * 2)
    starts = {corpus.row(n, 40)[0] for n in range(300)}
    assert starts == set(range(46 - 40 + 1))


def test_two_texts_of_one_length_are_told_apart():
    assert repr(Text("ab" * 20)) != repr(Text("ba" * 20)) and repr(Text("ab" * 20)) == repr(
        Text("ab" * 20)
    )


def test_a_text_that_is_too_short():
    with pytest.raises(ValueError, match=r"Text: expected a text of at least 20 tokens, got 3"):
        Text("abc")
    message = r"Text.row: expected at most the 10 tokens of valid, got 11 \(a longer text\?\)"
    with pytest.raises(ValueError, match=message):
        Text("ab" * 50).row(0, 11, "valid")


def test_the_manual_is_there():
    text = manual()
    assert len(text) > 300_000 and 'The "if" statement' in text and text == manual()
    assert isinstance(Text(text[:2000]).tokenizer, CharTokenizer)


# Words


@modest
@given(st.lists(st.sampled_from(grammar.vocabulary()), max_size=30))
def test_words_come_back(words):
    tokenizer = stories.tokenizer
    ids = tokenizer.ids(words)
    assert tokenizer.words(ids) == words
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    again = from_json(tokenizer.to_json())
    assert (again.encode(tokenizer.decode(ids)), again.end_id) == (ids, tokenizer.end_id)


def test_words_are_spaced_as_people_do():
    tokenizer = WordTokenizer(["a", ".", "\n", "b"], end="\n")
    assert tokenizer.decode([0, 3, 1, 2, 2, 0, 1]) == "a b.\n\na."
    assert (tokenizer.end_id, tokenizer.vocab_size) == (2, 4)
    assert WordTokenizer(["a"]).end_id is None and from_json(WordTokenizer(["a"]).to_json())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: WordTokenizer([]), "expected at least one word, and no blanks in any, got ''"),
        (lambda: WordTokenizer(["a b"]), r"and no blanks in any, got \['a b'\]"),
        (lambda: WordTokenizer(["a."]), r"and no blanks in any, got \['a.'\]"),
        (lambda: WordTokenizer(["a", "a"]), r"WordTokenizer: expected words that differ, got 1"),
        (lambda: WordTokenizer(["a"], end="b"), r"one of the 1 known words, got 'b'"),
        (lambda: WordTokenizer(["a"]).encode("a b"), r"one of the 1 known words, got 'b'"),
        (lambda: WordTokenizer(["a"]).decode([-1]), r"expected token ids 0 … 0, got -1"),
        (lambda: from_json('{"kind": "words", "words": [1], "end": null}'), "what to_json"),
    ],
)
def test_wrong_words_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
