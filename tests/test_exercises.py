"""Every reference passes, every known wrong answer is caught and named, every stub is forgiven."""

from __future__ import annotations

import pytest
import torch

from tiny_lm.exercises import EXERCISES, check, hint
from tiny_lm.exercises.core import Exercise, judge

WRONG = [(name, sentence) for name, e in EXERCISES.items() for sentence in e.wrong]
each = pytest.mark.parametrize("name", EXERCISES)


@each
def test_the_reference_passes(name):
    verdict = check(name, EXERCISES[name].reference)
    assert verdict.ok is True and str(verdict).startswith("✓ ")


@pytest.mark.parametrize(("name", "sentence"), WRONG)
def test_a_known_mistake_is_caught_and_named(name, sentence):
    verdict = check(name, EXERCISES[name].wrong[sentence])
    assert verdict.ok is False
    assert sentence in verdict.text


@each
def test_a_stub_is_not_an_error(name):
    def raises(*arguments):
        raise NotImplementedError

    stubs = [None, ...]
    if callable(EXERCISES[name].reference):
        stubs += [lambda *arguments: None, lambda *arguments: ..., raises]
    for stub in stubs:
        verdict = check(name, stub)
        assert verdict.ok is None
        assert str(verdict).startswith(f"… {name}: not written yet")


@each
def test_an_exercise_is_complete(name):
    exercise = EXERCISES[name]
    assert exercise.title and 1 <= exercise.difficulty <= 5 and exercise.minutes > 0
    assert len(exercise.wrong) >= 3 and 1 <= len(exercise.hints) <= 2
    assert callable(exercise.reference) == bool(exercise.cases)
    assert hint(name).endswith(exercise.hints[0])


@pytest.mark.parametrize("answer", ["nonsense", object(), [1, [2]], float("nan"), -7.0, {}])
@each
def test_nonsense_is_wrong_and_never_raises(name, answer):
    assert check(name, answer).ok is False


@each
def test_an_answer_that_raises_is_reported(name):
    def broken(*arguments):
        raise RuntimeError("my own mistake")

    verdict = check(name, broken)
    assert verdict.ok is False
    if callable(EXERCISES[name].reference):
        assert "RuntimeError: my own mistake" in verdict.text


DOUBLE = Exercise(
    name="double",
    chapter=0,
    title="Double",
    difficulty=1,
    minutes=1,
    reference=lambda x: 2 * x,
    cases=[(torch.tensor([1.0, 2.0]),), (torch.tensor([[3.0]]),)],
)


def test_wrong_shape_and_dtype_are_named():
    assert "expected shape [2], got [1, 2]" in judge(DOUBLE, lambda x: 2 * x[None]).text
    verdict = judge(DOUBLE, lambda x: (2 * x).double())
    assert "expected torch.float32, got torch.float64" in verdict.text


def test_the_difference_and_the_failing_input_are_given():
    text = judge(DOUBLE, lambda x: 2 * x + (x.ndim - 1)).text
    assert "[[3]]" in text and "expected [[6]], got [[7]]" in text
    assert "largest difference 1" in text


def test_an_answer_that_changes_what_it_is_given_is_told_so():
    def in_place(x):
        return x.mul_(2)

    verdict = judge(DOUBLE, in_place)
    assert verdict.ok is False and "changes what it is given" in verdict.text
    assert DOUBLE.cases[0][0].tolist() == [1.0, 2.0]


def test_a_missing_return_is_named_and_none_later_on_is_wrong():
    assert "is a `return` missing?" in judge(DOUBLE, lambda x: None).text
    verdict = judge(DOUBLE, lambda x: 2 * x if x.ndim == 1 else None)
    assert verdict.ok is False and "got None" in verdict.text


def test_a_typed_in_number_is_not_given_away_and_its_kind_is_named():
    assert str(check("norm_parameters", 1280)) == "✗ norm_parameters: not 1280"
    assert "expected one number" in check("norm_parameters", [1152]).text
    assert "expected a list of 2 numbers" in check("shift", 0.962).text


def test_numbers_that_look_alike_are_shown_with_more_digits():
    text = judge(DOUBLE, lambda x: 2 * x * (1 + 3e-5)).text
    assert "expected [2, 4], got [2.0000" in text


def test_names_and_hint_numbers_are_checked():
    with pytest.raises(ValueError, match=r"check: expected one of .*rms.*, got 'rsm'"):
        check("rsm", None)
    assert hint("rms", 2).startswith("Hint 2 of 2: ")
    assert hint("rms", 3) == "There is no hint 3: this exercise has 2."


def test_python_numbers_keep_their_64_bits():
    third = Exercise(
        name="third", chapter=0, title="", difficulty=1, minutes=1,
        reference=lambda: torch.tensor(1 / 3, dtype=torch.float64), cases=[()], rtol=1e-12,
    )  # fmt: skip
    assert judge(third, lambda: 1 / 3).ok is True


def test_a_count_is_right_or_wrong():
    assert check("model_parameters", 104_832).ok is True
    assert check("model_parameters", 104_833).ok is False
    assert check("norm_parameters", 1152.01).ok is False


def test_a_choice_may_be_written_with_a_capital():
    name, right = "nan_gradient", EXERCISES["nan_gradient"].reference
    assert check(name, f" {right.upper()}").ok is True


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no words")


@each
def test_whatever_the_answer_is_check_does_not_raise(name):
    def leaves(*arguments):
        raise SystemExit

    answers = [Unspeakable(), torch.tensor([1.0, 2.0, 3.0]), torch.empty(2, device="meta"), leaves]
    answers.append(lambda *arguments: torch.tensor([True, False, True]))
    for answer in answers:
        assert check(name, answer).ok is False


def one_row(x, gain, eps):
    return gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def leak_at(position):
    """A test for leaks that changes one position only."""

    def leaks(f, x):
        changed = x.clone()
        changed[position] = torch.tensor([5.0, -1.0, 2.0, 0.3])
        return not torch.allclose(f(changed)[:position], f(x)[:position], atol=1e-5)

    return leaks


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("residual_add", lambda x, change: [a - b for a, b in zip(x, change, strict=True)]),
        ("shift", [13 / 13.5, 14 / 13.5]),
        ("rms_norm", one_row),
        ("leaks", leak_at(1)),
        ("leaks", leak_at(2)),
        ("leaks", leak_at(3)),
        ("add_vectors", lambda x, change: [abs(a + b) for a, b in zip(x, change, strict=True)]),
    ],
)
def test_further_wrong_answers_do_not_pass(name, answer):
    assert check(name, answer).ok is False
