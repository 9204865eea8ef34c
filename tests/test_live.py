"""LiveCurve: the curve grows, ends complete, and says the same words from first to last."""

import base64

import pytest

from tiny_lm.history import Evaluation, History
from tiny_lm.widgets import live
from tiny_lm.widgets.lab import WIDGET_MIME
from tiny_lm.widgets.live import LiveCurve


class Shown:
    """In the place of IPython's display: keeps what it was given."""

    def __init__(self):
        self.bundles = []

    def __call__(self, thing, display_id):
        assert display_id is True
        self.update(thing)
        return self

    def update(self, thing):
        self.bundles.append(thing._repr_mimebundle_())


@pytest.fixture
def shown(monkeypatch):
    shown = Shown()
    monkeypatch.setattr(live, "display", shown)
    return shown


def run(curve, history, losses):
    for loss in losses:
        history.loss.append(loss)
        curve(history)


def test_the_picture_grows_while_it_trains(shown, monkeypatch):
    monkeypatch.setattr(LiveCurve, "SECONDS", -1)  # draw every step
    history, seen = History(), []
    with LiveCurve(4, start=3.8, floor=0.5) as curve:
        for loss in (3.0, 2.0, 1.0, 0.9):
            run(curve, history, [loss])
            seen.append(curve.box.value)
            assert list(curve.picture.loss.get_ydata()) == history.loss
    assert len(set(seen)) == 4


def test_it_is_not_drawn_more_often_than_it_can_be_seen(shown, monkeypatch):
    monkeypatch.setattr(LiveCurve, "SECONDS", 1e9)
    with LiveCurve(3, start=3.8, floor=0.5) as curve:
        before = curve.box.value
        run(curve, History(), [3.0, 2.0, 1.0])
        assert curve.box.value == before
    assert list(curve.picture.loss.get_ydata()) == [3.0, 2.0, 1.0], "complete at the end"
    assert curve.box.value != before


def test_the_last_picture_takes_the_place_of_the_first_and_the_words_stay(shown):
    history = History(evaluations=[Evaluation(1, 2.9, 0.1, [1.0])])
    with LiveCurve(2, start=3.8, floor=0.5) as curve:
        run(curve, history, [3.0, 2.0])
    (first, _), (last, metadata) = shown.bundles
    assert first["text/plain"] == last["text/plain"] == metadata["image/png"]["alt"]
    assert first["image/png"] != last["image/png"]
    assert base64.b64decode(last["image/png"]).startswith(b"\x89PNG")
    assert first[WIDGET_MIME] == last[WIDGET_MIME]
    assert last[WIDGET_MIME]["model_id"] == curve.box.model_id


def test_a_run_that_fails_is_shown_as_far_as_it_came(shown):
    with pytest.raises(ZeroDivisionError):
        with LiveCurve(2, start=3.8, floor=0.5) as curve:
            run(curve, History(), [3.0])
            raise ZeroDivisionError
    assert list(curve.picture.loss.get_ydata()) == [3.0]
    assert len(shown.bundles) == 2
