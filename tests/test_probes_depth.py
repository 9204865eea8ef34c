"""Chapter 05: stacks against their laws and against independent arithmetic; what is drawn."""

from __future__ import annotations

from math import comb, inf, isnan, log10, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_lm.exercises import EXERCISES
from tiny_lm.plots import depth as plots
from tiny_lm.probes import depth, depth_laws, paths
from tiny_lm.probes.depth_laws import GAINS, LAWS, SEEDS, measure, row

pytestmark = pytest.mark.usefixtures("drawn_once")
HE, DEFAULT, SMALL = depth.INITS
RELU, REAL = depth.BRANCHES


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def norm(x):
    return x / x.square().mean(dim=-1, keepdim=True).sqrt()


# Each wiring written once more, with its constants typed in.
BY_HAND = {
    "plain": lambda x, f, L: f(x),
    "norm, no path": lambda x, f, L: f(norm(x)),
    "path, no norm": lambda x, f, L: x + f(x),
    "pre-norm": lambda x, f, L: x + f(norm(x)),
    "pre-norm / √L": lambda x, f, L: x + L**-0.5 * f(norm(x)),
    "post-norm": lambda x, f, L: norm(x + f(x)),
    "sandwich": lambda x, f, L: x + norm(f(norm(x))),
    "DeepNorm": lambda x, f, L: norm(L**0.25 * x + 0.5 * L**-0.5 * f(x)),
    "ReZero": lambda x, f, L: x,
}


@pytest.mark.parametrize("branch", depth.BRANCHES)
@pytest.mark.parametrize("wiring", depth.WIRINGS)
def test_a_stack_is_what_it_says(wiring, branch):
    """Stream, gradient and cosine, computed again in the plainest way."""
    found = depth.stack(wiring, branch, HE, layers=5, seed=3)
    x, sent = depth.inputs(3)
    x.requires_grad_()
    y = x
    for made in depth.branches(branch, HE, 3)[:5]:
        y = BY_HAND[wiring](y, made, 5)
    (arrived,) = torch.autograd.grad(y, x, sent)
    assert found.stream[0] == pytest.approx(float(x.detach().square().mean().sqrt()), rel=1e-12)
    assert found.stream[-1] == pytest.approx(float(y.detach().square().mean().sqrt()), rel=1e-10)
    assert found.gradient[0] == pytest.approx(float(arrived.norm() / sent.norm()), rel=1e-10)
    assert found.gradient[-1] == 1
    rows = torch.nn.functional.normalize(y.detach()[0], dim=-1)
    between = (rows @ rows.T)[~torch.eye(16, dtype=torch.bool)].mean()
    assert found.cosine[-1] == pytest.approx(float(between), abs=1e-10)
    assert len(found.stream) == len(found.gradient) == len(found.cosine) == 6


def test_the_two_scales_of_deepnorm_are_the_papers():
    blocks = 8  # N of the paper; 16 layers here
    alpha, beta = (2 * blocks) ** 0.25, (8 * blocks) ** -0.25
    assert alpha == pytest.approx(16**0.25) and beta**2 == pytest.approx(0.5 * 16**-0.5)
    x, _ = depth.inputs(0)
    branch = depth.branches(RELU, HE, 0)[0]
    scaled = torch.relu(x @ (beta * branch.up).T) @ (beta * branch.down).T
    expected = norm(alpha * x + scaled)
    assert torch.allclose(depth.WIRINGS["DeepNorm"](x, branch, 16), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("init", "up", "down"),
    [(HE, 2 / 64, 1 / 256), (DEFAULT, 1 / (3 * 64), 1 / (3 * 256)), (SMALL, 4e-4, 4e-4)],
)
def test_initialisations_have_their_variance(init, up, down):
    first = depth.branches(RELU, init, 0)[0]
    for weight, variance in ((first.up, up), (first.down, down)):
        assert weight.dtype == torch.float64 and not weight.requires_grad
        # The variance of 16384 numbers scatters by sqrt(2 / 16384), 1.1 %.
        assert float(weight.square().mean()) == pytest.approx(variance, rel=0.05)
    attention, ffn = depth.branches(REAL, HE, 0)[:2]
    assert float(attention.q_proj.weight.square().mean()) == pytest.approx(1 / 64, rel=0.1)
    assert float(ffn.down_proj.weight.square().mean()) == pytest.approx(1 / 176, rel=0.1)


def test_pytorchs_default_is_that_of_linear():
    torch.manual_seed(0)
    theirs = torch.nn.Linear(64, 256, bias=False).weight
    ours = depth.branches(RELU, DEFAULT, 0)[0].up
    assert float(ours.abs().max()) == pytest.approx(1 / 8, rel=1e-3)
    assert float(ours.std()) == pytest.approx(float(theirs.detach().std()), rel=0.03)


@pytest.mark.parametrize("init", depth.INITS)
def test_the_gain_is_what_a_branch_does(init):
    """Over 5 x 16 branches the mean square scatters by a few percent."""
    x, _ = depth.inputs(0)
    gains = [
        float(branch(x).square().mean() / x.square().mean())
        for seed in SEEDS
        for branch in depth.branches(RELU, init, seed)[:16]
    ]
    assert np.mean(gains) == pytest.approx(GAINS[init], rel=0.05)
    assert GAINS[HE] == 1 and GAINS[DEFAULT] == pytest.approx(1 / 18)
    assert GAINS[SMALL] == pytest.approx(0.00131, rel=0.01)


def test_random_numbers_outside_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    depth.branches.__wrapped__(REAL, HE, 0)
    assert torch.equal(torch.rand(3), expected)


# What a reference run measured with other seeds: medians of five at 4, 16, 64 and 128 layers.
# ln of five-seed medians scatters by about 0.1 in sizes that grow by themselves, and by up to
# 0.25 a factor of e where 128 random factors are multiplied; `near` is that, in ln, doubled.
TABLE = [
    ("plain", [0.95, 1.11, 0.48, 0.49], {16: 0.94, 128: 0.49}, 1.0),
    ("path, no norm", [4.0, 233, 1.9e9, 4.2e18], {16: 256, 128: 1.2e19}, 0.8),
    ("pre-norm", [2.26, 4.04, 7.90, 11.29], {16: 4.4, 128: 12.2}, 0.12),
    ("pre-norm / √L", [1.43, 1.40, 1.41, 1.42], {16: 1.43, 128: 1.47}, 0.06),
    ("post-norm", [1, 1, 1, 1], {16: 1.19, 128: 1.17}, 0.5),
    ("DeepNorm", [1, 1, 1, 1], {16: 1.010, 128: 1.003}, 0.03),
    ("sandwich", [2.24, 3.99, 7.99, 11.23], {16: 4.42, 128: 12.9}, 0.12),
    ("ReZero", [0.99, 0.99, 0.99, 0.99], {16: 1, 128: 1}, 0.03),
]


@pytest.mark.parametrize(("wiring", "stream", "gradient", "near"), TABLE)
def test_the_reference_table_within_seed_noise(wiring, stream, gradient, near):
    found = row(wiring)
    assert np.log(found.stream) == pytest.approx(np.log(stream), abs=near)
    measured = [found.gradient[1], found.gradient[3]]
    assert np.log(measured) == pytest.approx(np.log(list(gradient.values())), abs=near)


@pytest.mark.parametrize(
    ("init", "stream", "near"), [(HE, 4.2e18, 0.8), (DEFAULT, 37, 0.2), (SMALL, 1.08, 0.02)]
)
def test_no_norm_depends_on_the_initialisation(init, stream, near):
    found = row("path, no norm", (128,), init=init)
    assert np.log(found.stream[0]) == pytest.approx(np.log(stream), abs=near)


def test_fits_beside_laws():
    """(1 + g²)^(L/2), linear growth in mean square, flat at √2, exactly 1."""
    for seed in SEEDS:
        assert measure("path, no norm", layers=128, seed=seed).fitted == pytest.approx(
            sqrt(2), rel=0.015
        )
        shrinking = measure("plain", init=DEFAULT, layers=128, seed=seed)
        assert shrinking.fitted == pytest.approx(sqrt(1 / 18), rel=0.04)
        assert measure("pre-norm", layers=128, seed=seed).fitted == pytest.approx(1, abs=0.25)
        assert measure("pre-norm / √L", layers=128, seed=seed).fitted == pytest.approx(
            sqrt(2), rel=0.03
        )
        exact = measure("ReZero", layers=128, seed=seed)
        assert set(exact.stack.gradient) == {1.0} and len(set(exact.stack.stream)) == 1


@pytest.mark.parametrize("wiring", LAWS)
@pytest.mark.parametrize("init", [HE, DEFAULT])
def test_laws_hold_layer_by_layer(wiring, init):
    """Mean of ln(measured / law) over five seeds, at every layer of 32."""
    runs = [measure(wiring, init=init, layers=32, seed=seed) for seed in SEEDS]
    for kind in ("stream", "gradient"):
        measured = np.log([getattr(run.stack, kind) for run in runs]).mean(axis=0)
        law = np.log(getattr(runs[0], f"law_{kind}"))
        # In 32 random factors ln scatters by about 0.45, in five seeds' mean by 0.2.
        assert measured == pytest.approx(law, abs=0.6), kind


def test_plain_keeps_its_gradient_and_loses_its_inputs():
    found = row("plain", (4, 128))
    assert found.cosine[0] == pytest.approx(0.7, abs=0.1) and found.cosine[1] > 0.995
    assert 0.05 < found.gradient[1] < 5


def test_post_norm_turns_no_direction():
    """ReLU branches are homogeneous, so both stacks have the same directions."""
    one, two = depth.stack("post-norm", layers=40), depth.stack("path, no norm", layers=40)
    assert one.cosine == pytest.approx(two.cosine, abs=1e-9)


def test_real_branches():
    explodes = row("path, no norm", (4, 16, 64), REAL)
    assert explodes.stream[0] < 10 and explodes.stream[1] > 1e20
    assert explodes.stream[2] == explodes.gradient[2] == inf and isnan(explodes.cosine[2])
    assert row("norm, no path", (128,), REAL).gradient[0] > 1e6
    post = row("post-norm", (16, 128), REAL).gradient
    assert 1.2 < post[0] < 4 and 300 < post[1] < 10_000
    assert row("pre-norm", (128,), REAL).gradient[0] == pytest.approx(16, abs=6)


def test_sizes_survive_squares_that_do_not():
    tiny = depth.stack("plain", RELU, SMALL, layers=128)
    assert 1e-190 < tiny.stream[-1] < 1e-180  # its square is 0 in float64
    assert depth._sizes([torch.zeros(2, 2), torch.full((2, 2), inf)]) == [0.0, inf]


def test_slope():
    assert depth_laws.slope([1.0, 3.0, 5.0]) == 2
    y = [0.3, 0.1, 4.0, -1.0, 2.0]
    assert depth_laws.slope(y) == pytest.approx(np.polyfit(range(5), y, 1)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sideways",), "stack: expected one of plain, .*ReZero, got 'sideways'"),
        (("plain", "GELU"), "stack: expected one of ReLU, attention, SwiGLU, got 'GELU'"),
        (("plain", RELU, "zeros"), "stack: expected one of He / fan-in, .*, got 'zeros'"),
        (("plain", RELU, HE, 0), "stack: expected 1 to 128 layers, got 0"),
        (("plain", RELU, HE, 129), "stack: expected 1 to 128 layers, got 129"),
    ],
)
def test_errors_of_a_stack(arguments, message):
    with pytest.raises(ValueError, match=message):
        depth.stack(*arguments)


@pytest.mark.parametrize("wiring", paths.PATHS)
@pytest.mark.parametrize("init", [HE, DEFAULT])
def test_the_parts_sum_to_the_gradient(wiring, init):
    parts = paths.split(wiring, init, layers=12, seed=1)
    x, sent = (part[:, :1] for part in depth.inputs(1))
    x = x.clone().requires_grad_()
    y = x
    for branch in depth.branches(RELU, init, 1)[:12]:
        y = BY_HAND[wiring](y, branch, 12)
    (arrived,) = torch.autograd.grad(y, x, sent)
    assert torch.allclose(parts.sum(dim=0), arrived[0, 0], rtol=1e-10, atol=1e-12)
    assert torch.equal(parts[0], sent[0, 0])  # the direct path alone


def test_parts_of_two_layers_by_hand():
    first, second = paths.jacobians("path, no norm", HE, 0)[:2]
    sent = depth.inputs(0)[1][0, 0]
    one = first.T @ sent + second.T @ sent
    two = first.T @ (second.T @ sent)
    parts = paths.split("path, no norm", HE, 2, 0)
    assert torch.allclose(parts[1], one, atol=1e-12) and torch.allclose(parts[2], two, atol=1e-12)


def test_lengths_of_54_layers():
    """Veit et al.: 98 % of the paths are 19 to 35 long. The gradient's mean, with its law."""
    found = paths.lengths("pre-norm")
    assert sum(found.paths[19:36]) == pytest.approx(0.980, abs=5e-4)
    assert found.paths[27] == comb(54, 27) / 2**54 and found.mean_paths == pytest.approx(27)
    harmonic = sum(1 / n for n in range(1, 56))
    assert found.mean_law == pytest.approx(harmonic - 1)
    for wiring, init, law in [
        ("path, no norm", HE, 27),
        ("path, no norm", DEFAULT, 54 / 19),
        ("pre-norm", HE, harmonic - 1),
    ]:
        runs = [paths.lengths(wiring, init, 54, seed) for seed in SEEDS]
        assert runs[0].mean_law == pytest.approx(law)
        mean = np.mean([run.mean_gradient for run in runs])
        assert mean == pytest.approx(law, rel=0.15)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.sampled_from(paths.PATHS), st.sampled_from(list(depth.INITS)))
def test_the_length_law_is_a_distribution(layers, wiring, init):
    law = paths.length_law(wiring, init, layers)
    assert len(law) == layers + 1 and min(law) >= 0 and sum(law) == pytest.approx(1)
    reference = EXERCISES["mean_path"].reference
    if wiring == "pre-norm" and init == HE:
        assert paths.mean_length(law) == pytest.approx(reference(layers))


def test_errors_of_lengths():
    with pytest.raises(ValueError, match=r"lengths: expected one of .*, got 'plain'"):
        paths.lengths("plain")
    with pytest.raises(ValueError, match="lengths: expected 1 to 64 layers, got 65"):
        paths.lengths(layers=65)


def test_shattering_follows_the_length_of_the_paths():
    curves = [paths.line(w).resemblance for w in ("plain", *paths.PATHS, "pre-norm / √L")]
    for lag in (2, 4, 8):
        assert sorted(curve[lag] for curve in curves) == [curve[lag] for curve in curves]
    assert all(curve[0] == pytest.approx(1) for curve in curves)
    assert paths.line("ReZero").resemblance == pytest.approx([1.0] * 33)  # one slope everywhere


def test_a_slope_along_the_line_is_the_difference_quotient():
    slopes = paths._slopes("pre-norm", 10, 0)
    (start, along, *_), sent = (part[0] for part in depth.inputs(0))

    def output(t):
        y = (start + t * along)[None, None]
        for branch in depth.branches(RELU, HE, 0)[:10]:
            y = BY_HAND["pre-norm"](y, branch, 10)
        return float((y[0, 0] @ sent[0]) / sqrt(depth.WIDTH))

    place, small = 40, 1e-6
    t = paths._places()[place].item()
    quotient = (output(t + small) - output(t - small)) / (2 * small)
    assert float(slopes[place]) == pytest.approx(quotient, rel=1e-5)


# What is drawn


def test_the_depth_picture_draws_the_numbers():
    picture = plots.DepthPicture(measure("pre-norm", layers=20))
    picture_numbers = measure("path, no norm", layers=30)
    sentence = picture.show(picture_numbers)
    stack = picture_numbers.stack
    (stream, law), (gradient, law_back) = picture.lines
    assert stream.get_ydata() == pytest.approx([log10(value) for value in stack.stream])
    assert gradient.get_ydata() == pytest.approx([log10(value) for value in stack.gradient])
    assert law.get_ydata() == pytest.approx([l / 2 * log10(2) for l in range(31)])  # noqa: E741
    assert law_back.get_ydata()[0] == pytest.approx(15 * log10(2))
    assert picture.cosine.get_ydata() == pytest.approx(stack.cosine)
    assert "30 layers" in sentence and "(law 1.41)" in sentence and "(law 3.3e4)" in sentence
    low, high = picture.axes[0].get_ylim()
    assert low < 0 < max(stream.get_ydata()) < high


def test_no_law_is_drawn_for_real_branches():
    picture = plots.DepthPicture(measure("path, no norm", REAL, HE, 128))
    assert len(picture.lines[0][1].get_ydata()) == 0
    assert "ends at infinity (no law" in picture.sentence and "cannot be told" in picture.sentence


def test_the_lengths_picture_draws_the_numbers():
    numbers = paths.lengths("pre-norm", layers=10)
    picture = plots.LengthsPicture(paths.lengths(layers=54))
    picture.show(numbers)
    heights = [bar.get_height() for bar in picture.bars]
    assert heights[:11] == numbers.gradient and not any(heights[11:])
    assert picture.paths.get_ydata() == numbers.paths
    assert f"through {numbers.mean_gradient:.1f} (law {numbers.mean_law:.1f})" in picture.sentence


def test_the_line_picture_draws_the_numbers():
    lines = [paths.line("plain"), paths.line("pre-norm")]
    picture = plots.LinePicture(lines)
    drawn = [line.get_ydata() for line in picture._moving]
    expected = [values for line in lines for values in (line.slopes, line.resemblance)]
    assert [list(values) for values in drawn] == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1.414, "1.41"),
        (0.0023, "0.0023"),
        (1897.0, "1,900"),
        (4.2e18, "4.2e18"),
        (2.1e-81, "2.1e−81"),
        (1e-10, "1.0e−10"),
        (0.0, "0"),
        (inf, "infinity"),
    ],
)
def test_short(value, text):
    assert plots.short(value) == text
