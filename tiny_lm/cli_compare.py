"""python -m tiny_lm compare: every design of chapter 09, measured; goes on after a stop."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tiny_lm.shapes import fail


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    out = Path("designs.json")
    verb.add_argument(
        "out", type=Path, nargs="?", default=out, help="the results (default: %(default)s)"
    )
    verb.add_argument(
        "--designs", nargs="+", metavar="NAME", help="such as: pre post dyt (default: all)"
    )
    verb.add_argument("--quick", action="store_true", help="small and short, to see how it works")
    verb.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Measure what the file lacks, keep each result at once, and print the table."""
    import torch

    from tiny_lm.extras import need
    from tiny_lm.probes import compared, comparing
    from tiny_lm.probes.clock import machine

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # a diverged softmax would cost twenty times its time
    plan = comparing.QUICK if chosen.quick else comparing.FULL
    names = comparing.expect_names(chosen.designs or list(comparing.DESIGNS))
    stored = _read(chosen.out, plan.settings)
    with need("tqdm").tqdm(unit="run", desc=chosen.out.name) as bar:
        while jobs := plan.jobs(names, stored["results"]):
            bar.total = bar.n + len(jobs)
            bar.set_postfix_str(jobs[0], refresh=True)
            stored["results"][jobs[0]] = plan.measure(jobs[0], names)
            if jobs[0].startswith("times"):
                stored["machine"] = machine()
            _write(chosen.out, stored)
            bar.update()
    found = compared.Comparison.of(stored, names)
    print(compared.table(found))
    if stored["settings"] == comparing.FULL.settings:
        agrees = compared.agreement(found, compared.stored())
        print(f"loss as in the book, within the intervals: {sum(agrees.values())} of {len(agrees)}")
    return 0


def _read(path: Path, settings: str) -> dict[str, Any]:
    if not path.exists():
        return {"settings": settings, "machine": "", "results": {}}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        known = stored["settings"]
    except (ValueError, KeyError, TypeError):
        fail("compare", f"results of this command in {path}", "something else")
    if known != settings:
        fail("compare", f"results with these settings in {path}", known, "name another file")
    return stored


def _write(path: Path, stored: dict[str, Any]) -> None:
    """Replace the file in one step."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
