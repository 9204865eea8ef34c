"""What orders, initialisations and warm-up do to training: the table of chapter 06.

python tests/benchmarks/training_table.py        computes what tiny_lm/data/training.json lacks
python tests/benchmarks/training_table.py again  computes it all again, about half an hour, one core
"""

from __future__ import annotations

import sys

import torch
from stored import results

from tiny_lm.probes import training


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["again"]:
        training.TABLE_FILE.unlink(missing_ok=True)
    runs = {run.label: run for row in training.TABLE for run in training.with_seeds(row)}
    results(
        training.TABLE_FILE,
        list(runs),
        lambda label: round(training.result(runs[label]), 4),
        training.SETTINGS,
    )
    print(training.table())


if __name__ == "__main__":
    main()
