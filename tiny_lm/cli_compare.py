"""python -m tiny_lm compare: every design of chapter 09, measured; goes on after a stop."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tiny_lm.files import replacing
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

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # a diverged softmax would cost twenty times its time
    try:
        return _run(chosen)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def _run(chosen: argparse.Namespace) -> int:
    from tiny_lm.extras import need
    from tiny_lm.probes import compared, comparing
    from tiny_lm.probes.clock import machine

    plan = comparing.QUICK if chosen.quick else comparing.FULL
    names = comparing.expect_names(chosen.designs or list(comparing.DESIGNS))
    if not chosen.out.resolve().parent.is_dir():
        fail("compare", "a folder that is there", chosen.out.parent)
    stored = _read(chosen.out, plan)
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


def _read(path: Path, plan: Any) -> dict[str, Any]:
    if not path.exists():
        return {"settings": plan.settings, "machine": "", "results": {}}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        known, machine, results = (stored[key] for key in ("settings", "machine", "results"))
        results = plan.results(results)
        machine.encode()  # JSON can hold half a character, which no terminal can show
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        fail("compare", f"results of this command in {path}", "something else")
    if known != plan.settings:
        fail("compare", f"results with these settings in {path}", repr(known), "name another file")
    return {"settings": known, "machine": machine, "results": results}


def _write(path: Path, stored: dict[str, Any]) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
