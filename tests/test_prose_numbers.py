"""A number that stands in a sentence of the book is one that is computed beside it.

Looked at are numbers that look like results: with a decimal point, a percentage, so many times, or
three digits that count. Each must be what a code cell of its section or of the section before says
or prints, rounded to the digits that the sentence gives; with four digits, and in "What to keep"
and the glossary, what any cell of the notebook does. All others stand in prose_sources.py, as a
value to be rounded or with the source that gives them.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from prose_sources import ELSEWHERE

ROOT = Path(__file__).parents[1]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every_book = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
# As Markdown and LaTeX write numbers, and as Python does.
PLAIN_NUMBERS = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        ("−", "-"),
        (r"\{,\}", ","),  # 16{,}384
        (r"(\d) \\cdot 10\^(?:\{(-?\d+)\}|(\d))", r"\1e\2\3"),
    )
]
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?:\s?%)?")
# What is no result: links, years, papers and their sections, reports by number, code, references.
NO_RESULTS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<!--.*?-->",
        r"\]\([^)]*\)",
        r"arXiv\s+\d{4}\.\d{4,5}",
        r"\b(?:19|20)\d\d\b(?!\.?\d)",
        r"\b(?:section|[Ee]xercise|Solution) \d+\.\d+",
        r"(?:pull request|issue|report|[\w.-]+/[\w.-]+)\s\d+(?:\sand\s\d+)?",
        r"version \d[\d.]*|torch \d[\d.]*",
        r"\b[A-Za-z]\w*-\d[\d.]*\w*",  # SmolLM2-135M
        r"^## References.*",
    )
]
SUMS_UP = re.compile(r"## (?:What to keep|Glossary)")


def values(text):
    """All numbers of a text, as floats; a percentage also as a part of 1."""
    plain = text.replace("_", "").replace(",", "")
    found = re.findall(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)(\s?%)?", plain)
    return {float(n) for n, _ in found} | {float(n) / 100 for n, percent in found if percent}


def source(cell):
    return "".join(cell["source"])


def computed(cells):
    """What the code cells of a notebook say and print."""
    found = set()
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        found |= values(source(cell))
        for output in cell["outputs"]:
            found |= values("".join(output.get("text", "")))
            for kind, text in output.get("data", {}).items():
                if kind.startswith("text/"):  # a picture inside of it has numbers by chance
                    found |= values(re.sub(r"data:image[^\"']*", "", "".join(text)))
    return sorted(found)


def results(text):
    """The numbers of a text that look like results, as written, without their sign."""
    for pattern, plain in PLAIN_NUMBERS:
        text = pattern.sub(plain, text)
    for pattern in NO_RESULTS:
        text = pattern.sub(" ", text)
    for match in NUMBER.finditer(text):
        number = re.sub(r"^-|[,\s]", "", match.group())
        digits = re.split("[e%]", number)[0].replace(".", "").strip("0")
        measured = "." in number or "%" in number or text.startswith(" times", match.end())
        if digits and (measured or (len(digits) > 2 and not is_power_of_two(number))):
            yield number


def is_power_of_two(number):
    return float(number).is_integer() and int(float(number)).bit_count() == 1


def is_among(number, known):
    """Whether a known number rounds to this one; to a percentage, also a part of 1."""
    want = float(number.rstrip("%"))
    mantissa, _, power = number.rstrip("%").partition("e")
    step = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    half = 0.5 * step * (1 + 1e-9) + 1e-12 * want
    for k in known:
        if abs(k - want) <= half or ("%" in number and k < 1 and abs(100 * k - want) <= half):
            return True
    return False


def sections(cells):
    """The cells of a notebook, cut before each heading of the second level."""
    parts = [[]]
    for cell in cells:
        if cell["cell_type"] == "markdown" and re.search(r"^## ", source(cell), re.M):
            parts.append([])
        parts[-1].append(cell)
    return parts


@cache
def cells_of(book):
    return json.loads(book.read_text("utf-8"))["cells"]


@cache
def computed_in(chapter):
    """What any cell of a chapter says or prints."""
    (book,) = (book for book in BOOKS if book.stem.startswith(chapter))
    return computed(cells_of(book))


def claims(book):
    """Each result in the text of a notebook, and a function that says whether cells account for it.

    -> (number, is_computed(number))
    """
    everywhere, before = computed_in(book.stem[:2]), []
    for part in sections(cells_of(book)):
        text = [source(cell) for cell in part if cell["cell_type"] == "markdown"]
        here = everywhere if any(map(SUMS_UP.match, text)) else computed(part)
        near = here + before

        def is_computed(number, near=near):
            digits = re.split("[e%]", number)[0].replace(".", "").lstrip("0")
            return is_among(number, near) or (len(digits) > 3 and is_among(number, everywhere))

        for number in (number for piece in text for number in results(piece)):
            yield number, is_computed
        before = here


def is_from(origin, number, book):
    """Whether what prose_sources says of a number holds."""
    if not isinstance(origin, str):
        return is_among(number, [origin])
    if chapter := re.fullmatch(r"chapter (\d\d)", origin):
        return is_among(number, computed_in(chapter[1]))
    if (ROOT / origin).is_file():
        return float(number) in values((ROOT / origin).read_text("utf-8"))
    return any(origin in source(cell) for cell in cells_of(book) if cell["cell_type"] == "markdown")


@every_book
def test_every_number_of_the_text_comes_from_somewhere(book):
    known = ELSEWHERE.get(book.stem[:2], {})
    untraced = [n for n, is_computed in claims(book) if n not in known and not is_computed(n)]
    assert untraced == []


@every_book
def test_what_is_from_elsewhere_is_right_and_still_in_the_text(book):
    known = ELSEWHERE.get(book.stem[:2], {})
    wrong = [number for number, origin in known.items() if not is_from(origin, number, book)]
    unused = known.keys() - {number for number, _ in claims(book)}
    assert (wrong, unused) == ([], set())


def test_most_wrong_digits_are_noticed():
    """Each result gets another last digit, one at a time; by chance some still are a number."""
    tried = unnoticed = 0
    for book in BOOKS:
        for number, is_computed in claims(book):
            last = len(re.split("[e%]", number)[0]) - 1
            wrong = number[:last] + str((int(number[last]) + 3) % 10) + number[last + 1 :]
            tried += 1
            unnoticed += is_computed(wrong)
    assert tried > 300 and unnoticed < tried / 6, f"{unnoticed} of {tried} unnoticed"
