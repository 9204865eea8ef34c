"""Run notebooks in place and store them so that running again changes nothing.

python tests/execute_notebooks.py                 every notebook
python tests/execute_notebooks.py notebooks/02_rms_computation.ipynb

The cells of an exercise are first written anew from tiny_lm/exercises: change them there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tiny_lm.exercises import EXERCISES

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
FOLDED = "The next cell is folded: click it, or choose *View ▸ Expand All Code*."


def write_exercises(notebook: nbformat.NotebookNode) -> None:
    """Set the four cells of every exercise: prompt, stub, heading of the solution, solution.

    Exercises are numbered in the order of their stubs. The prompt stands before the stub, and the
    solution's heading before the solution.
    """
    cells, numbers = notebook.cells, {}
    for i, cell in enumerate(cells):
        kinds = {"exercise", "solution"} & set(cell.metadata.get("tags", []))
        names = [tag[3:] for tag in cell.metadata.get("tags", []) if tag.startswith("ex-")]
        if not kinds or not names:
            continue
        (exercise,) = (EXERCISES[name] for name in names)
        if kinds == {"exercise"}:
            number = numbers[exercise.name] = f"{exercise.chapter}.{len(numbers) + 1}"
            stars = "★" * exercise.difficulty + "☆" * (5 - exercise.difficulty)
            heading = f"### Exercise {number} · {exercise.title}\n{stars}"
            cells[i - 1].source = f"{heading} · about {exercise.minutes} min\n\n{exercise.prompt}"
            cell.source = exercise.stub
        else:
            number = numbers[exercise.name]
            cells[i - 1].source = f"#### Solution {number}\n{FOLDED}"
            title = f'# @title Solution {number} (click to show) {{ display-mode: "form" }}'
            cell.source = f"{title}\n{exercise.solution}"


def execute(notebook: nbformat.NotebookNode, folder: Path = NOTEBOOKS) -> nbformat.NotebookNode:
    """Run every cell in a new kernel, then drop whatever differs from run to run."""
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # a slow cell may print in several pieces, here or there
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)  # no widget state: GitHub would refuse it
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            view = output.get("data", {}).get(WIDGET_MIME)
            if view:
                view["model_id"] = f"not-saved-{cell.id}"  # a random number otherwise
    nbformat.validate(notebook)
    return notebook


def main(names: list[str]) -> None:
    for path in map(Path, names) if names else sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        start = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        write_exercises(notebook)
        nbformat.write(execute(notebook), path)
        print(f"{path.name}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
