"""Chapter 05: how a claim is tried: seeds, an interval, a band, and one rule for the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from tiny_lm.shapes import fail

SEEDS = (0, 1, 2, 3, 4)
T_95 = 2.776  # Student's t: 95 % of the mass within ± this, for five seeds (4 degrees of freedom)

RULE = (
    "Five seeds give a 95 % interval (Student's t) for the mean logarithm of what is measured. A "
    "setting agrees when its whole interval lies in the band, and disagrees when all of it lies "
    "outside. All agree: holds. All disagree: does not hold. Both occur: holds if. Otherwise an "
    "interval lies across an edge of the band: not settled here."
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence, and an experiment that could refute it.

    `settings` maps the name of a setting to a function of the seed that measures one positive
    number. The claim says that this number lies in `band`, both ends included. A claim that needs
    training or a clock has no settings, and `tried_in` says where it is tried.
    """

    name: str
    sentence: str
    said: str  # where, or by whom
    measured: str
    fixed: str = ""  # what all settings share
    band: tuple[float, float] = (0.0, 0.0)
    settings: Mapping[str, Callable[[int], float]] | None = None
    digits: int = 2  # significant digits that are shown; 0 for powers of ten
    tried_in: str = ""


@dataclass(frozen=True)
class Finding:
    """What one setting gave: the interval of the geometric mean, and if it lies in the band."""

    setting: str
    low: float
    mean: float
    high: float
    agrees: bool | None  # None: the interval lies across an edge


@dataclass(frozen=True)
class Trial:
    """A claim with its findings and the verdict that follows from them."""

    claim: Claim
    findings: list[Finding]
    verdict: str


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(low, mean, high): the 95 % interval of the geometric mean of five values.

    Raises ValueError for another number of values, and for one that is not positive.
    """
    if len(values) != len(SEEDS):
        fail("interval", f"{len(SEEDS)} values", len(values))
    if not all(value > 0 for value in values):
        fail("interval", "positive values", list(values))
    logs = [log(value) for value in values]
    middle, half = fmean(logs), T_95 * stdev(logs) / sqrt(len(logs))
    return exp(middle - half), exp(middle), exp(middle + half)


def judge(low: float, high: float, band: tuple[float, float]) -> bool | None:
    """True inside the band, False outside it, None across an edge."""
    if high < band[0] or low > band[1]:
        return False
    return True if band[0] <= low and high <= band[1] else None


def verdict(findings: Sequence[Any], not_clear: str = "across an edge") -> str:
    """The verdict that RULE gives on findings, of which each has a `setting` and `agrees`."""
    yes, no, open_ = (
        [f.setting for f in findings if f.agrees is answer] for answer in (True, False, None)
    )
    left = f" ({not_clear}: {'; '.join(open_)})" if open_ else ""
    if yes and no:
        return f"holds if: {'; '.join(yes)}{left}"
    if open_:
        return f"not settled here{left}"
    return "holds in these settings" if yes else "does not hold in these settings"


KINDS = ("holds", "holds if", "does not hold", "not settled")


def kind_of(verdict: str) -> str:
    """Which of KINDS a verdict is, without its settings."""
    return max((kind for kind in KINDS if verdict.startswith(kind)), key=len)


def hear(claim: Claim) -> Trial:
    """Run a claim's experiment and apply RULE."""
    if claim.settings is None:
        return Trial(claim, [], f"not tried here, but in {claim.tried_in}")
    findings = []
    for setting, experiment in claim.settings.items():
        low, mean, high = interval([experiment(seed) for seed in SEEDS])
        findings.append(Finding(setting, low, mean, high, judge(low, high, claim.band)))
    return Trial(claim, findings, verdict(findings))
