"""What is worth knowing about a model's stream: each finding with the line it stands above."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch

from tiny_lm.probes.half import Overflow, Swallowed, overflows, swallowed
from tiny_lm.probes.streams import (
    MASSIVE,
    TIMES_THE_MEDIAN,
    Gain,
    Massive,
    Reading,
    Sinks,
    eps_share,
    gains,
    massive,
    norms,
    sinks,
)

MUCH_EPS = 0.1  # of a row's mean square: it comes out 5 % too small
MUCH_SWALLOWED = 0.5  # of an update's coordinates
A_SINK = 2.0  # times the share that equal weights would give
LONG_ENOUGH = 4  # tokens to judge attention by


@dataclass(frozen=True)
class Finding:
    """Something found: its kind, what and where in one sentence, and the threshold it passed."""

    kind: str
    what: str
    threshold: str


@dataclass(frozen=True)
class Rows:
    """What the norms of a model read, in the order of computation: a number for each norm."""

    norms: list[str]
    eps: list[float]
    least: list[float]  # mean square of the smallest row
    most: list[float]  # mean square of the largest row
    square: list[float]  # the largest square of an entry


@dataclass(frozen=True)
class Inspection:
    """A reading and everything that was measured on it."""

    reading: Reading
    massive: list[Massive]
    gains: list[Gain]
    eps_share: dict[str, list[float]]
    overflows: list[Overflow]
    swallowed: list[Swallowed]
    sinks: Sinks

    @property
    def is_finite(self) -> bool:
        """Whether no NaN and no Inf came up; else little can be said."""
        return not _not_finite(self.reading)

    @property
    def rms(self) -> list[list[float]]:
        """Size of the stream: [tap][position]."""
        return self.reading.rms.tolist()

    @property
    def rows(self) -> Rows:
        """The range of what each norm reads."""
        read, modules = self.reading.read, norms(self.reading.model)
        mean_squares = [rows.double().square().mean(dim=-1) for rows in read.values()]
        return Rows(
            norms=list(read),
            eps=[modules[name].eps for name in read],
            least=[float(rows.min()) for rows in mean_squares],
            most=[float(rows.max()) for rows in mean_squares],
            square=[float(rows.double().square().max()) for rows in read.values()],
        )

    @property
    def findings(self) -> list[Finding]:
        """What passes a threshold; nothing, for a model as it is drawn before training."""
        if not self.is_finite:
            return _not_finite(self.reading)  # every other number would follow from it
        return [
            *(_massive(one, self.reading) for one in self.massive),
            *_float16(self.overflows),
            *_bfloat16(self.swallowed, self.reading),
            *_eps(self.eps_share, self.reading),
            *_sink(self.sinks, self.reading),
        ]


def inspect(reading: Reading) -> Inspection:
    """Measure everything on a reading."""
    return Inspection(
        reading=reading,
        massive=massive(reading),
        gains=gains(reading.model),
        eps_share=eps_share(reading),
        overflows=overflows(reading),
        swallowed=swallowed(reading),
        sinks=sinks(reading),
    )


def after(tap: str) -> str:
    """A tap in words: `blocks.11.resid.ffn` -> `block 11's FFN`."""
    if tap == "embed":
        return "the embedding"
    _, block, _, part = tap.split(".")
    return f"block {block}'s {'attention' if part == 'attn' else 'FFN'}"


def _three(value: float) -> str:
    """Three digits: as many as 32 bits compute alike everywhere."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _token(reading: Reading, position: int) -> str:
    return f"token {position} ({reading.words[position]!r})"


def _not_finite(reading: Reading) -> list[Finding]:
    for tap, stream in zip(reading.taps, reading.stream, strict=True):
        if not stream.isfinite().all():
            return [Finding("not finite", f"the stream holds NaN or Inf from {tap} on", "any")]
    if not torch.isfinite(reading.logits).all():
        return [Finding("not finite", "the logits hold NaN or Inf", "any")]
    return []


def _massive(one: Massive, reading: Reading) -> Finding:
    peak = one.peak
    what = (
        f"{_token(reading, one.position)}, coordinate {one.coordinate}, holds {peak.value:,.0f} "
        f"at {peak.tap}, {_three(peak.times)} times the median entry; "
        f"massive from {one.since} to {one.until}"
    )
    if one.companions:
        others = ", ".join(f"{e.coordinate} ({_three(e.value)})" for e in one.companions[:3])
        more = ", …" if len(one.companions) > 3 else ""
        what += f"; also above {MASSIVE:.0f} in that row: coordinate {others}{more}"
    threshold = f"above {MASSIVE:.0f} and {TIMES_THE_MEDIAN:,.0f} times the median entry there"
    return Finding("massive activation", what, threshold)


def _float16(found: list[Overflow]) -> list[Finding]:
    kinds = (
        ("entry", "an entry float16 cannot hold", "an entry above 65,504"),
        ("square", "a square float16 cannot hold: a plain norm returns zeros", "a square above"),
        ("total", "a sum of squares float16 cannot hold", "a sum of squares above"),
    )
    findings = []
    for field, words, threshold in kinds:
        norms = [one for one in found if getattr(one, field)]
        if norms:
            rows, all_rows = sum(getattr(o, field) for o in norms), sum(o.rows for o in found)
            what = (
                f"{rows} of {all_rows} rows, read by {len(norms)} of {len(found)} norms, have "
                f"{words}; the first is read by {norms[0].norm}"
            )
            line = threshold if "65" in threshold else f"{threshold} 65,504"
            findings.append(Finding("float16", what, line))
    return findings


def _bfloat16(found: list[Swallowed], reading: Reading) -> list[Finding]:
    worst = max(found, key=lambda one: max(one.shares), default=None)
    if worst is None or max(worst.shares) <= MUCH_SWALLOWED:
        return []
    share, rows = max(worst.shares), sum(s > MUCH_SWALLOWED for one in found for s in one.shares)
    place = _token(reading, worst.shares.index(share))
    what = (
        f"a stream in bfloat16 would not notice {share:.0%} of the coordinates of the update at "
        f"{worst.tap}, {place}; so {rows} of {len(found) * len(worst.shares)} updates"
    )
    return [Finding("bfloat16", what, f"{MUCH_SWALLOWED:.0%} of an update's coordinates")]


def _eps(shares: dict[str, list[float]], reading: Reading) -> list[Finding]:
    norm = max(shares, key=lambda name: max(shares[name]))
    share = max(shares[norm])
    if share <= MUCH_EPS:
        return []
    rows = sum(value > MUCH_EPS for values in shares.values() for value in values)
    place = _token(reading, shares[norm].index(share))
    size = f"{share:.0%} of" if isfinite(share) and share < 10 else "far above"
    what = f"eps is {size} the mean square that {norm} reads at {place}; so in {rows} rows"
    return [Finding("epsilon", what, f"eps above {MUCH_EPS:.0%} of a row's mean square")]


def _sink(found: Sinks, reading: Reading) -> list[Finding]:
    if len(reading.ids) < LONG_ENOUGH or found.mean <= A_SINK * found.equal:
        return []
    heads = [share for block in found.shares for share in block]
    half = sum(share > 0.5 for share in heads)
    what = (
        f"{_token(reading, 0)} gets {found.mean:.0%} of all later tokens' attention, and more than "
        f"half from {half} of {len(heads)} heads; equal weights would give it {found.equal:.0%}"
    )
    return [Finding("attention sink", what, f"{A_SINK:.0f} times the share of equal weights")]
