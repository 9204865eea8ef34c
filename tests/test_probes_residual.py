"""Chapters 00 and 01: the numbers against right values, and what the pictures draw."""

import re
from itertools import pairwise
from math import cos, inf, isinf, log10, sqrt, tanh
from pathlib import Path

import nbformat
import pytest
import torch

from tiny_lm.exercises import EXERCISES
from tiny_lm.plots import residual as plots
from tiny_lm.plots.block_map import BlockMap
from tiny_lm.probes import residual as probes

ROOT = Path(__file__).parents[1]


def test_added():
    numbers = probes.added(2.0, -1.0)
    assert (numbers.x, numbers.change, numbers.total) == ([3, 4], [2, -1], [5, 3])


@pytest.mark.parametrize(
    ("a", "branch", "total"),
    [(0, [0, 0], [3, 4]), (2, [6, 8], [9, 12]), (-1, [-3, -4], [0, 0]), (9, [27, 36], [30, 40])],
)
def test_strength(a, branch, total):
    numbers = probes.strength(a)
    assert (numbers.branch, numbers.total) == (branch, total)
    assert (numbers.branch_slope, numbers.slope) == (a, 1 + a)


@pytest.mark.parametrize(
    ("branch", "derivative"),
    [
        ("0", lambda x: 0.0),
        ("2x", lambda x: 2.0),
        ("−x", lambda x: -1.0),
        ("−2 tanh(x)", lambda x: -2 * (1 - tanh(x) ** 2)),
        ("sin(3x)", lambda x: 3 * cos(3 * x)),
    ],
)
@pytest.mark.parametrize("x", [-2.0, -0.3, 0.0, 1.0])
def test_slopes_of_both_paths_add_up(branch, derivative, x):
    numbers = probes.slope(branch, x)
    assert numbers.direct_slope == 1
    assert numbers.branch_slope == pytest.approx(derivative(x), abs=1e-12)
    assert numbers.slope == pytest.approx(1 + derivative(x), abs=1e-12)


def test_every_branch_of_the_lab_has_a_right_value_above():
    parameters = test_slopes_of_both_paths_add_up.pytestmark[1].args[1]
    assert [name for name, _ in parameters] == list(probes.BRANCHES)


def test_slope_curves():
    numbers = probes.slope("2x", 1.0)
    assert numbers.y == 3
    assert (numbers.grid[0], numbers.grid[-1]) == (-2, 2)
    assert numbers.branch_values == [2 * x for x in numbers.grid]
    assert numbers.sums == [3 * x for x in numbers.grid]


def test_flat_places_named_in_the_text():
    assert probes.slope("−2 tanh(x)", 0.881373587019543).slope == pytest.approx(0, abs=1e-12)
    for x in (0.6368777454, 1.4575173569):
        for place in (x, -x):
            assert probes.slope("sin(3x)", place).slope == pytest.approx(0, abs=1e-8)
    signs = [s > 0 for s in (probes.slope("sin(3x)", -2 + i / 50).slope for i in range(201))]
    assert sum(a != b for a, b in pairwise(signs)) == 4


@pytest.mark.parametrize(
    ("a", "degrees", "total", "length"),
    [
        (1, 0, [2, 0], 2),
        (1, 90, [1, 1], sqrt(2)),
        (1, 180, [0, 0], 0),
        (2, 270, [1, -2], sqrt(5)),
        (0, 33, [1, 0], 1),
        (0.5, 60, [1.25, sqrt(3) / 4], sqrt(1.75)),
    ],
)
def test_two_paths(a, degrees, total, length):
    numbers = probes.two_paths(a, degrees)
    assert numbers.total == pytest.approx(total, abs=1e-12)
    assert numbers.length == pytest.approx(length, abs=1e-12)
    assert numbers.least - 1e-12 <= numbers.length <= numbers.most + 1e-12
    assert (numbers.least, numbers.most) == (abs(1 - a), 1 + a)


def test_depth_values_of_the_lesson():
    assert probes.depth(0.1, 100).residual_end == pytest.approx(13780.6, abs=0.05)
    assert probes.depth(-0.1, 100).residual_end == pytest.approx(2.656e-5, rel=1e-4)
    assert probes.depth(2, 80).residual_end == pytest.approx(1.478e38, rel=1e-3)
    numbers = probes.depth(2, 100)
    assert [isinf(power) for power in numbers.residual].index(True) == 81
    assert not any(map(isinf, numbers.plain))
    assert [isinf(power) for power in probes.depth(2, 200).plain].index(True) == 128


def test_depth_holds_what_float32_holds():
    """0 and infinity at the same layer as a float32 made from the exact power."""
    for a in (-2.5, -1.9, -1.0, -0.5, 0.0, 0.35, 1.0, 2.0):
        numbers = probes.depth(a, 200)
        for logs, factor in ((numbers.plain, abs(a)), (numbers.residual, abs(1 + a))):
            for layer, power in enumerate(logs):
                held = torch.tensor(factor**layer, dtype=torch.float64).float().item()
                expected = inf if isinf(held) else log10(held) if held else -inf
                # the smallest float32 has one binary digit: up to a factor 2
                assert power == pytest.approx(expected, abs=0.302 if power < -38 else 1e-6)


@pytest.mark.parametrize(("a", "plain", "residual"), [(-1, 1, 0), (0, 0, 1), (-2, 2**50, 1)])
def test_depth_at_its_special_places(a, plain, residual):
    numbers = probes.depth(a - 1e-12, 50)  # a slider's −1 need not be exact
    assert (numbers.plain_end, numbers.residual_end) == (plain, residual)


def test_the_safe_zone_named_in_the_text():
    assert probes.depth(0.0232, 100).residual_end < 10 < probes.depth(0.0234, 100).residual_end
    assert probes.depth(-0.0227, 100).residual_end > 0.1 > probes.depth(-0.0229, 100).residual_end


def test_swallowed_values_of_the_lesson():
    """1 + 128 · 0.003: bf16 1.0, fp16 1.375, fp32 1.3840027, exact 1.384."""
    received = probes.swallowed(0.003).received
    final = {name: 1 + 0.384 * shares[-1] for name, shares in received.items()}
    assert final["bf16"] == 1 and final["fp16"] == pytest.approx(1.375, abs=1e-12)
    assert final["fp32"] == pytest.approx(1.3840027, abs=1e-7)
    assert [len(shares) for shares in received.values()] == [129] * 3


def test_updates_just_above_half_a_step_count_double():
    assert set(probes.swallowed(2.0**-8).received["bf16"]) == {0.0}  # half a step: lost
    assert probes.swallowed(0.004).received["bf16"][1] == pytest.approx(2**-7 / 0.512, rel=1e-9)
    assert probes.swallowed(0.00048).received["fp16"][-1] == 0
    assert probes.swallowed(0.0005).received["fp16"][-1] > 1.9
    assert probes.swallowed(1.0, start=256.0).received["bf16"][-1] == 0


def test_random_directions():
    for width in (4, 64):
        # 2,000 pairs: the root mean square has a relative spread of about 1.6 %
        assert probes.right_angles(width) * sqrt(width) == pytest.approx(1, abs=0.06)


def test_random_stack_grows_by_pythagoras():
    # the logarithm of one layer's factor has a spread of about sqrt(6 / 256) / 4 = 0.04
    assert probes.random_stack(0.0, 5, width=16) == 1
    for gain, backwards in ((0.5, False), (1.0, False), (1.0, True)):
        growth = probes.random_stack(gain, 10, width=256, backwards=backwards)
        assert growth ** (1 / 10) == pytest.approx(sqrt(1 + gain**2), rel=0.05)


def test_backwards_is_the_gradient_of_a_random_stack():
    """One layer, so that the order of the matrices does not matter."""
    there = probes.random_stack(1.0, 1, width=8)
    back = probes.random_stack(1.0, 1, width=8, backwards=True)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, generator=generator, dtype=torch.float64)
    W = torch.randn(8, 8, generator=generator, dtype=torch.float64) / sqrt(8)
    assert there == pytest.approx(float((x + W @ x).norm() / x.norm()))
    assert back == pytest.approx(float((x + W.T @ x).norm() / x.norm()))


# What the pictures draw.


def tips(arrow):
    start, end = arrow.patch._posA_posB
    return [*start], [*end]


def test_add_picture_puts_the_change_at_the_tip():
    picture = plots.AddPicture(probes.added(2.0, -1.0))
    assert tips(picture.x) == ([0, 0], [3, 4])
    assert tips(picture.change) == ([3, 4], [5, 3])
    assert tips(picture.total) == ([0, 0], [5, 3])
    assert "[3.0, 4.0] + [2.0, −1.0] = [5.0, 3.0]" in picture.sentence


def test_an_arrow_without_length_is_a_dot():
    picture = plots.AddPicture(probes.added(-3.0, -4.0))
    assert picture.total.dot.get_visible() and not picture.total.patch.get_visible()
    picture.show(probes.added(1.0, 0.0))
    assert picture.total.patch.get_visible() and not picture.total.dot.get_visible()


def test_strength_picture():
    picture = plots.StrengthPicture(probes.strength(-2.0))
    assert [bar.get_height() for bar in picture.bars] == [1, -2, -1]
    assert [label.get_text() for label in picture.labels] == ["1.00", "−2.00", "−1.00"]
    (start, end), (from_, to) = tips(picture.total), tips(picture.branch)
    assert [b - a for a, b in zip(start, end, strict=True)] == pytest.approx([-3, -4])
    assert [b - a for a, b in zip(from_, to, strict=True)] == pytest.approx([-6, -8])
    assert "1 − 2.00 = −1.00" in picture.sentence


def test_slope_picture():
    numbers = probes.slope("sin(3x)", 1.0)
    picture = plots.SlopePicture(numbers)
    assert list(picture.branch.get_ydata()) == numbers.branch_values
    assert list(picture.total.get_ydata()) == numbers.sums
    (x0, x1), (y0, y1) = picture.tangent.get_data()
    assert (y1 - y0) / (x1 - x0) == pytest.approx(1 + 3 * cos(3))
    assert (x0 + x1) / 2 == pytest.approx(1)
    assert picture.point.get_ydata()[0] == pytest.approx(numbers.y)


def test_two_paths_picture():
    picture = plots.TwoPathsPicture(probes.two_paths(1.0, 90.0))
    assert tips(picture.branch)[0] == [1, 0]
    assert tips(picture.branch)[1] == pytest.approx([1, 1])
    assert tips(picture.total)[1] == pytest.approx([1, 1])
    xs, ys = picture.circle.get_data()
    assert [(x - 1) ** 2 + y**2 for x, y in zip(xs, ys, strict=True)] == pytest.approx([1] * 181)
    assert "length 1.41" in picture.sentence


def test_depth_picture_has_rails_for_zero_and_infinity():
    picture = plots.DepthPicture(probes.depth(0.1, 100))
    assert picture.residual.get_ydata()[-1] == pytest.approx(log10(13780.6123398), abs=1e-9)
    assert list(picture.plain.get_ydata()[45:48]) == [pytest.approx(-45), -54, -54]
    assert "13,780.6 with the direct path, 1e−100 (0 in float32) without it" in picture.sentence
    picture.show(probes.depth(2.0, 81))
    assert list(picture.residual.get_ydata()[80:]) == [pytest.approx(80 * log10(3)), 54]
    assert list(picture.ends.get_ydata()) == [pytest.approx(81 * log10(2)), 54]
    assert "4.43e+38 (infinity in float32) with" in picture.sentence
    assert picture.largest == pytest.approx(log10(probes.FP32_LARGEST), abs=0.01)
    assert picture.smallest == pytest.approx(log10(probes.FP32_SMALLEST), abs=0.01)


def test_swallowed_picture():
    numbers = probes.swallowed(0.004)
    picture = plots.SwallowedPicture(numbers)
    for name, line in picture.lines.items():
        assert list(line.get_ydata()) == numbers.received[name]
    assert "fp32 100%, fp16 98%, bf16 195%" in picture.sentence


def test_block_map_needs_no_numbers_and_shows_the_order():
    picture = BlockMap()
    drawn = [text.get_text() for text in picture.figure.axes[0].texts]
    assert drawn.count("RMSNorm") == 2 and drawn.count("+") == 2
    assert "h = x + attention(norm(x))" in drawn
    assert "y = h + feed-forward(norm(h))" in drawn
    assert picture.pixels().std() > 10
    assert "direct path" in picture.sentence


def test_chapter_00_checks_the_versions_that_pyproject_asks_for():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    notebook = nbformat.read(ROOT / "notebooks/00_start_here.ipynb", as_version=4)
    (cell,) = [c for c in notebook.cells if "in range:" in c.source]
    ranges = re.findall(r'"(\w+)": \("([\d.]+)", "([\d.]*)"\)', cell.source)
    assert len(ranges) == 4
    for package, low, high in ranges:
        assert f"{package}>={low}" + (f",<{high}" if high else "") in wanted


def test_the_dead_slope_of_exercise_4_is_dead():
    *_, slope = probes.slopes(lambda x: EXERCISES["dead_slope"].reference * torch.tanh(x), 1.0)
    assert slope == pytest.approx(0, abs=1e-12)
