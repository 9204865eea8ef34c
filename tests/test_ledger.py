"""The prediction ledger: what is written down meets its outcome; only a click opens the file."""

from __future__ import annotations

import json
import sys

import pytest

from tiny_lm.plots.calibration import CalibrationPicture
from tiny_lm.widgets import ledger as module
from tiny_lm.widgets.ledger import Ledger, calibration, data_file, outcome, predict


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "folder/predictions.json")


def answer(shown, guess, sure="75 %"):
    """What a reader does: choose, say how sure, click."""
    radio, how_sure, row = shown.box.children
    radio.value, how_sure.value = guess, sure
    row.children[0].click()
    return row.children[1].value


CHOICES = ["[3, 4]", "[9, 12]"]


@pytest.mark.parametrize("first", ["predict", "outcome"])
@pytest.mark.parametrize(("guess", "right"), [("[9, 12]", True), ("[3, 4]", False)])
def test_a_prediction_meets_its_outcome_in_either_order(ledger, first, guess, right):
    shown = predict("01.2", CHOICES, ledger=ledger)
    if first == "predict":
        assert answer(shown, guess) == f"Written down: {guess}, 75 % sure."
    seen = outcome("01.2", [9, 12], ledger=ledger)
    if first == "outcome":
        assert seen.box.value.endswith("Nothing was written down before.")
        answer(shown, guess)
    assert ledger.entries["01.2"]["right"] is right
    words = "it came true" if right else "it did not come true"
    assert (
        seen.box.value == f"Prediction 01.2: it is [9, 12]. You said {guess}, 75 % sure: {words}."
    )


@pytest.mark.parametrize(("guess", "right"), [(3.5, True), (3.6, True), (3.9, False)])
def test_a_number_is_right_within_its_margin(ledger, guess, right):
    shown = predict("02.1", between=(0, 5), within=0.1, ledger=ledger)
    answer(shown, guess)
    outcome("02.1", 3.5355, ledger=ledger)
    assert ledger.entries["02.1"]["right"] is right


def test_nothing_chosen_is_not_written_down(ledger):
    shown = predict("01.2", CHOICES, ledger=ledger)
    assert answer(shown, None) == "Choose one first."
    assert ledger.entries == {} and not ledger.file.exists()


def test_without_a_click_the_file_is_neither_read_nor_written(ledger, monkeypatch):
    monkeypatch.setattr(Ledger, "earlier", lambda self: pytest.fail("read"))
    asked = predict("01.2", CHOICES, ledger=ledger)
    told = outcome("01.2", "[9, 12]", ledger=ledger)
    lab = calibration("01", ledger=ledger)
    assert asked.sentence == "Your prediction 01.2: [3, 4] / [9, 12]"
    assert told.sentence == "Prediction 01.2: it is [9, 12]. Nothing was written down before."
    assert lab.sentence.startswith("No prediction has met its outcome yet.")
    assert not ledger.file.parent.exists()


def test_what_is_shown_without_a_kernel_does_not_depend_on_the_session(ledger):
    answer(predict("01.2", CHOICES, ledger=ledger), "[3, 4]")
    told = outcome("01.2", "[9, 12]", ledger=ledger)
    assert told._repr_mimebundle_()["text/plain"].endswith("Nothing was written down before.")


def test_sessions_add_up_and_can_be_exported(ledger, tmp_path):
    answer(predict("01.1", CHOICES, ledger=ledger), "[3, 4]", "95 %")
    outcome("01.1", "[3, 4]", ledger=ledger)
    later = Ledger(ledger.file)
    answer(predict("02.1", CHOICES, ledger=later), "[3, 4]", "50 %")
    outcome("02.1", "[9, 12]", ledger=later)
    later.export(tmp_path / "all.json")
    entries = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert entries == json.loads(ledger.file.read_text(encoding="utf-8"))
    assert entries == {
        "01.1": {"said": "[3, 4]", "sure": 95, "truth": "[3, 4]", "right": True},
        "02.1": {"said": "[3, 4]", "sure": 50, "truth": "[9, 12]", "right": False},
    }
    lab = calibration("02", ledger=later)
    assert lab.sentence == "Of 1 predictions, 0 came true; of those with 50 %, 0 of 1."
    lab.controls["chapters"].value = "all"
    assert lab.sentence.startswith("Of 1 ")  # the other one is of another session
    lab.controls["sessions"].value = "all"
    assert lab.sentence.startswith("Of 2 predictions, 1 came true; of those with 50 %, 0 of 1; of")
    lab.controls["chapters"].value = "this one"
    assert lab.sentence.startswith("Of 1 ")


def test_the_picture_follows_while_the_chapter_goes_on(ledger):
    lab = calibration("01", ledger=ledger)
    outcome("01.1", "[3, 4]", ledger=ledger)
    answer(predict("01.1", CHOICES, ledger=ledger), "[3, 4]", "75 %")
    assert lab.sentence.startswith("Of 1 predictions, 1 came true")


def test_a_damaged_file_is_no_obstacle(ledger):
    ledger.file.parent.mkdir()
    ledger.file.write_text("{", encoding="utf-8")
    answer(predict("01.1", CHOICES, ledger=ledger), "[3, 4]")
    assert json.loads(ledger.file.read_text(encoding="utf-8"))["01.1"]["said"] == "[3, 4]"


def test_shares_are_where_the_picture_draws_them():
    numbers = [(25, False), (25, True), (75, True), (75, True), (75, False), (75, True)]
    picture = CalibrationPicture(numbers)
    assert picture.points.get_xydata().tolist() == [[25, 50], [75, 75]]
    assert [text.get_text() for text in picture.counts] == ["1 of 2", "", "3 of 4", ""]


def test_what_cannot_be_asked_is_refused(ledger):
    with pytest.raises(ValueError, match=r"predict: expected two choices or more, or a range"):
        predict("01.1", ["only one"], ledger=ledger)


def test_a_test_run_has_no_file_and_a_reader_has_one(monkeypatch):
    assert data_file() is None and module.LEDGER.file is None
    monkeypatch.delitem(sys.modules, "pytest")
    assert data_file().name == "predictions.json"
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert data_file() is None
