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
    """Run All Cells, once more if the kernel was not connected yet and so nothing ran."""
    for _ in range(3):
        page.click("text=Run >> nth=0")
        page.click("li[data-command='runmenu:run-all']")
        page.wait_for_timeout(1000)
        page.wait_for_function(FINISHED, timeout=180_000)
        page.wait_for_timeout(500)
        prompts = "".join(page.locator(".jp-InputPrompt").all_text_contents())
        if any(mark.isdigit() for mark in prompts):
            return
    raise AssertionError("no cell has run")


def stored_pictures(name):
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    bundles = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    pngs = ["".join(data["image/png"]) for data in bundles if "image/png" in data]
    return {f"data:image/png;base64,{png.strip()}" for png in pngs}


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_works_in_jupyterlab(page, lab_url, name):
    open_notebook(page, lab_url, name)
    sources = "all => all.map(e => e.src.replaceAll('%0A', ''))"
    seen = page.locator(".jp-OutputArea-output img").evaluate_all(sources)
    assert set(seen) == stored_pictures(name), "pictures before any cell has run"

    run_all(page)
    stderr = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    assert stderr.all_inner_texts() == []
    labs = page.locator(".jp-OutputArea-output:has([role=slider])")
    assert labs.count() > 0
    for i in range(labs.count()):
        assert move_by_keyboard(page, labs.nth(i)), f"lab {i}: the picture stayed as it was"
    assert page.errors == []


def move_by_keyboard(page, lab):
    """Press a key on a lab's first slider; True when its picture and its words change."""
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
