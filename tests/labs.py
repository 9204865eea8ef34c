"""Every lab of the chapters, for the tests that go through all of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import partial

import pytest
import torch

import tiny_lm.widgets
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import streams


def recording():
    """A text in a small model, with a row that float16 cannot square."""
    sizes = {"vocab_size": 50, "n_layers": 3, "d_model": 16, "d_ff": 32}
    model = TinyLM(ModelConfig(**sizes), init="fan_in").eval()
    with torch.no_grad():
        model.embedding.weight[3] *= 5000.0
    return streams.read(model, [3, 1, 4, 1, 5])


# Labs of a chapter that are given what they look at.
GIVEN = {"real.stream": recording, "real.sixteen_bits": recording}


def all_labs():
    """Each public function in tiny_lm.widgets that makes a Lab, by name."""
    for module in pkgutil.iter_modules(tiny_lm.widgets.__path__):
        found = importlib.import_module(f"tiny_lm.widgets.{module.name}")
        for name, function in inspect.getmembers(found, inspect.isfunction):
            makes = str(function.__annotations__.get("return"))
            if function.__module__ != found.__name__ or "Lab" not in makes:
                continue
            lab_name = f"{module.name}.{name}"
            if lab_name in GIVEN:
                yield pytest.param(partial(function, GIVEN[lab_name]()), id=lab_name)
            elif not inspect.signature(function).parameters:  # else not a lab of a chapter
                yield pytest.param(function, id=lab_name)
