"""Chapter 07: labs that look inside the trained model, and operate on it."""

from __future__ import annotations

from tiny_lm.plots.attribution import LedgerPicture
from tiny_lm.plots.heads import StoryHeadPicture
from tiny_lm.plots.lens import LensPicture
from tiny_lm.plots.operating import PatchPicture, ResultPicture
from tiny_lm.probes import edits, inside, operating, stories
from tiny_lm.widgets.controls import choice, switch, whole
from tiny_lm.widgets.lab import Lab


def _writes() -> list[str]:
    return [edits.short(name) for name in edits.streams(stories.shipped())]


def ledger() -> Lab:
    """Which writes make a word likely?"""
    controls = {
        "number": whole("story", 0, 40, 4),
        "after": whole("after word", 1, 58, 40),
        "target": choice("logit of", [inside.NEXT, *inside.NAMED]),
        "other": choice("lead over", [inside.NOTHING, *inside.NAMED]),
    }
    return Lab(inside.ledger, LedgerPicture, controls)


def lens() -> Lab:
    """From which write on does the stream say what the model will say?"""
    controls = {"number": whole("story", 0, 40, 4), "first": whole("first word", 1, 50, 33)}
    return Lab(inside.lens_map, LensPicture, controls)


def head() -> Lab:
    """Where does a head look, in a whole story?"""
    controls = {
        "number": whole("story", 0, 40, 4),
        "block": whole("block", 0, 3, 0),
        "head": whole("head", 0, 3, 0),
        "word": whole("word", 1, 58, 40),
    }
    return Lab(inside.head, StoryHeadPicture, controls)


def board() -> Lab:
    """What can the model do without some of its writes?"""
    controls = {name: switch(f"without {name}", False) for name in _writes()}
    return Lab(operating.board, ResultPicture, controls)


def patches() -> Lab:
    """Which write, at which word, carries the answer?"""
    controls = {
        "question": choice("question", list(operating.PAIRS)),
        "write": choice("write", _writes(), "attn 1"),
        "word": whole("word", 1, operating.SHOWN, operating.SHOWN),
    }
    return Lab(operating.patches, PatchPicture, controls)


def bench() -> Lab:
    """Which operations does the model survive?"""
    controls = {"operation": choice("operation", list(operating.OPERATIONS))}
    return Lab(operating.bench, ResultPicture, controls)
