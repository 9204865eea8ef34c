"""Each chapter as nbconvert exports it: every picture there, and nothing in a reader's way."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest
from conftest import NOTEBOOKS
from nbconvert import HTMLExporter

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
RULES = ["image-alt", "heading-order", "link-name", "list", "listitem", "td-headers-attr"]
RULES += ["th-has-data-cells", "empty-heading", "page-has-heading-one", "document-title"]


def stored(name):
    """The pictures and the sentences that a notebook stores, in order."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                alt = output.metadata["image/png"]["alt"]
                yield "".join(output.data["image/png"]).replace("\n", ""), alt


def exported(name, template="lab"):
    return HTMLExporter(template_name=template).from_filename(str(NOTEBOOKS / name))[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_in_the_exported_page_with_its_sentence(name):
    text, classic = exported(name), exported(name, "classic")
    assert list(stored(name))
    for picture, sentence in stored(name):
        assert picture in text.replace("\n", "")
        assert f'alt="{sentence}"' in html.unescape(classic)
    for page in (text, classic):
        assert "Error displaying widget" not in page
        assert "widget-view+json" not in page, "it would ask for a script from the net"


@pytest.fixture
def open_exported(browser_page, tmp_path):
    def open_exported(name):
        path = tmp_path / "page.html"
        path.write_text(exported(name), encoding="utf-8")
        browser_page.route("http*://**", lambda route: route.abort())  # as on a desert island
        browser_page.goto(path.as_uri(), wait_until="load")
        return browser_page

    return open_exported


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_in_the_exported_page(open_exported, name):
    page = open_exported(name)
    page.add_script_tag(content=files("axe_playwright_python").joinpath("axe.min.js").read_text())
    only = json.dumps({"runOnly": {"type": "rule", "values": RULES}})
    found = page.evaluate(f"() => axe.run(document, {only})")
    assert [(each["id"], [n["html"] for n in each["nodes"]]) for each in found["violations"]] == []
    assert {each["id"] for each in found["passes"]} >= {"image-alt", "heading-order", "link-name"}
    shown = page.locator("img").evaluate_all("all => all.filter(e => e.naturalWidth > 0).length")
    assert shown == len(list(stored(name)))


def test_axe_has_teeth(browser_page):
    page = browser_page
    page.set_content("<h1>a</h1><h3>b</h3><img src=x><a href=y></a><ul><p>c</p></ul>")
    page.add_script_tag(content=files("axe_playwright_python").joinpath("axe.min.js").read_text())
    only = json.dumps({"runOnly": {"type": "rule", "values": RULES}})
    found = page.evaluate(f"() => axe.run(document, {only})")
    names = {each["id"] for each in found["violations"]}
    assert names >= {"image-alt", "heading-order", "link-name", "list"}


def test_a_pdf_can_be_printed(open_exported, tmp_path):
    """What nbconvert's webpdf does: the exported page, printed by Chromium."""
    name = NAMES[2]
    page = open_exported(name)
    pdf = page.pdf(path=tmp_path / "page.pdf", print_background=True)
    assert pdf.startswith(b"%PDF")
    images = pdf.count(b"/Subtype /Image") + pdf.count(b"/Subtype/Image")
    assert images >= len(list(stored(name)))
    assert Path(tmp_path / "page.pdf").stat().st_size > 50_000
