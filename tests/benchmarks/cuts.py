"""SmolLM2-135M with its direct path cut, or a block skipped, at each block in turn, for chapter 08.

python tests/benchmarks/cuts.py        computes what tiny_lm/data/cuts.json does not hold
python tests/benchmarks/cuts.py again  computes it all again, a few minutes on one core
"""

from __future__ import annotations

from stored import command

from tiny_lm import pretrained
from tiny_lm.probes import real


def main() -> None:
    model, tokenizer = pretrained.load("smollm2-135m")
    texts = real.tokens(tokenizer)
    jobs = {real.cuts_key(kind, name): (kind, name) for kind in real.PARTS for name in texts}

    def compute(job: tuple[str, str]) -> list[float]:
        kind, name = job
        found = real.compute_cuts(model, texts[name], kind, model.config.n_layers)
        return [float(f"{value:.6g}") for value in found]

    command(real.CUTS_FILE, jobs, compute, real.CUTS_SETTINGS, real.cuts_table)


if __name__ == "__main__":
    main()
