"""Chapter 09: what the comparison of all designs found: rows, intervals, who is told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tiny_lm.probes.comparing import BASE, LR, start_key, times_key, train_key
from tiny_lm.probes.designs import DESIGNS, SEEDS, Start
from tiny_lm.probes.training import HALFWAY
from tiny_lm.shapes import fail

FILE = Path(__file__).parent.parent / "data" / "designs.json"
T_95 = 4.303  # Student's t: 95 % of the mass within ± this, for three seeds (2 degrees of freedom)


@dataclass(frozen=True)
class Row:
    """What was found of one design. Lists have one number a seed."""

    name: str
    title: str
    losses: list[float]  # nats, at LR
    by_rate: dict[float, list[float]]  # losses at every rate that was tried
    starts: dict[int, list[Start]]  # before training, by the number of blocks
    largest: list[float]  # after training: the largest entry of the stream and before norms
    time: list[float]  # of a step, relative to the base's: quartile, median, quartile
    parameters: int

    @property
    def safe_rate(self) -> float:
        """The largest rate at which, and below which, every seed survives; 0 if there is none."""
        safe = 0.0
        for rate, losses in sorted(self.by_rate.items()):
            if not all(loss < HALFWAY for loss in losses):
                break
            safe = rate
        return safe

    @property
    def deepest(self) -> list[Start]:
        """The looks at the deepest stack."""
        return self.starts[max(self.starts)]

    @property
    def growth(self) -> list[float]:
        """RMS of the stream at the end of the deepest stack / after its first block."""
        return [s.stream[-1] / s.stream[1] if s.stream[1] else inf for s in self.deepest]

    @property
    def spread(self) -> list[float]:
        """The longest gradient of a block there / the shortest."""
        return [start.spread for start in self.deepest]


@dataclass(frozen=True)
class Comparison:
    """All rows, the settings, and the machine whose clock it was."""

    rows: dict[str, Row]
    settings: str
    machine: str

    @staticmethod
    def of(stored: Mapping[str, Any], names: Sequence[str]) -> Comparison:
        """Read the results of the named designs, all of which must be there."""
        results = stored["results"]
        times = results.get(times_key(names)) or results["times"]
        rows = {name: _row(name, results, times[name]) for name in names}
        return Comparison(rows, stored["settings"], stored["machine"])


def _row(name: str, results: Mapping[str, Any], time: list[float]) -> Row:
    mine = [key.split() for key in results if key.startswith(f"{name} ")]
    rates = sorted({float(kind[3:]) for _, kind, _ in mine if kind.startswith("lr=")})
    rates = [r for r in rates if all(train_key(name, r, s) in results for s in SEEDS)]
    depths = sorted({int(kind[7:]) for _, kind, _ in mine if kind.startswith("blocks=")})
    budget = [results[train_key(name, LR, seed)] for seed in SEEDS]
    return Row(
        name=name,
        title=DESIGNS[name].title,
        losses=[found["loss"] for found in budget],
        by_rate={r: [results[train_key(name, r, s)]["loss"] for s in SEEDS] for r in rates},
        starts={n: [Start(**results[start_key(name, n, s)]) for s in SEEDS] for n in depths},
        largest=[found["largest"] for found in budget],
        time=time,
        parameters=budget[0]["parameters"],
    )


@lru_cache
def stored() -> Comparison:
    """The comparison that comes with the package, made by `python -m tiny_lm compare`."""
    return Comparison.of(json.loads(FILE.read_text(encoding="utf-8")), list(DESIGNS))


# Intervals


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(low, mean, high): the 95 % interval of the mean of three seeds; infinite if one is."""
    if not all(map(isfinite, values)):
        return inf, inf, inf
    half = T_95 * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values), fmean(values) + half


def told_apart(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """ "lower", "higher" or "not told apart", from the differences seed by seed.

    The same seed means the same letters and, where shapes allow, the same weights at first; so the
    interval of the differences is narrower than that of either. It must not contain 0.
    """
    if not all(map(isfinite, [*ours, *theirs])):
        mine, other = max(ours), max(theirs)
        return "not told apart" if mine == other else "lower" if mine < other else "higher"
    low, _, high = interval([a - b for a, b in zip(ours, theirs, strict=True)])
    return "lower" if high < 0 else "higher" if low > 0 else "not told apart"


# One measure at a time


@dataclass(frozen=True)
class Measure:
    """What is compared: its name on an axis, and (low, middle, high) of a row."""

    label: str
    of: Callable[[Row], tuple[float, float, float]]
    is_log: bool = False
    digits: int = 3


def _span(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), sorted(values)[len(values) // 2], max(values)


def _alone(value: float) -> tuple[float, float, float]:
    return value, value, value


MEASURES: dict[str, Measure] = {
    "loss": Measure(
        "loss after the budget, nats: mean and 95 % interval", lambda r: interval(r.losses)
    ),
    "learning rate": Measure(
        "largest learning rate that every seed survives", lambda r: _alone(r.safe_rate), True, 1
    ),
    "stream": Measure(
        "before training: RMS after block 32 / after block 1", lambda r: _span(r.growth), True
    ),
    "gradients": Measure(
        "before training: longest / shortest gradient of a block", lambda r: _span(r.spread), True
    ),
    "largest entry": Measure(
        "after training: largest entry of the stream", lambda r: _span(r.largest), True
    ),
    "time": Measure("time of a step / that of RMSNorm, pre", lambda r: tuple(r.time), digits=2),
    "parameters": Measure("numbers that are learned", lambda r: _alone(r.parameters), digits=5),
}


@dataclass(frozen=True)
class Measured:
    """One measure of every design, with two of them chosen."""

    measure: Measure
    spans: dict[str, tuple[float, float, float]]  # by title
    first: str
    second: str
    verdict: str  # of the first's loss against the second's; empty for other measures


@lru_cache(maxsize=2048)
def measured(measure: str, first: str, second: str) -> Measured:
    """Look a measure up in the stored comparison. Raises ValueError for an unknown name."""
    if measure not in MEASURES:
        fail("measured", f"one of {', '.join(MEASURES)}", repr(measure))
    rows, what = stored().rows, MEASURES[measure]
    for name in (first, second):
        if name not in rows:
            fail("measured", f"designs among {', '.join(rows)}", repr(name))
    one, two = rows[first], rows[second]
    return Measured(
        what,
        {row.title: what.of(row) for row in rows.values()},
        one.title,
        two.title,
        told_apart(one.losses, two.losses) if measure == "loss" else "",
    )


@dataclass(frozen=True)
class Depths:
    """A stack before training beside the base's, medians over the seeds, by the block."""

    title: str
    blocks: int
    stream: list[float]
    gradient: list[float]  # relative to the block with the longest
    base_title: str
    base_stream: list[float]
    base_gradient: list[float]


@lru_cache(maxsize=256)
def depths(design: str, blocks: int) -> Depths:
    """Stream and gradients of a design at a depth, from the stored comparison."""
    row, base = stored().rows[design], stored().rows[BASE]
    return Depths(row.title, blocks, *_medians(row, blocks), base.title, *_medians(base, blocks))


def _medians(row: Row, blocks: int) -> tuple[list[float], list[float]]:
    starts = row.starts[blocks]
    streams = zip(*(start.stream for start in starts), strict=True)
    gradients = zip(*(start.relative for start in starts), strict=True)
    return [sorted(s)[1] for s in streams], [sorted(g)[1] for g in gradients]


def table(found: Comparison) -> str:
    """The comparison as text."""
    head = f"{'':22}{'loss':>16}{'rate':>8}{'stream':>8}{'spread':>8}{'largest':>9}"
    lines = [found.settings, f"clock: {found.machine}", head + f"{'time':>7}{'numbers':>9}"]
    for row in found.rows.values():
        low, mean, high = interval(row.losses)
        half = 0.0 if mean == inf else (high - low) / 2
        lines.append(
            f"{row.title:22}{mean:>8.3f} ±{half:6.3f}{row.safe_rate:>8g}"
            f"{_span(row.growth)[1]:>8.3g}{_span(row.spread)[1]:>8.3g}{max(row.largest):>9.3g}"
            f"{row.time[1]:>7.2f}{row.parameters:>9,}"
        )
    return "\n".join(lines)


def agreement(ours: Comparison, theirs: Comparison) -> dict[str, bool]:
    """For each design of both: whether the intervals of its loss overlap."""
    shared = [name for name in ours.rows if name in theirs.rows]
    pairs = {n: (interval(ours.rows[n].losses), interval(theirs.rows[n].losses)) for n in shared}
    return {name: a[0] <= b[2] and b[0] <= a[2] for name, (a, b) in pairs.items()}
