"""Sections 1 to 7 of the core lesson: the addition and the norm, on [3, 4]."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tiny_lm import plain
from tiny_lm.layers import LayerNorm, RMSNorm, residual_add
from tiny_lm.lessons.result import Result

D, EPS = 64, 1e-5


def add_do_not_replace() -> Iterator[Result]:
    """Section 1: the direct path."""
    title = "1. Add, do not replace"
    x = [3, 4]
    answer = [0 * value for value in x]
    text = (
        "A branch F reads a list of numbers x and answers with another list. Take x = [3, 4] "
        "and a branch that has nothing to say: F(x) = [0, 0]. If the answer replaces x, x is lost."
    )
    yield Result(title, text, answer, [0, 0])
    text = "A residual connection adds the answer, entry by entry. Now x is kept: x + F(x)."
    yield Result(title, text, plain.residual_add(x, answer), [3, 4])
    text = (
        "Entry by entry needs equal shapes: [1, 3, 64] + [1, 3, 128] makes no sense. So a branch "
        "must come back to the width it started from. Is the sum refused?"
    )
    yield Result(title, text, _refused(torch.zeros(1, 3, D), torch.zeros(1, 3, 2 * D)), True)


def the_slopes_add_up() -> Iterator[Result]:
    """Section 2: dy/dx = 1 + F'(x)."""
    title = "2. Two paths, two slopes"
    x = [3, 4]
    answer = [2 * value for value in x]
    yield Result(title, "Let the branch double x: F(x) = 2x. It answers", answer, [6, 8])
    yield Result(title, "and the sum is x + F(x).", plain.residual_add(x, answer), [9, 12])
    text = (
        "Nudge x, and y moves by so many times as much: that number is the slope, or gradient. "
        "In y = x + 2x the slopes of both paths, 1 and 2, add up."
    )
    yield Result(title, text, slope(2), 3)
    text = "The 1 alone is no guarantee. A branch F(x) = -x cancels it, and y does not move at all."
    yield Result(title, text, slope(-1), 0)


def larger_numbers() -> Iterator[Result]:
    """Section 3: what ten times larger numbers do."""
    title = "3. Sums grow, and size matters"
    linear = drawn(nn.Linear(2, 2, bias=False)).double()
    x = _vector(3, 4)
    text = (
        "After many additions numbers are large. Say [30, 40] where [3, 4] was. A linear layer, "
        "which multiplies and sums and adds no number of its own, answers with how many times as "
        "much, entry by entry?"
    )
    yield Result(title, text, (linear(10 * x) / linear(x)).tolist(), [10, 10], 1e-12)
    text = "Softmax turns scores into shares of 1. The scores 1 and 2 share like this."
    yield Result(title, text, _vector(1, 2).softmax(0).tolist(), [0.2689414214, 0.7310585786], 1e-9)
    text = "Ten times the scores, 10 and 20, share quite differently: one takes nearly all."
    got = _vector(10, 20).softmax(0).tolist()
    yield Result(title, text, got, [0.0000453979, 0.9999546021], 1e-9)


def how_large() -> Iterator[Result]:
    """Section 4: why the mean is no measure of size."""
    title = "4. How large is a list of numbers?"
    text = "The mean cannot tell, since plus and minus cancel. The mean of [3, -3]:"
    yield Result(title, text, sum([3, -3]) / 2, 0)
    text = (
        "Squares do not cancel. The RMS is the root of the mean of the squares, and the mean is "
        "taken over the entries of one list. The RMS of [3, -3]:"
    )
    yield Result(title, text, plain.rms([3, -3]), 3)


def rms_by_hand() -> Iterator[Result]:
    """Section 5: the RMS of [3, 4] step by step."""
    title = "5. RMS by hand"
    x = [3, 4]
    squares = [value * value for value in x]
    normed = plain.rms_norm(x, eps=0)
    yield Result(title, "Square each entry of [3, 4].", squares, [9, 16])
    yield Result(title, "Take the mean of the two.", sum(squares) / len(x), 12.5)
    yield Result(title, "Take the root. That is the RMS.", plain.rms(x), 3.5355339059327378, 1e-12)
    text = "Divide each entry by it. That is RMSNorm, one detail short."
    yield Result(title, text, normed, [0.848528137, 1.131370850], 1e-9)
    text = "The first entry is still three quarters of the second."
    yield Result(title, text, normed[0] / normed[1], 0.75, 1e-12)
    yield Result(title, "And the RMS is now 1.", plain.rms(normed), 1, 1e-12)


def a_small_number() -> Iterator[Result]:
    """Section 6: eps inside the root, a denominator for each position, a gain for each entry."""
    title = "6. A small number inside the root"
    norm = RMSNorm(2, EPS)
    text = (
        "The detail: 0 / 0 has no value. So a small number eps, here 0.00001, is added before the "
        "root is taken: x / sqrt(mean of the squares + eps). Now [0, 0] stays [0, 0]."
    )
    yield Result(title, text, norm(_vector(0, 0)).tolist(), [0, 0])
    small, large = norm(_vector(3, 4)), norm(_vector(30, 40))
    text = "[3, 4] comes out a very little smaller than before."
    yield Result(title, text, small.tolist(), [0.8485277980, 1.1313703974], 1e-9)
    text = "[30, 40] comes out nearly the same as [3, 4], not quite. The difference:"
    yield Result(title, text, (large - small).tolist(), [3.3601694e-7, 4.4802259e-7], 1e-12)
    text = (
        "A text has many positions, and each has a list of its own. Each list is divided by its "
        "own root, whatever the others hold. [[3, 4], [30, 40]] becomes:"
    )
    got = norm(torch.stack([_vector(3, 4), _vector(30, 40)])[None])[0].tolist()
    expected = [[0.8485277980, 1.1313703974], [0.8485281340, 1.1313708454]]
    yield Result(title, text, got, expected, 1e-9)
    text = (
        "Last, each entry is multiplied by its gain: a number that starts at 1 and that training "
        "may change. How many gains has a norm of width 64?"
    )
    yield Result(title, text, sum(p.numel() for p in RMSNorm(D, EPS).parameters()), 64)


def scale_and_nothing_else() -> Iterator[Result]:
    """Section 7: RMSNorm changes the common scale; eps and gains have a say in the final RMS."""
    title = "7. It sets the scale and nothing else"
    text = "RMSNorm does not subtract the mean. [5, 5] becomes two ones, or nearly."
    yield Result(title, text, RMSNorm(2, EPS)(_vector(5, 5)).tolist(), [0.9999998, 0.9999998], 1e-9)
    text = "LayerNorm, which is older, does subtract it. Nothing is left of [5, 5]."
    yield Result(title, text, LayerNorm(2, EPS)(_vector(5, 5)).tolist(), [0, 0])
    text = "eps is felt where numbers are small. An RMS of 0.001 does not become 1 but:"
    got = plain.rms(RMSNorm(2, EPS)(_vector(1e-3, -1e-3)).tolist())
    yield Result(title, text, got, 0.3015113446, 1e-9)
    text = "Gains move the RMS too. [3, 4] with the gains 2 and 1:"
    got = plain.rms(plain.rms_norm([3, 4], [2, 1], eps=EPS))
    yield Result(title, text, got, 1.4422199333, 1e-9)


SECTIONS = (
    add_do_not_replace, the_slopes_add_up, larger_numbers, how_large, rms_by_hand, a_small_number,
    scale_and_nothing_else,
)  # fmt: skip


def slope(factor: float) -> float:
    """The slope of y = x + factor · x, by autograd."""
    x = torch.tensor(3.0, requires_grad=True)
    residual_add(x, factor * x).backward()
    return x.grad.item()


@torch.no_grad()
def drawn(module: nn.Module) -> nn.Module:
    """The module with its matrices drawn anew, the same in every run."""
    generator = torch.Generator().manual_seed(15)
    for weight in module.parameters():
        if weight.ndim > 1:
            weight.normal_(0.0, weight.shape[1] ** -0.5, generator=generator)
    return module


def _refused(x: Tensor, change: Tensor) -> bool:
    try:
        residual_add(x, change)
    except ValueError:
        return True
    return False


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
