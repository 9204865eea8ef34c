"""Chapter 06: labs on surprise, the learning rate and survival."""

from __future__ import annotations

from functools import partial

from tiny_lm.plots.stories import StoryPicture
from tiny_lm.plots.survival import RatePicture
from tiny_lm.plots.training import SchedulePicture
from tiny_lm.probes import progress, stories, training
from tiny_lm.widgets.controls import choice, slider, whole
from tiny_lm.widgets.lab import Lab


def surprise() -> Lab:
    """Which words of a story are decided by what came before, and which are free?"""
    return Lab(stories.surprises, StoryPicture, {"number": whole("story", 0, 40, 4)})


def readers() -> Lab:
    """Where does the trained model know less than the grammar?"""
    both = partial(stories.surprises, model=stories.shipped())
    return Lab(both, StoryPicture, {"number": whole("story", 0, 40, 4)})


def schedule() -> Lab:
    """What do warm-up and the end of the cosine do to the learning rate?"""
    controls = {
        "steps": whole("steps", 100, 3000, 2500),
        "warmup": whole("warmup", 0, 500, 100),
        "lr_end": slider("lr_end", 0, 1, 0.1, step=0.05),
    }
    return Lab(progress.schedule, SchedulePicture, controls)


def by_rate() -> Lab:
    """At which learning rates does an order survive at a depth?"""
    depths = [(str(blocks), blocks) for blocks in training.MAP_BLOCKS]
    controls = {
        "order": choice("order", training.MAP_ORDERS),
        "blocks": choice("blocks", depths, training.MAP_BLOCKS[0]),
    }
    return Lab(training.by_rate, RatePicture, controls)
