"""Each notebook in a real JupyterLab: pictures before a run, Run All, a slider by keyboard."""

from __future__ import annotations

import json
from operator import ne
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


LABS = ".jp-OutputArea-output:has([role=slider]):has(img[alt])"  # not the questions


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_works_in_jupyterlab(page, lab_url, name):
    open_notebook(page, lab_url, name)
    sources = "all => all.map(e => e.src.replaceAll('%0A', ''))"
    seen = page.locator(".jp-OutputArea-output img").evaluate_all(sources)
    assert set(seen) == stored_pictures(name), "pictures before any cell has run"
    assert page.get_by_text("Error displaying widget").count() == 0

    run_all(page)
    stderr = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    assert stderr.all_inner_texts() == []
    labs = page.locator(LABS)
    assert labs.count() > 0
    for i in range(labs.count()):
        for slider in labs.nth(i).locator("[role=slider]").all():
            move_there_and_back(page, labs.nth(i), slider, f"lab {i}")
    assert page.errors == []


def state(lab):
    """The picture, its words, and the number beside each slider."""
    picture = lab.locator("img[alt]").first
    fields = lab.locator("input[type=text]").evaluate_all("all => all.map(e => e.value)")
    return picture.get_attribute("src"), picture.get_attribute("alt"), fields


def until(page, condition, what):
    for _ in range(60):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError(what)


def move_there_and_back(page, lab, slider, where):
    """Words and number follow each key; the way back, and Reset, lead to the same picture."""
    before = state(lab)
    keys = ["ArrowRight", "ArrowLeft", "PageUp"]
    if slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax"):
        keys = ["ArrowLeft", "ArrowRight", "PageDown"]
    slider.focus()
    for key in keys:
        page.keyboard.press(key)
        if key == keys[1]:
            until(page, lambda: state(lab) == before, f"{where}: does not come back")
        else:
            until(page, lambda: all(map(ne, state(lab)[1:], before[1:])), f"{where}: stays")
    lab.get_by_role("button", name="Reset").click()
    until(page, lambda: state(lab) == before, f"{where}: Reset does not bring it back")


def test_an_exact_value_can_be_typed_and_stays(page, lab_url):
    open_notebook(page, lab_url, "03_epsilon_effects.ipynb")
    run_all(page)
    lab = page.locator(LABS).first
    lab.get_by_label("ε, eps").fill("3e-4")  # found by the name that a screen reader says
    page.keyboard.press("Enter")
    until(page, lambda: "eps = 0.0003:" in state(lab)[1], "the typed value is not used")
    page.wait_for_timeout(1000)  # the slider answers from the browser
    assert "eps = 0.0003:" in state(lab)[1] and state(lab)[2][0] == "0.0003"
    for typed, shown in (("nonsense", "0.0003"), ("-1", "1e-12")):
        lab.get_by_label("ε, eps").fill(typed)
        page.keyboard.press("Enter")
        until(page, lambda: state(lab)[2][0] == shown, typed)  # noqa: B023
    lab.get_by_role("button", name="Reset").click()
    until(page, lambda: "eps = 1e-05:" in state(lab)[1] and state(lab)[2][0] == "1e-5", "no reset")
    assert page.errors == []


def test_a_slow_lab_says_so_and_ends_at_the_last_move(page, lab_url, work):
    open_notebook(page, lab_url, "slow.ipynb")
    run_all(page)
    lab, asked = page.locator(LABS).first, work / "notebooks/asked.txt"
    asked.write_text("", encoding="utf-8")
    lab.locator("[role=slider]").focus()
    busy = 0
    for _ in range(20):  # faster than it can follow
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(60)
        busy += lab.get_by_text("computing").count()
    assert busy > 3, "never said that it was busy"
    until(page, lambda: "x = [5.0, 4.0]" in state(lab)[1], "the last move is lost")
    page.wait_for_timeout(1000)
    probed = [float(line) for line in asked.read_text(encoding="utf-8").split()]
    assert probed == sorted(probed) and probed[-1] == 5.0
    assert len(probed) < 10, "stale moves were computed"
    assert lab.get_by_text("computing").count() == 0
