"""Take the book through nbgrader itself: generate, hand in, autograde, read the marks.

python tests/nbgrader/round_trip.py

Makes an environment of its own for nbgrader, beside the packages of this one, and a course in a
temporary folder. All chapters are generated; one is handed in and marked, three times. Not part of
the default test run: it installs a package and takes a minute or two.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import nbformat

from tiny_lm import release
from tiny_lm.exercises import EXERCISES

CHAPTER = "02_rms_computation"
WRONG = """\
from tiny_lm.exercises import EXERCISES

{answer} = [*EXERCISES[{name!r}].wrong.values()][0]
"""


def make_environment(folder: Path) -> Path:
    """A virtual environment with nbgrader that also sees the packages of this one: its bin."""
    venv.create(folder, with_pip=True)
    place = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv" if os.name != "nt" else "nt_venv", place))
    here = [sysconfig.get_path("purelib"), str(Path(release.__file__).parents[1])]
    (packages / "book.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "nbgrader>=0.9,<1"]
    subprocess.run(pip, check=True)
    return programs


def hand_in(course: Path, student: str, chapter: str, write) -> None:
    """Fill in the released notebook as a student would: `write(name, source)` per exercise."""
    notebook = nbformat.read(course / "release" / chapter / f"{chapter}.ipynb", as_version=4)
    for cell in notebook.cells:
        names = [tag[3:] for tag in cell.metadata.get("tags", []) if tag.startswith("ex-")]
        for name in names:
            cell.source = write(name, cell.source)
    target = course / "submitted" / student / chapter / f"{chapter}.ipynb"
    target.parent.mkdir(parents=True)
    nbformat.write(notebook, target)


def right(name: str, source: str) -> str:
    return EXERCISES[name].solution


def stub(name: str, source: str) -> str:
    return source


def wrong(name: str, source: str) -> str:
    """A known wrong answer in place of the stub's."""
    (answer,) = re.findall(rf'check\("{name}", (\w+)\)', source)
    return WRONG.format(answer=answer, name=name)


STUDENTS = {"right": right, "stub": stub, "wrong": wrong}


def marks(course: Path) -> dict[str, tuple[float, float]]:
    """`{student: (score, maximum)}` for the chapter, from nbgrader's own export."""
    with (course / "grades.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == CHAPTER]
    return {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}


def expect_no_solutions(course: Path, chapter: str) -> None:
    text = (course / "release" / chapter / f"{chapter}.ipynb").read_text(encoding="utf-8")
    if "SOLUTION" in text or "NotImplementedError" in text:
        raise SystemExit(f"{chapter}: nbgrader left a solution, or put its own stub in")


def main() -> int:
    with tempfile.TemporaryDirectory() as work:
        programs = make_environment(Path(work) / "env")
        course = Path(work) / "course"
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"  # it calls alembic
        release.nbgrader(course)

        def nbgrader(*arguments: str) -> None:
            quiet = [str(programs / "nbgrader"), *arguments, "--log-level=ERROR"]
            subprocess.run(quiet, cwd=course, env=environment, check=True)

        for folder in sorted((course / "source").iterdir()):
            nbgrader("generate_assignment", folder.name)
            expect_no_solutions(course, folder.name)
        for student, write in STUDENTS.items():
            hand_in(course, student, CHAPTER, write)
        nbgrader("autograde", CHAPTER)
        nbgrader("export", "--to", "grades.csv")
        got = marks(course)

    exercises = [e for e in EXERCISES.values() if e.chapter == int(CHAPTER[:2])]
    full = sum(exercise.difficulty for exercise in exercises)
    expected = {"right": (full, full), "stub": (0, full), "wrong": (0, full)}
    for student, mark in got.items():
        print(f"{student:5}  {mark[0]:g} of {mark[1]:g} points in {len(exercises)} exercises")
    if got != expected:
        print(f"expected {expected}")
    return int(got != expected)


if __name__ == "__main__":
    sys.exit(main())
