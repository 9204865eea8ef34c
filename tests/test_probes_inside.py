"""Chapter 07: the shipped model on the stories, what is done to it, and what the pictures draw."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from tiny_lm import grammar
from tiny_lm.plots.attribution import ComparedPicture, LedgerPicture
from tiny_lm.plots.heads import BLUES, StoryHeadPicture
from tiny_lm.plots.lens import DepthPicture, LensPicture
from tiny_lm.plots.operating import (
    VERDICTS,
    BenchPicture,
    PatchPicture,
    RemovalsPicture,
    ResultPicture,
    WiringsPicture,
)
from tiny_lm.probes import ablation, edits, inside, operating, stories, surgery

TOKENIZER = inside.TOKENIZER


def probabilities(words):
    with torch.no_grad():
        return stories.shipped()(torch.tensor([TOKENIZER.ids(words)]))[0].softmax(dim=-1)


# Stories and questions


@pytest.mark.parametrize("number", [0, 4, 17])
def test_a_story_stands_between_two_ends(number):
    words = inside.story(number)
    assert words[0] == words[-1] == grammar.END and grammar.END not in words[1:-1]
    assert stories.CORPUS.is_grammatical(TOKENIZER.decode(TOKENIZER.ids(words[1:])))


@pytest.mark.parametrize("kind", inside.KINDS)
def test_questions_are_about_what_has_changed(kind):
    found = inside.questions(kind, 12)
    assert len({q.number for q in found}) == 12
    for q in found:
        words = inside.story(q.number)
        assert words[: len(q.words)] == q.words and words[len(q.words)] == q.right
        assert q.right != q.other and q.other in q.words
        assert q.words[q.at] == q.right and q.right not in q.words[q.at + 1 :]
        known = {"who": grammar.NAMES, "colour": grammar.COLOURS, "place": grammar.PLACES}[kind]
        assert {q.right, q.other} <= set(known)
    assert found[0].case == (
        TOKENIZER.ids(found[0].words), *TOKENIZER.ids([found[0].right, found[0].other])
    )  # fmt: skip


def test_the_model_answers_the_questions():
    """Else there would be nothing to look for."""
    for kind in inside.KINDS:
        asked = inside.questions(kind, 16)
        right = [probabilities(q.words)[-1, TOKENIZER.ids([q.right])[0]] > 0.5 for q in asked]
        assert sum(right) >= 15


def test_one_head_each_looks_at_place_and_colour():
    """What the chapter's text says; other weights would need another text."""
    place, colour, who = (inside.heads_on_answer(k, 16) for k in ("place", "colour", "who"))
    assert place[1][2] > 0.9 and max(w for row in place for w in row) == place[1][2]
    assert colour[0][2] > 0.9 and max(w for row in colour for w in row) == colour[0][2]
    assert who[2][0] > 0.4 and who[3][2] > 0.3
    q = inside.questions("place", 1)[0]
    (weight,) = (row[2] for row in [inside.heads_on_answer("place", 1)[1]])
    recorded = edits.read(stories.shipped(), TOKENIZER.ids(q.words))
    assert weight == pytest.approx(
        float(recorded["blocks.1.attn.weights"][0, 2, -1, q.at]), abs=1e-12
    )


# The ledger and the lens


def test_the_ledger_of_a_story_is_about_the_word_that_comes():
    account, words = inside.ledger(4, 40), inside.story(4)
    assert (account.target, account.other) == (words[41], None) == ("school", None)
    assert account.after.endswith("lamp at the") and account.ledger.position == 40
    with torch.no_grad():
        logits = stories.shipped()(torch.tensor([TOKENIZER.ids(words)]))[0, 40]
    school, lake = logits[TOKENIZER.ids(["school", "lake"])].tolist()
    assert account.ledger.logit == pytest.approx(school, abs=1e-10)
    lead = inside.ledger(4, 40, other="lake")
    assert lead.other == "lake" and lead.ledger.logit == pytest.approx(school - lake, abs=1e-10)
    same = inside.ledger(4, 40, "lake", "lake")
    assert same.other is None and same.ledger.logit == pytest.approx(lake, abs=1e-10)
    assert inside.ledger(4, 500).ledger.position == len(words) - 2  # the last that has a next word


def test_the_ledger_picture_stacks_its_bars_up_to_the_logit():
    account = inside.ledger(4, 40, other="lake")
    picture = LedgerPicture(account)
    end = 0.0
    for bar, entry in zip(picture.shares, account.ledger.entries, strict=True):
        low, high = bar.get_y(), bar.get_y() + bar.get_height()
        start, last = (low, high) if entry.share >= 0 else (high, low)
        assert start == pytest.approx(end, abs=1e-12)  # where the last one ended
        assert last - start == pytest.approx(entry.share, abs=1e-12)
        end = last
    assert end == pytest.approx(account.ledger.logit, abs=1e-10)
    assert picture.total.get_ydata()[0] == account.ledger.logit
    sizes = [dot.get_ydata()[0] for dot in picture.sizes]
    assert sizes == [entry.size for entry in account.ledger.entries]
    assert list(picture.stream.get_ydata()) == [e.stream for e in account.ledger.entries]
    assert [b.get_height() for b in picture.cosines] == [e.cosine for e in account.ledger.entries]
    assert "“school” leads “lake” by 7.83" in picture.sentence
    low, high = picture.top.get_ylim()
    assert low <= 0 and high >= max(b.get_y() + b.get_height() for b in picture.shares)


def test_a_ledger_of_many_writes_is_drawn_too():
    """Sixty-one of them, as a model of thirty blocks has."""
    account = inside.ledger(4, 40)
    first, attn, ffn = account.ledger.entries[:3]
    blocks = [replace(e, name=f"{e.name[:-1]}{i}") for i in range(30) for e in (attn, ffn)]
    many = replace(account.ledger, entries=[first, *blocks])
    picture = LedgerPicture(replace(account, ledger=many))
    assert len(picture.shares) == 61 and picture.numbers == []
    labels = [label.get_text() for label in picture.figure.axes[2].get_xticklabels()]
    assert labels[:3] == ["0", "4", "8"]


def test_the_lens_map_settles_where_the_right_word_stays_on_top():
    found, words = inside.lens_map(4, 33), inside.story(4)
    assert found.read == words[33:42] and found.comes == words[34:43]
    assert found.says[0] == found.read  # tied matrices: the embedding reads as itself
    ends = probabilities(words)[33:42]
    assert found.probability[-1] == pytest.approx(ends.amax(dim=-1).tolist(), abs=1e-10)
    for c, first in enumerate(found.settled):
        column = [row[c] == found.comes[c] for row in found.says]
        assert all(column[first:]) and (first == 0 or not column[first - 1])
    assert inside.lens_map(4, 50).comes[-1] == grammar.END


def test_the_lens_picture_writes_and_frames_what_was_found():
    found = inside.lens_map(4, 33)
    picture = LensPicture(found)
    assert [[cell.get_text() for cell in row] for row in picture.cells] == found.says
    np.testing.assert_array_equal(picture.map.get_array(), found.probability)
    for frame, first in zip(picture.frames, found.settled, strict=True):
        assert frame.get_y() == first - 0.5 and frame.get_height() == 9 - first
    assert "“school” from ffn 2" in picture.sentence


def test_by_depth_the_reading_improves_and_ends_at_the_models_loss():
    found = inside.by_depth(rows=4)
    rows = [stories.CORPUS.row(n, 65, "valid") for n in range(4)]
    assert found.loss == pytest.approx(edits.loss(stories.shipped(), rows), abs=1e-10)
    assert found.surprise == sorted(found.surprise, reverse=True)
    assert found.entropy[0] < 0.2 and found.surprise[0] > 3 * log(45)  # sure, and wrong
    orange, blue = DepthPicture(found).figure.axes[0].lines[:2]
    assert list(orange.get_ydata()) == found.surprise and list(blue.get_ydata()) == found.entropy


def test_a_head_on_a_story_and_its_picture():
    found, words = inside.head(4, 1, 2, 40), inside.story(4)
    assert found.words == words[1:] and found.at == 40
    assert sum(found.weights) + found.before == pytest.approx(1, abs=1e-12)
    looked = max(range(40), key=lambda j: found.weights[j])
    assert (found.words[looked], found.weights[looked] > 0.9) == ("school", True)
    picture = StoryHeadPicture(found)
    shown = [t.get_text() for t in picture.texts.values() if t.get_text()]
    assert shown == [word.replace("\n", "↵") for word in found.words]
    drawn = [b for b, t in zip(picture.boxes.values(), picture.texts.values(), strict=True)
             if t.get_text()]  # fmt: skip
    assert drawn[looked].get_facecolor() == pytest.approx(BLUES(found.weights[looked]))
    frame = drawn[39].get_xy()
    assert picture.frame.get_xy() == pytest.approx(frame)
    assert inside.head(4, 0, 0, 500).at == len(words) - 1


# The board, the bench, patches


def test_the_board_removes_what_is_ticked():
    whole, less = operating.board(), operating.board(**{"attn 1": True, "ffn 2": False})
    assert whole.loss == whole.before and whole.verdict == "exact"
    model = stories.shipped()
    silent = edits.Edited(model, {"blocks.1.resid.attn": edits.removed})
    assert less.loss == pytest.approx(edits.loss(silent, operating.ROWS), abs=1e-12)
    assert whole.nothing == log(45) and less.done == "without attn 1"
    assert stories.CORPUS.is_grammatical(whole.text.removesuffix("\n") + "\n")


@pytest.mark.parametrize(
    ("loss", "largest", "verdict"),
    [(1.0, 9e-5, "exact"), (1.0, 2e-4, "exact"), (1.049, 3.0, "harmless"), (1.051, 3.0, "hurts"),
     (1.99, None, "hurts"), (2.01, 5.0, "fatal"), (0.9, 5.0, "harmless")],
)  # fmt: skip
def test_verdicts_follow_the_rule(loss, largest, verdict):
    assert operating.Result("x", loss, 1.0, 3.0, "", largest).verdict == verdict


def test_the_verdicts_of_the_bench():
    results = [operating.bench(name) for name in operating.OPERATIONS]
    assert [r.verdict for r in results] == ["exact"] * 3 + ["harmless"] * 2 + ["hurts"] * 2 + [
        "fatal"
    ] * 3
    post = edits.loss(surgery.post_norm(stories.shipped()), operating.ROWS)
    assert results[-1].loss == pytest.approx(post, abs=1e-12)
    picture = BenchPicture(results)
    bars = picture.figure.axes[0].patches
    assert [bar.get_width() for bar in bars[:10]] == [r.loss for r in results]
    assert bars[-1].get_facecolor() == to_rgba(VERDICTS["fatal"])


def test_a_result_picture_shows_loss_verdict_and_text():
    result = operating.bench("eps 1e-5 → 1e-1")
    picture = ResultPicture(result)
    assert picture.bar.get_width() == result.loss
    assert picture.bar.get_facecolor() == to_rgba(VERDICTS["fatal"])
    assert picture.text.get_text().split()[:5] == result.text.split()[:5]
    assert "fatal" in picture.sentence and f"{result.loss:.3f}" in picture.sentence


def test_removals_picture_draws_both_bars():
    found = ablation.removals(stories.shipped(), operating.ROWS[:2])
    bars = RemovalsPicture(found).figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [r.direct for r in found] + [
        r.total for r in found
    ]
    assert max(r.direct for r in found[:-1]) < 0.05 < 3 < found[0].total


def test_shares_and_drops_as_the_chapter_tells_them():
    for kind, m in (("who", 5), ("colour", 1), ("place", 3)):
        cases = [q.case for q in inside.questions(kind, 12)]
        found = ablation.compare(stories.shipped(), cases)
        lead = sum(c.share for c in found)
        assert found[m].share < 0.25 * lead and found[m].drop > 0.7 * lead
        assert found[-1].drop < found[-1].share  # the denominator
    panel = ComparedPicture({"place": found}).figure.axes[0]
    blue, orange = panel.lines[-3:-1]
    assert list(blue.get_ydata()) == [c.share for c in found]
    assert list(orange.get_ydata()) == [c.drop for c in found]


@pytest.mark.parametrize("question", operating.PAIRS)
def test_two_stories_differ_in_one_fact_and_in_their_answers(question):
    found = operating.patches(question, "embed", 20)
    differ = [i for i, (a, b) in enumerate(zip(found.words, found.others, strict=True)) if a != b]
    assert 1 <= len(differ) <= 2
    text, *facts = operating.PAIRS[question]
    for fact, answer in zip(facts, found.answers, strict=True):
        words = [grammar.END, *TOKENIZER.split(text.format(*fact))]
        assert probabilities(words)[-1, TOKENIZER.ids([answer])[0]] > 0.9
    embed = found.patching.moved[0]
    assert embed[differ[-1]] > 0.95  # the fact itself
    same = [moved for i, moved in enumerate(embed) if i not in differ]
    assert same == pytest.approx([0.0] * len(same), abs=1e-9)


def test_the_place_goes_from_its_word_through_attention_1_to_the_last():
    found = operating.patches("place", "attn 1", 20)
    moved = np.array(found.patching.moved)
    assert found.words[10] == "school" and moved[2, 10] > 0.95 and moved[3, 19] > 0.95
    assert np.delete(moved[3], 19) == pytest.approx(0, abs=0.05)
    assert found.says == "park" and (found.row, found.column) == (3, 19)
    picture = PatchPicture(found)
    np.testing.assert_array_equal(picture.map.get_array(), moved)
    assert picture.frame.get_xy() == (18.5, 2.5)
    shown = {(round(c.get_position()[1]), round(c.get_position()[0])): c.get_text()
             for c in picture.cells}  # fmt: skip
    assert shown[3, 19] == shown[2, 10] == shown[0, 10] == "1.0" and len(shown) == 6
    picture.show(operating.patches("colour", "embed", 1))
    assert len(picture.cells) == len(picture.axes.texts) > 0
    picture.show(found)
    labels = [label.get_text() for label in picture.axes.get_xticklabels()]
    assert labels[10] == "school → park" and labels[11] == "."
    assert "attn 1 at word 20, “the”, we are 100% of the way" in picture.sentence


def test_wirings_are_the_losses_of_edited_models():
    found, model = operating.wirings(), stories.shipped()
    for i in range(4):
        for row, part in ((3, "attn"), (4, "ffn")):
            cut = surgery.cut_direct_path(model, i, part)
            wanted = edits.loss(cut, operating.ROWS)
            assert found.losses[row][i] == pytest.approx(wanted, abs=1e-12)
        skipped = edits.loss(surgery.skip_block(model, i), operating.ROWS)
        assert found.losses[2][i] == pytest.approx(skipped, abs=1e-12)
        gone = edits.Edited(model, {f"blocks.{i}.resid.attn": edits.removed})
        assert found.losses[0][i] == pytest.approx(edits.loss(gone, operating.ROWS), abs=1e-12)
    assert min(found.losses[3]) > log(45) > 1 > found.losses[4][0]  # attention, FFN
    assert found.losses[2] == sorted(found.losses[2], reverse=True)
    bars = WiringsPicture(found).figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [x for row in found.losses for x in row]
