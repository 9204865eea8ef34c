"""A model kept as plain floats beside the file it came from, so that the next load is quick.

Turning 4-bit weights into floats and reading a vocabulary takes seconds each time; a file of floats
is mapped into memory as it is. It belongs to one source, by that file's fingerprint, and carries
the fingerprint of its own weights; whatever does not fit is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from tiny_lm import checkpoint
from tiny_lm.extras import need
from tiny_lm.model import TinyLM
from tiny_lm.tokenizer import Tokenizer

Found = tuple[TinyLM, Tokenizer | None]


def load(path: Path, source: str, make: Callable[[], Found]) -> Found:
    """The model kept at `path` for this source, or the one that `make` gives, kept from now on.

    Where the disk is full or may not be written, it works all the same, slowly each time.
    """
    found = _read(path, source)
    if found is None:
        found = make()
        try:
            notes = {"source": source, "weights": fingerprint(found[0])}
            checkpoint.save(path, *found, notes=notes)
        except OSError:
            pass
    return found


def fingerprint(model: TinyLM) -> str:
    """The SHA-256 of a model's weights, in the order of their names."""
    digest = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy())  # of any dtype
    return digest.hexdigest()


def _read(path: Path, source: str) -> Found | None:
    if not path.is_file():
        return None
    safetensors = need("safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
        if notes.get("source") != source:
            return None
        found = checkpoint.load(path, mapped=True)
    except (OSError, ValueError, safetensors.SafetensorError):
        return None
    return found if fingerprint(found[0]) == notes.get("weights") else None
