"""The references and the glossary of chapter 09 against what all chapters say."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from execute_notebooks import NOTEBOOKS

PACKAGE = Path(__file__).parents[1] / "tiny_lm"
ARXIV = re.compile(r"\b(?:0[7-9]|1\d|2[0-6])(?:0[1-9]|1[0-2])\.\d{4,5}\b")
LINK = re.compile(r"\[(\d\d)\]\((\d\d_\w+\.ipynb)\)(?:: ([^;]+?))?(?=;|\.$|\)$)")
FILE = re.compile(r"\. `((?:\w+/)*\w+\.py)`: .+\.$")
ENTRY = re.compile(r"^- (?P<who>.+?), \*(?P<title>.+)\*, (?P<year>\d{4}), (?P<where>.+?)\. [\[`]")
TERM = re.compile(r"^- \*\*(?P<term>.+?)\*\*: .+ \(\[(\d\d)\]\((?P<file>\S+\.ipynb)\)\)$")


def markdown(path):
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


TEXTS = {path.name: markdown(path) for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))}
LAST = next(text for name, text in TEXTS.items() if name.startswith("09"))


def section(heading):
    """The list under a heading of chapter 09."""
    _, _, after = LAST.partition(f"## {heading}")
    return [line for line in after.split("\n## ")[0].splitlines() if line.startswith("- ")]


REFERENCES, GLOSSARY = section("References, of the whole book"), section("Glossary")


def body(name):
    """A chapter's text; of chapter 09 without the two lists themselves."""
    return TEXTS[name].partition("## Glossary")[0]


def first_author(who):
    """The surname; the first word of a group's name, or of one that is not written out."""
    name = who.replace(" et al.", "").split(",")[0].split(" and ")[0]
    return name.split()[-1] if "." in name else name.split()[0]


def test_the_lists_are_there():
    assert len(REFERENCES) >= 30 and len(GLOSSARY) >= 40


@pytest.mark.parametrize("line", REFERENCES)
def test_a_reference_has_its_parts_and_a_chapter_that_it_supports(line):
    entry = ENTRY.match(line)
    assert entry and 1900 < int(entry["year"]) < 2027
    links = LINK.findall(line)
    assert links or (FILE.search(line) and (PACKAGE / FILE.search(line)[1]).exists())
    assert all(file.startswith(number) and what for number, file, what in links)
    numbers = ARXIV.findall(entry["where"])
    surname = first_author(entry["who"])
    for _, file, _ in links:
        if file in TEXTS:  # cited there by number, or by the first author's name
            text = body(file) if file.startswith("09") else TEXTS[file]
            cited = any(number in text + sources() for number in numbers) or surname in text
            assert cited, f"{file} does not cite {entry['title']}"


def sources():
    """What the package's own lines say, the table of known models among them."""
    if not hasattr(sources, "text"):
        files = sorted(PACKAGE.rglob("*.py"))
        sources.text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return sources.text


def test_every_number_in_a_chapter_or_in_the_package_is_in_the_list():
    listed = set(ARXIV.findall("\n".join(REFERENCES)))
    texts = TEXTS | {"tiny_lm": "\n".join(re.findall(r"(?:arXiv|,) [^\n]*", sources()))}
    missing = {name: set(ARXIV.findall(text)) - listed for name, text in texts.items()}
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_each_number_is_listed_once_and_the_list_is_sorted():
    numbers = ARXIV.findall("\n".join(REFERENCES))
    assert len(numbers) == len(set(numbers))

    names = [first_author(ENTRY.match(line)["who"]).lower() for line in REFERENCES]
    assert names == sorted(names)


@pytest.mark.parametrize("line", GLOSSARY)
def test_a_term_is_used_in_the_chapter_that_it_names(line):
    entry = TERM.match(line)
    assert entry, line
    if entry["file"] in TEXTS:
        assert entry["term"].lower() in body(entry["file"]).lower()


def test_the_glossary_is_sorted_and_has_no_term_twice():
    terms = [TERM.match(line)["term"].lower() for line in GLOSSARY]
    assert terms == sorted(set(terms))


def test_the_test_has_teeth():
    assert ARXIV.findall("0.95 1250.00001 1910.07467 and 9999.12345") == ["1910.07467"]
    assert not ENTRY.match("- Nobody, no title, 2020. [01](01_x.ipynb): nothing.")
