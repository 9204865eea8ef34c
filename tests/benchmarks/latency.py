"""From a key to changed pixels: every lab, beside `interact` drawing the same picture, in one run.

python tests/benchmarks/latency.py                 needs Chromium; takes some minutes
python tests/benchmarks/latency.py epsilon.law     some labs only

Each lab's first slider is moved by an arrow key; where there is none, its first menu or its first
box. The time runs from the key's (or the choice's) arrival in the page to the first frame in which
the picture is another one and fully decoded. A frame is blank when
there is no decoded picture in it; the page jumps when the lab's own place moves.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "browser"), str(TESTS)]
from conftest import chromium, jupyterlab  # noqa: E402
from labs import all_labs  # noqa: E402
from playwright.sync_api import TimeoutError  # noqa: E402
from test_jupyterlab import open_notebook, run_all  # noqa: E402

HANDLES = ("[role=slider]", "select", "input[type=checkbox]")  # the first of these that is there
MOVABLE = f".jp-OutputArea-output:has({', '.join(HANDLES)})"  # interact's picture has no words

MOVES, WARM_UP = 15, 3
LAB = """
from {module} import {name}
{name}()
"""
# The same probe, picture, sharpness and controls by `interact`: a new figure for each move. Our own
# layout in rounds is left out, since nobody would write it there.
INTERACT = """
%matplotlib inline
from IPython.display import display
from ipywidgets import interact
from {module} import {name}

lab = {name}()
lab.draw = lambda: None
controls = {{n: getattr(control, "slider", control) for n, control in lab.controls.items()}}

class Anew(type(lab.picture)):
    def _lay_out(self):
        for artist in self._moving:
            artist.set_animated(False)

@interact(**controls)
def draw(**moved):
    display(Anew(lab.probe(**lab.values)).figure)
"""
# Watches one lab frame by frame: when its picture changed, how often it was blank or elsewhere.
WATCH = """([lab, handle]) => {
    const state = window.watched = {blank: 0, jump: 0, times: []};
    const picture = () => lab.querySelector('img');
    const top = lab.getBoundingClientRect().top;
    let source = picture().src, start = null;
    const moved = handle.role === 'slider' ? 'keydown' : 'change';
    handle.addEventListener(moved, () => { start = performance.now(); }, true);
    const look = () => {
        const image = picture();
        if (!image || !image.complete || !image.naturalWidth) state.blank += 1;
        else if (image.src !== source) {
            source = image.src;
            if (start !== null) { state.times.push(performance.now() - start); start = null; }
        }
        state.jump = Math.max(state.jump, Math.abs(lab.getBoundingClientRect().top - top));
        state.frame = requestAnimationFrame(look);
    };
    look();
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "notebooks").mkdir()
        labs = {each.id: each.values[0] for each in all_labs()}
        # A lab that has to be given a recording cannot stand alone in a notebook.
        labs = {name: lab for name, lab in labs.items() if hasattr(lab, "__name__")}
        labs = {name: labs[name] for name in sys.argv[1:] or labs}
        for name, lab in labs.items():
            for form, code in (("lab", LAB), ("interact", INTERACT)):
                code = code.format(module=lab.__module__, name=lab.__name__)
                save(code, work / f"notebooks/{name}.{form}.ipynb")
        with jupyterlab(work) as url, chromium(work / "profile") as page:
            print(f"{'':24}{'lab, ms':>14}{'interact, ms':>16}")
            print(f"{'':24}{'median':>8}{'95 %':>6}{'median':>10}{'95 %':>6}", end="")
            print(f"{'x faster':>10}{'blank frames':>14}{'jump, px':>10}")
            for name in labs:
                try:
                    show(page, url, name)
                except TimeoutError:
                    print(f"{name:24}no other picture within 10 s", flush=True)


def save(code, path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)


def show(page, url, name):
    """Measure a lab and its twin, each in a notebook that holds nothing else; print a line."""
    columns, medians = "", []
    for form in ("lab", "interact"):
        open_notebook(page, url, f"{name}.{form}.ipynb")
        run_all(page)
        times, *seen = measure(page, page.locator(MOVABLE).first)
        medians.append(statistics.median(times))
        if form == "lab":
            blank, jump = seen
        worst = sorted(times)[round(0.95 * (len(times) - 1))]
        columns += f"{medians[-1]:{8 if form == 'lab' else 10}.0f}{worst:6.0f}"
    faster = medians[1] / medians[0]
    print(f"{name:24}{columns}{faster:10.1f}{blank:14}{jump:10.0f}", flush=True)


def measure(page, lab):
    """Milliseconds of each move, frames without a picture, and how far the lab moved."""
    lab.locator(", ".join(HANDLES)).first.wait_for()
    kind = next(kind for kind in HANDLES if lab.locator(kind).count())
    handle = lab.locator(kind).first
    handle.scroll_into_view_if_needed()
    handle.focus()
    page.wait_for_timeout(300)
    turn = turner(page, kind, handle)
    page.evaluate(WATCH, [lab.element_handle(), handle.element_handle()])
    times = []
    for move in range(WARM_UP + MOVES):
        turn(move)
        page.wait_for_function(
            "n => watched.times.length > n", arg=move, timeout=10_000, polling=20
        )
        page.wait_for_timeout(60)
    seen = page.evaluate("() => { cancelAnimationFrame(watched.frame); return watched }")
    times = seen["times"][WARM_UP:]
    return times, seen["blank"], seen["jump"]


def turner(page, kind, handle):
    """What moves a control by one step at even moves, and back again at odd ones."""
    if kind == "[role=slider]":
        keys = ["ArrowRight", "ArrowLeft"]
        if handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax"):
            keys.reverse()
        return lambda move: page.keyboard.press(keys[move % 2])
    if kind == "select":
        first, options = handle.evaluate("menu => [menu.selectedIndex, menu.length]")
        other = first + 1 if first + 1 < options else first - 1
        return lambda move: handle.select_option(index=(other, first)[move % 2])
    return lambda move: handle.click()


if __name__ == "__main__":
    main()
