"""Chapter 05: the card of a claim, as text and as HTML."""

from __future__ import annotations

from html import escape
from math import floor, log10
from textwrap import wrap
from typing import Any

MARKS = {True: "agrees", False: "disagrees", None: "across an edge"}
_WIDTH = 180  # of a strip, screen pixels


class Card:
    """What a claim says, what was measured, and the verdict.

    Shows a trial: `trial.claim`, `trial.findings` and `trial.verdict`.
    """

    def __init__(self, trial: Any):
        self.trial = trial

    def __repr__(self) -> str:
        claim, lines = self.trial.claim, []
        parts = [f"“{claim.sentence}”", f"Said {claim.said}.", _measured(claim)]
        for part in parts:
            lines += wrap(part, 92, subsequent_indent="  ")
        widest = max((len(f.setting) for f in self.trial.findings), default=0)
        for finding in self.trial.findings:
            span = _span(finding, claim.digits)
            lines.append(f"  {finding.setting:{widest}}  {span:22}  {MARKS[finding.agrees]}")
        return "\n".join([*lines, *wrap(self._verdict, 92, subsequent_indent="  ")])

    @property
    def _verdict(self) -> str:
        return f"Verdict: {self.trial.verdict}."

    def _repr_html_(self) -> str:
        claim = self.trial.claim
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(finding.setting)}</td>"
            f"<td>{_strip(finding, self.trial)}</td>"
            f"<td>{_span(finding, claim.digits)}</td>"
            f"<td style='text-align:left'>{MARKS[finding.agrees]}</td></tr>"
            for finding in self.trial.findings
        )
        table = f"<table>{rows}</table>" if rows else ""
        return (
            "<div style='border:1px solid; border-radius:6px; padding:0 1em; max-width:54em'>"
            f"<p><strong>“{escape(claim.sentence)}”</strong><br>"
            f"Said {escape(claim.said)}.</p><p>{escape(_measured(claim))}</p>{table}"
            f"<p><strong>{escape(self._verdict)}</strong></p></div>"
        )


def _measured(claim: Any) -> str:
    fixed = f" ({claim.fixed})" if claim.fixed else ""
    return f"Measured: {claim.measured}{fixed}."


def _span(finding: Any, digits: int) -> str:
    low, high = _shown(finding.low, digits), _shown(finding.high, digits)
    return low if low == high else f"{low} to {high}"


def _shown(value: float, digits: int) -> str:
    """`0.48`, `12`, `1.2e19`; with no digits, the nearest power of ten."""
    if not digits:
        return f"about {10 ** round(log10(value)):,}"
    if 1e-3 <= value < 1e4:  # all digits in front of the point are shown
        return f"{value:.{max(0, digits - 1 - floor(log10(value)))}f}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(power)}"


def _strip(finding: Any, trial: Any) -> str:
    """The interval on a log scale with the band behind it, the same scale in every row."""
    low, high = trial.claim.band
    ends = [end for found in trial.findings for end in (found.low, found.high)]
    ends += [edge for edge in (low, high) if edge > 0]
    first, last = log10(min(ends)) - 0.2, log10(max(ends)) + 0.2

    def at(value: float) -> int:
        if value <= 0:
            return 0
        return round(_WIDTH * (log10(value) - first) / (last - first))

    left, middle, right = (at(value) for value in (finding.low, finding.mean, finding.high))
    return (
        f"<svg width='{_WIDTH}' height='14' role='img' aria-label='the band and the interval'>"
        f"<rect x='{at(low)}' width='{at(high) - at(low)}' height='14' fill='currentColor' "
        "opacity='0.18'/>"
        f"<line x1='{left}' x2='{right}' y1='7' y2='7' stroke='currentColor' stroke-width='2'/>"
        f"<circle cx='{middle}' cy='7' r='3' fill='currentColor'/></svg>"
    )
