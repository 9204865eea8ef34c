"""The contract every notebook keeps. Their outputs are compared by nbval, not here."""

from __future__ import annotations

import ast
import copy
import re
from itertools import pairwise

import nbformat
import pytest
from execute_notebooks import NOTEBOOKS, WIDGET_MIME, execute, write_exercises

from tiny_lm.exercises import EXERCISES

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
BOOKS = {path.name: nbformat.read(path, as_version=4) for path in PATHS}
BANNED = {
    r"\bplt\.": "plots are drawn by tiny_lm.plots",
    r"\binteract": "an Output widget cannot be compared",
    r"\bOutput\(": "an Output widget cannot be compared",
    r"\btqdm\b": "its rates differ from run to run",
    r"clear_output": "it is not replayed by nbval",
    r"NBVAL_": "every output is compared",
    r";\s*(#.*)?$": "nbval does not honour a trailing semicolon",
    r"^\s*[%!]": "a magic is not Python",
}

each_book = pytest.mark.parametrize("name", BOOKS)
each_chapter = pytest.mark.parametrize("name", [name for name in BOOKS if name > "01"])


def code_cells(name):
    return [cell for cell in BOOKS[name].cells if cell.cell_type == "code"]


def markdown(name):
    return [cell.source for cell in BOOKS[name].cells if cell.cell_type == "markdown"]


def tags(cell):
    return cell.metadata.get("tags", [])


def outputs(cell, mime):
    return [o for o in cell.outputs if mime in o.get("data", {})]


def test_there_are_five_chapters_in_order():
    assert [name[:2] for name in BOOKS] == [f"{i:02d}" for i in range(len(BOOKS))]
    assert len(BOOKS) >= 5


@each_book
def test_first_cell_says_what_the_reader_gets(name):
    first = markdown(name)[0]
    assert re.match(rf"# {name[:2]} · \S", first)
    assert re.search(r"^\*\*.+\?\*\*$", first, re.M), "one question, in bold"
    assert "After this chapter you can" in first
    assert "*Before you start:*" in first and "*Time:*" in first
    assert "[Open in Colab](" in first and f"`{name}`" in first


@each_book
def test_second_cell_is_the_same_set_up(name):
    cell = BOOKS[name].cells[1]
    assert tags(cell) == ["setup", "hide-input"]
    assert cell.source == BOOKS[min(BOOKS)].cells[1].source


@each_book
def test_every_cell_has_run_in_order_without_error(name):
    cells = code_cells(name)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not [o for o in cell.outputs if o.output_type == "error"], cell.source
        assert not [o for o in cell.outputs if o.get("name") == "stderr"], cell.source


def speaks(source):
    """Whether a cell prints or ends in a value; what it defines may print later."""
    body = ast.parse(source).body
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            return True
        todo += ast.iter_child_nodes(node)
    return bool(body) and isinstance(body[-1], ast.Expr)


@each_book
def test_what_a_cell_says_is_stored_and_nothing_else(name):
    for cell in code_cells(name)[1:]:  # the set-up says nothing
        assert bool(cell.outputs) == speaks(cell.source), cell.source


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1", False),
        ("x", True),
        ("for i in range(3):\n    print(i)", True),
        ("def f():\n    print(1)", False),
        ("def f():\n    print(1)\nf()", True),
        ("try:\n    x = 1 / 0\nexcept ZeroDivisionError as problem:\n    print(problem)", True),
    ],
)
def test_which_cells_speak(source, said):
    assert speaks(source) is said


@each_book
def test_no_widget_state_and_no_ignored_output(name):
    assert "widgets" not in BOOKS[name].metadata, "GitHub refuses to show it"
    for cell in code_cells(name):
        assert not {"nbval-ignore-output", "nbval-skip", "raises-exception"} & set(tags(cell))


@each_book
def test_cells_are_short_and_hold_nothing_banned(name):
    for cell in code_cells(name):
        lines = cell.source.splitlines()
        assert len(lines) <= 25, cell.source
        for line in lines:
            assert len(line) <= 80, line
            for pattern, why in BANNED.items():
                assert not re.search(pattern, line), f"{line!r}: {why}"


@each_book
def test_headings_step_down_one_level_at_a_time(name):
    text = "\n".join(markdown(name))
    levels = [len(mark) for mark in re.findall(r"^(#+) ", text, re.M)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


@each_book
def test_links_lead_somewhere_and_nothing_is_loaded_from_afar(name):
    text = "\n".join(markdown(name))
    assert not re.findall(r"!\[[^]]*\]\(|<img|<script|<iframe", text), "no images from outside"
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if target.startswith("https://"):
            assert target.startswith("https://colab.research.google.com/")
        else:
            assert (NOTEBOOKS / target).exists(), target


@each_book
def test_pictures_are_described(name):
    for cell in code_cells(name):
        for output in outputs(cell, "image/png"):
            assert output.metadata["image/png"]["alt"] == output.data["text/plain"]
            assert len(output.data["text/plain"]) > 40


@each_chapter
def test_a_chapter_predicts_explains_and_cites(name):
    text = "\n".join(markdown(name))
    assert text.count("**Predict") >= 4 and text.count("**Explain") >= 4
    assert "## References" in text and re.search(r"arXiv \d{4}\.\d{4,5}", text)
    labs = [cell for cell in code_cells(name) if outputs(cell, WIDGET_MIME)]
    assert len(labs) >= 2


@each_book
def test_exercises_have_a_stub_and_a_solution_that_passes(name):
    stubs, solutions = {}, {}
    for cell in code_cells(name):
        for kind, found in (("exercise", stubs), ("solution", solutions)):
            if kind in tags(cell):
                (link,) = [tag[3:] for tag in tags(cell) if tag.startswith("ex-")]
                found[link] = cell
    chapter = {e.name for e in EXERCISES.values() if e.chapter == int(name[:2])}
    assert set(stubs) == set(solutions) == chapter
    headings = [c for c in BOOKS[name].cells if c.source.startswith("#### Solution ")]
    assert len(headings) == len(solutions)
    assert all("solution" in tags(cell) for cell in headings), "removed with their solutions"
    for link, cell in solutions.items():
        verdict = verdict_of(cell)
        assert verdict.startswith(f"✓ {link}: ")
        assert "largest difference" not in verdict, "another CPU may print another one"
        assert cell.metadata.jupyter.source_hidden and cell.metadata.jupyter.outputs_hidden
        assert cell.metadata.cellView == "form"  # Colab
        assert "hide-input" in tags(cell)  # Jupyter Book
        assert cell.source.startswith("# @title Solution ")


def verdict_of(cell):
    return outputs(cell, "text/plain")[-1].data["text/plain"]


STUBS = {
    tag[3:]: cell
    for name in BOOKS
    for cell in code_cells(name)
    for tag in tags(cell)
    if tag.startswith("ex-") and "exercise" in tags(cell)
}


@pytest.mark.parametrize("name", STUBS)
def test_a_stub_says_not_written_yet(name):
    """The stub as a reader finds it; nbval runs each again and compares."""
    assert verdict_of(STUBS[name]).startswith(f"… {name}: not written yet")
    assert "<b>…" in outputs(STUBS[name], "text/html")[-1].data["text/html"]


@each_book
def test_the_cells_of_exercises_are_those_of_the_package(name):
    """Prompt, stub, solution, titles and numbers: written anew, they stay as they are."""
    notebook = copy.deepcopy(BOOKS[name])
    write_exercises(notebook)
    for ours, stored in zip(notebook.cells, BOOKS[name].cells, strict=True):
        assert ours.source == stored.source


def test_a_cell_that_drifted_is_set_right():
    notebook = copy.deepcopy(BOOKS[min(BOOKS)])
    for cell in notebook.cells:
        if cell.source.startswith("### Exercise") or any("ex-" in tag for tag in tags(cell)):
            cell.source = "drifted"
    write_exercises(notebook)
    assert notebook == BOOKS[min(BOOKS)]


@each_chapter
def test_a_chapter_has_three_exercises(name):
    assert sum(e.chapter == int(name[:2]) for e in EXERCISES.values()) >= 3


def without_pictures(notebook):
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)  # another matplotlib draws other bytes
    return notebook


def test_running_a_notebook_again_changes_nothing():
    """The first, which is short and has every kind of output. nbval runs all."""
    stored = BOOKS[min(BOOKS)]
    again = execute(copy.deepcopy(stored))
    assert without_pictures(again) == without_pictures(stored)
