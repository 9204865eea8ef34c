"""Chapter 05's whole table: `python tests/benchmarks/depth_table.py` (about a minute).

Every wiring, both kinds of branch, every initialisation, at 4, 16, 64 and 128 layers: medians over
five seeds, the range of the number that is fitted to the stream, and the laws. Nothing is trained,
no clock is read: the numbers do not depend on the machine.
"""

from __future__ import annotations

from math import isnan

import torch
from tqdm import tqdm

from tiny_lm.plots.depth import short
from tiny_lm.probes import depth
from tiny_lm.probes.depth_laws import GAINS, LAWS, SEEDS, measure, row

DEPTHS = (4, 16, 64, 128)


def line(wiring: str, branch: str, init: str) -> str:
    """One row of the table, in Markdown."""
    found = row(wiring, DEPTHS, branch, init)
    cells = [", ".join(map(short, values)) for values in (found.stream, found.gradient)]
    cells.append(", ".join("–" if isnan(value) else f"{value:.2f}" for value in found.cosine))
    fits = [measure(wiring, branch, init, DEPTHS[-1], seed) for seed in SEEDS]
    numbers = sorted(fit.fitted for fit in fits)
    span = f"{short(numbers[0])} to {short(numbers[-1])}"
    cells.append(LAWS[wiring].number.format(span))
    if branch == "ReLU":
        gradient = short(LAWS[wiring].gradient(0, DEPTHS[-1], GAINS[init]))
        cells.append(f"{short(fits[0].expected)}; gradient {gradient}")
    else:
        cells.append("–")
    return f"| {wiring} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print a table for each kind of branch and initialisation."""
    torch.set_num_threads(1)  # small matrices: more threads would only wait for each other
    kinds = [(branch, init) for branch in depth.BRANCHES for init in depth.INITS]
    with tqdm(total=len(kinds) * len(LAWS), unit="row") as progress:
        for branch, init in kinds:
            lines = []
            for wiring in LAWS:
                lines.append(line(wiring, branch, init))
                progress.update()
            tqdm.write(f"\n## {branch}, {init}, L = {', '.join(map(str, DEPTHS))}\n")
            tqdm.write(
                "| wiring | stream RMS | gradient, input / output | cosine of inputs ", end=""
            )
            tqdm.write("| the stream, over seeds | law |\n|---|---|---|---|---|---|")
            tqdm.write("\n".join(lines))


if __name__ == "__main__":
    main()
