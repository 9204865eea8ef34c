"""Notebooks as files, read and written without any package in the form that nbformat gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_lm.files import replacing
from tiny_lm.shapes import fail

Notebook = dict[str, Any]
Cell = dict[str, Any]


def read(path: Path) -> Notebook:
    """The notebook in a file, a title and a set-up cell at least. Raises ValueError for others."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [source(cell) for cell in notebook["cells"]]
        _text(notebook).encode()  # JSON can hold half a character, which no file can
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        fail("notebook", f"cells with their text in {path.name}", "another form", str(error))
    if len(cells) < 2:
        fail("notebook", f"title and set-up in {path.name}", f"{len(cells)} cells")
    return notebook


def write(notebook: Notebook, path: Path) -> None:
    """Write a notebook, byte for byte as nbformat would."""
    with replacing(path) as unfinished:
        unfinished.write_text(_text(notebook), encoding="utf-8", newline="\n")


def _text(notebook: Notebook) -> str:
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def source(cell: Cell) -> str:
    """The text of a cell, which a file may hold as one string or as lines."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)
