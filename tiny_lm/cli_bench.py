"""python -m tiny_lm bench: the table of speed, and the picture of growth."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

KINDS = ("norms", "training", "decoding", "imports", "growth")
MOST_THREADS = 1024
PACKAGES = ("torch", "numpy", "transformers", "litgpt", "x-transformers", "safetensors")


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    verb.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; default: all")
    verb.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 2")
    verb.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    verb.add_argument("--quick", action="store_true", help="fewer repetitions")
    verb.add_argument("--compile", action="store_true", help="a compiled model takes part")
    verb.add_argument("--out", type=Path, metavar="PNG", help="where the picture of growth goes")
    verb.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Print the machine, then every contest as it is decided."""
    from tiny_lm.shapes import fail

    unknown = [kind for kind in chosen.kinds if kind not in KINDS]
    if unknown:
        fail("bench", f"kinds {', '.join(KINDS)}", unknown[0])
    if min(chosen.threads) < 1:
        fail("bench", "threads >= 1", min(chosen.threads))
    if max(chosen.threads) > MOST_THREADS:
        fail("bench", f"at most {MOST_THREADS} threads", max(chosen.threads))
    import torch

    if chosen.device not in ("cpu", "cuda") or (
        chosen.device == "cuda" and not torch.cuda.is_available()
    ):
        fail("bench", "a device that is here, cpu or cuda", chosen.device)
    print(machine(chosen.device))
    before = torch.get_num_threads()
    try:
        for threads in chosen.threads if chosen.device == "cpu" else [1]:
            torch.set_num_threads(threads)
            for text in tables(chosen, threads):
                print("\n" + text, flush=True)
        if "growth" in (chosen.kinds or KINDS):
            torch.set_num_threads(1)
            print("\n" + _growth(chosen), flush=True)
    finally:
        torch.set_num_threads(before)
    return 0


def tables(chosen: argparse.Namespace, threads: int) -> Iterator[str]:
    """Run the contests one after the other: their tables, as text."""
    from tiny_lm.bench.contest import run as decide
    from tiny_lm.bench.contest import table

    for contest in contests(chosen):
        if isinstance(contest, str):
            yield contest
            continue
        with _bar(contest.repetitions, contest.work) as bar:
            result = decide(contest, device=chosen.device, progress=bar.update)
        yield table(result, threads)


def contests(chosen: argparse.Namespace) -> Iterator:
    """The contests of the chosen kinds, each made when it is its turn; or why there is none."""
    from tiny_lm.bench import decoding, imports, norms, training

    kinds = chosen.kinds or KINDS
    if "norms" in kinds:
        yield from norms.contests(chosen.device, chosen.quick)
    if "training" in kinds:
        yield from training.contests(chosen.device, chosen.quick, chosen.compile)
    if "decoding" in kinds:
        yield from decoding.contests(chosen.device, chosen.quick)
    if "imports" in kinds:
        yield from imports.contests(chosen.quick)


def _growth(chosen: argparse.Namespace) -> str:
    from tiny_lm.bench import growth

    repetitions = 2 if chosen.quick else 9
    grown = []
    for name in growth.SIZES:
        with _bar(repetitions, f"growth with {name}") as bar:
            grown.append(growth.measure(name, repetitions, bar.update))
    if chosen.out:
        from tiny_lm.files import replacing
        from tiny_lm.plots.growth import GrowthPicture
        from tiny_lm.plots.picture import png_bytes

        with replacing(chosen.out) as unfinished:
            unfinished.write_bytes(png_bytes(GrowthPicture(grown).pixels()))
    work = "forward and backward, 1 thread"
    return f"growth, {work}, fastest of {repetitions}\n{growth.table(grown)}"


def machine(device: str) -> str:
    """Where the numbers come from: processor, cores, system and versions."""
    import torch

    from tiny_lm.bench.contest import processor

    name = processor()
    if device == "cuda":
        name = f"{torch.cuda.get_device_name()} beside {name}"
    where = f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"
    return f"{where}, {platform.system()}, Python {platform.python_version()}\n{_versions()}"


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def _bar(total: int, work: str):
    from contextlib import nullcontext
    from importlib.util import find_spec
    from types import SimpleNamespace

    if find_spec("tqdm") is None:
        return nullcontext(SimpleNamespace(update=lambda: None))
    from tqdm import tqdm

    return tqdm(total=total, desc=work, unit="round", leave=False)
