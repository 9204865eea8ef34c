"""Run many trainings and keep each result in a file, so that a stopped command can go on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from tiny_lm.files import replacing


def command(
    path: Path,
    jobs: Mapping[str, Any],
    compute: Callable[[Any], Any],
    settings: str,
    table: Callable[[], str],
) -> None:
    """Compute what the file lacks, or with `again` all of it, and print the table of it."""
    torch.set_num_threads(1)
    if sys.argv[1:] == ["again"]:
        path.unlink(missing_ok=True)
    results(path, list(jobs), lambda key: compute(jobs[key]), settings)
    print(table())


def results(path: Path, keys: Sequence[str], compute: Callable[[str], Any], settings: str) -> dict:
    """What `compute` gives for each key; those in the file already are not computed again."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = found.get("results", {}) if found.get("settings") == settings else {}
    for key in tqdm([key for key in keys if key not in known], unit="run", desc=path.name):
        known[key] = compute(key)
        write(path, {"settings": settings, "results": {k: known[k] for k in keys if k in known}})
    return known


def write(path: Path, content: Any) -> None:
    """Replace a JSON file in one step."""
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
