"""Times side by side: everything in turns, so that all share the same disturbances."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from tiny_lm.bench.contest import processor


def in_turns(
    jobs: Sequence[Callable[[], object]], rounds: int, finish: Callable[[], None] = lambda: None
) -> list[list[float]]:
    """Seconds of each call: a list a job, a number a round. A first round is not counted.

    `finish` waits for what a call has only begun: torch.cuda.synchronize on a GPU.
    """
    found: list[list[float]] = [[] for _ in jobs]
    for turn in range(rounds + 1):
        for job, times in zip(jobs, found, strict=True):
            finish()
            began = time.perf_counter()
            job()
            finish()
            if turn:
                times.append(time.perf_counter() - began)
    return found


def ratio(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """Lower quartile, median and upper quartile of time / base, round by round."""
    ratios = sorted(a / b for a, b in zip(times, base, strict=True))
    quarter = len(ratios) // 4
    return [ratios[quarter], median(ratios), ratios[-1 - quarter]]


def machine(device: str = "cpu") -> str:
    """What the times were taken on: processor, threads and torch's version."""
    if device != "cpu":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}"
