"""The bug museum: hard inputs expose all, an ordinary one hardly any."""

from __future__ import annotations

import re

import pytest
import torch

from tiny_lm.exercises import EXERCISES, check
from tiny_lm.exercises.museum import EXHIBITS, gallery

REFERENCE = EXERCISES["museum"].reference
KNOWN = {
    sentence
    for name in ("rms_norm", "causal_weights", "block_forward")
    for sentence in EXERCISES[name].wrong
}


def exposed_by(x):
    return [letter for letter, caught in gallery({"a": x}).caught["a"].items() if caught]


def test_there_are_twelve_and_each_is_a_known_wrong_answer():
    assert list(EXHIBITS) == list("abcdefghijkl")
    labels = [exhibit.label for exhibit in EXHIBITS.values()]
    assert len(set(labels)) == 12 and set(labels) <= KNOWN


@pytest.mark.parametrize("letter", EXHIBITS)
def test_each_reference_input_exposes_its_exhibit(letter):
    assert EXHIBITS[letter].is_exposed_by(REFERENCE[letter])


def test_an_ordinary_row_exposes_one():
    assert exposed_by(torch.tensor([[3.0, 4.0]])) == ["l"]


def test_two_ordinary_rows_expose_few():
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    assert exposed_by(x) == ["i", "j", "k", "l"]


def test_no_input_exposes_them_all():
    """So each needs a thought of its own: nothing is given away by one strange tensor."""
    assert max(sum(caught.values()) for caught in gallery(REFERENCE).caught.values()) <= 8


@pytest.mark.parametrize("letter", EXHIBITS)
def test_the_right_ones_are_never_exposed(letter):
    exhibit = EXHIBITS[letter]
    honest = type(exhibit)(exhibit.code, exhibit.label, exhibit.right, exhibit.right)
    assert not any(honest.is_exposed_by(x) for x in REFERENCE.values())


def test_an_input_counts_for_its_own_exhibit():
    assert check("museum", {"a": REFERENCE["a"]}).text.startswith("museum: 1 of 12 exposed; still")
    assert check("museum", {"l": REFERENCE["a"]}).text.startswith("museum: 1 of 12 exposed; still")
    assert check("museum", {"e": REFERENCE["a"]}).text.startswith("museum: 0 of 12 exposed; still")
    assert check("museum", {}).ok is None
    before = REFERENCE["d"].clone()
    check("museum", REFERENCE)
    assert torch.equal(REFERENCE["d"], before) and not REFERENCE["d"].requires_grad


def test_the_table_shows_what_each_input_caught_and_tells_what_was_wrong():
    lines = str(gallery({"c": REFERENCE["c"], "l": REFERENCE["l"]})).splitlines()
    assert lines[0].split() == ["c", "l"]
    marks = {line[0]: line.split()[-2:] for line in lines[1:13]}
    assert marks["c"] == ["●", "·"] and marks["l"] == ["●", "●"] and marks["e"] == ["·", "·"]
    assert lines[13] == f"c: {EXHIBITS['c'].label}" and len(lines) == 15
    assert "●" not in str(gallery()) and str(gallery()).startswith("a  x / (ms.sqrt() + eps)")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (3, 'expected a dict such as {"a": torch.tensor([[3.0, 4.0]])}, got int'),
        ({"z": torch.ones(1, 2)}, "expected letters a, b, c, d, e, f, g, h, i, j, k, l, got 'z'"),
        ({"a": [1.0]}, "expected a tensor of floating-point numbers for 'a', got"),
        ({"a": torch.tensor([1, 2])}, "expected a tensor of floating-point numbers for 'a', got"),
    ],
)
def test_other_inputs_are_refused(inputs, words):
    with pytest.raises(ValueError, match="^" + re.escape(f"museum: {words}")):
        gallery(inputs)
    verdict = check("museum", inputs)
    assert verdict.ok is False and verdict.text.startswith(f"museum: {words}")
