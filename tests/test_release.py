"""release: nothing of a solution in the learner's copies, everything in the key, all or nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import nbformat
import pytest
from execute_notebooks import NOTEBOOKS

from tiny_lm import cli, release
from tiny_lm.exercises import EXERCISES

NAMES = [path.name for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]


def from_the_terminal(out, *arguments):
    """The folder, once the paths that the terminal shows have been compared with it."""
    with redirect_stdout(StringIO()) as shown:
        assert cli.main(["release", str(out), *arguments]) == 0
    printed = [Path(line) for line in shown.getvalue().splitlines()]
    assert printed == sorted(path for path in out.rglob("*") if path.is_file())
    return out


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    return from_the_terminal(tmp_path_factory.mktemp("class") / "deep" / "copies")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return from_the_terminal(tmp_path_factory.mktemp("class") / "deep" / "course", "--nbgrader")


@pytest.fixture
def one(tmp_path):
    """A folder with one notebook, where the others would make no difference."""
    folder = tmp_path / "book"
    folder.mkdir()
    shutil.copy(NOTEBOOKS / NAMES[1], folder)
    return folder


@cache
def cells(path):
    return nbformat.read(path, as_version=4).cells


def lines_of_solutions():
    """The lines that a solution has and its stub has not, comments and single words left out."""
    for exercise in EXERCISES.values():
        given = {line.strip() for line in exercise.stub.splitlines()}
        for line in map(str.strip, exercise.solution.splitlines()):
            if (
                line not in given
                and len(line) > 8
                and not line.startswith(("#", "import ", "from "))
            ):
                yield exercise.name, line


LINES = list(lines_of_solutions())


def occurrences(cells):
    """In how many cells a line stands: `{line: count}`."""
    return Counter(line for c in cells for line in set(map(str.strip, c.source.splitlines())))


def test_there_are_lines_to_look_for():
    assert {name for name, _ in LINES} == set(EXERCISES)


@pytest.mark.parametrize("name", NAMES)
def test_no_line_of_a_solution_remains(copies, name):
    """What the chapter teaches in its own cells may stay: a class that is built there, say."""
    learner, book = cells(copies / "learner" / name), cells(NOTEBOOKS / name)
    teaching = [cell for cell in book if "solution" not in cell.metadata.get("tags", [])]
    assert len(learner) == len(teaching) < len(book)
    found, wanted = occurrences(learner), occurrences(teaching)
    for exercise, line in LINES:
        assert found[line] == wanted[line], (exercise, line)
    # and of those that are nowhere taught, nothing at all, in no cell and no output
    text = (copies / "learner" / name).read_text(encoding="utf-8")
    taught = "\n".join(cell.source for cell in teaching)
    for exercise, line in LINES:
        if line not in taught:
            assert json.dumps(line, ensure_ascii=False)[1:-1] not in text, (exercise, line)


@pytest.mark.parametrize("name", NAMES)
def test_exercises_are_there_as_stubs_without_outputs(copies, name):
    found = {}
    for cell in cells(copies / "learner" / name):
        assert "solution" not in cell.metadata.get("tags", [])
        assert not cell.source.startswith("#### Solution"), cell.source
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("ex-"):
                assert cell.outputs == [] and cell.execution_count is None
                found[tag[3:]] = cell.source
    chapter = int(name[:2])
    assert found == {e.name: e.stub for e in EXERCISES.values() if e.chapter == chapter}


@pytest.mark.parametrize("name", NAMES)
def test_the_key_is_the_whole_notebook(copies, name):
    assert nbformat.read(copies / "key" / name, 4) == nbformat.read(NOTEBOOKS / name, 4)


def test_links_between_chapters_still_lead_somewhere(copies):
    assert sorted(path.name for path in copies.iterdir()) == ["key", "learner"]
    for folder in (copies / "learner", copies / "key"):
        assert sorted(path.name for path in folder.iterdir()) == NAMES


# --- nbgrader


@pytest.mark.parametrize("name", NAMES)
def test_an_assignment_has_a_test_after_every_exercise(course, name):
    found = cells(course / "source" / name.removesuffix(".ipynb") / name)
    marked = [i for i, cell in enumerate(found) if "nbgrader" in cell.metadata]
    exercises = [e for e in EXERCISES.values() if e.chapter == int(name[:2])]
    assert len(marked) == 2 * len(exercises)
    total = 0
    for i, j in zip(marked[::2], marked[1::2], strict=True):
        assert j == i + 1
        answer, test = found[i].metadata.nbgrader, found[j].metadata.nbgrader
        assert answer.solution and not answer.grade and not answer.locked
        assert test.grade and test.locked and not test.solution
        assert answer.schema_version == test.schema_version == 3
        exercise = EXERCISES[answer.grade_id]
        assert test.grade_id == f"test-{exercise.name}"
        assert exercise.solution.rpartition("\n")[0].strip() in found[i].source
        assert found[i].source.count("### BEGIN SOLUTION") == 1
        assert f'check("{exercise.name}", ' in found[j].source
        assert found[j].source.endswith(", strict=True)")
        total += test.points
    assert total == sum(exercise.difficulty for exercise in exercises)


@pytest.mark.parametrize("name", NAMES)
def test_without_its_marks_an_assignment_is_the_stub_again(course, name):
    for cell in cells(course / "source" / name.removesuffix(".ipynb") / name):
        if cell.metadata.get("nbgrader", {}).get("solution"):
            before, _, rest = cell.source.partition("### BEGIN SOLUTION\n")
            check = rest.partition("### END SOLUTION\n")[2]
            assert before + check == EXERCISES[cell.metadata.nbgrader.grade_id].stub


def test_the_books_own_notebooks_know_nothing_of_nbgrader():
    for name in NAMES:
        assert "nbgrader" not in (NOTEBOOKS / name).read_text(encoding="utf-8")


# --- the folder


@pytest.mark.parametrize(("kind", "arguments"), [("copies", []), ("course", ["--nbgrader"])])
def test_the_terminal_refuses_to_do_it_again(kind, arguments, request, capsys):
    out = request.getfixturevalue(kind)
    assert cli.main(["release", str(out), *arguments]) == 2
    assert "release: expected a new or an empty folder, got " in capsys.readouterr().err


def test_an_empty_folder_will_do_and_others_are_left_alone(tmp_path, one):
    (tmp_path / "out").mkdir()
    assert release.release(tmp_path / "out", one)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "full", tmp_path / "file"):
        with pytest.raises(ValueError, match="release: expected a new or an empty folder"):
            release.release(out)
    assert (tmp_path / "full/mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book", "file", "full", "out"]


def test_the_folder_one_is_in_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out in (Path("."), tmp_path):
        with pytest.raises(ValueError, match="release: expected a new or an empty folder, got"):
            release.release(out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [release.release, release.nbgrader])
def test_all_or_nothing(tmp_path, monkeypatch, write, one):
    def fails(notebook):
        raise OSError("disk full")

    monkeypatch.setattr(release, "_without_solutions", fails)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / "out", one)
    assert list(tmp_path.iterdir()) == [one]


def test_without_notebooks_or_nbconvert_it_says_so(tmp_path, monkeypatch, one):
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"release: expected notebooks in .*none, got none"):
        release.release(tmp_path / "out", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "nbconvert.preprocessors", None)
    with pytest.raises(ImportError, match=r'expected the package nbconvert.*"tiny-lm\[lab\]"'):
        release.release(tmp_path / "out", one)
    assert not (tmp_path / "out").exists()
