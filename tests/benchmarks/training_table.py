"""What orders, initialisations and warm-up do to training: the table of chapter 06.

python tests/benchmarks/training_table.py        computes what tiny_lm/data/training.json lacks
python tests/benchmarks/training_table.py again  computes it all again, about half an hour, one core
"""

from __future__ import annotations

from stored import command

from tiny_lm.probes import training


def main() -> None:
    runs = {run.label: run for row in training.TABLE for run in training.with_seeds(row)}

    def compute(run: training.Run) -> float:
        return round(training.result(run), 4)

    command(training.TABLE_FILE, runs, compute, training.SETTINGS, training.table)


if __name__ == "__main__":
    main()
