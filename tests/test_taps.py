"""taps.py on its own; what the layers and the model send through a tap is tested with them."""

from collections.abc import Mapping

import pytest

from tiny_lm.taps import Recorder, ignore, under


def forward(x, tap=ignore):
    """A pass with three named values, the second under a prefix: x + 1, then · 2, then − 3."""
    x = tap("first", x + 1)
    x = under("block.0", tap)("second", x * 2)
    return tap("third", x - 3)


def test_ignore_hands_the_value_itself_back():
    value = object()
    assert ignore("name", value) is value


def test_under_puts_the_prefix_and_a_dot_before_every_name():
    names = []

    def listen(name, value):
        names.append(name)
        return value + 1

    assert under("blocks.3", listen)("resid.ffn", 1) == 2
    assert under("a", under("b", listen))("c", 1) == 2
    assert names == ["blocks.3.resid.ffn", "b.a.c"]


def test_under_ignore_costs_nothing():
    assert under("blocks.0", ignore) is ignore


def test_a_recorder_keeps_the_values_in_the_order_of_computation():
    tap = Recorder()
    assert forward(4, tap) == forward(4) == 7
    assert list(tap.items()) == [("first", 5), ("block.0.second", 10), ("third", 7)]


def test_a_recorder_is_a_mapping():
    tap = Recorder()
    assert isinstance(tap, Mapping) and len(tap) == 0 and not tap
    forward(4, tap)
    assert len(tap) == 3 and tap["third"] == 7 and "first" in tap and "nothing" not in tap
    assert dict(tap) == {"first": 5, "block.0.second": 10, "third": 7}
    assert tap.get("nothing", 0) == 0
    with pytest.raises(KeyError, match="nothing"):
        tap["nothing"]


def test_a_recorder_keeps_the_value_itself():
    value = object()
    tap = Recorder()
    assert tap("x", value) is value and tap["x"] is value


def test_a_second_pass_replaces_the_values_of_the_first():
    tap = Recorder()
    forward(4, tap)
    forward(0, tap)
    assert dict(tap) == {"first": 1, "block.0.second": 2, "third": -1}


def test_an_edit_changes_what_comes_after_it_and_is_recorded():
    tap = Recorder(edit={"block.0.second": lambda value: value * 100})
    assert forward(4, tap) == 997
    assert dict(tap) == {"first": 5, "block.0.second": 1000, "third": 997}
    assert tap.unused == []


def test_edits_under_names_that_never_came_up():
    tap = Recorder(edit={"second": abs, "first": abs, "blocks.0.second": abs})
    assert tap.unused == ["second", "first", "blocks.0.second"]  # nothing has run yet
    assert forward(4, tap) == 7
    assert tap.unused == ["second", "blocks.0.second"]


def test_the_edits_are_the_recorders_own():
    edits = {"first": lambda value: 0}
    tap = Recorder(edit=edits)
    edits.clear()
    assert forward(4, tap) == -3


def test_repr_lists_the_names():
    tap = Recorder()
    forward(4, tap)
    assert repr(tap) == "Recorder(first, block.0.second, third)"
