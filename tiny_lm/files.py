"""Write a file or a folder whole or not at all: an interruption or a full disk leaves the old one.

The new one grows under another name beside the old, `.NAME.….part`. A process that is killed leaves
that behind; nothing reads it, and a later write to the same place removes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from tiny_lm.shapes import fail

ABANDONED = 3600.0  # seconds without a write after which nobody is at work on it any more


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file to write into, which becomes `path` when the block ends without an error.

    Raises OSError as the disk does.
    """
    _sweep(path)
    # In the same folder, for only there is a rename one step.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        unfinished.touch(exist_ok=False)
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())  # the name must not reach the disk before the bytes do
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def filling(who: str, out: Path) -> Iterator[Path]:
    """An empty folder to write into, which becomes `out` when the block ends without an error.

    Raises ValueError, in the name of `who`, unless `out` is empty or not there yet, and for the
    folder one is in, which cannot be put in place of another.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir()) or out.samefile(".")):
        fail(who, "a new or an empty folder", str(out))
    out.parent.mkdir(parents=True, exist_ok=True)
    _sweep(out)
    with tempfile.TemporaryDirectory(
        dir=out.parent, prefix=f".{out.name}.", suffix=".part"
    ) as work:
        folder = Path(work) / "new"  # not `work` itself, which only its owner may read
        folder.mkdir()
        yield folder
        if out.exists():
            out.rmdir()
        os.replace(folder, out)


def _sweep(path: Path) -> None:
    """Remove what processes that were killed have left."""
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED:
                shutil.rmtree(part) if part.is_dir() else part.unlink()
