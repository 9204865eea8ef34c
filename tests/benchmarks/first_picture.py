"""From opening a chapter in JupyterLab to its first picture after Run All, kernel start and all.

python tests/benchmarks/first_picture.py            chapters 00 to 04; needs Chromium
python tests/benchmarks/first_picture.py 07 08      other chapters
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import nbformat

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "browser"), str(TESTS)]
from conftest import NOTEBOOKS, chromium, jupyterlab  # noqa: E402
from playwright.sync_api import TimeoutError  # noqa: E402
from test_jupyterlab import open_notebook  # noqa: E402

PICTURE = ".jp-OutputArea-output img"
STARTED = """() => [...document.querySelectorAll('.jp-InputPrompt')]
    .some(prompt => /[*0-9]/.test(prompt.textContent))"""


def main() -> None:
    chapters = sys.argv[1:] or ["00", "01", "02", "03", "04"]
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "notebooks").mkdir()
        names = [next(NOTEBOOKS.glob(f"{chapter}_*.ipynb")) for chapter in chapters]
        for path in names:
            save_without_outputs(path, work / "notebooks" / path.name)
        with jupyterlab(work) as url, chromium(work / "profile") as page:
            for path in names:
                print(f"{path.stem:28}{seconds(page, url, path.name):6.1f} s", flush=True)


def save_without_outputs(path, copy):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, copy)


def seconds(page, url, name):
    """Until there is a picture; a reader who clicks before the kernel answers clicks again."""
    began = time.perf_counter()
    open_notebook(page, url, name)
    assert page.locator(PICTURE).count() == 0, "a picture is there before anything has run"
    for _ in range(20):
        page.click("text=Run >> nth=0")
        page.click("li[data-command='runmenu:run-all']")
        with suppress(TimeoutError):
            page.wait_for_function(STARTED, timeout=2_000)
            break
    page.locator(PICTURE).first.wait_for(timeout=120_000)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
