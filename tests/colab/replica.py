"""The nearest thing to Colab on this machine: its package versions, and every way into the book.

python tests/colab/replica.py            makes the environment, checks, removes it
python tests/colab/replica.py FOLDER     keeps it in FOLDER, or uses the one that is there

In that environment tiny_lm is not installed at first. A notebook comes in by its set-up cell from
a git repository, by an uploaded wheel, and with the package inside it; each time torch, NumPy and
ipywidgets must stay what they were. The last way runs the whole book. Then the tests of the labs
run on ipywidgets 7. What this cannot show is Colab's own page.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = ["torch>=2.4,<2.14", "numpy", "matplotlib", "ipywidgets", "ipython", "ipykernel"]
PACKAGES += ["nbclient", "nbformat", "pytest", "hypothesis", "platformdirs", "filelock", "pip"]
PACKAGES += ["safetensors"]  # which Colab has for transformers
SEEN = """
import torch, numpy, ipywidgets
print(torch.__version__, numpy.__version__, ipywidgets.__version__)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        python = environment(Path(sys.argv[1]) if len(sys.argv) > 1 else work / "colab")
        before = run(python, "-c", SEEN)
        print("replica:", before)
        for way in (by_address, by_wheel, by_itself):
            folder = work / way.__name__
            folder.mkdir()
            way(python, folder, work)
            assert run(python, "-c", SEEN) == before, f"{way.__name__} changed what was there"
            print(f"{way.__name__}: ok")
            if way is by_wheel:
                test_labs(python)
            run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "tiny-lm")


def environment(folder: Path) -> Path:
    """A virtual environment with Colab's versions; returns its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
        constraints = HERE / "constraints.txt"
        run(python, "-m", "pip", "install", "--quiet", "-c", constraints, *PACKAGES)
    return python


def by_address(python: Path, folder: Path, work: Path) -> None:
    """The set-up cell installs from the address that `host` has written: here a git repository."""
    copy = work / "repository"
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    run("git", "init", "--quiet", cwd=copy)
    run("git", "add", "--all", cwd=copy)
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    run("git", *who, "commit", "--quiet", "-m", "all of it", cwd=copy)
    run(sys.executable, "-m", "tiny_lm", "host", copy.as_uri(), cwd=copy)
    shutil.copy(copy / "notebooks/00_start_here.ipynb", folder)
    execute(python, folder)


def by_wheel(python: Path, folder: Path, work: Path) -> None:
    """The set-up cell installs a wheel that was uploaded beside the notebook."""
    shutil.copy(ROOT / "notebooks/00_start_here.ipynb", folder)
    source = work / "repository"  # not ROOT: a build would leave files there
    run("git", "checkout", "--quiet", ".", cwd=source)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source)
    execute(python, folder)


def by_itself(python: Path, folder: Path, work: Path) -> None:
    """Self-contained notebooks, all of them."""
    run(sys.executable, "-m", "tiny_lm", "release", folder / "out", "--colab", cwd=ROOT)
    execute(python, folder / "out")


def test_labs(python: Path) -> None:
    """Every lab's reaction to every control, on ipywidgets 7, with the installed package."""
    names = ["test_widgets.py", "test_lab.py", "test_ledger.py", "test_plots.py"]
    tests = [ROOT / "tests" / name for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib"]
    options += ["--disable-warnings"]
    helpers = {"PYTHONPATH": str(ROOT / "tests")}
    print(run(python, "-m", "pytest", *options, *tests, env=helpers).splitlines()[-1])


def execute(python: Path, folder: Path) -> None:
    """Run the notebooks in a folder where Colab's module can be imported."""
    run(python, HERE / "execute.py", folder, cwd=folder, env={"PYTHONPATH": str(HERE)})


def run(*command: object, cwd: Path | None = None, env: dict | None = None) -> str:
    """What a command prints; an error with all of it if it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if str(command[0]) == sys.executable:
        environment["PYTHONPATH"] = str(cwd or ROOT)  # the book's own commands
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | (env or {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
