"""Optional packages, imported when they are first used and named when they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def need(module: str, extra: str = "models") -> ModuleType:
    """Import a package that only some parts of the book need: `name -> module`.

    Raises ImportError, in the package's one form of message, that says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"tiny_lm: expected the package {package}, got none "
            f'(pip install "tiny-lm[{extra}]" installs it)'
        ) from error
