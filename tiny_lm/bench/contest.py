"""A contest: the same work done in several ways, timed in turns."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median

import torch

from tiny_lm.shapes import fail

Way = Callable[[], object]
TURN = 0.002  # seconds


@dataclass(frozen=True)
class Contest:
    """One piece of work and the ways to do it; the first way is the base, whose time is 1.

    `marks` say which part of the base's time some of the ways are meant to need at most.
    """

    work: str
    ways: Mapping[str, Way]
    marks: Mapping[str, float] = field(default_factory=dict)
    repetitions: int = 30


@dataclass(frozen=True)
class Result:
    """The seconds of every repetition of every way, in the order they were taken."""

    contest: Contest
    seconds: Mapping[str, list[float]]

    def median(self, way: str) -> float:
        """The median time of a way, in seconds."""
        return median(self.seconds[way])

    def ratio(self, way: str) -> float:
        """The median, over the rounds, of its time as a part of the base's in the same round."""
        base = self.seconds[next(iter(self.seconds))]
        pairs = zip(self.seconds[way], base, strict=True)
        return median(mine / theirs for mine, theirs in pairs)


def run(
    contest: Contest, *, device: str = "cpu", progress: Callable[[], object] | None = None
) -> Result:
    """Take every way twice to warm up, then in turns; each round has another order, by seed.

    Short work is done several times in a turn, for 2 ms in all. `progress` is called after every
    round. On a device that works on its own, a time ends when the device is done.
    """
    names = list(contest.ways)
    if not names or contest.repetitions < 1:
        fail("bench", "a way and a repetition", f"{names} and {contest.repetitions}")
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def seconds_of(way: Way, calls: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            way()
        wait()
        return (time.perf_counter() - start) / calls

    calls = {}
    for name, way in contest.ways.items():
        way()
        calls[name] = max(1, int(TURN / max(seconds_of(way, 1), 1e-6)))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    shuffled = Random(0)
    for _ in range(contest.repetitions):
        # What ran just before leaves caches and memory to the next: nobody has a fixed place.
        for name in shuffled.sample(names, len(names)):
            seconds[name].append(seconds_of(contest.ways[name], calls[name]))
        if progress:
            progress()
    return Result(contest, seconds)


def processor() -> str:
    """This machine's processor by its full name, where the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def missing(packages: Iterable[str]) -> Iterator[str]:
    """The packages that are not installed here."""
    return (package for package in packages if find_spec(package) is None)


def times(seconds: float) -> str:
    """A time as people read it: `12.3 ms`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def table(result: Result, threads: int) -> str:
    """A contest as text: every way, its part of the base's time, and its mark."""
    contest = result.contest
    where = f"{threads} thread{'s' if threads > 1 else ''}"
    lines = [f"{contest.work}: {where}, medians of {contest.repetitions}"]
    for name in contest.ways:
        line = f"  {name:<34} {result.ratio(name):6.3f}  {times(result.median(name)):>8}"
        if (mark := contest.marks.get(name)) is not None:
            line += f"   {'reached' if result.ratio(name) <= mark else 'missed'}: {mark:g}"
        lines.append(line)
    return "\n".join(lines)
