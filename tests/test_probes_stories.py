"""Chapter 06: surprise word by word, the floor, what a model writes; and what the pictures draw."""

from math import isfinite, log, sqrt
from statistics import fmean, stdev

import pytest
import torch

from tiny_lm import grammar
from tiny_lm.corpus import Stories
from tiny_lm.plots.stories import FULL, PlacesPicture, StoryPicture
from tiny_lm.probes import stories

GOOD = "Anna has a red ball. She meets Ben at the park. The ball is red. The ball is red. "
GOOD += "Now Anna has the red ball at the park.\n"
SLIP = GOOD.replace("Now Anna", "Now Ben")
EXACT = {"rel": 0, "abs": 1e-9}  # float64 sums of about fifty logarithms


def flat(rows):
    return [value for row in rows for value in row]


@pytest.mark.parametrize("number", [0, 4, 17])
def test_a_story_is_the_first_of_its_row_and_as_surprising_as_the_corpus_says(number):
    found = stories.surprises(number)
    text = Stories().tokenizer.decode(Stories().row(number, 60, "valid"))
    words = flat(found.words)
    assert words == Stories().tokenizer.split(text[1:])[: len(words)]
    assert words[-1] == grammar.END and words.count(grammar.END) == 1
    assert all(sentence[-1] in (".", grammar.END) for sentence in found.words)
    assert [len(s) for s in found.grammar] == [len(s) for s in found.words]
    known = Stories().surprise(Stories().row(number, 60, "valid"))
    assert flat(found.grammar) == pytest.approx(known[: len(words)], **EXACT)
    assert found.model == []


def test_the_freedom_of_an_opening_is_eight_six_eight():
    first = stories.surprises(0).grammar[0]
    assert first == pytest.approx([log(8), 0, 0, log(6), log(8), 0], **EXACT)


def test_the_models_surprise_is_minus_log_of_its_probability():
    model, ids = stories.shipped(), Stories().row(2, 30, "valid")
    found = stories.model_surprise(model, ids)
    with torch.no_grad():
        p = model(torch.tensor([ids[:-1]])).softmax(dim=-1)[0]
    assert p.dtype == torch.float64
    wanted = [-log(p[i, word]) for i, word in enumerate(ids[1:])]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_with_the_model_each_word_has_two_values():
    found = stories.surprises(3, model=stories.shipped())
    assert [len(s) for s in found.model] == [len(s) for s in found.grammar]
    ids = Stories().row(3, 60, "valid")
    wanted = stories.model_surprise(stories.shipped(), ids)[: len(flat(found.words))]
    assert flat(found.model) == pytest.approx(wanted, **EXACT)


def test_the_estimate_of_the_floor():
    """Three standard errors; the rows are always the same, so this is no matter of luck."""
    found = stories.estimate_floor(65, rows=100)
    each = [fmean(Stories().surprise(Stories().row(n, 65))) for n in range(100)]
    assert found.mean == pytest.approx(fmean(each), **EXACT)
    assert found.error == pytest.approx(stdev(each) / sqrt(100), **EXACT)
    assert abs(found.mean - Stories().floor(65)) < 3 * found.error


def test_places_run_down_to_the_rate():
    found = stories.places(50)
    assert found.running[-1] == pytest.approx(Stories().floor(51), **EXACT)
    assert found.running[7] == pytest.approx(fmean(found.expected[:8]), **EXACT)
    assert found.rate == grammar.entropy_rate()


@pytest.mark.parametrize(
    ("text", "words", "marked"),
    [
        (GOOD, 34, GOOD.strip()),
        (SLIP, 24, SLIP.strip().replace("Now Ben", "Now [Ben]")),
        ("Anna has a red\n", 4, "Anna has a red [END]"),
        ("Anna has a red ball", 5, "Anna has a red ball"),
        ("", 0, ""),
    ],
)
def test_the_first_slip_is_found(text, words, marked):
    assert stories.words_before_a_slip(text) == words
    assert stories.mark_slip(text) == marked


def test_an_unfinished_story_is_not_a_story():
    share = stories.grammatical_share([GOOD, SLIP, GOOD.strip(), "Anna has a red ball"])
    assert share == 1 / 4


def test_a_model_writes_one_story_a_text():
    texts = stories.tell(stories.shipped(), 5, seed=1)
    again = stories.tell(stories.shipped(), 5, seed=1)
    assert texts == again and texts != stories.tell(stories.shipped(), 5, seed=2)
    for text in texts:
        words = Stories().tokenizer.split(text)
        assert words.count(grammar.END) <= 1
        assert (words[-1] == grammar.END) or len(words) == stories.LONGEST + 1


def test_no_story_is_longer_than_the_longest():
    longest = 0
    for number in range(300):
        words = Stories().tokenizer.words(Stories().row(number, 200))[1:]
        longest = max(longest, words.index(grammar.END) + 1)
    assert longest <= stories.LONGEST
    gives = 7  # words of the longest event
    assert 6 + 7 + grammar.MOST_EVENTS * gives + 11 == stories.LONGEST


def test_the_gap_is_shared_out_among_all_words():
    rows = 6
    gaps = stories.gap_by_kind(stories.shipped(), rows)
    read = [stories.surprises(number, model=stories.shipped()) for number in range(rows)]
    assert sum(gap.words for gap in gaps) == sum(len(flat(story.words)) for story in read)
    assert sum(gap.share for gap in gaps) == pytest.approx(1.0, **EXACT)
    total = sum(sum(flat(s.model)) - sum(flat(s.grammar)) for s in read)
    assert sum(gap.words * gap.mean for gap in gaps) == pytest.approx(total, **EXACT)
    by_kind = {gap.kind: gap for gap in gaps}
    for answer in ("who", "colour", "thing", "place"):
        assert by_kind[f"last sentence: {answer}"].words == rows
    free = sum(nats > 0 for story in read for sentence in story.grammar for nats in sentence)
    assert by_kind["free to be chosen"].words == free, "what the grammar asks is never free"
    places = [story.words[-1][8] for story in read]
    assert set(places) <= set(grammar.PLACES)
    here = fmean(story.model[-1][8] for story in read)  # the grammar is sure of it
    assert by_kind["last sentence: place"].mean == pytest.approx(here, **EXACT)


# The pictures


def heights(collection):
    """What each bar stands for, in nats."""
    return [(low - high) * FULL / 0.6 for (_, low), (_, high) in collection.get_segments()]


def test_the_story_picture_draws_both_readers():
    numbers = stories.surprises(3, model=stories.shipped())
    picture = StoryPicture(numbers)
    for bars, values in zip(picture.bars, (numbers.grammar, numbers.model), strict=True):
        drawn = [min(v, FULL) for v in flat(values) if v > 0.005]
        assert heights(bars) == pytest.approx(drawn, rel=1e-6)
    shown = [[text.get_text() for text in row] for row in picture.texts]
    for row, words in zip(shown, numbers.words, strict=False):
        assert row[: len(words)] == [word.replace("\n", "↵") for word in words]
        assert not any(row[len(words) :])
    assert "farthest behind at word" in picture.sentence


def test_moving_to_a_shorter_story_leaves_nothing_behind():
    lengths = {len(stories.surprises(n).words): n for n in range(30)}
    assert len(lengths) > 1
    picture = StoryPicture(stories.surprises(lengths[max(lengths)]))
    picture.show(stories.surprises(lengths[min(lengths)]))
    shown = [any(text.get_text() for text in row) for row in picture.texts]
    assert sum(shown) == min(lengths)


def test_the_story_sentence_counts():
    numbers = stories.surprises(5)
    nats = flat(numbers.grammar)
    sentence = StoryPicture(numbers).sentence
    assert f"has {len(nats)} words, and {sum(v < 1e-9 for v in nats)} of them" in sentence
    assert f"{sum(nats):.2f} nats" in sentence and all(map(isfinite, nats))


def test_places_are_drawn_as_they_are():
    numbers = stories.places(40)
    axes = PlacesPicture(numbers).figure.axes[0]
    assert [bar.get_height() for bar in axes.patches] == numbers.expected
    running, rate = axes.get_lines()
    assert list(running.get_ydata()) == numbers.running
    assert set(rate.get_ydata()) == {numbers.rate}
