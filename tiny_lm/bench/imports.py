"""How long `import tiny_lm.model` takes beside the `import torch` that it holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tiny_lm.bench.contest import Contest, Way


def contests(quick: bool = False) -> Iterator[Contest]:
    """Each import in a Python of its own."""
    modules = ("torch", "tiny_lm.model")
    yield Contest(
        "import, in a new Python each time",
        {f"import {module}": importing(module) for module in modules},
        {"import tiny_lm.model": 1.05},
        3 if quick else 30,
    )


def importing(module: str) -> Way:
    """Start Python, import the module, end."""
    return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
