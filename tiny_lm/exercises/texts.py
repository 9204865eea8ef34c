"""The words and cells of each exercise: texts/NAME.md holds its prompt, its stub, its solution.

A notebook's cells for an exercise are made from these (tests/execute_notebooks.py writes them, and
a test holds them equal), so that a chapter and the package cannot say different things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tiny_lm.shapes import fail

_FORM = re.compile(
    r"(?P<prompt>.+?)\n\n## Stub\n\n```python\n(?P<stub>.+?)\n```\n\n"
    r"## Solution\n\n```python\n(?P<solution>.+?)\n```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    """The prompt in Markdown, the cell that the learner starts from, and the cell that is right."""

    prompt: str
    stub: str
    solution: str


@cache
def read(name: str) -> Text:
    """The text of one exercise. Raises ValueError if it has none, or one of another form."""
    path = files(__package__) / "texts" / f"{name}.md"
    if not path.is_file():
        fail("exercises", f"a file texts/{name}.md", "none")
    match = _FORM.fullmatch(path.read_text(encoding="utf-8"))
    if not match:
        fail("exercises", f"prompt, ## Stub, ## Solution in texts/{name}.md", "another form")
    return Text(**match.groupdict())
