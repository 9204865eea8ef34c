"""What an exercise is, and how an answer is compared with right and known wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor

Answer = Any  # a function, or a value: number, list, tensor, or the name of a choice


@dataclass(frozen=True)
class Verdict:
    """What check() found: `ok` is True, False, or None for an answer not written yet."""

    ok: bool | None
    text: str

    def __repr__(self) -> str:
        mark = {True: "✓ ", False: "✗ ", None: "… "}[self.ok]
        # As wide as a notebook's output; a narrower page would break lines within words.
        first, *rest = (mark + self.text).splitlines()
        lines = wrap(first, 92, subsequent_indent="  ")
        for line in rest:
            lines += wrap(line.strip(), 92, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise.

    `reference` is the right answer, a function or a value. A function is compared on `cases`,
    each a tuple of arguments. `wrong` maps a sentence that explains a known mistake to the wrong
    answer it leads to. Numbers are compared with `rtol` relative and `atol` absolute.
    """

    name: str
    chapter: int
    title: str
    difficulty: int  # 1 … 5
    minutes: int
    reference: Answer
    cases: Sequence[tuple] = ()
    wrong: Mapping[str, Answer] = field(default_factory=dict)
    hints: Sequence[str] = ()
    rtol: float = 1e-5
    atol: float = 1e-8


def judge(exercise: Exercise, answer: Answer) -> Verdict:
    """Compare an answer with the reference; never raises."""
    try:
        return _judge(exercise, answer)
    except Exception as problem:
        kind = type(problem).__name__
        return Verdict(False, f"{exercise.name}: the answer could not be compared ({kind})")


def _judge(exercise: Exercise, answer: Answer) -> Verdict:
    if answer is None or answer is Ellipsis:
        return _not_written(exercise)
    if not callable(exercise.reference):
        return _judge_value(exercise, answer)
    if not callable(answer):
        return Verdict(False, f"{exercise.name}: expected a function, got {_show(answer)}")
    for i, case in enumerate(exercise.cases):
        expected, _ = _outcome(exercise.reference, case)
        got, changed = _outcome(answer, case)
        if i == 0 and (isinstance(got, NotImplementedError) or got is None or got is Ellipsis):
            why = " (it returns None: is a `return` missing?)" if got is None else ""
            return _not_written(exercise, why)
        problem = _difference(exercise, expected, got)
        if not problem and changed:
            problem = "the result is right, but the function changes what it is given"
        if problem:
            arguments = ", ".join(_show(argument) for argument in case)
            lines = [f"{exercise.name}: for {arguments}, {problem}"]
            return Verdict(False, "\n".join(lines + _mistakes(exercise, answer)))
    return Verdict(True, f"{exercise.name}: all {len(exercise.cases)} cases agree")


def _judge_value(exercise: Exercise, answer: Answer) -> Verdict:
    problem = _difference(exercise, exercise.reference, answer)
    if not problem:
        return Verdict(True, f"{exercise.name}: right")
    for sentence, wrong in exercise.wrong.items():
        if not _difference(exercise, wrong, answer):
            return Verdict(False, f"{exercise.name}: not {_show(answer)}. {sentence}")
    # How far off a typed-in number is would give it away; its kind does not.
    kind = _kind(exercise.reference, answer)
    return Verdict(False, f"{exercise.name}: not {_show(answer)}{kind}")


def _kind(reference: Answer, answer: Answer) -> str:
    """What kind of answer is expected, when this one is of another."""
    if isinstance(reference, str | bool):
        return "" if isinstance(answer, type(reference)) else ": choose one of the answers given"
    try:
        want, have = _numbers(reference).shape, _numbers(answer).shape
    except (TypeError, ValueError, RuntimeError):
        have, want = None, _numbers(reference).shape
    if have == want:
        return ""
    return ": expected " + (f"a list of {want[0]} numbers" if want else "one number")


def _mistakes(exercise: Exercise, answer: Answer) -> list[str]:
    """The first known wrong answer that gives the same as this one in every case."""
    results = [(case, _outcome(answer, case)[0]) for case in exercise.cases]
    for sentence, wrong in exercise.wrong.items():
        if not any(_difference(exercise, _outcome(wrong, c)[0], got) for c, got in results):
            return [sentence]
    return []


def _not_written(exercise: Exercise, why: str = "") -> Verdict:
    return Verdict(None, f"{exercise.name}: not written yet{why}")


def _outcome(function: Callable, case: tuple) -> tuple[Any, bool]:
    """What the function makes of copies of the arguments, and whether it changed them.

    An exception that it raises is its result.
    """
    copies = [a.clone() if isinstance(a, Tensor) else deepcopy(a) for a in case]
    try:
        result = function(*copies)
    except (Exception, SystemExit) as problem:  # reported to the learner
        return problem, False
    pairs = zip(case, copies, strict=True)
    return result, any(not callable(old) and not _same(old, new) for old, new in pairs)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor):
        return old.shape == new.shape and torch.equal(old, new)
    return old == new


def _difference(exercise: Exercise, expected: Any, got: Any) -> str:
    """Empty when they agree, else what is wrong in words."""
    if isinstance(expected, Exception):
        kind = type(expected).__name__
        return "" if type(got) is type(expected) else f"expected a {kind}, got {_show(got)}"
    if isinstance(got, Exception):
        return f"expected {_show(expected)}, got {_show(got)}"
    if isinstance(expected, str) and isinstance(got, str):
        got = got.strip().lower()  # "C" and " c" are the choice "c"
    if isinstance(expected, str | bool):
        same = isinstance(got, type(expected)) and got == expected
        return "" if same else f"expected {expected!r}, got {_show(got)}"
    try:
        want, have = _numbers(expected), _numbers(got)
    except (TypeError, ValueError, RuntimeError):
        return f"expected {_show(expected)}, got {_show(got)}"
    if want.shape != have.shape:
        return f"expected shape {list(want.shape)}, got {list(have.shape)}"
    if isinstance(expected, Tensor) and isinstance(got, Tensor) and expected.dtype != got.dtype:
        return f"expected {expected.dtype}, got {got.dtype}"
    rtol = 0.0 if isinstance(expected, int) else exercise.rtol  # a count is right or wrong
    if torch.allclose(want, have, rtol=rtol, atol=exercise.atol, equal_nan=True):
        return ""
    digits = 6 if _show(expected) != _show(got) else 12
    largest = float((want - have).abs().max())
    return (
        f"expected {_show(expected, digits)}, got {_show(got, digits)} "
        f"(largest difference {largest:.3g})"
    )


def _numbers(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().to(torch.float64)
    return torch.as_tensor(value, dtype=torch.float64)  # Python's floats have 64 bits


def _show(value: Any, digits: int = 6) -> str:
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}".removesuffix(": ")
    if isinstance(value, str | bool):
        return repr(value)
    try:
        numbers = _numbers(value)
    except (TypeError, ValueError, RuntimeError):
        return repr(value)
    if numbers.numel() > 12:
        return f"numbers of shape {list(numbers.shape)}"
    return _rounded(numbers.tolist(), digits)


def _rounded(value: Any, digits: int) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_rounded(item, digits) for item in value) + "]"
    return f"{value:.{digits}g}"
