"""check() and hint(): what they say to answers of every kind, and that they always answer."""

from __future__ import annotations

import runpy
import threading
import time
from contextlib import suppress

import pytest
import torch

from tiny_lm import exercises
from tiny_lm.exercises import EXERCISES, check, hint, running
from tiny_lm.exercises.compare import is_one_of_few, show
from tiny_lm.exercises.core import Exercise, Verdict, judge

each = pytest.mark.parametrize("name", EXERCISES)
DOUBLE = Exercise(
    name="double",
    chapter=0,
    title="Double",
    difficulty=1,
    minutes=1,
    reference=lambda x: 2 * x,
    cases=[(torch.tensor([1.0, 2.0]),), (torch.tensor([[3.0]]),)],
)


@pytest.mark.parametrize("answer", ["nonsense", object(), [1, [2]], float("nan"), -7.0, {"z": 1}])
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
        assert "RuntimeError: my own mistake, in the line `raise RuntimeError(" in verdict.text


def test_the_line_that_raised_is_the_learners_own():
    def asks_torch(x):
        return x @ torch.zeros(7)

    assert "in the line `return x @ torch.zeros(7)`" in judge(DOUBLE, asks_torch).text


def test_wrong_shape_and_dtype_are_named():
    assert "expected shape [1, 1], got [1, 1, 1]" in judge(DOUBLE, lambda x: 2 * x[None]).text
    verdict = judge(DOUBLE, lambda x: (2 * x).double())
    assert "expected torch.float32, got torch.float64" in verdict.text


def test_the_difference_and_the_failing_input_are_given():
    text = judge(DOUBLE, lambda x: 2 * x + (x.ndim - 1)).text
    assert "[[3]]" in text and "expected [[6]], got [[7]]" in text
    assert "largest difference 1" in text and "1 of 2 cases fail; this is the smallest." in text


def test_the_smallest_failing_case_comes_first():
    assert judge(DOUBLE, lambda x: 3 * x).text.startswith("double: for x = [[3]], ")
    # the smallest is right here, so the next one is shown
    assert judge(DOUBLE, lambda x: 2 * x + x.numel() - 1).text.startswith(
        "double: for x = [1, 2], "
    )


def test_exact_and_close_are_told_apart():
    assert judge(DOUBLE, lambda x: x + x).text == "double: all 2 cases agree, exactly"
    close = judge(DOUBLE, lambda x: 2 * x * (1 + 4e-6))
    assert close.ok and "closely (largest difference 2e-05)" in close.text
    assert (
        check("shift", [0.962, 1.036]).text == "shift: right, closely (largest difference 0.0003)"
    )


def test_rounding_in_another_order_is_still_exact():
    third = Exercise(
        name="sum", chapter=0, title="", difficulty=1, minutes=1, rtol=None,
        reference=lambda x: x.sum(), cases=[(torch.linspace(0, 1, 999),)],
    )  # fmt: skip
    assert judge(third, lambda x: x.flip(0).cumsum(0)[-1]).text.endswith("exactly")
    assert judge(third, lambda x: x.sum() * (1 + 1e-5)).ok is False


def test_an_answer_that_changes_what_it_is_given_is_told_so():
    def in_place(x):
        return x.mul_(2)

    verdict = judge(DOUBLE, in_place)
    assert verdict.ok is False and "changes what it is given" in verdict.text
    assert DOUBLE.cases[0][0].tolist() == [1.0, 2.0]


def test_a_missing_return_is_named_and_none_later_on_is_wrong():
    assert "is a `return` missing?" in judge(DOUBLE, lambda x: None).text
    for only in (1, 2):
        verdict = judge(DOUBLE, lambda x: 2 * x if x.ndim == only else None)  # noqa: B023
        assert verdict.ok is False and "got None" in verdict.text


def test_code_to_repair_is_not_an_answer_as_given(tmp_path):
    given = EXERCISES["eps_outside"].stub.rpartition("\n")[0]
    verdicts = []
    for i, source in enumerate((given, given.replace("root", "square_root"))):
        path = tmp_path / f"cell_{i}.py"
        path.write_text(source)
        verdicts.append(check("eps_outside", runpy.run_path(str(path))["my_norm"]))
    untouched, touched = verdicts
    assert untouched.ok is None and "this is the code as given.\nIt is wrong: for" in untouched.text
    assert "eps is still added to the root" not in untouched.text, "that is for the reader to find"
    assert touched.ok is False and "eps is still added to the root" in touched.text


def test_prints_are_kept_and_reported(capsys):
    def talks(x):
        print("x is", x.tolist())
        return 2 * x

    verdict = judge(DOUBLE, talks)
    assert verdict.ok is True
    assert "It prints while it is checked: 'x is [[3.0]]', and 1 more" in verdict.text
    talks_only = judge(DOUBLE, lambda x: print(2 * x))
    assert talks_only.ok is None and "it prints, and returns None" in talks_only.text
    assert capsys.readouterr().out == ""


def test_of_two_mistakes_the_one_that_shows_is_named():
    def shared_and_narrow(x, gain, eps):
        return gain * x / torch.sqrt(x.square().mean() + eps)

    text = check("rms_norm", shared_and_narrow).text
    assert "On this input, this mistake gives the same: This squares in the type of x" in text
    # but answers of True and False are too alike to say so
    assert "On this input" not in check("leaks", lambda f, x: bool((f(x) < x).any())).text

    def counted_from_one(first, second):
        return 1 + EXERCISES["decisive_write"].reference(first, second)

    assert "On this input" not in check("decisive_write", counted_from_one).text
    for few in (True, "a", 3, [2, 5], [], [(0, 3)]):
        assert is_one_of_few(few), few
    for many in (0.5, [1.0, 2.5], torch.tensor([1.0, 2.0]), {"a": 1}):
        assert not is_one_of_few(many), many


def test_gradients_are_compared_where_a_case_asks_for_them():
    square = Exercise(
        name="square", chapter=0, title="", difficulty=1, minutes=1, reference=lambda x: x * x,
        cases=[(torch.tensor([1.0, 3.0], requires_grad=True),)],
    )  # fmt: skip
    assert judge(square, lambda x: x**2).ok is True
    for answer in (lambda x: x * x.detach(), lambda x: (x * x).detach()):
        text = judge(square, answer).text
        assert "the result is right, its gradient is not: expected [2, 12], got [" in text


# --- never for ever


def loops(x):
    while True:
        with suppress(Exception):  # a stop that were an Exception would end here
            x = x + 0


def sleeps(x):
    time.sleep(60)


def late_on_the_larger(x):
    return 2 * x if x.numel() == 1 else loops(x)


@pytest.mark.parametrize("answer", [loops, sleeps])
def test_an_answer_that_never_ends_is_stopped(answer):
    start = time.perf_counter()
    verdict = judge(DOUBLE, answer, seconds=0.3)
    assert verdict.ok is False
    assert "for x = [[3]], no result within 0.3 seconds. Does a loop never end?" in verdict.text
    assert time.perf_counter() - start < 10


def test_the_case_that_never_ends_is_named_and_its_thread_is_gone():
    before = threading.active_count()
    assert "for x = [1, 2], no result" in judge(DOUBLE, late_on_the_larger, seconds=0.3).text
    assert threading.active_count() == before


def test_from_another_thread_too():
    """No signals: those reach the main thread only, and do not exist on every platform."""
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(judge(DOUBLE, loops, seconds=0.3)))
    thread.start()
    thread.join(30)
    assert verdicts and "no result within" in verdicts[0].text


def test_a_python_without_threads_still_checks(monkeypatch):
    def no_threads(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(running.Thread, "start", no_threads)
    assert judge(DOUBLE, lambda x: 2 * x).ok is True


def test_the_limit_is_ten_seconds():
    assert judge.__defaults__ == (10.0,)


# --- values


def test_a_typed_in_number_is_not_given_away_and_its_kind_is_named():
    assert str(check("norm_parameters", 1280)) == "✗ norm_parameters: not 1280"
    assert "expected one number" in check("norm_parameters", [1152]).text
    assert "expected a list of 2 numbers" in check("shift", 0.962).text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([1, 0.8, 1.2], ": none of the 3 numbers is right"),
        ([35.355, 0.8, 1.2], ": of 3 numbers, 2 and 3 are wrong"),
        ([35.355, 0.849, float("nan")], ": of 3 numbers, 3 is wrong"),
    ],
)
def test_of_several_numbers_the_wrong_ones_are_pointed_out(answer, words):
    text = check("ten_times", answer).text
    assert text == f"ten_times: not {show(answer)}{words}"


def test_too_few_digits_are_told_from_a_wrong_number():
    short = "shift: right as far as it goes. Give more digits than"
    assert check("shift", [0.96, 1.04]).text == f"{short} [0.96, 1.04]"
    for wrong_digits in ([0.96, 1.034], [0.9601, 1.0341], [0.97, 1.04], [0.0, 1.04]):
        assert check("shift", wrong_digits).ok is False
        assert "more digits" not in check("shift", wrong_digits).text
    assert check("shift", [0.9, 1.1]).text.startswith("shift: not [0.9, 1.1]: none")
    assert check("norm_parameters", 1153).text == "norm_parameters: not 1153"
    assert check("ten_times", [35.355, 0.849, 1.131]).ok is True, "three decimals, as asked"


def test_numbers_that_look_alike_are_shown_with_more_digits():
    text = judge(DOUBLE, lambda x: 2 * x * (1 + 3e-5) if x.ndim == 1 else 2 * x).text
    assert "expected [2, 4], got [2.0000" in text


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


# --- what it looks like


def test_a_verdict_in_colour_says_the_same_words():
    verdict = Verdict(False, "rms: for [3, 4], got <x> & more\nA sentence.")
    html = verdict._repr_html_()
    assert "<b>✗ rms</b>: for [3, 4], got &lt;x&gt; &amp; more" in html and "A sentence." in html
    assert html == verdict._repr_html_()
    assert len({Verdict(ok, "x")._repr_html_() for ok in (True, False, None)}) == 3


def test_the_letters_keep_the_themes_own_colour():
    style = Verdict(True, "x")._repr_html_().split('"')[1]
    properties = {part.split(":")[0].strip() for part in style.split(";")}
    assert "color" not in properties, "dark letters on a dark page, or the other way round"
    assert "rgba(0, 158, 115, 0.1)" in style


# --- graders, names, hints


def test_strict_raises_for_graders(monkeypatch):
    for answer, words in ((None, "not written yet"), (3.0, "not 3")):
        with pytest.raises(AssertionError, match=f"norm_parameters: {words}"):
            check("norm_parameters", answer, strict=True)
        monkeypatch.setenv("TINY_LM_STRICT", "1")
        with pytest.raises(AssertionError, match=words):
            check("norm_parameters", answer)
        assert check("norm_parameters", answer, strict=False).ok is not True
        monkeypatch.delenv("TINY_LM_STRICT")
        assert check("norm_parameters", answer).ok is not True
    assert check("norm_parameters", 1152, strict=True).ok is True


def test_names_are_checked():
    for call in (lambda: check("rsm", None), lambda: hint("rsm")):
        with pytest.raises(ValueError, match=r"(check|hint): expected one of .*rms.*, got 'rsm'"):
            call()


@each
def test_each_call_shows_the_next_hint(name, monkeypatch):
    monkeypatch.setattr(exercises, "_SESSION", exercises._Session())
    hints = EXERCISES[name].hints
    shown = [hint(name) for _ in range(len(hints) + 1)]
    for number, words in enumerate(hints, start=1):
        assert shown[number - 1].startswith(f"Hint {number} of {len(hints)}: {words}")
        assert hint(name, number) == shown[number - 1]
    assert shown[-1] == shown[-2] and shown[-1].endswith("(The last one.)")
    assert hint(name, 9) == f"There is no hint 9: this exercise has {len(hints)}."
