"""A full disk, or a folder that may not be written into: a clear error, and the old file whole."""

import os
from pathlib import Path

import pytest
from killing import NEW, OPERATIONS, PATCHED, book, in_terminal, left, with_little_room, write

from tiny_lm import colab, release

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system makes no copies of a process"),
    pytest.mark.filterwarnings("ignore:.*fork"),  # of other threads, which the copies do without
]
each = pytest.mark.parametrize("name", OPERATIONS)
FITS = {"progress": 100, "host": 5000, "release": 5000, "colab": 5000}  # bytes; the rest are large


@pytest.fixture(autouse=True)
def undone(monkeypatch):
    """What the operations put in place of others is put back."""
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))


@each
@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, name, size):
    operation = OPERATIONS[name]
    operation.begin(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    error, _ = with_little_room(size, write, name, tmp_path, NEW)
    fits = size >= FITS.get(name, 10_000)
    if fits or operation.goes_on:
        assert error is None
    else:
        assert error.startswith("OSError: ") and "File too large" in error
    assert operation.look(tmp_path) == (NEW if fits else 1)
    assert left(tmp_path) == [] and (fits or sorted(tmp_path.rglob("*")) == before)


@pytest.mark.parametrize("verb", ["train", "compare", "release"])
@pytest.mark.parametrize("size", [0, 100])
def test_a_full_disk_is_one_line_in_the_terminal(tmp_path, size, verb):
    book(tmp_path)
    status, said = with_little_room(size, in_terminal, verb, tmp_path)
    lines = [line for line in said.splitlines() if line.startswith("tiny_lm: ")]
    assert status == 1 and "Traceback" not in said
    assert len(lines) == 1 and "File too large" in lines[0]
    assert sorted(os.listdir(tmp_path)) == ["notebooks", "pyproject.toml"]


@pytest.mark.parametrize("name", ["save", "page", "compare", "release", "colab", "fetch"])
@pytest.mark.parametrize("where", ["under a file", "of the system"])
def test_a_folder_that_cannot_be_written_into(tmp_path, name, where):
    """The system's own folder refuses even root, for whom the bits of a mode mean nothing."""
    book(tmp_path)
    folder = tmp_path / "pyproject.toml"
    if where == "of the system":
        folder = Path("/sys/kernel")
        if not folder.is_dir():
            pytest.skip("this system has no /sys")
    operation = OPERATIONS[name]
    before = sorted(os.listdir(folder)) if folder.is_dir() else []
    with pytest.raises((OSError, ValueError)) as caught:
        if name in ("release", "colab"):
            operation = {"release": release.release, "colab": colab.release}[name]
            operation(folder / "out", tmp_path / "notebooks" if name == "release" else tmp_path)
        else:
            operation.write(folder, NEW)
    assert not isinstance(caught.value, ValueError) or ": expected " in str(caught.value)
    assert before == (sorted(os.listdir(folder)) if folder.is_dir() else [])
