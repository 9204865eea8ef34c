"""The glass box: graphs, Jacobians, recorded values against right numbers, and their pictures."""

import numpy as np
import pytest
import torch

from tiny_lm.config import ModelConfig
from tiny_lm.model import TinyLM
from tiny_lm.plots.graph import COLOURS, GraphPicture
from tiny_lm.plots.inspector import InspectorPicture
from tiny_lm.plots.jacobian import MicroscopePicture
from tiny_lm.probes import graph, inspector, jacobian
from tiny_lm.probes.rms import jacobian as norm_jacobian
from tiny_lm.taps import Recorder
from tiny_lm.widgets import glass as labs


def near(expected, **tolerance):
    return pytest.approx(expected, **({"rel": 1e-12, "abs": 1e-12} | tolerance))


# The graph


def gradients(numbers):
    return {node.name: node.gradient for node in numbers.nodes}


@pytest.mark.parametrize(("x", "w"), [(3.0, 2.0), (-1.5, -1.0), (0.0, 0.5)])
def test_both_paths_of_a_residual_connection(x, w):
    numbers = graph.residual(3, x, w)
    assert {n.name: n.value for n in numbers.nodes} == {
        "x": [x], "w": [w], "w · x": [w * x], "y": [x + w * x],
    }  # fmt: skip
    assert gradients(numbers) == {"x": [1 + w], "w": [x], "w · x": [1], "y": [1]}
    kinds = {
        (numbers.nodes[e.start].name, numbers.nodes[e.end].name): e.path for e in numbers.edges
    }
    assert kinds == {
        ("x", "y"): "direct", ("x", "w · x"): "branch", ("w · x", "y"): "branch",
        ("w", "w · x"): "",
    }  # fmt: skip


def test_the_way_back_one_operation_at_a_time():
    """After the addition x has the direct path's 1, and the branch's 2 is still to come."""
    expected = [
        (None, False, 0),  # the gradient at x, whether it is complete, lines passed
        (None, False, 0),
        ([1.0], False, 2),
        ([3.0], True, 4),
    ]
    for step, (gradient, complete, passed) in enumerate(expected):
        numbers = graph.residual(step)
        assert numbers.nodes[0].gradient == gradient
        assert numbers.nodes[0].complete == complete
        assert sum(edge.passed for edge in numbers.edges) == passed
        assert [node.name for node in numbers.nodes if node.active] == [
            [], [], ["y"], ["w · x"],
        ][step]  # fmt: skip
    assert numbers.steps == 3


@pytest.mark.parametrize(("result", "seed"), graph.SEEDS.items())
def test_the_last_step_through_the_norm_is_its_jacobian(result, seed):
    matrix = norm_jacobian(torch.tensor([3.0, 4.0], dtype=torch.float64), eps=1e-5).numpy()
    numbers = graph.rms_norm(7, result)
    assert numbers.steps == 7 and all(node.complete for node in numbers.nodes)
    assert gradients(numbers)["x"] == near(seed @ matrix)


def test_the_norms_graph_in_the_middle():
    numbers = graph.rms_norm(3)  # after the division
    root = 12.50001**0.5
    found = gradients(numbers)
    assert found["x"] == near([1 / root, 0]) and found["√"] == near([-3 / root**2])
    assert found["gain"] == near([3 / root, 0]) and found["mean"] is None
    assert not numbers.nodes[0].complete
    # 3y₁ + 4y₂ points along x: what comes back is x · eps / (mean square + eps)^1.5
    assert gradients(graph.rms_norm(7, "3y₁ + 4y₂"))["x"] == near(
        [6.788216953e-7, 9.050955937e-7], rel=1e-9, abs=0
    )


def test_every_operation_of_the_graphs_has_its_rule():
    for step in range(8):
        assert graph.rms_norm(step).words
    assert "r = a / b hands G / b to a, and −G · r / b to b" in graph.rms_norm(3).words


def test_the_graph_picture():
    picture = GraphPicture(graph.rms_norm(0))
    assert all(text.get_text() == "" for text in picture.gradients)
    numbers = graph.rms_norm(3)
    picture.show(numbers)
    shown = {
        node.name: (text.get_text(), gradient.get_text())
        for node, text, gradient in zip(
            numbers.nodes, picture.texts, picture.gradients, strict=True
        )
    }
    assert shown["x"] == ("x\n[3, 4]", "[0.283, 0] + …")
    assert shown["√"] == ("√\n3.54", "−0.24") and shown["mean"] == ("mean\n12.5", "")
    thick = [line.get_linewidth() > 2 for line in picture.lines]
    assert thick == [edge.passed for edge in numbers.edges]
    picture.show(graph.rms_norm(7))
    assert picture.gradients[0].get_text() == "[0.181, −0.136]"
    assert "Gradient at x: [0.181, −0.136]." in picture.sentence


def test_the_two_paths_have_colours_of_their_own():
    numbers = graph.residual()
    picture = GraphPicture(numbers)
    colours = {
        edge.path: line.get_edgecolor()
        for edge, line in zip(numbers.edges, picture.lines, strict=True)
    }
    assert len(set(colours.values())) == len(COLOURS) == 3


# The microscope


def test_jacobians_are_autograds():
    points = torch.tensor([[3.0, 4.0], [-1.0, 0.5], [0.1, -2.0]], dtype=torch.float64)
    for branch in jacobian.BRANCHES.values():
        for point, matrix in zip(points, jacobian.jacobians(branch, points), strict=True):
            expected = torch.autograd.functional.jacobian(branch, point)
            assert matrix.numpy() == near(expected.numpy())


def test_the_norms_jacobian_has_a_zero_direction():
    numbers = jacobian.microscope("RMSNorm(x)", 1.0, 1)
    expected = [[0.18101934, -0.13576450], [-0.13576450, 0.10182338]]
    assert numbers.jacobian == [near(row, abs=5e-9) for row in expected]
    assert sorted(v.real for v in numbers.eigenvalues) == near([0, 0.28284271], abs=5e-9)
    assert np.array(numbers.jacobian) @ [3, 4] == near([0, 0])
    # so the sum keeps 1 in that direction, whatever the gain
    for gain in (-1.0, 0.5, 2.0):
        values = [v.real for v in jacobian.microscope("RMSNorm(x)", gain).total_eigenvalues]
        assert sorted(values) == near(sorted([1, 1 + gain * 0.282842712474619]))


@pytest.mark.parametrize(
    ("branch", "gain", "eigenvalues", "singular"),
    [
        ("x", -1.0, [0, 0], [0, 0]),
        ("x", 2.0, [3, 3], [3, 3]),
        ("x along [3, 4]", -1.0, [0, 1], [1, 0]),
        ("x along [3, 4]", 2.0, [1, 3], [3, 1]),
        ("x turned by 90°", 2.0, [1 - 2j, 1 + 2j], [5**0.5, 5**0.5]),
        ("x turned by 90°", -1.0, [1 - 1j, 1 + 1j], [2**0.5, 2**0.5]),
    ],
)
def test_eigenvalues_and_singular_values_of_the_sum(branch, gain, eigenvalues, singular):
    numbers = jacobian.microscope(branch, gain)
    found = sorted(numbers.total_eigenvalues, key=lambda v: (round(v.real, 9), v.imag))
    assert np.array(found) == near(np.array(eigenvalues, dtype=complex))
    assert numbers.singular_values == near(singular)
    assert np.array(numbers.total) == near(np.eye(2) + numbers.jacobian)


@pytest.mark.parametrize("branch", jacobian.BRANCHES)
@pytest.mark.parametrize("gain", [-0.9, 0.35])
def test_the_product_is_the_jacobian_of_the_stack(branch, gain):
    def stack(x):
        for _ in range(6):
            x = x + gain * jacobian.BRANCHES[branch](x)
        return x

    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    expected = torch.linalg.svdvals(torch.autograd.functional.jacobian(stack, x))
    numbers = jacobian.microscope(branch, gain, 6)
    assert (numbers.largest[6], numbers.smallest[6]) == near(tuple(expected.tolist()), rel=1e-9)
    assert len(numbers.largest) == len(numbers.smallest) == 7
    assert (numbers.largest[0], numbers.smallest[0]) == (1, 1)


def test_the_smaller_singular_value_keeps_its_digits():
    """3 to the 64th beside 1: an SVD of the product would lose the 1 in rounding."""
    numbers = jacobian.microscope("x along [3, 4]", 2.0, 64)
    assert numbers.largest[-1] == near(3.0**64) and numbers.smallest[-1] == near(1, rel=1e-9)
    assert jacobian.microscope("x along [3, 4]", -1.0, 5).smallest[1:] == [0] * 5
    assert jacobian.microscope("x", -1.0, 5).largest[1:] == [0] * 5


def test_the_microscope_picture():
    picture = MicroscopePicture(jacobian.microscope())
    numbers = jacobian.microscope("x turned by 90°", 2.0, 12)
    picture.show(numbers)
    assert [t.get_text() for t in picture.jacobian.texts] == ["0.000", "−2.000", "2.000", "0.000"]
    assert [t.get_text() for t in picture.total.texts] == ["1.000", "−2.000", "2.000", "1.000"]
    assert sorted(picture.of_total.get_ydata()) == near([-2, 2])
    assert list(picture.of_total.get_xdata()) == near([1, 1])
    assert sorted(picture.of_branch.get_ydata()) == near([-2, 2])
    assert list(picture.of_branch.get_xdata()) == near([0, 0])
    assert picture.most.get_ydata() == near(5 ** (np.arange(13) / 2))
    assert "1.000 + 2.000i and 1.000 − 2.000i" in picture.sentence
    assert "singular values 2.236 and 2.236" in picture.sentence
    low, high = picture.depth.get_ylim()
    assert (low, high) == (1e-8, 1e8)
    assert not any(zero.get_visible() for zero in picture.zeros)
    picture.show(jacobian.microscope("x along [3, 4]", -1.0, 12))
    assert [zero.get_visible() for zero in picture.zeros] == [False, True]
    assert "at most 1, at least 0 times" in picture.sentence


def test_the_microscope_at_every_stop_of_its_sliders():
    picture = MicroscopePicture(jacobian.microscope())
    for branch in jacobian.BRANCHES:
        for stop in range(-20, 41):
            numbers = jacobian.microscope(branch, stop / 20, 64)
            assert np.isfinite([numbers.largest, numbers.smallest]).all()
            assert np.all(np.array(numbers.smallest) <= np.array(numbers.largest) * (1 + 1e-9))
            picture.show(numbers)


# The inspector


@pytest.fixture(scope="module")
def recorded():
    model, tap = TinyLM(ModelConfig(vocab_size=16, n_layers=2, d_model=32, d_ff=64)), Recorder()
    model.double()(torch.tensor([[3, 1, 4, 1, 5], [1, 1, 1, 1, 1]]), tap=tap)
    return tap


def test_taps_are_offered_in_order_and_weights_are_not(recorded):
    names = inspector.tap_names(recorded)
    assert names == [name for name in recorded if "weights" not in name] and len(names) == 10
    with pytest.raises(
        ValueError,
        match=r"^inspector: expected a recorded pass with values \[B, T, D\], got 0 values",
    ):
        inspector.tap_names(Recorder())


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("blocks.1.norm.attn", "blocks.1.resid.attn"),
        ("blocks.1.resid.attn", "blocks.1.norm.attn"),
        ("blocks.0.norm.ffn", "blocks.0.resid.ffn"),
        ("blocks.0.resid.ffn", "blocks.0.norm.ffn"),
        ("embed", "blocks.0.norm.attn"),
        ("norm.final", "blocks.1.resid.ffn"),
    ],
)
def test_a_value_and_its_pair(recorded, name, other):
    numbers = inspector.inspect(recorded, name)
    assert numbers.names == [name, other]
    for key, rows, sizes in zip(numbers.names, numbers.maps, numbers.sizes, strict=True):
        expected = recorded[key][0].detach()
        assert np.array(rows) == near(expected.numpy())  # the first text, without a batch axis
        assert sizes == near(expected.square().mean(-1).sqrt().tolist())


def test_a_value_alone():
    numbers = inspector.inspect({"embed": torch.ones(1, 2, 3)}, "embed")
    assert numbers.names == ["embed"] and numbers.sizes == [[1, 1]] and numbers.reach == (1, 1)
    picture = InspectorPicture(numbers)
    assert [curve.get_visible() for curve in picture.curves] == [True, False]
    assert picture.titles[1].get_text() == "nothing to compare with"


def test_the_reach_leaves_out_zeros():
    values = {"embed": torch.tensor([[[0.0, 0.0], [3.0, 3.0]]]), "x": 5 * torch.ones(1, 1, 2)}
    assert inspector.inspect(values, "embed").reach == (3, 5)
    assert inspector.inspect({"embed": torch.zeros(1, 2, 2)}, "embed").reach == (1, 1)


def test_numpy_or_torch_is_the_same_to_it():
    """The example is the NumPy decoder's pass; the sums keep the loudness, the norms do not."""
    tap = inspector.example()
    assert type(tap["embed"]).__module__ == "tiny_lm.autograd.tensor"
    numbers = inspector.inspect(tap, "blocks.1.norm.attn")
    assert np.shape(numbers.maps[0]) == (6, 128)
    assert numbers.sizes[0] == near([1] * 6, abs=1e-4)
    assert numbers.sizes[1][5] > 4 * numbers.sizes[1][0]


def test_the_inspector_picture(recorded):
    picture = InspectorPicture(inspector.inspect(recorded, "embed"))
    numbers = inspector.inspect(recorded, "norm.final")
    picture.show(numbers)
    shown = [title.get_text() for title in picture.titles]
    assert shown == ["● norm.final", "■ blocks.1.resid.ffn"]
    for image, rows, curve, sizes in zip(
        picture.images, numbers.maps, picture.curves, numbers.sizes, strict=True
    ):
        rows = np.array(rows)
        assert np.asarray(image.get_array()) == near(rows / np.sqrt(np.mean(rows**2)))
        assert curve.get_ydata() == near(sizes) and list(curve.get_xdata()) == [1, 2, 3, 4, 5]
    assert picture.sentence.startswith("5 positions by 32 coordinates. RMS of a row: norm.final ")


def test_the_lab_takes_any_recording(recorded):
    lab = labs.inspector(recorded, "blocks.1.norm.ffn")
    assert lab.values == {"name": "blocks.1.norm.ffn"} and "blocks.1.resid.ffn" in lab.sentence
    assert len(lab.controls["name"].options) == 10
