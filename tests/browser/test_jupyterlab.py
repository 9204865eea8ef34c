"""Each notebook in a real JupyterLab: pictures before a run, Run All, a slider by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
FINISHED = f"""() => document.querySelector("{IDLE}")
    && ![...document.querySelectorAll('.jp-InputPrompt')].some(e => e.textContent.includes('*'))"""


def open_notebook(page, lab_url, name):
    page.goto(f"{lab_url}/lab/tree/{name}?reset", wait_until="domcontentloaded")
    page.wait_for_selector(IDLE, timeout=90_000)
    page.wait_for_timeout(1000)


def run_all(page):
    page.click("text=Run >> nth=0")
    page.click("li[data-command='runmenu:run-all']")
    page.wait_for_timeout(1000)
    page.wait_for_function(FINISHED, timeout=180_000)
    page.wait_for_timeout(500)


def scroll_through(page, look):
    """Call `look()` on each screenful: JupyterLab holds only the cells near the screen."""
    panel = page.locator(".jp-WindowedPanel-outer").first
    panel.evaluate("e => { e.scrollTop = 0 }")
    bottom = False
    while not bottom:
        page.wait_for_timeout(300)
        look()
        bottom = panel.evaluate(
            "e => { const before = e.scrollTop; e.scrollTop += e.clientHeight / 2;"
            " return e.scrollTop === before }"
        )


def stored_pictures(name):
    cells = json.loads((NOTEBOOKS / name).read_text())["cells"]
    return sum("image/png" in o.get("data", {}) for c in cells for o in c.get("outputs", []))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_works_in_jupyterlab(page, lab_url, name):
    open_notebook(page, lab_url, name)

    pictures = set()
    images = page.locator(".jp-OutputArea-output img[src^='data:image/png']")
    scroll_through(page, lambda: pictures.update(images.evaluate_all("all => all.map(e => e.src)")))
    assert len(pictures) == stored_pictures(name), "pictures before any cell has run"

    run_all(page)
    stderr = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    trouble = []
    moved = []

    def look():
        trouble.extend(stderr.all_inner_texts())
        lab = page.locator(".jp-OutputArea-output:has([role=slider])").first
        if not moved and lab.count():
            moved.append(move_by_keyboard(page, lab))

    scroll_through(page, look)
    assert trouble == []
    assert moved == [True], "no slider was found, or the picture stayed as it was"
    assert page.errors == []


def move_by_keyboard(page, lab):
    """Press a key on the first slider's handle; True when picture and words change."""
    slider, picture = lab.locator("[role=slider]").first, lab.locator("img[alt]").first
    before = picture.get_attribute("src"), picture.get_attribute("alt")
    slider.focus()
    page.keyboard.press("PageUp")
    for _ in range(40):
        page.wait_for_timeout(100)
        after = picture.get_attribute("src"), picture.get_attribute("alt")
        if after[0] != before[0] and after[1] != before[1]:
            return True
    return False
