"""release --colab: notebooks that hold the package, the same bytes each time."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tiny_lm import cli, colab
from tiny_lm.colab import packed, release
from tiny_lm.notebook_files import read, source

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return release(tmp_path_factory.mktemp("colab") / "out")


def test_the_set_up_cell_finds_the_package_and_nothing_else_changes(written):
    assert [path.name for path in written] == sorted(p.name for p in ROOT.glob("notebooks/[0-9]*"))
    for path in written:
        ours, theirs = read(ROOT / "notebooks" / path.name)["cells"], read(path)["cells"]
        assert ours[:1] + ours[2:] == theirs[:1] + theirs[2:]
        assert ours[1]["metadata"] == theirs[1]["metadata"]
        assert (
            source(ours[1]).partition("import torch\n")[2]
            == source(theirs[1]).partition("import torch\n")[2]
        )


def test_it_runs_where_the_package_is_not_installed(written, tmp_path):
    """In a Python that sees the other packages, but neither this checkout nor an installed one."""
    (path, *_) = written
    program = tmp_path / "program.py"
    hide = f"""
import importlib.machinery, sys
sys.path[:] = [p for p in sys.path if p not in ("", {str(ROOT)!r})]
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in str(f).lower()]
"""
    show = "\nimport tiny_lm.plain\nprint(tiny_lm.__file__, tiny_lm.plain.rms([3.0, 4.0]))"
    program.write_text(hide + source(read(path)["cells"][1]) + show, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", program],
        capture_output=True, text=True, cwd=tmp_path, env={"PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file, rms = done.stdout.split()
    assert not file.startswith(str(ROOT)) and rms.startswith("3.5355")


def test_the_same_source_gives_the_same_bytes(written, tmp_path, capsys):
    """From the terminal as well."""
    assert cli.main(["release", str(tmp_path / "out"), "--colab"]) == 0
    again = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert again == [tmp_path / "out" / path.name for path in written]
    assert [p.read_bytes() for p in again] == [p.read_bytes() for p in written]
    package = packed(ROOT / "tiny_lm")
    assert len(package) < 800_000  # of which the trained model is 210,000; megabytes are too much
    names = zipfile.ZipFile(io.BytesIO(package)).namelist()
    assert {"tiny_lm/data/stories.safetensors", "tiny_lm/exercises/texts/rms.md"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_what_cannot_be_released_is_refused(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match=r"release: expected a new or an empty folder"):
        release(tmp_path)
    with pytest.raises(ValueError, match=r"release: expected a checkout of the book"):
        release(tmp_path / "out", root=tmp_path)
    with pytest.raises(ValueError, match=r"release: expected a set-up cell that imports torch"):
        colab._pack({"source": "import numpy"}, "")
