"""The survival map of chapter 06: order x depth x learning rate, three seeds each.

python tests/benchmarks/survival.py        computes what tiny_lm/data/survival.json does not hold
python tests/benchmarks/survival.py again  computes it all again, about half an hour on one core
"""

from __future__ import annotations

from stored import command

from tiny_lm.probes import training


def main() -> None:
    runs = {run.label: run for run in training.survival_runs()}

    def compute(run: training.Run) -> float:
        return round(training.result(run), 4)

    command(training.SURVIVAL_FILE, runs, compute, training.SETTINGS, training.survival_table)


if __name__ == "__main__":
    main()
