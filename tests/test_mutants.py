"""The list of mutants stays true, and the script that runs them tells a noticed fault from another.

All of them are run by `python tests/mutants.py`; here each only has to apply and to compile.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mutants_list import PACKAGE, every, listed

TESTS = Path(__file__).parent
MUTANTS = listed(TESTS / "mutants.txt")
FILES = sorted({mutant.file for mutant in MUTANTS})


@pytest.mark.parametrize("file", FILES)
def test_every_mutant_compiles_and_changes_the_file(file):
    source = (PACKAGE / file).read_text(encoding="utf-8")
    for mutant in MUTANTS:
        if mutant.file == file:
            compile(mutant.text, mutant.name, "exec")
            assert mutant.text != source, mutant.name


def test_there_are_enough_of_them_and_no_two_are_the_same():
    assert len(MUTANTS) >= 100
    assert len({(mutant.file, mutant.text) for mutant in MUTANTS}) == len(MUTANTS)
    assert {file.split("/")[0].removesuffix(".py") for file in FILES} >= {
        "attention", "autograd", "checkpoint", "config", "fast", "generate", "initial", "layers",
        "model", "plain", "rope", "taps", "train", "variants",
    }  # fmt: skip
    for mutant in MUTANTS:
        assert mutant.tests and all((TESTS / f"{test}.py").exists() for test in mutant.tests)


def test_few_are_said_to_be_invisible():
    assert sum(bool(mutant.reason) for mutant in MUTANTS) <= len(MUTANTS) // 10


def records(path, *lines):
    path.write_text("How to read this.\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("before", "found"), [("return g * h", "0 times"), ("raise ValueError(", "4 times")]
)
def test_a_text_that_is_gone_or_in_two_places_is_an_error(tmp_path, before, found):
    path = records(tmp_path / "m.txt", "@ plain.py: test_plain", "# what", f"-{before}", "+pass")
    with pytest.raises(ValueError) as caught:
        listed(path)
    assert str(caught.value) == f"plain.py: what: expected once, found {found}: {before}"


def test_a_line_of_no_known_kind_is_an_error(tmp_path):
    path = records(tmp_path / "m.txt", "@ plain.py: test_plain", "# what", "* x")
    with pytest.raises(ValueError, match=r"expected a line that begins with one of @#-\+=: \* x"):
        listed(path)


def test_several_lines_are_replaced_by_several(tmp_path):
    path = records(
        tmp_path / "m.txt", "@ plain.py: test_plain test_shapes", "# in two lines",
        '-        raise ValueError(f"rms_norm: expected eps >= 0, got {eps}")', "-    gamma",
        "+        pass", "+    eps = gamma", "= why",
    )  # fmt: skip
    (mutant,) = listed(path)
    assert mutant.difference == (
        '@@ -33,2 +33,2 @@\n-        raise ValueError(f"rms_norm: expected eps >= 0, got {eps}")\n'
        "-    gamma = [1.0] * len(x) if gamma is None else gamma\n+        pass\n"
        "+    eps = gamma = [1.0] * len(x) if gamma is None else gamma"
    )
    assert (mutant.name, mutant.tests, mutant.reason) == (
        "plain.py: in two lines", ("test_plain", "test_shapes"), "why",
    )  # fmt: skip


def test_every_fault_of_a_kind_is_found():
    """Among others these, of a condition, an operator, a number, a flag and a cast."""
    mutants = every("layers.py", MUTANTS)
    faults = {mutant.what.split(", ", 1)[1] for mutant in mutants}
    assert {
        "width < 1 becomes False",
        "width < 1 becomes width <= 1",
        "wide - wide.mean(dim=-1, keepdim=True) becomes wide + wide.mean(dim=-1, keepdim=True)",
        "-1 becomes 1",
        "1 becomes 2",
        "True becomes False",
        "y.to(x.dtype) becomes y",
    } <= faults
    for mutant in mutants:
        compile(mutant.text, mutant.name, "exec")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_the_script_tells_what_is_noticed_from_what_is_not(tmp_path):
    from mutants import SHARED  # which can't be imported where there is no fork

    path = records(
        tmp_path / "m.txt", "@ taps.py: test_taps",
        "# noticed", '-tap(f"{prefix}.{name}", value)', "+tap(name, value)",
        "# not noticed", "-Keeps every value", "+Keeps each value",
        "# explained", "-The tap of a pass", "+A tap of a pass", "= only words",
        "# wrongly explained", "-dict(edit or {})", "+{}", "= no reason",
        "# endless", "-return len(self._values)", "+while True: len(self._values)",
    )  # fmt: skip
    command = [sys.executable, TESTS / "mutants.py", "--records", path, "--grace", "0"]
    command += ["--shared", "torch"]  # the others take a second, and test_taps needs none of them
    assert all(map(find_spec, SHARED))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("SURVIVED") == 1 and "SURVIVED taps.py: not noticed" in done.stdout
    assert '\n-    """Keeps every value of a' in done.stdout
    assert "NOTICED taps.py: wrongly explained: killed test_taps.py::test_an_edit" in done.stdout
    counts = set(done.stdout.splitlines()[-1].removeprefix("5 mutants: ").split(", "))
    assert counts == {"2 killed", "1 survived", "1 explained", "1 timeout"}
