"""The state of a training run in one .safetensors file, so that a killed run can go on.

It holds the weights, AdamW's two running means of each, and in the header the history and what
identifies the run. As with a checkpoint, nothing in it can run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from tiny_lm.checkpoint import expect_names, write
from tiny_lm.extras import need
from tiny_lm.history import History
from tiny_lm.shapes import fail, shape_of
from tiny_lm.sharded import part, whole

MEANS = ("exp_avg", "exp_avg_sq")  # as AdamW calls them


def state(model: Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """What `save` writes: weights and AdamW's means, whole. All processes have to take part."""
    found = {}
    for name, weight in model.named_parameters():
        found[f"weight.{name}"] = weight.detach()
        found |= {f"{mean}.{name}": optimizer.state[weight][mean] for mean in MEANS}
    return {name: whole(tensor).cpu().contiguous() for name, tensor in found.items()}


def save(
    path: str | Path, run: Mapping[str, Any], tensors: Mapping[str, Tensor], history: History
) -> None:
    """Write the state of a run; `run` is what another run would have to share to go on from it."""
    header = {"format": "tiny_lm run", "run": _text(run), "history": history.to_json()}
    write(Path(path).resolve(), tensors, header)


def load(path: str | Path, run: Mapping[str, Any], model: Module, optimizer: Optimizer) -> History:
    """Put model and optimizer back where this run was, and return its history.

    The history is empty, and nothing is changed, when there is no such file. Raises ValueError for
    a file that is damaged or of another run.
    """
    who, path = "resume.load", Path(path)
    if not path.exists():
        return History()
    safetensors = need("safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        fail(who, "the state of a training run", path, str(error))
    if header.get("format") != "tiny_lm run":
        fail(who, "the state of a training run", path)
    _expect_same_run(path, header.get("run", "{}"), run)
    history = _history(header.get("history", ""))
    weights = dict(model.named_parameters())
    expected = {f"{k}.{n}": p for n, p in weights.items() for k in ("weight", *MEANS)}
    expect_names(who, expected, tensors)
    for name, weight in expected.items():
        if (shape := shape_of(tensors[name])) != shape_of(weight):
            fail(who, f"{name} {shape_of(weight)}", shape)
        if tensors[name].dtype != weight.dtype:
            fail(who, f"{name} in {weight.dtype}", tensors[name].dtype)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(part(tensors[f"weight.{name}"], weight))
            optimizer.state[weight] = {
                mean: part(tensors[f"{mean}.{name}"], weight) for mean in MEANS
            }
            optimizer.state[weight]["step"] = torch.tensor(float(len(history.loss)))
    return history


def _history(text: str) -> History:
    try:
        history = History.from_json(text)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        fail("resume.load", "a history", repr(text[:40]), str(error))
    looked = history.evaluations[-1].step if history.evaluations else 0
    if looked != len(history.loss) and not history.stopped.startswith("not finite"):
        got = f"{looked} of {len(history.loss)} steps"  # the file is written at an evaluation
        fail("resume.load", "a history up to its last evaluation", got)
    return history


def _expect_same_run(path: Path, found: str, run: Mapping[str, Any]) -> None:
    try:
        known, asked = dict(json.loads(found)), json.loads(_text(run))
    except (ValueError, TypeError, RecursionError) as error:
        fail("resume.load", "the settings of a run", repr(found[:40]), str(error))
    for name, setting in asked.items():
        if known.get(name) != setting:
            hint = f"remove {path} to start again"
            fail("resume.load", f"{name} {setting}", known.get(name), hint)


def _text(run: Mapping[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)
