"""Cells tagged `needs-smollm2` run on the real model: get it once, or skip them in one line."""

import pytest
from filelock import FileLock

TAG = "needs-smollm2"


def pytest_collection_modifyitems(items):
    cells = [item for item in items if TAG in _tags(item)]
    missing = _why_missing() if cells else ""
    if missing:
        for item in cells:
            item.add_marker(pytest.mark.skip(reason=missing))


def _tags(item):
    cell = getattr(item, "cell", None)  # an nbval item holds its notebook cell
    return [] if cell is None else cell["metadata"].get("tags", [])


def _why_missing():
    """Empty when the model is there or can be had, else one line that says why not."""
    from tiny_lm import pretrained

    if pretrained.cached("smollm2-135m"):
        return ""
    import tempfile
    from pathlib import Path

    # pytest-xdist collects in several processes: one downloads, the others wait.
    with FileLock(Path(tempfile.gettempdir()) / "tiny-lm-fetch.lock"):
        try:
            pretrained.fetch("smollm2-135m")
        except (ImportError, OSError, ValueError) as problem:
            return str(problem)
    return ""
