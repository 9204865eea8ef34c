"""Two results side by side: how far apart they are, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat
from reprlib import Repr
from typing import Any

import torch
from torch import Tensor

from tiny_lm.exercises.running import MANY, Outcome, where
from tiny_lm.shapes import fail, shape_of

FEW = 12  # so many numbers are shown, of more only their shape
LONG = 300  # characters or entries: longer ones are shown in part
ROUNDING = 16  # this many last digits are rounding: sums in another order differ by a few


@dataclass(frozen=True)
class Named:
    """A function that prints as words where a verdict shows an argument."""

    words: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __repr__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Gap:
    """What lies between two results: empty words if they agree.

    `largest` is the largest difference; `exact` says that it is rounding and no more.
    """

    words: str = ""
    largest: float = 0.0
    exact: bool = True


def between(expected: Outcome, got: Outcome, rtol: float | None, atol: float) -> Gap:
    """The gap between two outcomes: exception, value, gradients, arguments left alone."""
    if expected.raised or got.raised:
        return Gap(_about_errors(expected, got))
    gap = gap_of(expected.value, got.value, rtol, atol)
    if gap.words:
        return gap
    gaps = [gap]
    for want, have in zip(expected.gradients, got.gradients, strict=True):
        if have is None:
            have = torch.zeros_like(want)
        gap = gap_of(want, have, rtol, atol)
        if gap.words:
            return Gap(f"the result is right, its gradient is not: {gap.words}", gap.largest)
        gaps.append(gap)
    if got.changed and not expected.changed:
        return Gap("the result is right, but the function changes what it is given")
    return Gap("", max(g.largest for g in gaps), all(g.exact for g in gaps))


def _about_errors(expected: Outcome, got: Outcome) -> str:
    if expected.raised:
        kind = type(expected.raised)
        if type(got.raised) is kind:
            return ""
        if got.raised:
            return f"expected a {kind.__name__}, got {show(got.raised)}{_at(got.raised)}"
        if isinstance(got.value, Exception):
            return f"expected a {kind.__name__} to be raised; this one is returned: write `raise`"
        return f"expected a {kind.__name__}, got {show(got.value)}"
    return f"expected {show(expected.value)}, but it raises {show(got.raised)}{_at(got.raised)}"


def _at(problem: BaseException) -> str:
    line = where(problem)
    return f", in the line `{line}`" if line else ""


def is_rounding(expected: Any, got: Any) -> bool:
    """Whether every number of `got` is the expected one, rounded to the decimals that it shows."""
    with suppress(TypeError, ValueError, RuntimeError):
        want, have = numbers(expected), numbers(got)
        if want.shape != have.shape:
            return False
        pairs = zip(want.flatten().tolist(), have.flatten().tolist(), strict=True)
        return all(
            h and round(w, max(0, -Decimal(str(h)).as_tuple().exponent)) == h for w, h in pairs
        )
    return False


def is_one_of_few(value: Any) -> bool:
    """Whether two answers may be this value by chance: a word, whole numbers, an empty list."""
    if isinstance(value, str | bool):
        return True
    with suppress(TypeError, ValueError, RuntimeError):
        return not isinstance(value, Tensor) and bool((numbers(value) % 1 == 0).all())
    return False


def gap_of(expected: Any, got: Any, rtol: float | None, atol: float) -> Gap:
    """The gap between two values. `rtol` None means: to the rounding of the expected dtype."""
    if isinstance(expected, str) and isinstance(got, str):
        got = got.strip().lower()  # " C" is the choice "c"
    if isinstance(expected, str | bool):
        same = isinstance(got, type(expected)) and got == expected
        return Gap("" if same else f"expected {expected!r}, got {show(got)}")
    try:
        want, have = numbers(expected), numbers(got)
    except (TypeError, ValueError, RuntimeError):
        return Gap(f"expected {show(expected)}, got {show(got)}")
    if want.shape != have.shape:
        if not isinstance(expected, Tensor) and max(want.numel(), have.numel()) <= FEW:
            same = want.numel() == have.numel() == 0  # an empty list has no shape to speak of
            return Gap("" if same else f"expected {show(expected)}, got {show(got)}")
        return Gap(f"expected shape {list(want.shape)}, got {list(have.shape)}")
    if isinstance(expected, Tensor) and isinstance(got, Tensor) and expected.dtype != got.dtype:
        return Gap(f"expected {expected.dtype}, got {got.dtype}")
    rounding = _last_digit(expected)
    if isinstance(expected, int):
        rtol = 0.0  # a count is right or wrong
    elif rtol is None:
        rtol, atol = 4 * ROUNDING * rounding, rounding
    apart = torch.where((want == have) | (want.isnan() & have.isnan()), 0.0, (want - have).abs())
    largest = float(apart.max()) if apart.numel() else 0.0
    if torch.allclose(want, have, rtol=rtol, atol=atol, equal_nan=True):
        scale = float(want.abs().nan_to_num().max()) if want.numel() else 0.0
        return Gap("", largest, largest <= ROUNDING * rounding * scale)
    digits = 6 if show(expected) != show(got) else 12
    return Gap(
        f"expected {show(expected, digits)}, got {show(got, digits)} "
        f"(largest difference {largest:.3g})",
        largest,
    )


def _last_digit(expected: Any) -> float:
    """The relative size of the last digit that the expected numbers have."""
    is_float = isinstance(expected, Tensor) and expected.is_floating_point()
    return torch.finfo(expected.dtype if is_float else torch.float64).eps


def numbers(value: Any) -> Tensor:
    """A number, list or tensor as float64, which holds all that the others can.

    Raises ValueError for more numbers than an exercise has: `range(10**12)` is soon written.
    """
    count = value.numel() if isinstance(value, Tensor) else _count(value)
    if count > MANY:
        fail("check", f"at most {MANY:,} numbers", f"{count:,}")
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64)
    return torch.as_tensor(value, dtype=torch.float64)


def _count(value: Any) -> int:
    """How many numbers nested lists hold if all are like their first ones."""
    count = 1
    for _ in range(64):  # as deep as arrays go: a list may hold itself
        if not isinstance(value, Sequence) or isinstance(value, str) or not len(value):
            break
        count *= len(value)
        value = value[0]
    return count


def show(value: Any, digits: int = 6) -> str:
    """A value as people write it, short enough for a sentence."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {cut(str(value))}".removesuffix(": ")
    if isinstance(value, str | bool):
        return _in_short(value)
    try:
        array = numbers(value)
    except (TypeError, ValueError, RuntimeError):
        if isinstance(value, Tensor):
            return f"numbers of shape {shape_of(value)}"
        return _in_short(value)
    if array.numel() > FEW:
        return f"numbers of shape {list(array.shape)}"
    return _rounded(array.tolist(), digits)


def cut(text: str) -> str:
    """A text, or its beginning where it would be a page or more."""
    return text if len(text) <= LONG else text[:LONG] + "…"


def _in_short(value: Any) -> str:
    """The repr of a value, or a part of it where that would be a page or more."""
    if isinstance(value, Sized) and len(value) > LONG:
        short = Repr()
        short.maxstring = short.maxother = LONG
        return short.repr(value)
    return cut(repr(value))


def which_differ(expected: Tensor, got: Tensor, rtol: float, atol: float) -> str:
    """Which entries of a list are wrong, in words; nothing about a single number."""
    if expected.ndim != 1:
        return ""
    same = torch.isclose(expected, got, rtol=rtol, atol=atol).tolist()
    wrong = [str(place) for place, agrees in enumerate(same, 1) if not agrees]
    if len(wrong) == len(same):
        return f": none of the {len(same)} numbers is right"
    are = "is" if len(wrong) == 1 else "are"
    return f": of {len(same)} numbers, {' and '.join(wrong)} {are} wrong"


def size_of(case: tuple) -> int:
    """How many numbers the arguments of a case hold."""
    return sum(
        a.numel() if isinstance(a, Tensor) else len(a) if isinstance(a, list) else 1 for a in case
    )


def show_case(case: tuple, names: Iterable[str] = ()) -> str:
    """The arguments of a case, each with its name as far as names are given."""
    labels = chain((f"{name} = " for name in names), repeat(""))
    return ", ".join(label + _argument(value) for label, value in zip(labels, case, strict=False))


def _argument(value: Any) -> str:
    """An argument with what is not to be seen from its numbers."""
    words = show(value)
    if not isinstance(value, Tensor):
        return words
    special = [] if value.dtype == torch.float32 else [str(value.dtype).removeprefix("torch.")]
    special += [] if value.is_contiguous() else ["not contiguous"]
    return f"{words} ({', '.join(special)})" if special else words


def _rounded(value: Any, digits: int) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_rounded(item, digits) for item in value) + "]"
    return f"{value:.{digits}g}"
