"""host URL: one address, written everywhere it is repeated, and taken out without a trace."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from tiny_lm import cli
from tiny_lm.host import host
from tiny_lm.notebook_files import read, source, write

ROOT = Path(__file__).parents[1]
URL = "https://github.com/ada/book"


@pytest.fixture
def checkout(tmp_path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    host("", tmp_path)
    return tmp_path


def address(checkout):
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    found = re.findall(r'^\[project\.urls\]\nRepository = "(.*)"$', text, re.M)
    return found[0] if found else ""


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cells(checkout, number=1):
    for path in sorted((checkout / "notebooks").glob("*.ipynb")):
        yield path.name, source(read(path)["cells"][number])


@pytest.mark.parametrize("url", [URL, URL + "/", URL + ".git"])
def test_github(checkout, url):
    assert len(host(url, checkout)) == 1 + len(list((checkout / "notebooks").glob("*.ipynb")))
    assert address(checkout) == URL
    for name, text in cells(checkout, 0):
        (badge,) = re.findall(r"\[Open in Colab\]\((.*?)\)", text)
        path = f"github/ada/book/blob/main/notebooks/{name}"
        assert badge == f"https://colab.research.google.com/{path}"
        assert "upload" not in text and f"`{name}`" in text
    for _, text in cells(checkout):
        (line,) = re.findall(r"^SOURCE = .*", text, re.M)
        assert ast.literal_eval(line.partition("= ")[2]) == f"git+{URL}"


def test_twice_changes_nothing_and_empty_takes_it_out_again(checkout):
    before = contents(checkout)
    host(URL, checkout)
    assert host(URL, checkout) == []
    host("https://github.com/ada/other", checkout)
    host("", checkout)
    assert contents(checkout) == before


def test_elsewhere_the_badge_still_says_what_to_upload(checkout):
    host("file:///tmp/book", checkout)
    for name, text in cells(checkout, 0):
        assert f"[Open in Colab](https://colab.research.google.com/) and upload `{name}`" in text
    assert all('SOURCE = "git+file:///tmp/book"' in text for _, text in cells(checkout))


def test_another_branch(checkout):
    host(URL, checkout, branch="teach")
    assert all("/blob/teach/notebooks/" in text for _, text in cells(checkout, 0))


@pytest.mark.parametrize("url", ["ada/book", "http://github.com/ada/book", 'https://x"; import y'])
def test_what_is_no_address_is_refused_and_nothing_is_written(checkout, url):
    before = contents(checkout)
    with pytest.raises(
        ValueError, match=r"host: expected an address such as https://github.com/NAME/BOOK, got "
    ):
        host(url, checkout)
    assert contents(checkout) == before


def test_only_in_a_checkout(tmp_path):
    with pytest.raises(ValueError, match=r"host: expected a checkout of the book"):
        host(URL, tmp_path)


def test_this_checkout_says_the_same_everywhere():
    """Either no address, or pyproject's in every notebook."""
    url = address(ROOT)
    for _, text in cells(ROOT):
        assert f'SOURCE = "{"git+" + url if url else ""}"' in text


def test_files_are_written_as_nbformat_writes_them(tmp_path):
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        write(read(path), tmp_path / path.name)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_in_the_terminal(checkout, monkeypatch, capsys):
    monkeypatch.setattr("tiny_lm.host.ROOT", checkout)
    monkeypatch.setattr(host, "__defaults__", (checkout, "main"))
    assert cli.main(["host", URL]) == 0
    assert "pyproject.toml" in capsys.readouterr().out
    assert cli.main(["host", "nowhere"]) == 2
