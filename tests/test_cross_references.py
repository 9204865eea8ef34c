"""Where the text sends its reader there is something: chapters and their sections by number."""

import re

import pytest
from test_notebooks import BOOKS, each_book, markdown

LIST = r"\d+(?:(?:, | and | or | to |–)\d+)*"
CHAPTERS = re.compile(r"\b[Cc]hapters? (\d\d(?:(?:, | and | or | to )\d\d)*)\b")
# "section 3" of this chapter, "chapter 02, section 3", "01 · Its title, above all sections 3 and 4"
SECTIONS = re.compile(
    rf"(?:\b(?P<chapter>\d\d)(?: · [^.,;:()]+)?, (?:above all )?)?\b[Ss]ections? (?P<list>{LIST})"
)
TITLES = re.compile(r"\[(\d\d) · ([^\]]+)\]\((\d\d)_\w+\.ipynb\)")
TABLE = re.compile(r"^\| (\d\d) \| \[([^\]]+)\]\((\d\d)_\w+\.ipynb\)", re.M)
PREDICTED = re.compile(rf"(?:predictions of|prediction down in) sections ({LIST})")


def text(name):
    """A chapter without its references, in one line, links as their text."""
    plain = "\n".join(markdown(name)).partition("\n## References")[0]
    return re.sub(r"\s+", " ", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", plain))


def numbers(found):
    return [int(number) for number in re.findall(r"\d+", found)]


def section_numbers(name):
    return [int(n) for n in re.findall(r"^## (\d+)\. ", "\n".join(markdown(name)), re.M)]


TITLE = {name[:2]: markdown(name)[0].partition("\n")[0].removeprefix("# ") for name in BOOKS}
SECTIONS_OF = {name[:2]: section_numbers(name) for name in BOOKS}


def dangling(name):
    """(references, those that lead nowhere)."""
    here, found = name[:2], []
    for match in CHAPTERS.finditer(text(name)):
        found += [(match[0], f"{n:02d}" in TITLE) for n in numbers(match[1])]
    for match in SECTIONS.finditer(text(name)):
        there = SECTIONS_OF.get(match["chapter"] or here, [])
        found += [(match[0], n in there) for n in numbers(match["list"])]
    for source in (TITLES, TABLE):
        for number, title, file in source.findall("\n".join(markdown(name))):
            found.append((title, TITLE.get(number) == f"{number} · {title}" and file == number))
    return found, [reference for reference, leads in found if not leads]


@each_book
def test_sections_are_numbered_in_order(name):
    assert section_numbers(name) == list(range(1, len(section_numbers(name)) + 1))


@each_book
def test_every_reference_leads_to_a_chapter_and_a_section(name):
    assert dangling(name)[1] == []


def test_all_references_are_looked_at():
    """None is written in a way that the patterns above miss."""
    assert sum(len(dangling(name)[0]) for name in BOOKS) > 200
    for name in BOOKS:
        rest = SECTIONS.sub("", CHAPTERS.sub("", text(name)))
        assert re.findall(r"\b(?:chapter|section)s? (?:\d|[a-z]+teen\b)\S*", rest, re.I) == []


@pytest.mark.parametrize("name", [n for n in BOOKS if PREDICTED.search(text(n))])
def test_predictions_stand_where_the_end_of_the_chapter_says(name):
    predicted, section = [], 0
    for cell in BOOKS[name].cells:
        if heading := re.search(r"^## (?:(\d+)\. )?", cell.source, re.M):
            section = int(heading[1] or 0)
        if cell.cell_type == "code" and re.search(r"^predict\(", cell.source, re.M):
            predicted.append(section)
    assert numbers(PREDICTED.search(text(name))[1]) == sorted(set(predicted))


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("see chapter 04, section 12 and section 1", []),
        ("see chapter 04, section 13", ["04, section 13"]),
        ("chapters 03 and 10", ["chapters 03 and 10"]),
        ("as in section 77", ["section 77"]),
        ("[03 · Epsilon effects](03_epsilon_effects.ipynb)", []),
        ("[03 · Effects of epsilon](03_epsilon_effects.ipynb)", ["Effects of epsilon"]),
    ],
)
def test_a_wrong_reference_is_noticed(sentence, wrong, monkeypatch):
    first = min(BOOKS)
    monkeypatch.setitem(BOOKS[first].cells[0], "source", sentence)
    assert dangling(first)[1] == wrong
