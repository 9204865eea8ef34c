"""Would our tests notice a fault? Plant one at a time in a copy of the package, and look.

    python tests/mutants.py                  every fault of mutants.txt; survivors are listed
    python tests/mutants.py layers "C08 "    those whose file or description holds a word
    python tests/mutants.py --every rope.py  all operators, numbers, casts, conditions of a file

A fault is killed when a test turns red, or when the tests take much longer than without it. One
that survives without a reason in mutants.txt needs a better test: then the exit status is 1. The
working tree is never changed. Needs os.fork: not for Windows.

Tried first: mutmut 3.8 runs here (process_isolation = "forkserver"), but leaves out tables such as
autograd's and decorated functions; cosmic-ray 8.7 starts torch anew for each mutant, in the working
tree. Neither takes a fault that somebody wrote down, nor the reason why one cannot be noticed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mutants_list import PACKAGE, Mutant, every, listed
from tqdm import tqdm

RECORDS = Path(__file__).with_name("mutants.txt")
# What all tests import, and nothing of tiny_lm. It is imported once; then a fork of this process
# runs the tests of a fault, and a fault costs no more than its tests.
SHARED = ("torch", "torch._dynamo", "torch.distributed", "safetensors.torch", "hypothesis")
FORK = multiprocessing.get_context("fork")


class Found(NamedTuple):
    """What became of a fault: killed, timeout, survived or explained; and by which test."""

    mutant: Mutant
    verdict: str
    by: str
    seconds: float


def judge(base: Path, mutant: Mutant, limit: float) -> Found:
    """Plant a fault in this process's own copy, run its tests, and take it out again."""
    folder = base / str(os.getpid())
    if not folder.exists():
        copy_package(folder)
    place = folder / "tiny_lm" / mutant.file
    place.write_text(mutant.text, encoding="utf-8")
    started = time.perf_counter()
    child = FORK.Process(target=run_tests, args=(folder, mutant.tests), daemon=True)
    child.start()
    try:
        child.join(limit)
    finally:
        late = child.is_alive()
        with suppress(ProcessLookupError):  # usually nothing is left of its group
            os.killpg(child.pid, signal.SIGKILL)
        child.join()
        shutil.copy(PACKAGE / mutant.file, place)
    verdict, by = _verdict(child.exitcode, folder / "log")
    if late:
        verdict = "timeout"
    elif verdict == "survived" and mutant.reason:
        verdict = "explained"
    return Found(mutant, verdict, by, time.perf_counter() - started)


def copy_package(folder: Path) -> None:
    """All that the tests of a fault need, and nothing compiled: that could be out of date."""
    without = shutil.ignore_patterns("__pycache__")
    for part in (PACKAGE, RECORDS.parent):
        shutil.copytree(part, folder / part.name, ignore=without)
    shutil.copy(PACKAGE.parent / "pyproject.toml", folder)


def run_tests(folder: Path, tests: Iterable[str]) -> None:
    """In a process of its own: the tests of a copy, file by file, until one is red."""
    os.setpgrp()  # so that it can be ended with all that it started
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    import pytest

    import tiny_lm

    if Path(tiny_lm.__file__).parents[1] != folder:
        sys.exit(f"{tiny_lm.__file__} is not the copy with the fault")
    options = f"-x -q -p no:cacheprovider -o addopts= --tb=no -rfE --basetemp={folder}/tmp".split()
    for test in tests:
        status = pytest.main([*options, f"tests/{test}.py"])
        if status != 0:
            sys.exit(int(status))


def _verdict(status: int, log: Path) -> tuple[str, str]:
    """Killed or survived, and the test that turned red, by pytest's exit status and summary."""
    lines = log.read_text(errors="replace").splitlines()
    if status == 0:
        return "survived", ""
    if status < 0:
        return "killed", f"signal {-status}"
    red = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if not red:
        raise RuntimeError("\n".join(lines))
    return "killed", red[0].removeprefix("tests/")


def seconds_without_a_fault(look: partial, tests: set[str], pool: ProcessPoolExecutor) -> dict:
    """How long each file of tests takes; ends the program if one is red."""
    text = (PACKAGE / "plain.py").read_text(encoding="utf-8")
    nothing = [Mutant("plain.py", "no fault", text, (test,), "") for test in sorted(tests)]
    looks = pool.map(look, nothing, repeat(600.0))
    found = list(tqdm(looks, "without a fault", len(nothing), unit="file"))
    for one in found:
        if one.verdict != "survived":
            sys.exit(f"without any fault: {one.verdict} {one.by}")
    return {one.mutant.tests[0]: one.seconds for one in found}


def report(found: list[Found]) -> int:
    """Print what needs a better test, or a better reason, then the figures; returns how many do."""
    open_ = [one for one in found if one.verdict == "survived"]
    wrong = [one for one in found if one.mutant.reason and one.verdict != "explained"]
    for mutant, *_ in open_:
        print(f"\nSURVIVED {mutant.name}\n{mutant.difference}")
    for mutant, verdict, by, _ in wrong:
        print(f"\nNOTICED {mutant.name}: {verdict} {by}, though it was said: {mutant.reason}")
    counts = Counter(one.verdict for one in found)
    print(f"\n{len(found)} mutants: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return len(open_) + len(wrong)


def chosen_mutants(chosen: argparse.Namespace) -> list[Mutant]:
    known = listed(chosen.records)
    if chosen.every:
        mutants = [mutant for file in chosen.every for mutant in every(file, known)]
    else:
        mutants = known
    return [m for m in mutants if not chosen.words or any(word in m.name for word in chosen.words)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only mutants whose name holds one of these")
    parser.add_argument("--every", metavar="FILE", action="append", help="such as rope.py")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--verbose", action="store_true", help="also name the test that kills")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds more than usual")
    parser.add_argument("--records", type=Path, default=RECORDS, help=argparse.SUPPRESS)
    parser.add_argument("--shared", nargs="*", default=SHARED, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    mutants = chosen_mutants(chosen)
    if not mutants:
        parser.error("no mutant has such a name")

    import hypothesis

    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the tests of a fault need none of them
    sys.dont_write_bytecode = True
    for name in chosen.shared:
        __import__(name)
    # What it finds need not be made smaller, nor kept.
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutants", database=None, phases=phases)
    hypothesis.settings.load_profile("mutants")
    tqdm.monitor_interval = 0  # no thread beside the one that forks

    with TemporaryDirectory() as base, ProcessPoolExecutor(chosen.jobs, FORK) as pool:
        look = partial(judge, Path(base).resolve())
        usual = seconds_without_a_fault(look, {test for m in mutants for test in m.tests}, pool)
        quickest_first = [m._replace(tests=sorted(m.tests, key=usual.get)) for m in mutants]
        limits = [chosen.grace + 3 * sum(map(usual.get, m.tests)) for m in mutants]
        found = []
        with tqdm(total=len(mutants), unit="mutant") as bar:
            for one in pool.map(look, quickest_first, limits):
                found.append(one)
                bar.update()
                if chosen.verbose or one.verdict == "survived":
                    bar.write(f"{one.verdict} {one.mutant.name} | {one.by} {one.seconds:.1f} s")
    return 1 if report(found) else 0


if __name__ == "__main__":
    sys.exit(main())
