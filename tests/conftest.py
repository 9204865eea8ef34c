"""One torch thread, here and in what tests start: arrays are small, and other work shares cores."""

import gc
import os
from functools import cache

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded, which the first process never does
gc.set_threshold(700, 10, 100)  # to look through all of torch takes half a second each time


@pytest.fixture(scope="module")
def drawn_once():
    """Every stack of branches is kept, in 0.7 GB: `depth` keeps ten, and would draw most again."""
    from tiny_lm.probes import depth  # not at the top: the first process does without torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "branches", cache(depth.branches.__wrapped__))
        yield
