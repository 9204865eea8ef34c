"""Say where a checkout of the book is hosted: in pyproject.toml, in badges and in set-up cells.

The address stands in one place, `[project.urls] Repository`; the notebooks repeat it, and only
this module writes it. Without an address nothing points to a place that is not the owner's.
"""

from __future__ import annotations

import re
from pathlib import Path

from tiny_lm.files import replacing
from tiny_lm.notebook_files import Notebook, read, source, write
from tiny_lm.shapes import fail

ROOT = Path(__file__).resolve().parents[1]
COLAB = "https://colab.research.google.com/"
BADGE = re.compile(r"▶ \[Open in Colab\]\(\S*\).*")
SOURCE = re.compile(r'^SOURCE = "[^"]*"', re.M)
BEFORE = "\n[project.optional-dependencies]"  # where it goes in pyproject.toml
URLS = re.compile(r'\n\[project\.urls\]\nRepository = "[^"]*"\n')
ADDRESS = re.compile(r"(?:https|file)://[^\s\"']+")


def host(url: str, root: Path = ROOT, branch: str = "main") -> list[Path]:
    """Write the repository's address into a checkout; "" takes it out. Returns what changed.

    From GitHub, badges open a notebook in Colab directly; from elsewhere they say to upload it.
    Raises ValueError for what is no address, and where there is no checkout.
    """
    url = url.rstrip("/").removesuffix(".git")
    if url and not ADDRESS.fullmatch(url):
        fail("host", "an address such as https://github.com/NAME/BOOK", url)
    pyproject = root / "pyproject.toml"
    notebooks = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    if not pyproject.exists() or not notebooks:
        fail("host", "a checkout of the book", root)
    found = {path: read(path) for path in notebooks}  # all of them, before anything is written
    changed = [pyproject] if _set_project(pyproject, url) else []
    for path, notebook in found.items():
        before = [source(cell) for cell in notebook["cells"][:2]]
        _set_badge(notebook, path.name, url, branch)
        _set_source(notebook, url)
        if before != [source(cell) for cell in notebook["cells"][:2]]:
            write(notebook, path)
            changed.append(path)
    return changed


def _set_project(path: Path, url: str) -> bool:
    before = path.read_text(encoding="utf-8")
    after = URLS.sub("", before)
    if url:
        entry = f'\n[project.urls]\nRepository = "{url}"\n'
        after = after.replace(BEFORE, entry + BEFORE)
    if after != before:
        with replacing(path) as unfinished:
            unfinished.write_text(after, encoding="utf-8")
    return after != before


def _set_badge(notebook: Notebook, name: str, url: str, branch: str) -> None:
    _, is_github, repository = url.partition("https://github.com/")
    line = f"▶ [Open in Colab]({COLAB}) and upload `{name}` there."
    if is_github:
        target = f"{COLAB}github/{repository}/blob/{branch}/notebooks/{name}"
        line = f"▶ [Open in Colab]({target}): `{name}`."
    cell = notebook["cells"][0]
    cell["source"] = BADGE.sub(lambda _: line, source(cell), count=1).splitlines(keepends=True)


def _set_source(notebook: Notebook, url: str) -> None:
    cell = notebook["cells"][1]
    line = f'SOURCE = "git+{url}"' if url else 'SOURCE = ""'
    cell["source"] = SOURCE.sub(lambda _: line, source(cell), count=1).splitlines(keepends=True)
