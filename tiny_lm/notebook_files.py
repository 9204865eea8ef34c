"""Notebooks as files, read and written without any package in the form that nbformat gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]


def read(path: Path) -> Notebook:
    """The notebook in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(notebook: Notebook, path: Path) -> None:
    """Write a notebook, byte for byte as nbformat would."""
    text = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def source(cell: Cell) -> str:
    """The text of a cell, which a file may hold as one string or as lines."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)
