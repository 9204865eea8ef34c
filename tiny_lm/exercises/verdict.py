"""What check() says, as plain text and in colour."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from textwrap import wrap

MARKS = {True: "✓", False: "✗", None: "…"}
# Of the palette of Okabe and Ito, which colour-blind readers can tell apart. Only the bar and a
# breath of background have a colour: the letters keep the theme's own, light or dark.
COLOURS = {True: "0, 158, 115", False: "213, 94, 0", None: "128, 128, 128"}


@dataclass(frozen=True)
class Verdict:
    """What check() found: `ok` is True, False, or None for an answer not written yet.

    A notebook shows it in colour, everything else as text; both say the same words.
    """

    ok: bool | None
    text: str

    def __repr__(self) -> str:
        # As wide as a notebook's output; a narrower page would break lines within words.
        first, *rest = f"{MARKS[self.ok]} {self.text}".splitlines()
        lines = wrap(first, 92, subsequent_indent="  ")
        for line in rest:
            lines += wrap(line.strip(), 92, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *rest = self.text.splitlines()
        name, colon, words = first.partition(": ")
        lines = [f"<b>{MARKS[self.ok]} {escape(name)}</b>{colon}{escape(words)}"]
        lines += [escape(line.strip()) for line in rest]
        colour = COLOURS[self.ok]
        style = f"border-left: 4px solid rgb({colour}); background: rgba({colour}, 0.1); "
        style += "padding: 0.3em 0.8em; max-width: 60em;"
        return f'<div style="{style}">' + "".join(f"<div>{line}</div>" for line in lines) + "</div>"
