"""Self-contained notebooks: the package zipped into the set-up cell, for Colab or anywhere."""

from __future__ import annotations

import base64
import io
import textwrap
import zipfile
from pathlib import Path

from tiny_lm.files import filling
from tiny_lm.host import ROOT
from tiny_lm.notebook_files import Cell, read, source, write
from tiny_lm.shapes import fail

SET_UP = '''\
# @title Set-up: run this cell first {{ display-mode: "form" }}
import base64
import importlib.util
import io
import sys
import tempfile
import zipfile

PACKAGE = """
{package}
"""  # tiny_lm, zipped

if importlib.util.find_spec("tiny_lm") is None:  # nothing else is installed or changed
    folder = tempfile.mkdtemp()
    packed = io.BytesIO(base64.b64decode(PACKAGE))
    zipfile.ZipFile(packed).extractall(folder)
    sys.path.insert(0, folder)
'''


def release(out: Path, root: Path = ROOT) -> list[Path]:
    """Write each notebook with the package inside it; returns what was written.

    Such a notebook needs nothing but what Colab has. The same source gives the same bytes. Raises
    ValueError where there are no notebooks, or where `out` is not new or empty; then nothing is
    written.
    """
    notebooks = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    if not notebooks:
        fail("release", "a checkout of the book", root)
    package = "\n".join(textwrap.wrap(base64.b64encode(packed(root / "tiny_lm")).decode(), 100))
    with filling("release", out) as folder:
        for path in notebooks:
            notebook = read(path)
            _pack(notebook["cells"][1], package)
            write(notebook, folder / path.name)
    return [out / path.name for path in notebooks]


def packed(package: Path) -> bytes:
    """A package, modules and data, as a zip file: the same bytes for the same source."""
    buffer = io.BytesIO()
    files = [p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            name = path.relative_to(package.parent).as_posix()
            info = zipfile.ZipInfo(name)  # dated 1980, as zip files begin: no clock in it
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def _pack(cell: Cell, package: str) -> None:
    """Replace what finds the package, keep what comes after it."""
    _, marker, rest = source(cell).partition("\nimport torch\n")
    if not marker:
        fail("release", "a set-up cell that imports torch", source(cell)[:40])
    text = SET_UP.format(package=package) + marker + rest
    cell["source"] = text.splitlines(keepends=True)
