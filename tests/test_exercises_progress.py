"""progress(): who is counted, where it is kept, and what a damaged file does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tiny_lm import exercises
from tiny_lm.exercises import EXERCISES, check, progress
from tiny_lm.exercises.record import PACKAGE, Record, data_file, is_opened_by_a_person

RIGHT = EXERCISES["norm_parameters"].reference

SECOND = sum(exercise.chapter == 2 for exercise in EXERCISES.values())  # of chapter 02


@pytest.fixture
def record(monkeypatch, tmp_path):
    """A session of its own, kept in a file, as a person's notebook has it."""
    session = exercises._Session()
    session.record = Record(tmp_path / "data/progress.json", "in a test's folder")
    monkeypatch.setattr(exercises, "_SESSION", session)
    return session.record


def stored(record):
    return json.loads(record.path.read_text(encoding="utf-8"))


# --- who is a person


@pytest.mark.parametrize(
    ("environment", "notebook", "person"),
    [
        ({"JPY_SESSION_NAME"}, {"In", "Out"}, True),  # JupyterLab, Notebook, JupyterHub
        ({"COLAB_RELEASE_TAG"}, {"In", "Out"}, True),
        (set(), {"In", "__vsc_ipynb_file__"}, True),  # VS Code
        (set(), {"In", "Out"}, False),  # nbclient, nbconvert --execute, nbgrader
        (set(), set(), False),  # plain Python
        ({"JPY_SESSION_NAME", "PYTEST_VERSION"}, {"In"}, False),  # pytest --nbval, from a notebook
        ({"COLAB_RELEASE_TAG", "PYTEST_CURRENT_TEST"}, {"In"}, False),
    ],
)
def test_a_person_is_told_from_a_run_of_tests(environment, notebook, person):
    assert is_opened_by_a_person(environment, notebook) is person


def test_here_it_is_pytest():
    assert exercises._Session().record.path is None
    assert "PYTEST_CURRENT_TEST" in os.environ


CHECK = "from tiny_lm.exercises import check, progress\n"
CELLS = [
    CHECK + 'check("norm_parameters", 1)',
    '# @title Solution 2.5 (click to show) { display-mode: "form" }\n'
    + CHECK
    + 'check("rms_norm", print); check("norm_parameters", 1152)',
    CHECK + 'check("knee", 0.7071)',
    "progress()",
]
NOBODY = """
import os
from tiny_lm import exercises
del os.environ["JPY_SESSION_NAME"]
exercises._SESSION = exercises._Session()
"""


def test_a_real_kernel_keeps_what_a_person_does_and_nothing_else(tmp_path):
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    names |= {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    names["JPY_SESSION_NAME"] = "02_rms_computation.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in [*CELLS, NOBODY, *CELLS]]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, kernel_name="python3", resources=where).execute(env=names)
    person, nobody = (cells[at].outputs[0]["data"]["text/plain"] for at in (3, -1))
    for said in (person, nobody):
        # In the session both count; a check in a solution cell never does.
        assert "chapter 02  □□□□▪" not in said  # rms_norm stays untried
        assert said.count("■") == 1 and said.count("▪") == 1
    assert "progress.json" in person and "for this session only" in nobody
    (file,) = tmp_path.rglob("progress*.json")
    assert json.loads(file.read_text()) == {
        "norm_parameters": {"tries": 1, "done": False},
        "knee": {"tries": 1, "done": True},
    }


# --- what is kept


def test_tries_are_counted_and_a_success_stays(record):
    for answer in (1, RIGHT, 2, None):
        check("norm_parameters", answer)
    assert stored(record) == {"norm_parameters": {"tries": 3, "done": True}}
    assert f"1 of {SECOND}" in str(progress(2)) and str(progress(2)).count("■") == 1


def test_reset_forgets_everything(record):
    check("norm_parameters", RIGHT)
    assert "■" not in str(progress(reset=True)) and not record.path.exists()
    assert "■" not in str(progress(reset=True)), "twice is no error"


def test_one_chapter_or_all_and_no_other(record):
    assert str(progress()).startswith("chapter 00  ") and f"of {len(EXERCISES)}" in str(progress())
    assert str(progress(2)).startswith(
        f"chapter 02  {'□' * SECOND}  0 of {SECOND}\nStill open: Write RMS · "
    )
    for name, exercise in EXERCISES.items():
        if exercise.chapter == 2:
            check(name, exercise.reference)
    assert f"{SECOND} of {SECOND}\nAll solved. (Kept in a test's folder.)" in str(progress(2))
    with pytest.raises(ValueError, match=r"progress: expected a chapter of 0, 1, 2.*, got 77"):
        progress(77)


def test_in_colour_it_says_the_same(record):
    check("norm_parameters", RIGHT)
    html = progress(2)._repr_html_()
    assert "■" in html and f"<td>1 of {SECOND}</td>" in html and "Still open: Write RMS" in html


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"rms": 3}', '{"rms": {"tries": "x"}}'])
def test_a_damaged_file_is_put_aside_and_said(record, content):
    record.path.parent.mkdir()
    record.path.write_text(content)
    check("norm_parameters", RIGHT)
    assert stored(record) == {"norm_parameters": {"tries": 1, "done": True}}
    assert "the file was damaged, and is now progress.damaged" in str(progress(2))
    assert record.path.with_suffix(".damaged").read_text() == content


def test_names_that_are_no_longer_exercises_do_no_harm(record):
    record.path.parent.mkdir()
    record.path.write_text('{"an_old_one": {"tries": 1, "done": true}}')
    assert "0 of" in str(progress())


def test_a_write_is_all_or_nothing(record, monkeypatch):
    check("norm_parameters", RIGHT)
    before = record.path.read_text()

    def fails(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    assert check("norm_parameters", RIGHT).ok is True
    assert record.path.read_text() == before
    assert [path.name for path in record.path.parent.iterdir()] == ["progress.json"]
    assert "not kept: disk full" in str(progress(2))


def test_a_folder_that_cannot_be_made_never_stops_a_check(record, tmp_path):
    record.path = tmp_path / "a_file" / "progress.json"
    (tmp_path / "a_file").write_text("in the way")
    assert check("norm_parameters", RIGHT).ok is True
    assert "not kept: " in str(progress(2))


def test_without_platformdirs_it_lasts_for_the_session(monkeypatch):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr(exercises, "is_opened_by_a_person", lambda environment, notebook: True)
    session = exercises._Session()
    monkeypatch.setattr(exercises, "_SESSION", session)
    check("norm_parameters", RIGHT)
    assert session.record.path is None
    assert 'expected the package platformdirs, got none (pip install "tiny-lm[lab]"' in str(
        progress()
    )
    assert "■" in str(progress(2))


def test_never_in_a_checkouts_own_tree(monkeypatch):
    platformdirs = pytest.importorskip("platformdirs")
    inside = PACKAGE.parent / "notebooks/data"
    monkeypatch.setattr(platformdirs, "user_data_path", lambda *a, **k: inside)
    with pytest.raises(OSError, match=r"tiny_lm: expected a data folder outside .*, got .*data"):
        data_file()
    monkeypatch.setattr(exercises, "is_opened_by_a_person", lambda environment, notebook: True)
    record = exercises._Session().record
    assert record.path is None and "outside" in record.note


def test_the_usual_place(monkeypatch, tmp_path):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.setattr(platformdirs, "user_data_path", lambda name, appauthor: tmp_path / name)
    assert data_file() == Path(tmp_path / "tiny-lm" / "progress.json")
