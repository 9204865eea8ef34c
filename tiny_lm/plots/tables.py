"""A table as text and as HTML: the same words in both."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap


class Table:
    """Rows under headings; `widths` are those of the text, in letters, where words are broken."""

    def __init__(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]
    ):
        self.headings, self.rows, self.widths = headings, rows, widths

    def __repr__(self) -> str:
        return "\n".join(line for row in (self.headings, *self.rows) for line in self._lines(row))

    def _lines(self, row: Sequence[str]) -> list[str]:
        cells = [wrap(cell, width) or [""] for cell, width in zip(row, self.widths, strict=True)]
        height = max(map(len, cells))
        padded = [cell + [""] * (height - len(cell)) for cell in cells]
        return [
            "  ".join(f"{w:{n}}" for w, n in zip(words, self.widths, strict=True)).rstrip()
            for words in zip(*padded, strict=True)
        ]

    def _repr_html_(self) -> str:
        style = "style='text-align:left;vertical-align:top'"
        head = "".join(f"<th {style}>{escape(cell)}</th>" for cell in self.headings)
        body = "".join(
            "<tr>" + "".join(f"<td {style}>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
