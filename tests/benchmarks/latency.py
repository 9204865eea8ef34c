"""From a key to changed pixels: every lab, beside ipywidgets' `interact`, in one run.

python tests/benchmarks/latency.py                 needs Chromium; takes some minutes
python tests/benchmarks/latency.py epsilon.law     some labs only

Each lab's first slider is moved by an arrow key. The time runs from the key's arrival in the page
to the first frame in which the picture is another one and fully decoded. A frame is blank when
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
from test_jupyterlab import open_notebook, run_all  # noqa: E402
from test_widgets import all_labs  # noqa: E402

MOVABLE = ".jp-OutputArea-output:has([role=slider])"  # interact's picture has no words to it

MOVES, WARM_UP = 15, 3
INTERACT = """
%matplotlib inline
import matplotlib.pyplot as plt
from ipywidgets import FloatLogSlider, interact
from tiny_lm.probes.epsilon import law

@interact(eps=FloatLogSlider(1e-5, min=-12, max=0, step=0.25))
def draw(eps):
    numbers = law(eps, 0.01)
    fig, axes = plt.subplots(figsize=(6, 3.2))
    axes.semilogx(numbers.sizes, numbers.outputs)
    axes.plot([numbers.size], [numbers.output], "o")
    axes.set(xlabel="RMS of x", ylabel="RMS of the output", ylim=(0, 1.12))
    plt.show()
"""
# Watches one lab frame by frame: when its picture changed, how often it was blank or elsewhere.
WATCH = """(lab) => {
    const state = window.watched = {blank: 0, jump: 0, times: []};
    const handle = lab.querySelector('[role=slider]');
    const picture = () => lab.querySelector('img');
    const top = lab.getBoundingClientRect().top;
    let source = picture().src, start = null;
    handle.addEventListener('keydown', () => { start = performance.now(); }, true);
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
            code = f"from {lab.__module__} import {lab.__name__}\n{lab.__name__}()"
            save(code, work / f"notebooks/{name}.ipynb")
        save(INTERACT, work / "notebooks/interact.ipynb")
        with jupyterlab(work) as url, chromium(work / "profile") as page:
            print(f"{'':24} median ms   95 %   x faster   blank frames   jump, px")
            base = show(page, url, "interact", None)
            for name in labs:
                show(page, url, name, base)
            show(page, url, "interact", base)


def save(code, path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)


def show(page, url, name, base):
    """Measure the lab of a notebook that holds nothing else; returns its median."""
    open_notebook(page, url, f"{name}.ipynb")
    run_all(page)
    times, blank, jump = measure(page, page.locator(MOVABLE).first)
    median = statistics.median(times)
    worst = sorted(times)[round(0.95 * (len(times) - 1))]
    faster = (base or median) / median
    print(
        f"{name:24} {median:9.0f} {worst:6.0f} {faster:10.1f} {blank:14} {jump:10.0f}", flush=True
    )
    return median


def measure(page, lab):
    """Milliseconds of each move, frames without a picture, and how far the lab moved."""
    slider = lab.locator("[role=slider]").first
    slider.scroll_into_view_if_needed()
    slider.focus()
    page.wait_for_timeout(300)
    keys = ["ArrowRight", "ArrowLeft"]
    if slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax"):
        keys.reverse()
    lab.evaluate(WATCH)
    times = []
    for move in range(WARM_UP + MOVES):
        page.keyboard.press(keys[move % 2])
        page.wait_for_function(
            "n => watched.times.length > n", arg=move, timeout=10_000, polling=20
        )
        page.wait_for_timeout(60)
    seen = page.evaluate("() => { cancelAnimationFrame(watched.frame); return watched }")
    times = seen["times"][WARM_UP:]
    return times, seen["blank"], seen["jump"]


if __name__ == "__main__":
    main()
