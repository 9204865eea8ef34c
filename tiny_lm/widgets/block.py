"""Chapters 00 and 04: labs on a block as a whole, on RoPE and on causality."""

from __future__ import annotations

from tiny_lm.plots.attention import CausalityPicture, HeadPicture, RopePicture
from tiny_lm.plots.block import WiringPicture
from tiny_lm.plots.block_map import WalkPicture
from tiny_lm.probes import attention as attention_probes
from tiny_lm.probes import block as block_probes
from tiny_lm.widgets.controls import choice, scale, switch, whole
from tiny_lm.widgets.lab import Lab


def walk() -> Lab:
    """What does a vector meet on its way through a block?"""
    controls = {"step": whole("step", 1, block_probes.STATIONS, 1)}
    return Lab(block_probes.walk, WalkPicture, controls)


def rope() -> Lab:
    """What does a score depend on when both vectors are turned by their positions?"""
    controls = {
        "query_at": whole("query position", 0, 20, 7),
        "key_at": whole("key position", 0, 20, 4),
        "pair": whole("pair", 0, 3, 0),
    }
    return Lab(attention_probes.rope_score, RopePicture, controls)


def heads() -> Lab:
    """What does each head look at, and which of them needs RoPE?"""
    controls = {
        "head": choice("head for", list(attention_probes.HEADS)),
        "query_at": whole("query, word", 1, len(attention_probes.WORDS), 8),
        "sharpness": scale("sharpness", 0, 2, 31.6227766),
        "rope": switch("RoPE"),
    }
    return Lab(attention_probes.head_weights, HeadPicture, controls)


def causality() -> Lab:
    """Which outputs move when one position of the input changes?"""
    controls = {
        "changed": whole("changed position", 1, attention_probes.POSITIONS, 3),
        "fault": choice("fault", list(attention_probes.FAULTS)),
    }
    return Lab(attention_probes.causality, CausalityPicture, controls)


def wiring() -> Lab:
    """What do the branches read and what stays on the direct path, in each order of a block?"""
    controls = {
        "order": choice("order", ["pre", "post", "plain"]),
        "attention_on": switch("attention writes"),
        "ffn_on": switch("FFN writes"),
        "norms": switch("norms"),
        "size": scale("size of x", -1, 2, 1.0),
    }
    return Lab(block_probes.wiring, WiringPicture, controls)
