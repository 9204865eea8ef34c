"""A lesson as a list of results, and how a terminal shows it."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 78


@dataclass(frozen=True)
class Result:
    """One computed number, or several, and the right value to hold it against.

    `title` is the section it stands in and `text` a sentence for the reader. `got` and `expected`
    are a number, True or False, or a (nested) list of them; each entry may be off by `tolerance`.
    """

    title: str
    text: str
    got: Any
    expected: Any
    tolerance: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every entry is within the tolerance; NaN and another length never are."""
        got, expected = list(_entries(self.got)), list(_entries(self.expected))
        return len(got) == len(expected) and all(
            abs(one - other) <= self.tolerance for one, other in zip(got, expected, strict=True)
        )


def show(results: Sequence[Result]) -> int:
    """Print a lesson section by section, and return the exit status: 0 if every result is right."""
    right, wrong = _marks()
    title = None
    for result in results:
        if result.title != title:
            title = result.title
            print(f"\n{title}\n{'-' * len(title)}")
        print(_filled(result.text))
        within = f"within {result.tolerance:g}" if result.tolerance else "exactly"
        if result.ok:
            print(f"    {right} {_shown(result.got)}   ({within})")
        else:
            print(
                f"    {wrong} {_shown(result.got)}   expected {_shown(result.expected)}, {within}"
            )
    off = dict.fromkeys(result.title for result in results if not result.ok)
    print(f"\n{sum(result.ok for result in results)} of {len(results)} results checked")
    for title in off:
        print(f"off: {title}")
    return 1 if off else 0


def _entries(value: Any) -> Iterator[float]:
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _entries(entry)
    else:
        yield float(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown(entry) for entry in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}"


def _filled(text: str) -> str:
    """Text in lines of the terminal's width; [3, 4] is never cut in two."""
    glued = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = textwrap.fill(glued, WIDTH, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


def _marks() -> tuple[str, str]:
    """A check mark and a cross, or words where the terminal has no such letters."""
    try:
        "✓✗".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "right:", "OFF:"
    return "✓", "✗"
