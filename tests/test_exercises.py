"""The collection: every reference passes, every known mistake is caught and named, every stub is
forgiven, and each case of the RMSNorm exercise is needed."""

from __future__ import annotations

import ast
import inspect
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tiny_lm import exercises
from tiny_lm.exercises import EXERCISES, check, norms, texts
from tiny_lm.exercises.core import judge

WRONG = [(name, sentence) for name, e in EXERCISES.items() for sentence in e.wrong]
RMS_NORM = EXERCISES["rms_norm"]
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
    if callable(EXERCISES[name].reference) and EXERCISES[name].use is None:
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
    for cell in (exercise.stub, exercise.solution):
        last = cell.splitlines()[-1]
        assert last.startswith(f'check("{name}", ') and last.endswith(")")
    assert exercise.prompt and "your code here" not in exercise.solution


@each
def test_a_verdict_calls_the_arguments_as_the_stub_does(name):
    exercise = EXERCISES[name]
    if callable(exercise.reference) and exercise.use is None:
        functions = [n for n in ast.parse(exercise.stub).body if isinstance(n, ast.FunctionDef)]
        learners = [argument.arg for argument in functions[0].args.args]
        ours = list(inspect.signature(exercise.reference).parameters)
        assert ours[: len(exercise.cases[0])] == learners


def test_the_counts(capsys):
    """How many there are, printed for whoever wants to know."""
    chapters = Counter(exercise.chapter for exercise in EXERCISES.values())
    with capsys.disabled():
        print(
            f"\n{len(EXERCISES)} exercises, {len(WRONG)} known wrong answers, by chapter:", end=""
        )
        print("".join(f"  {n:02d}: {count}" for n, count in sorted(chapters.items())))
    assert len(EXERCISES) >= 45
    assert all(count >= 3 for chapter, count in chapters.items() if chapter > 0)
    assert all(chapters[chapter] >= 6 for chapter in (2, 3, 4))


def test_they_stand_in_the_order_of_the_book():
    assert set(EXERCISES) == set(exercises._FOUND), "contents.py lists them all"
    in_the_book = []
    for path in sorted((Path(__file__).parents[1] / "notebooks").glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            tags = cell["metadata"].get("tags", [])
            if "exercise" in tags:
                in_the_book += [tag[3:] for tag in tags if tag.startswith("ex-")]
    assert list(EXERCISES) == in_the_book


def test_every_text_belongs_to_an_exercise():
    folder = texts.files("tiny_lm.exercises") / "texts"
    assert {path.name for path in folder.iterdir()} == {f"{name}.md" for name in EXERCISES}


def test_an_answer_of_other_letters_is_told_which_there_are():
    for answer in ("xyz", "ag", "1 2"):
        verdict = check("exact_surgery", answer)
        assert verdict.ok is False
        assert 'expected letters from a to f, such as "af"' in verdict.text


def test_a_missing_or_misshapen_text_is_named(monkeypatch, tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/odd.md").write_text("A prompt, and no more.\n")
    monkeypatch.setattr(texts, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"expected a file texts/none_such.md, got none"):
        texts.read("none_such")
    with pytest.raises(
        ValueError, match=r"expected prompt, ## Stub, ## Solution in texts/odd.md, got another"
    ):
        texts.read("odd")


# --- RMSNorm


def without(case):
    """And without names for mistakes, which take long to find."""
    cases = [c for i, c in enumerate(RMS_NORM.cases) if i != case]
    return replace(RMS_NORM, cases=cases, wrong={})


@pytest.mark.parametrize("case", range(len(RMS_NORM.cases)))
def test_each_case_of_rms_norm_is_needed(case):
    """Without it, some known mistake would pass."""
    assert any(judge(without(case), wrong).ok for wrong in RMS_NORM.wrong.values())


def test_the_cases_of_rms_norm_are_the_hard_ones():
    xs = [case[0] for case in RMS_NORM.cases]
    assert {x.dtype for x in xs} == {torch.float16, torch.float32, torch.float64}
    assert any(not x.is_contiguous() for x in xs)
    assert any(x.requires_grad and not x.any() for x in xs), "a zero row, backward"
    assert any(x.requires_grad and x.any() for x in xs), "rows, backward"
    assert any(x.mean() > 9_999 for x in xs) and any(0 < x.abs().max() < 1e-2 for x in xs)
    assert any(x.ndim == 3 and x.shape[0] > 1 and x.shape[1] > 1 for x in xs)
    assert len(RMS_NORM.wrong) >= 15


def test_rms_norm_agrees_with_torch():
    for x, gain, eps in RMS_NORM.cases:
        oracle = torch.nn.functional.rms_norm(x.double(), gain.shape, gain.double(), eps)
        got = norms.rms_norm(x, gain, eps)
        assert got.dtype == x.dtype
        assert torch.allclose(got.double(), oracle, rtol=4 * torch.finfo(x.dtype).eps, atol=0)


# --- derivations, against central differences


def differences(f, x, step=1e-6):
    """The Jacobian of f at x, by central differences: [outputs, inputs]."""
    columns = []
    for i in range(len(x)):
        nudge = torch.zeros_like(x)
        nudge[i] = step
        columns.append((f(x + nudge) - f(x - nudge)) / (2 * step))
    return torch.stack(columns, dim=-1)


def rms_norm64(x, gain, eps):
    return gain * x / (x.square().mean() + eps).sqrt()


def test_derived_references_agree_with_central_differences():
    generator = torch.Generator().manual_seed(0)
    for size in (2, 3, 8):
        x, gain, dy = torch.randn(3, size, generator=generator, dtype=torch.float64)
        for eps in (1e-5, 1e-2, 1.0):
            J = differences(lambda v: rms_norm64(v, 1.0, eps), x)  # noqa: B023
            assert torch.allclose(EXERCISES["rms_jacobian"].reference(x, eps), J, atol=1e-8)
            J = differences(lambda v: rms_norm64(v, gain, eps), x)  # noqa: B023
            radial = EXERCISES["radial"].reference(x, gain, dy, eps)
            assert torch.allclose(radial, x @ (J.T @ dy), atol=1e-8)
            zero = torch.zeros_like(x)
            J = differences(lambda v: rms_norm64(v, gain, eps), zero)  # noqa: B023
            wanted = EXERCISES["zero_gradient"].reference(gain, dy, eps)
            assert torch.allclose(wanted, J.T @ dy, rtol=1e-5)
            J = differences(lambda v: v + torch.tanh(v), x)
            branch = differences(torch.tanh, x)
            assert torch.allclose(
                EXERCISES["residual_gradient"].reference(dy, branch), J.T @ dy, atol=1e-8
            )


# --- further wrong answers


def one_row(x, gain, eps):
    return gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def leak_at(position):
    """A test for leaks that changes one position only."""

    def leaks(f, x):
        changed = x.clone()
        changed[position] = torch.tensor([5.0, -1.0, 2.0, 0.3])
        return not torch.allclose(f(changed)[:position], f(x)[:position], atol=1e-5)

    return leaks


def masked_with(constant):
    def weights(q, k):
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        future = torch.ones_like(scores).triu(k.shape[-2] - q.shape[-2] + 1).bool()
        return scores.masked_fill(future, constant).softmax(dim=-1)

    return weights


def returns_its_error(x, change):
    same = len(x) == len(change)
    return [a + b for a, b in zip(x, change, strict=True)] if same else ValueError("lengths")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("residual_add", lambda x, change: [a - b for a, b in zip(x, change, strict=True)]),
        ("residual_add", returns_its_error),
        ("shift", [13 / 13.5, 14 / 13.5]),
        ("rms_norm", one_row),
        ("leaks", leak_at(1)),
        ("leaks", leak_at(2)),
        ("leaks", leak_at(3)),
        ("add_vectors", lambda x, change: [abs(a + b) for a, b in zip(x, change, strict=True)]),
        ("causal_weights", masked_with(-20.0)),
        ("causal_weights", masked_with(-100.0)),
        ("leaky_attention", lambda q, k, v: masked_with(-20.0)(q, k) @ v),
        ("leaky_attention", lambda q, k, v: masked_with(-100.0)(q, k) @ v),
    ],
)
def test_further_wrong_answers_do_not_pass(name, answer):
    assert check(name, answer).ok is False


def test_a_returned_error_is_told_from_a_raised_one():
    assert "this one is returned: write `raise`" in check("residual_add", returns_its_error).text
