"""What an exercise is, and how an answer is compared with right and known wrong ones."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from textwrap import dedent
from typing import Any

from tiny_lm.exercises import texts
from tiny_lm.exercises.compare import (
    Gap,
    between,
    cut,
    gap_of,
    is_one_of_few,
    is_rounding,
    numbers,
    show,
    show_case,
    size_of,
    which_differ,
)
from tiny_lm.exercises.running import PRINTED, Outcome, Run, outcome, run
from tiny_lm.exercises.verdict import Verdict

__all__ = ["Exercise", "Verdict", "judge"]

Answer = Any  # a function or class, or a value: number, list, tensor, or the name of a choice
SECONDS = 10.0  # for all cases of an exercise together


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise:
    """One exercise. Its prompt, stub and solution are in texts/NAME.md.

    `reference` is the right answer, a function or a value. A function is compared on `cases`,
    each a tuple of arguments; where an argument requires a gradient, gradients are compared too.
    `wrong` maps a sentence that explains a known mistake to the wrong answer it leads to. Numbers
    are compared with `rtol` relative and `atol` absolute; `rtol` None asks for all the digits that
    the dtype has. `use` says what is done with an answer that is not compared as it stands: a
    class, `use(answer, *case)`; an input that should break something, `use(answer)`.
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
    rtol: float | None = 1e-5
    atol: float = 1e-8
    use: Callable | None = None

    @property
    def prompt(self) -> str:
        return texts.read(self.name).prompt

    @property
    def stub(self) -> str:
        return texts.read(self.name).stub

    @property
    def solution(self) -> str:
        return texts.read(self.name).solution

    def gap(self, expected: Outcome, got: Outcome) -> Gap:
        return between(expected, got, self.rtol, self.atol)

    def bound(self, answer: Answer) -> Callable:
        """The answer as a function of a case."""
        return answer if self.use is None else partial(self.use, answer)

    @property
    def smallest_first(self) -> list[tuple]:
        return sorted(self.cases or [()], key=size_of)


@cache
def _known(exercise: Exercise, mistake: str | None = None) -> list[Outcome]:
    """What the reference makes of every case, or a known mistake: the same for every answer."""
    known = exercise.reference if mistake is None else exercise.wrong[mistake]
    return [outcome(exercise.bound(known), case) for case in exercise.smallest_first]


def judge(exercise: Exercise, answer: Answer, seconds: float = SECONDS) -> Verdict:
    """Compare an answer with the reference; never raises."""
    try:
        if answer is None or answer is Ellipsis:
            return _not_written(exercise)
        if not callable(exercise.reference):
            return _judge_value(exercise, answer, seconds)
        if not callable(answer):
            return Verdict(False, f"{exercise.name}: expected a function, got {show(answer)}")
        return _judge_function(exercise, answer, seconds)
    except (Exception, SystemExit) as problem:
        kind = type(problem).__name__
        return Verdict(False, f"{exercise.name}: the answer could not be compared ({kind})")


# --- functions


def _judge_function(exercise: Exercise, answer: Answer, seconds: float) -> Verdict:
    cases = exercise.smallest_first
    ran = run(exercise.bound(answer), cases, seconds)
    if ran.finished and _is_empty(ran):
        return _not_written(exercise, _why_empty(ran))
    gaps = list(map(exercise.gap, _known(exercise), ran.outcomes))  # of those that are finished
    failed = [i for i, gap in enumerate(gaps) if gap.words]
    if failed:
        first = f"{_for(exercise, cases[failed[0]])}, {gaps[failed[0]].words}"
        if _is_as_given(exercise, answer):
            return _not_written(exercise, f": this is the code as given.\nIt is wrong: {first}")
        lines = [f"{exercise.name}: {first}", *_mistake(exercise, ran, failed)]
        if len(cases) > 1 and ran.finished:
            lines.append(f"{len(failed)} of {len(cases)} cases fail; this is the smallest.")
        return Verdict(False, "\n".join(lines + _printed(ran)))
    if not ran.finished:
        late = f"{_for(exercise, cases[len(gaps)])}, no result within {seconds:g} seconds"
        return Verdict(False, f"{exercise.name}: {late}. Does a loop never end?")
    how = "exactly" if all(gap.exact for gap in gaps) else _off(max(g.largest for g in gaps))
    lines = [f"{exercise.name}: all {len(cases)} cases agree, {how}"]
    return Verdict(True, "\n".join(lines + _printed(ran)))


def _is_empty(ran: Run) -> bool:
    """Whether the answer is still a stub: it returns ..., or nothing at all, or says so itself."""
    returns_none = [got.value is None and got.raised is None for got in ran.outcomes]
    return all(returns_none) or any(
        got.value is Ellipsis or isinstance(got.raised, NotImplementedError) for got in ran.outcomes
    )


def _why_empty(ran: Run) -> str:
    if ran.outcomes[0].value is not None or ran.outcomes[0].raised:
        return ""
    does = "prints, and returns None" if ran.printed else "returns None"
    return f" (it {does}: is a `return` missing?)"


def _is_as_given(exercise: Exercise, answer: Answer) -> bool:
    """Whether this is the stub's own code: an exercise of repair begins with code that is wrong."""
    with suppress(Exception):  # no source to be had: then it was not typed into a cell
        given = [ast.dump(node) for node in ast.parse(exercise.stub).body]
        (theirs,) = ast.parse(dedent(inspect.getsource(answer))).body
        return ast.dump(theirs) in given
    return False


def _mistake(exercise: Exercise, ran: Run, failed: list[int]) -> list[str]:
    """The known wrong answer that gives the same as this one in every case, or else the one that
    does so in most failing cases, the smallest among them: an answer may hold two mistakes."""
    if not ran.finished:
        return []
    nearest, most = "", 0
    for sentence in exercise.wrong:
        same = [
            made.changed == got.changed and not exercise.gap(made, got).words
            for made, got in zip(_known(exercise, sentence), ran.outcomes, strict=True)
        ]
        if all(same):
            return [sentence]
        count = sum(same[i] for i in failed) if same[failed[0]] else 0
        nearest, most = (sentence, count) if count > most else (nearest, most)
    shown = ran.outcomes[failed[0]]
    if not nearest or shown.raised or is_one_of_few(shown.value):
        return []  # two errors of one type, or two answers False, have little in common
    return [f"On this input, this mistake gives the same: {nearest}"]


def _printed(ran: Run) -> list[str]:
    if not ran.printed.strip():
        return []
    first, *more = ran.printed.strip().splitlines()
    first = first if len(first) <= 60 else first[:60] + "…"
    count = len(more) if len(ran.printed) < PRINTED else "much"
    rest = f", and {count} more" if more else ""
    return [f"It prints while it is checked: {first!r}{rest}"]


def _not_written(exercise: Exercise, why: str = "") -> Verdict:
    return Verdict(None, f"{exercise.name}: not written yet{why}")


def _off(largest: float) -> str:
    return f"closely (largest difference {largest:.1g})"


def _for(exercise: Exercise, case: tuple) -> str:
    names = inspect.signature(exercise.reference).parameters if exercise.use is None else ()
    return f"for {show_case(case, names)}" if case else "called with nothing"


# --- values


def _judge_value(exercise: Exercise, answer: Answer, seconds: float) -> Verdict:
    name = exercise.name
    if exercise.use is not None:
        return _judge_used(exercise, answer, seconds)
    gap = gap_of(exercise.reference, answer, exercise.rtol, exercise.atol)
    if not gap.words:
        how = "" if isinstance(exercise.reference, str | bool) else ", exactly"
        return Verdict(True, f"{name}: right" + (how if gap.exact else f", {_off(gap.largest)}"))
    for sentence, wrong in exercise.wrong.items():
        if not gap_of(wrong, answer, exercise.rtol, exercise.atol).words:
            return Verdict(False, f"{name}: not {show(answer)}. {sentence}")
    if is_rounding(exercise.reference, answer):
        return Verdict(False, f"{name}: right as far as it goes. Give more digits than {answer}")
    # How far off a typed-in number is would give it away; its kind does not.
    return Verdict(False, f"{name}: not {show(answer)}{_what_is_wrong(exercise, answer)}")


def _judge_used(exercise: Exercise, answer: Answer, seconds: float) -> Verdict:
    """An answer that is tried out: `use` makes words of it, the same for each right answer."""
    name, use = exercise.name, exercise.use
    if isinstance(answer, Sized) and not len(answer):
        return _not_written(exercise)
    ran = run(lambda: use(answer), [()], seconds)
    if not ran.finished:
        return Verdict(False, f"{name}: no result within {seconds:g} seconds")
    (got,) = ran.outcomes
    if got.raised:
        return Verdict(False, f"{name}: {cut(str(got.raised).removeprefix(f'{name}: '))}")
    if got.value == _known(exercise)[0].value:
        return Verdict(True, f"{name}: {got.value}")
    known = [what for what in exercise.wrong if _known(exercise, what)[0].value == got.value]
    known = [sentence for sentence in known if sentence not in got.value]  # said already
    return Verdict(False, "\n".join([f"{name}: {got.value}", *known[:1]]))


def _what_is_wrong(exercise: Exercise, answer: Answer) -> str:
    """Which numbers of a list are wrong; or the kind that is expected, if it is of another."""
    reference = exercise.reference
    if isinstance(reference, str | bool):
        return "" if isinstance(answer, type(reference)) else ": choose one of the answers given"
    want = numbers(reference)
    with suppress(TypeError, ValueError, RuntimeError):
        if numbers(answer).shape == want.shape:
            return which_differ(want, numbers(answer), exercise.rtol, exercise.atol)
    return ": expected " + (f"a list of {len(want)} numbers" if want.ndim else "one number")
