"""Chapter 04: the numbers behind RoPE, causality, wiring and taps, and what their figures draw."""

import math

import numpy as np
import pytest
import torch

from tiny_lm.layers import BLOCKS
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.plots.attention import CausalityPicture, HeadPicture, RopePicture
from tiny_lm.plots.block import StreamPicture, WiringPicture
from tiny_lm.plots.block_map import WalkPicture
from tiny_lm.plots.picture import RED, SKY
from tiny_lm.probes.attention import (
    FAULTS,
    HEADS,
    POSITIONS,
    WORDS,
    causality,
    head_weights,
    rope_score,
)
from tiny_lm.probes.block import StreamSizes, stream_sizes, walk, wiring

NOTHING = {"rel": 0, "abs": 1e-12}  # float64, and numbers near 1


def normed(x, eps=1e-5):
    root = math.sqrt(math.fsum(v * v for v in x) / len(x) + eps)
    return [v / root for v in x]


def near(expected, **tolerance):
    return pytest.approx(expected, **(tolerance or NOTHING))


# RoPE


@pytest.mark.parametrize(("query_at", "key_at", "pair"), [(7, 4, 0), (0, 20, 1), (20, 0, 3)])
def test_a_score_is_the_cosine_of_the_angle_between_the_turned_vectors(query_at, key_at, pair):
    """q stands atan2(0.6, 0.8) ahead of k; both have length 1."""
    numbers = rope_score(query_at, key_at, pair)
    speed = 10.0**-pair  # 10,000^(−2 pair / 8)
    ahead = math.atan2(0.6, 0.8) + (query_at - key_at) * speed
    assert numbers.speed == near(speed)
    assert numbers.score == near(math.cos(ahead))
    assert math.hypot(*numbers.query) == near(1.0) and math.hypot(*numbers.key) == near(1.0)
    curve = [math.cos(math.atan2(0.6, 0.8) + d * speed) for d in numbers.distances]
    assert numbers.curve == near(curve)


def test_a_score_depends_on_the_distance_alone():
    assert rope_score(7, 4).score == near(-0.8766660021, abs=1e-10)
    assert rope_score(20, 17).score == near(rope_score(7, 4).score)
    assert rope_score(8, 4).score != near(rope_score(7, 4).score, abs=0.1)
    assert rope_score(5, 5, 2).score == near(0.8)


def test_the_rope_picture_draws_the_turned_vectors_and_the_score():
    numbers = rope_score(7, 4, 1)
    picture = RopePicture(numbers)
    assert picture.query.get_xydata()[1] == near(numbers.query)
    assert picture.key.get_xydata()[1] == near(numbers.key)
    assert picture.here.get_xydata()[0] == near([3, numbers.score])
    assert np.interp(3, *picture.curve.get_data()) == near(numbers.score, abs=1e-9)


# causality


def pairs(condition):
    return [(i, j) for i in range(POSITIONS) for j in range(i + 1, POSITIONS) if condition(i, j)]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_leaks_where_it_must(fault):
    expected = {"none": [], "mask off by one": pairs(lambda i, j: j == i + 1)}
    numbers = causality(3, fault)
    assert numbers.leaks == expected.get(fault, pairs(lambda i, j: True))
    for i in range(POSITIONS):
        for j in range(i + 1):  # what may move does, so no square is white by accident
            assert numbers.moves[i][j] > 1e-3


def test_without_a_fault_the_probe_is_the_package_block():
    """The probe writes the block out, to put faults in; so it must be the block without them."""
    from tiny_lm.probes.attention import _causality_block

    block, x = _causality_block()
    changed = x.clone()
    changed[2] += 5.0
    with torch.no_grad():
        move = (block(changed[None]) - block(x[None]))[0].square().mean(dim=-1).sqrt()
    column = [row[2] for row in causality(3).moves]
    assert column == near(move.tolist())


def test_the_causality_picture_marks_the_leaks_and_the_changed_column():
    picture = CausalityPicture(causality(3, "none"))
    numbers = causality(5, "no mask")
    assert "outputs 1, 2, 3, 4 moved too" in picture.show(numbers)
    assert picture.column.get_x() == near(4.5)
    heights = [bar.get_height() for bar in picture.bars]
    assert heights == near([row[4] for row in numbers.moves])
    red, blue, white = (np.array(_rgb(colour)) for colour in (RED, SKY, "white"))
    assert picture.cells[0, 4].get_facecolor() == near(red) and picture.cells[0, 4].get_hatch()
    assert picture.cells[4, 0].get_facecolor() == near(blue)
    assert "No earlier output moved" in picture.show(causality(5, "none"))
    assert picture.cells[0, 4].get_facecolor() == near(white)
    assert "proves nothing" in picture.show(causality(1, "no mask"))


def _rgb(colour):
    from matplotlib.colors import to_rgba

    return to_rgba(colour)


# wiring


def test_the_stand_ins_give_six_and_six():
    """x = [3, 4]; h = x + [1, 0] = [4, 4]; norm2(h) = [1, 1] up to eps; y = h + 2 · norm2(h)."""
    numbers = wiring()
    (one, _) = normed([4.0, 4.0])
    assert normed([3.0, 4.0]) == near([0.8485277980, 1.1313703974], abs=1e-10)
    assert numbers.attention[0] == near(normed([3.0, 4.0]))
    assert numbers.taps["resid.attn"] == near([4.0, 4.0])
    assert numbers.ffn == (near([one, one]), near([2 * one, 2 * one]))
    assert numbers.y == near([4 + 2 * one] * 2)
    assert numbers.y == near([5.999999375, 5.999999375], abs=1e-9)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("pre", [3.0, 4.0]), ("post", normed(normed([3.0, 4.0]))), ("plain", [0.0, 0.0])],
)
def test_branches_of_zeros(order, expected):
    numbers = wiring(order, attention_on=False, ffn_on=False)
    assert numbers.y == near(expected)
    assert set(numbers.taps) == {"norm.attn", "resid.attn", "norm.ffn", "resid.ffn"}


def test_a_large_stream_is_read_at_the_same_size_in_pre_norm_alone():
    assert wiring(size=100.0).attention[0] == near(normed([300.0, 400.0]))
    assert wiring("post", size=100.0).attention[0] == near([300.0, 400.0])
    h = normed([301.0, 400.0])
    assert wiring("post", size=100.0).y == near(normed([3 * value for value in h]))
    assert wiring(norms=False).y == near([12.0, 12.0])  # [4, 4] + 2 · [4, 4]
    assert wiring("plain").y == near([2.828398841, 0.0], abs=1e-8)


def test_a_walk_passes_seven_stations():
    vectors = [walk(step).vector for step in range(1, 8)]
    h = normed([4, 4])
    wanted = [[3, 4], normed([3, 4]), [1, 0], [4, 4], h, [2 * v for v in h], [4 + 2 * v for v in h]]
    assert vectors == [near(vector) for vector in wanted]
    for step in (4, 7):
        before = walk(step - 1).stream
        added = [a + b for a, b in zip(before, walk(step).wrote, strict=True)]
        assert walk(step).vector == walk(step).stream == near(added)
    with pytest.raises(ValueError, match="walk: expected a step from 1 to 7, got 8"):
        walk(8)


def test_the_walk_frames_its_station_and_says_what_is_there():
    picture = WalkPicture(walk(1))
    assert picture.sentence == "Step 1 of 7. x = [3, 4] enters on the direct path."
    assert picture.show(walk(4)).endswith("The sum: [3, 4] + [1, 0] = [4, 4]. It is called h.")
    frame = picture.frame
    middle = (frame.get_x() + frame.get_width() / 2, frame.get_y() + frame.get_height() / 2)
    assert middle == pytest.approx((picture.joins[0], 0))
    assert picture.here.get_text() == "[4, 4]"
    assert picture.show(walk(7)).startswith("Step 7 of 7. The sum: [4, 4] + [2, 2] = [6, 6].")


@pytest.mark.parametrize("order", BLOCKS)
def test_the_wiring_picture_writes_what_flows(order):
    picture = WiringPicture(wiring())
    picture.show(wiring(order))
    texts = {name: text.get_text() for name, text in picture.texts.items()}
    expected = {
        "pre": ("[0.849, 1.13]", "[4, 4]", "[1, 1]", "[6, 6]"),
        "post": ("[3, 4]", "[1, 1]", "[1, 1]", "[1, 1]"),
        "plain": ("[0.849, 1.13]", "[1, 0]", "[1.41, 0]", "[2.83, 0]"),
    }[order]
    shown = [texts[name].splitlines()[-1] for name in ("read1", "h", "read2", "y")]
    assert tuple(shown) == expected
    assert texts["sum1"] == ("sum\n[4, 4]" if order == "post" else "")
    # Without a direct path the thick line has two gaps, and no sum is drawn.
    gaps = np.isnan(np.asarray(picture.direct.get_xdata(), dtype=float)).sum()
    assert gaps == (2 if order == "plain" else 0)
    drawn = [part.get_visible() for pair in picture.sums for part in pair]
    assert drawn == [order != "plain"] * 4


def test_a_norm_stands_in_the_branch_or_on_the_direct_path():
    picture = WiringPicture(wiring())
    heights = {}
    for order in ("pre", "post", "plain"):
        picture.show(wiring(order))
        heights[order] = {label.get_position()[1] for _, label in picture.norms}
    assert heights["pre"] == heights["plain"] != {picture.MAIN}
    assert heights["post"] == {picture.MAIN}
    picture.show(wiring(norms=False))
    assert not any(part.get_visible() for norm in picture.norms for part in norm)


# the stream of a model


@pytest.fixture(scope="module")
def model():
    model = TinyLM(ModelConfig(vocab_size=16, n_layers=3, d_model=32, n_heads=2, d_ff=64))
    with torch.no_grad():
        model.embedding.weight[3, 0] = -1.0  # so that the largest entry is a negative one
    return model.double()


TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


def test_stream_sizes_follow_the_embedding_and_every_block(model):
    numbers = stream_sizes(model, TOKENS)
    x, expected = model.embedding(TOKENS), []
    with torch.no_grad():
        for block in (None, *model.blocks):
            x = x if block is None else block(x)
            expected.append((x[0].square().mean(-1).sqrt().tolist(), x.abs().max().item()))
    assert numbers.sizes == [near(sizes) for sizes, _ in expected]
    assert numbers.largest == near([largest for _, largest in expected])


def test_the_stream_picture_draws_every_position():
    first = [0.08] + [28.0] * 11 + [946.0] + [350.0] * 3
    numbers = StreamSizes([[f, 1.0 + i, 2.0 + i] for i, f in enumerate(first)], [0.0] * 16)
    picture = StreamPicture(numbers)
    drawn = [line.get_ydata() for line in picture.figure.axes[0].lines]
    assert sorted(map(tuple, drawn)) == sorted(zip(*numbers.sizes, strict=True))
    assert picture.figure.axes[0].get_xlim()[1] < 16  # the axis ends with the last block
    assert "946 after 12 (most after 12), 350 after 15" in picture.sentence


def test_the_wiring_says_when_norms_are_off_and_writes_large_numbers_out():
    picture = WiringPicture(wiring(size=100.0, norms=False))
    assert picture.sentence.startswith("Pre-norm, norms left out, x = [300, 400]")
    assert "y = [903, 1200]" in picture.sentence and "e+" not in picture.sentence
    assert "left out" not in picture.show(wiring())


# heads


@pytest.mark.parametrize("head", HEADS)
def test_rows_of_weights_sum_to_one_and_see_no_later_word(head):
    weights = np.array(head_weights(head, 8, 31.6).weights)
    assert weights.sum(axis=1) == near(np.ones(len(WORDS)))
    assert (np.triu(weights, 1) == 0).all()


def test_the_head_for_the_word_before_is_rope_alone():
    weights = np.array(head_weights("the word before", 8, 40.0).weights)
    apart = np.arange(9) - np.arange(9)[:, None] + 1  # key − query + 1
    scores = 10.0 * sum(np.cos(apart * 10000.0 ** (-2 * pair / 16)) for pair in range(4))
    scores[np.triu_indices(9, 1)] = -np.inf
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert weights == near(shares / shares.sum(axis=1, keepdims=True), abs=1e-10)
    assert [int(row.argmax()) for row in weights] == [0, 0, 1, 2, 3, 4, 5, 6, 7]
    even = np.tril(np.ones((9, 9))) / np.arange(1, 10)[:, None]
    for head, rope in (("the word before", False), ("all alike", True)):
        assert np.array(head_weights(head, 8, 40.0, rope).weights) == near(even)


@pytest.mark.parametrize("rope", [True, False])
def test_the_head_for_the_same_word_shares_among_its_places(rope):
    weights = np.array(head_weights("the same word", 8, 100.0, rope).weights)
    for at, row in enumerate(weights):
        same = [k for k in range(at + 1) if WORDS[k] == WORDS[at]]
        assert row[same] == pytest.approx(np.full(len(same), 1 / len(same)), abs=0.05)


def test_the_head_picture_draws_map_and_row():
    numbers = head_weights("the same word", 8, 31.6)
    picture = HeadPicture(numbers)
    assert np.array(picture.map.get_array()).tolist() == numbers.weights
    assert [bar.get_height() for bar in picture.bars] == numbers.weights[7]
    assert "'cat', word 8, takes most: 50% from cat (8), 50% from cat (2)" in picture.sentence
