"""Chapter 09: the comparison of all designs: which runs it takes, and how its results are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import inf, isfinite, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tiny_lm.probes import clock, designs
from tiny_lm.probes.designs import DESIGNS, SEEDS
from tiny_lm.probes.training import HALFWAY
from tiny_lm.shapes import fail

FILE = Path(__file__).parent.parent / "data" / "designs.json"
T_95 = 4.303  # Student's t: 95 % of the mass within ± this, for three seeds (2 degrees of freedom)
BASE = "pre"  # what every design is compared with
LR = 3e-3  # the learning rate of the loss after a fixed budget


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured: at LR, then at higher rates until a seed does not survive.

    Where one does not survive LR itself, at `lower`.
    """

    blocks: int
    steps: int
    lower: float
    higher: tuple[float, ...]
    deep: int  # blocks of the models that are looked at before training
    rounds: int  # of the clock

    @property
    def settings(self) -> str:
        """All of it in words; results with other settings are not mixed with these."""
        rates = ", ".join(f"{rate:g}" for rate in (self.lower, LR, *self.higher))
        return (
            f"Letters, V = 32, D = 32, H = 2, F = 64, eps 1e-5, untied, float32; {self.blocks} "
            f"blocks, {self.steps} steps of 16 rows of 16 letters, AdamW, no warm-up, lr {rates}; "
            f"before training {self.deep} blocks; clock: 4 blocks, D = 128, 4 rows of 64, "
            f"{self.rounds} rounds"
        )

    def jobs(self, names: Sequence[str], known: Mapping[str, Any]) -> list[str]:
        """What is still to be measured, as far as can be told by now."""
        wanted = [f"{name} start seed={seed}" for name in names for seed in SEEDS]
        for name in names:
            for rate in (LR, *self.higher):
                runs = [train_key(name, rate, seed) for seed in SEEDS]
                wanted += runs
                if any(run in known and not survives(known[run]) for run in runs):
                    if rate == LR:
                        wanted += [train_key(name, self.lower, seed) for seed in SEEDS]
                    break
        return [key for key in [*wanted, times_key(names)] if key not in known]

    def measure(self, key: str, names: Sequence[str]) -> Any:
        """The result of one job, ready for a JSON file."""
        if key == times_key(names):
            return self._times(names)
        name, kind, *_, said = key.split()
        seed = int(said.removeprefix("seed="))
        if kind == "start":
            found = designs.start(DESIGNS[name], seed=seed, blocks=self.deep)
            return _rounded(asdict(found))
        rate = float(kind.removeprefix("lr="))
        found = designs.trained(
            DESIGNS[name], lr=rate, seed=seed, blocks=self.blocks, steps=self.steps
        )
        return _rounded(asdict(found))

    def _times(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Time of a step relative to the base's: quartiles and median."""
        timed = list(dict.fromkeys([BASE, *names]))
        found = clock.in_turns([designs.step_of(DESIGNS[name]) for name in timed], self.rounds)
        return {
            name: _rounded(clock.ratio(times, found[0]))
            for name, times in zip(timed, found, strict=True)
        }


FULL = Plan(blocks=8, steps=120, lower=1e-3, higher=(0.01, 0.03, 0.1, 0.3), deep=32, rounds=20)
QUICK = Plan(blocks=2, steps=40, lower=1e-3, higher=(0.03,), deep=4, rounds=2)


def train_key(name: str, rate: float, seed: int) -> str:
    """The name of a training run in the file."""
    return f"{name} lr={rate:g} seed={seed}"


def times_key(names: Sequence[str]) -> str:
    """The name of the clock's results in the file; they belong to the designs timed together."""
    return "times" if list(names) == list(DESIGNS) else "times " + ",".join(names)


def survives(found: Mapping[str, float]) -> bool:
    """Whether a run ended below halfway between ln V and the floor, as in chapter 06."""
    return found["loss"] < HALFWAY


def expect_names(names: Sequence[str]) -> list[str]:
    """The names, each once. Raises ValueError for one that is no design."""
    for name in names:
        if name not in DESIGNS:
            fail("compare", f"designs among {', '.join(DESIGNS)}", repr(name))
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Row:
    """What was found of one design. Lists have one number a seed."""

    name: str
    title: str
    losses: list[float]  # nats, at LR
    versus: list[float]  # the same minus the base's, seed by seed
    by_rate: dict[float, list[float]]  # losses at every rate that was tried
    safe_rate: float  # the largest at which, and below which, every seed survives; 0: none
    streams: list[list[float]]  # before training: RMS after the embedding and each block
    spreads: list[float]  # before training: longest / shortest gradient of a block
    largest: list[float]  # after training: the largest entry of the stream and before norms
    time: list[float]  # of a step, relative to the base's: quartile, median, quartile
    parameters: int

    @property
    def stream(self) -> list[float]:
        """RMS at the end of the deep stack / after its first block, a number a seed."""
        return [s[-1] / s[1] for s in self.streams]


@dataclass(frozen=True)
class Comparison:
    """All rows, and where the clock stood."""

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
    runs = {key: value for key, value in results.items() if key.startswith(f"{name} lr=")}
    rates = sorted({float(key.split()[1].removeprefix("lr=")) for key in runs})
    by_rate = {rate: [runs[train_key(name, rate, s)]["loss"] for s in SEEDS] for rate in rates}
    safe = 0.0
    for rate in rates:
        if not all(loss < HALFWAY for loss in by_rate[rate]):
            break
        safe = rate
    starts = [results[f"{name} start seed={seed}"] for seed in SEEDS]
    first = [runs[train_key(name, LR, seed)] for seed in SEEDS]
    base = [results.get(train_key(BASE, LR, seed), {}).get("loss", inf) for seed in SEEDS]
    return Row(
        name=name,
        title=DESIGNS[name].title,
        losses=by_rate[rates[0]],
        versus=[
            a - b if isfinite(a) else inf for a, b in zip(by_rate[rates[0]], base, strict=True)
        ],
        by_rate=by_rate,
        safe_rate=safe,
        streams=[start["stream"] for start in starts],
        spreads=[designs.Start(**start).spread for start in starts],
        largest=[found["largest"] for found in first],
        time=time,
        parameters=first[0]["parameters"],
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(low, mean, high): the 95 % interval of the mean of three seeds; infinite if one is."""
    if not all(map(isfinite, values)):
        return inf, inf, inf
    half = T_95 * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values), fmean(values) + half


def told_apart(versus: Sequence[float]) -> str:
    """ "lower", "higher" or "not told apart": on which side of 0 the whole interval lies."""
    low, _, high = interval(versus)
    return "lower" if high < 0 else "higher" if low > 0 else "not told apart"


@lru_cache
def stored() -> Comparison:
    """The comparison that comes with the package, made by `python -m tiny_lm compare`."""
    return Comparison.of(json.loads(FILE.read_text(encoding="utf-8")), list(DESIGNS))


def table(found: Comparison) -> str:
    """The comparison as text."""
    head = f"{'':22}{'loss':>16}{'survives':>10}{'stream':>8}{'spread':>8}{'largest':>9}"
    lines = [found.settings, f"clock: {found.machine}", head + f"{'time':>7}{'numbers':>9}"]
    for row in found.rows.values():
        low, mean, high = interval(row.losses)
        lines.append(
            f"{row.title:22}{mean:>8.3f} ±{(high - low) / 2:6.3f}{row.safe_rate:>10g}"
            f"{fmean(row.stream):>8.3g}{fmean(row.spreads):>8.3g}{max(row.largest):>9.3g}"
            f"{row.time[1]:>7.2f}{row.parameters:>9,}"
        )
    return "\n".join(lines)


def _rounded(value: Any) -> Any:
    """Four significant digits are more than three seeds can tell."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, int):
        return value
    return float(f"{value:.5g}")
