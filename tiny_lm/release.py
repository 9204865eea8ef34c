"""Copies of the notebooks for a class: without solutions, with them, or as nbgrader assignments."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from tiny_lm.exercises import EXERCISES
from tiny_lm.exercises.core import Exercise
from tiny_lm.extras import need
from tiny_lm.files import filling
from tiny_lm.shapes import fail

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
CONFIG = """\
# Run nbgrader in this folder. A course of your own needs the line on ClearSolutions too.
c = get_config()  # noqa
c.CourseDirectory.course_id = "tiny-lm"
# The book's stubs run as they stand, so nothing takes the place of a solution that is cut out.
c.ClearSolutions.code_stub = {"python": ""}
"""


def release(out: Path, notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Write `OUT/learner`, notebooks without solutions, and `OUT/key`, the same with them.

    Solution cells are taken out by their tag, and the outputs of exercise cells with them. Returns
    what was written. Raises ValueError if OUT is there and not empty, there are no notebooks or one
    is damaged, and ImportError without nbconvert; then nothing is written.
    """
    with filling("release", out) as folder:
        for path, notebook in _read(notebooks):
            _write(notebook, folder / "key" / path.name)
            _write(_without_solutions(notebook), folder / "learner" / path.name)
    return _files(out)


def nbgrader(out: Path, notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Write a course folder for nbgrader: its configuration, and an assignment for each chapter.

    `OUT/source/NN_name/NN_name.ipynb` holds nbgrader's cell metadata, schema 3: an exercise's stub
    with the solution between nbgrader's marks, and after it a cell of tests whose points are the
    exercise's difficulty. Errors as in `release`.
    """
    with filling("release", out) as folder:
        (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
        for path, notebook in _read(notebooks):
            name = f"{path.stem}/{path.name}"
            _write(_assignment(_without_solutions(notebook)), folder / "source" / name)
    return _files(out)


def _read(folder: Path) -> list[tuple[Path, Any]]:
    paths = sorted(folder.glob("[0-9]*.ipynb"))
    if not paths:
        fail("release", f"notebooks in {folder}", "none", "run it in a checkout of the book")
    return [(path, _notebook(path)) for path in paths]


def _notebook(path: Path) -> Any:
    nbformat = need("nbformat", "lab")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        nbformat.writes(notebook).encode()  # JSON can hold half a character, which no file can
    except OSError:
        raise
    except Exception as error:  # the library raises whatever its parts do
        fail("release", f"a notebook in {path.name}", "something else", str(error)[:80])
    return notebook


def _write(notebook: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat = need("nbformat", "lab")
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def _without_solutions(notebook: Any) -> Any:
    remover = need("nbconvert.preprocessors", "lab").TagRemovePreprocessor(
        enabled=True, remove_cell_tags={"solution"}, remove_all_outputs_tags={"exercise"}
    )
    return remover.preprocess(deepcopy(notebook), {})[0]


def _assignment(notebook: Any) -> Any:
    """A learner's notebook with nbgrader's metadata and cells of tests."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        for exercise in _exercises_of(cell):
            cell.source, test = _marked(exercise)
            cell.metadata["nbgrader"] = _metadata(exercise.name, solution=True)
            new = need("nbformat", "lab").v4.new_code_cell(test, id=f"test-{exercise.name}")
            new.metadata["nbgrader"] = _metadata(
                f"test-{exercise.name}", grade=True, locked=True, points=exercise.difficulty
            )
            cells.append(new)
    notebook.cells = cells
    return notebook


def _exercises_of(cell: Any) -> list[Exercise]:
    tags = cell.metadata.get("tags", [])
    names = [tag[3:] for tag in tags if "exercise" in tags and tag.startswith("ex-")]
    for name in names:
        if name not in EXERCISES:
            fail("release", "tags of exercises that there are", repr(name))
    return [EXERCISES[name] for name in names]


def _marked(exercise: Exercise) -> tuple[str, str]:
    """The exercise's cell, stub and solution in one, and the cell that tests it."""
    stub, _, check = exercise.stub.rpartition("\n")
    solution = exercise.solution.rpartition("\n")[0].strip()
    cell = f"{stub}\n### BEGIN SOLUTION\n{solution}\n### END SOLUTION\n{check}"
    strict = check.rstrip().removesuffix(")") + ", strict=True)"
    return cell, f"from tiny_lm.exercises import check\n\n{strict}"


def _metadata(grade_id: str, **values: Any) -> dict[str, Any]:
    usual = {"grade": False, "locked": False, "solution": False, "task": False}
    return {**usual, "schema_version": 3, "grade_id": grade_id, **values}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
