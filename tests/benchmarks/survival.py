"""The survival map of chapter 06: order x depth x learning rate, three seeds each.

python tests/benchmarks/survival.py        computes what tiny_lm/data/survival.json does not hold
python tests/benchmarks/survival.py again  computes it all again, about half an hour on one core
"""

from __future__ import annotations

import sys

import torch
from stored import results

from tiny_lm.probes import training


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["again"]:
        training.SURVIVAL_FILE.unlink(missing_ok=True)
    runs = {run.label: run for run in training.survival_runs()}
    results(
        training.SURVIVAL_FILE,
        list(runs),
        lambda label: round(training.result(runs[label]), 4),
        training.SETTINGS,
    )
    print(training.survival_table())


if __name__ == "__main__":
    main()
