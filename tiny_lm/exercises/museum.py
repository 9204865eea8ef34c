"""The bug museum: twelve norms and blocks that look right, and the inputs that expose them.

The exhibits are wrong answers of the exercises `rms_norm`, `causal_weights` and `block_forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor

from tiny_lm.attention import attention_weights
from tiny_lm.exercises import attention, block, norms
from tiny_lm.exercises.compare import between
from tiny_lm.exercises.core import Exercise
from tiny_lm.exercises.running import outcome
from tiny_lm.shapes import fail

EPS = 1e-5
CLEARLY = {"rtol": 1e-2, "atol": 1e-5}  # an exhibit is exposed by one percent and more


@dataclass(frozen=True)
class Exhibit:
    """A wrong function of `[..., T, D]` beside the right one, and the code that a visitor reads."""

    code: str
    label: str  # what is wrong with it: told to those who have exposed it
    wrong: Callable[[Tensor], Tensor]
    right: Callable[[Tensor], Tensor]

    def is_exposed_by(self, x: Tensor) -> bool:
        """Whether both differ on x: in values, dtype, gradient, or because one of them raises."""
        case = (x.detach().requires_grad_(),)
        right, wrong = outcome(self.right, case), outcome(self.wrong, case)
        return bool(between(right, wrong, **CLEARLY).words)


def _norm(code: str, label: str) -> Exhibit:
    def with_ones(norm: norms.Norm) -> Callable[[Tensor], Tensor]:
        return lambda x: norm(x, torch.ones(x.shape[-1], dtype=x.dtype), EPS)

    return Exhibit(code, label, with_ones(norms.MISTAKES[label]), with_ones(norms.rms_norm))


def _block(code: str, label: str, forward: Callable, weights: Callable) -> Exhibit:
    norm1 = _norm("", norms.NO_EPS).right
    parts = (norm1, lambda x: 0.5 * norm1(x), torch.nn.functional.silu)

    def around(forward: Callable, weights: Callable) -> Callable[[Tensor], Tensor]:
        norm1, norm2, ffn = parts
        return lambda x: forward(x, norm1, lambda u: weights(u, u) @ u, norm2, ffn)

    right = around(_known(block, "block_forward").reference, attention_weights)
    return Exhibit(code, label, around(forward, weights), right)


def _known(module: Any, name: str) -> Exercise:
    return next(exercise for exercise in module.EXERCISES if exercise.name == name)


_FORWARD, _WEIGHTS = _known(block, "block_forward"), _known(attention, "causal_weights")
_NO_MASK = "There is no mask: the future shows."
_READS_X = "The second norm reads x. It must read h, with what attention has written."
_COPY = "The sums start from the normalised copy. The direct path must keep x as it came."

# In the code, ms is x.square().mean(-1, keepdim=True), D the width, and eps 1e-5.
EXHIBITS: dict[str, Exhibit] = {
    "a": _norm("x / (ms.sqrt() + eps)", norms.EPS_OUTSIDE),
    "b": _norm("x / ms.clamp(min=eps).sqrt()", norms.EPS_FLOOR),
    "c": _norm("x / ms.sqrt()", norms.NO_EPS),
    "d": _norm("x / (ms.sqrt().square() + eps).sqrt()", norms.ROOT_SQUARED),
    "e": _norm("x / (ms + eps).sqrt(), all of it in the type of x", norms.OWN_DTYPE),
    "f": _norm("x = x.float(); x / (ms + eps).sqrt()", norms.FLOAT32),
    "g": _norm("x = x.clamp(-1000, 1000); x / (ms + eps).sqrt()", norms.CLIPPED),
    "h": _norm("x = x.view(-1, D); x / (ms + eps).sqrt()", norms.VIEWED),
    "i": _norm("x / (x.square().mean((-2, -1)) + eps).sqrt()", norms.ALL_POSITIONS),
    "j": _block(
        "attention: (x @ x.T / sqrt(D)).softmax(-1) @ x",
        _NO_MASK,
        _FORWARD.reference,
        _WEIGHTS.wrong[_NO_MASK],
    ),
    "k": _block(
        "h = x + attention(norm1(x)); h + ffn(norm2(x))",
        _READS_X,
        _FORWARD.wrong[_READS_X],
        attention_weights,
    ),
    "l": _block(
        "x = norm1(x); h = norm2(x + attention(x)); h + ffn(h)",
        _COPY,
        _FORWARD.wrong[_COPY],
        attention_weights,
    ),
}


@dataclass(frozen=True)
class Gallery:
    """Which exhibits each input exposes: `caught[input][exhibit]`."""

    caught: Mapping[str, Mapping[str, bool]]

    def _row(self, letter: str) -> list[str]:
        return ["●" if self.caught[by][letter] else "·" for by in self.caught]

    def _labels(self) -> list[str]:
        told = [letter for letter, caught in self.caught.items() if caught[letter]]
        lines = [wrap(f"{a}: {EXHIBITS[a].label}", 92, subsequent_indent="   ") for a in told]
        return [line for label in lines for line in label]

    def __repr__(self) -> str:
        width = max(len(exhibit.code) for exhibit in EXHIBITS.values())
        lines = [f"   {'':{width}}  {' '.join(self.caught)}"] if self.caught else []
        for letter, exhibit in EXHIBITS.items():
            dots = " ".join(self._row(letter))
            lines.append(f"{letter}  {exhibit.code:{width}}  {dots}".rstrip())
        return "\n".join(lines + self._labels())


def gallery(inputs: Mapping[str, Tensor] | None = None) -> Gallery:
    """The twelve exhibits, and which of them each input exposes: `{"a": [..., T, D], …} -> table`.

    An input counts for the exhibit with its letter and is tried on all. Raises ValueError for
    another letter, and for what is not a tensor of floating-point numbers.
    """
    if not isinstance(inputs or {}, Mapping):
        fail("museum", 'a dict such as {"a": torch.tensor([[3.0, 4.0]])}', type(inputs).__name__)
    for letter, x in (inputs or {}).items():
        if letter not in EXHIBITS:
            fail("museum", f"letters {', '.join(EXHIBITS)}", repr(letter))
        if not isinstance(x, Tensor) or not x.is_floating_point():
            fail("museum", f"a tensor of floating-point numbers for {letter!r}", repr(x))
    return Gallery(
        {
            by: {letter: exhibit.is_exposed_by(x) for letter, exhibit in EXHIBITS.items()}
            for by, x in sorted((inputs or {}).items())
        }
    )


def _sum_up(inputs: Mapping[str, Tensor]) -> str:
    caught = gallery(inputs).caught
    standing = [letter for letter in EXHIBITS if not caught.get(letter, {}).get(letter)]
    count = f"{len(EXHIBITS) - len(standing)} of {len(EXHIBITS)} exposed"
    return f"{count}; still standing: {', '.join(standing)}" if standing else count


def _all(x: Tensor) -> dict[str, Tensor]:
    return dict.fromkeys(EXHIBITS, x)


_TINY, _TWO = torch.tensor([[1e-3, 2e-3]]), torch.tensor([[0.4, 0.3], [3.0, -4.0]])
_ZERO, _PLAIN = torch.zeros(1, 2), torch.tensor([[3.0, 4.0]])

EXERCISES = (
    Exercise(
        name="museum",
        chapter=4,
        title="The bug museum",
        difficulty=4,
        minutes=15,
        reference={
            "a": _TINY,
            "b": _TINY,
            "c": _ZERO,
            "d": _ZERO,
            "e": torch.tensor([[300.0, 400.0]], dtype=torch.float16),
            "f": torch.tensor([[3e30, 4e30]], dtype=torch.float64),
            "g": torch.tensor([[2000.0, 1.0]]),
            "h": torch.arange(1.0, 9.0).view(2, 2, 2).transpose(0, 1),
            "i": _TWO,
            "j": _TWO,
            "k": _TWO,
            "l": _PLAIN,
        },
        use=_sum_up,
        wrong={
            "One ordinary row shows ordinary mistakes only. What would make eps visible? The type "
            "of the numbers? A second position?": _all(_PLAIN),
            "Several rows show whose mean runs too far, and who reads the future. The rest needs "
            "rows of unusual size or type.": _all(_TWO),
            "A zero row shows who divides by zero, forwards or backwards, and no more: for each "
            "exhibit its own input.": _all(_ZERO),
        },
        hints=[
            "a to d differ in where eps goes: make eps matter. e and f compute in a narrow type: "
            "what does not fit into it? g and h do something to x first. i to l: several rows.",
            "Useful inputs: a row of 1e-3, a zero row, 300 in float16, 1e30 in float64, an entry "
            "above 1000, a [B, T, D] with its first two axes transposed, two rows that differ.",
        ],
    ),
)
