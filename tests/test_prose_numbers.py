"""A number that stands in a sentence of the book is one that is computed beside it.

Looked at are numbers that look like results: with a decimal point, or three digits that count. Each
must be what a code cell of its section or of the section before says or prints, rounded to the
digits that the sentence gives (a percentage and its remainder count too); with four digits, what
any cell of the notebook prints. All others stand in ELSEWHERE, as a value to be rounded or with the
source that gives them.
"""

import json
import re
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
every_book = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
MINUS = str.maketrans("−", "-")
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
# What is no result: links, years, papers, pull requests and issues by number, code.
NO_RESULTS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<!--.*?-->",
        r"\]\([^)]*\)",
        r"arXiv\s+\d{4}\.\d{4,5}",
        r"\b(?:19|20)\d\d\b(?![.\d])",
        r"(?:pull request|[\w.-]+/[\w.-]+)\s\d+(?:\sand\s\d+)?",
        r"version \d[\d.]*|torch \d[\d.]*",
        r"[A-Za-z]\w*-\d[\d.]*\w*",  # SmolLM2-135M
    )
]
# By chapter: what a number of the text is, as a value that rounds to it, or who says so.
ELSEWHERE: dict[str, dict[str, float | str]] = {
    "01": {"1.0078": 1 + 2**-7},
    "03": {
        "5.8986": "llama.cpp pull request 2374",
        "5.8283": "llama.cpp pull request 2374",
    },
}


def values(text):
    """All numbers of a text, as floats."""
    plain = text.translate(MINUS).replace("_", "").replace(",", "")
    return {float(found) for found in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", plain)}


def computed(cells):
    """What the code cells of a notebook say and print."""
    found = set()
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        found |= values("".join(cell["source"]))
        for output in cell["outputs"]:
            found |= values("".join(output.get("text", "")))
            for kind, text in output.get("data", {}).items():
                if kind.startswith("text/"):  # a picture inside of it has numbers by chance
                    found |= values(re.sub(r"data:image[^\"']*", "", "".join(text)))
    return sorted(found)


def results(cell):
    """The numbers of a text cell that look like results, as written, without their sign."""
    text = "".join(cell["source"]).translate(MINUS)
    for pattern in NO_RESULTS:
        text = pattern.sub(" ", text)
    for match in NUMBER.finditer(text):
        number = match.group().lstrip("-").replace(",", "")
        digits = number.partition("e")[0].replace(".", "").strip("0")
        whole = "." not in number
        if digits and not (whole and (len(digits) < 3 or is_power_of_two(number))):
            yield number


def is_power_of_two(number):
    return float(number).is_integer() and int(float(number)).bit_count() == 1


def is_among(number, known):
    """Whether a known number, or its percentage or remainder, rounds to this one."""
    want = float(number)
    mantissa, _, power = number.partition("e")
    step = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    half = 0.5 * step * (1 + 1e-9) + 1e-12 * want
    for k in known:
        forms = [k, k / 100] if k <= 100 else [k]
        if k < 1:
            forms += [100 * k, 100 * (1 - k)]
        if any(abs(form - want) <= half for form in forms):
            return True
    return False


def sections(book):
    """The cells of a notebook, cut before each heading of the second level."""
    parts = [[]]
    for cell in json.loads(book.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "markdown" and re.search(r"^## ", "".join(cell["source"]), re.M):
            parts.append([])
        parts[-1].append(cell)
    return parts


def claims(book):
    """Each result in the text of a notebook, and a function that says whether cells account for it.

    -> (number, is_computed(number))
    """
    parts, before = sections(book), []
    everywhere = computed([cell for part in parts for cell in part])
    for part in parts:
        here = computed(part)
        near = here + before

        def is_computed(number, near=near):
            digits = number.partition("e")[0].replace(".", "").lstrip("0")
            return is_among(number, near) or (len(digits) > 3 and is_among(number, everywhere))

        for cell in part:
            if cell["cell_type"] == "markdown":
                yield from ((number, is_computed) for number in results(cell))
        before = here


@every_book
def test_every_number_of_the_text_comes_from_somewhere(book):
    known = ELSEWHERE.get(book.stem[:2], {})
    untraced = [n for n, is_computed in claims(book) if n not in known and not is_computed(n)]
    assert untraced == []


@every_book
def test_what_is_from_elsewhere_is_right_and_still_in_the_text(book):
    known = ELSEWHERE.get(book.stem[:2], {})
    wrong = [n for n, value in known.items() if value != str(value) and not is_among(n, [value])]
    unused = known.keys() - {
        number for number, is_computed in claims(book) if not is_computed(number)
    }
    assert (wrong, unused) == ([], set())


def test_most_wrong_digits_are_noticed():
    """Each result gets another last digit, one at a time; by chance some still are a number."""
    tried = unnoticed = 0
    for book in BOOKS:
        for number, is_computed in claims(book):
            mantissa, e, power = number.partition("e")
            wrong = mantissa[:-1] + str((int(mantissa[-1]) + 3) % 10) + e + power
            tried += 1
            unnoticed += is_computed(wrong)
    assert tried > 400 and unnoticed < 0.2 * tried, f"{unnoticed} of {tried} unnoticed"
