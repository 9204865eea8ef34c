"""Time of RMSNorm / time of LayerNorm, for chapter 09; a few minutes on one core.

python tests/benchmarks/norm_speed.py                    this processor, one thread
python tests/benchmarks/norm_speed.py --compile          torch.compile's kernels, and no steps
python tests/benchmarks/norm_speed.py --device cuda      a GPU, in rows of its own

Results stand under the name of the machine in tiny_lm/data/norm_speed.json; all others stay.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from stored import write

from tiny_lm.probes import clock, norm_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, …")
    parser.add_argument("--compile", action="store_true", help="compiled norms instead")
    parser.add_argument("--rows", type=int, help="rows a norm is given (256; 16384 on a GPU)")
    parser.add_argument("--out", type=Path, default=norm_speed.FILE)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = chosen.rows or (256 if chosen.device == "cpu" else 16384)
    ways = norm_speed.COMPILED if chosen.compile else norm_speed.WAYS
    found: dict[str, list[float]] = {}
    for name, ratio in norm_speed.measure(chosen.device, rows, ways, steps=not chosen.compile):
        found.setdefault(name, []).append(float(f"{ratio:.4g}"))
        print(f"{name:52} {ratio:.3f}", flush=True)
    kept = json.loads(chosen.out.read_text("utf-8")) if chosen.out.exists() else {}
    kept.setdefault(clock.machine(chosen.device), {}).update(found)
    write(chosen.out, kept)


if __name__ == "__main__":
    main()
