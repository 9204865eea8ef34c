"""The contests of `python -m tiny_lm bench` for pytest-benchmark, which keeps and compares runs.

    python -m pip install pytest-benchmark
    pytest -o addopts="" tests/benchmarks/bench_speed.py --benchmark-save=NAME

Ratios that are taken in turns come from the command alone: here every way is timed by itself.
"""

import pytest

from tiny_lm.bench import norms, training

pytest.importorskip("pytest_benchmark")

WAYS = [
    pytest.param(way, contest.work, id=f"{contest.work}: {name}")
    for kind in (norms, training)
    for contest in kind.contests(quick=True)
    if not isinstance(contest, str)
    for name, way in contest.ways.items()
]


@pytest.mark.parametrize(("way", "work"), WAYS)
def test_speed(benchmark, way, work):
    benchmark.group = work
    benchmark(way)
