"""report.py: every number in the report is one that can be computed another way; the page."""

import base64
import io
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
from llama_writers import small_model
from PIL import Image

from tiny_lm import checkpoint, report
from tiny_lm.report import PAGE, examine, parameters_by_kind, text, write_page
from tiny_lm.taps import Recorder
from tiny_lm.tokenizer import CharTokenizer

IDS = [3, 1, 4, 1, 5]


def described(model, ids=IDS, tokenizer=None):
    return text(examine(model, ids, tokenizer), tokenizer)


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_once_and_by_kind(tied):
    model = small_model(tied=tied)
    counts = {"embedding": 50 * 64, "attention": 2 * (2 * 64 * 64 + 2 * 32 * 64)}
    counts |= {"ffn": 2 * 3 * 64 * 96, "norm": 5 * 64}
    counts |= {} if tied else {"output": 50 * 64}
    assert list(parameters_by_kind(model).items()) == list(counts.items())
    assert sum(counts.values()) == sum(parameter.numel() for parameter in model.parameters())


def test_the_report_says_what_happened():
    model, recorder = small_model(), Recorder()
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), tap=recorder)[0, -1]
    found = described(model)
    assert re.search(r"^  d_model +64$", found, re.M)
    for name in ("embed", "blocks.0.resid.ffn", "blocks.1.resid.ffn"):
        rms = recorder[name][0].square().mean(-1).sqrt()
        row = re.search(rf"^  {name} +(\S+) +(\S+) … (\S+)$", found, re.M).groups()
        assert row == tuple(f"{x:.2f}" for x in (rms[0], rms[1:].min(), rms[1:].max()))
    rows = re.findall(r"^  (embed|blocks\S+) +(\S+) +(\d+) +(\d+) +(\S+)$", found, re.M)
    taps = [name for name in recorder if name == "embed" or "resid" in name]
    most = 0.0
    for tap in taps:  # the running maximum, each time it rises
        sizes = recorder[tap][0].abs()
        if sizes.max() > most:
            most, row = sizes.max().item(), rows.pop(0)
            entry = recorder[tap][0, int(row[2]), int(row[3])].item()
            assert row[0] == tap and abs(entry) == most and row[1] == f"{entry:,.1f}"
    assert rows == []
    p = logits.softmax(-1)
    for i in logits.topk(5).indices.tolist():
        assert re.search(rf"^  {i} +{logits[i]:.2f} +{p[i]:.1%}$".replace(".", r"\."), found, re.M)


def test_tokens_are_shown_as_text_where_there_is_a_tokenizer():
    tokenizer = CharTokenizer("".join(map(chr, range(97, 97 + 50))))
    found = described(small_model(), IDS, tokenizer)
    assert "the stream for 5 tokens: 'd' | 'b' | 'e' | 'b' | 'f'" in found


def test_one_token_has_no_others():
    found = described(small_model(), [7])
    assert re.search(r"embed +\d+\.\d\d +none$", found, re.M)
    assert "attention: one token has nobody else to look at" in found


def test_the_report_leaves_the_model_as_it_was():
    model = small_model()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    described(model)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(part._forward_pre_hooks for part in model.modules())
    model(torch.tensor([IDS])).sum().backward()


def test_a_model_that_is_not_finite_says_since_when():
    model = small_model()
    with torch.no_grad():
        model.blocks[1].ffn.down_proj.weight[3, 5] = float("nan")
    found = described(model)
    assert "not finite: the stream holds NaN or Inf from blocks.1.resid.ffn on" in found
    assert "next token" not in found


# The page


class Page(HTMLParser):
    """What a page shows and what it would load."""

    def __init__(self, source):
        super().__init__()
        self.images, self.addresses, self.open, self.words = [], [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "img":
            self.images.append(attributes)
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_one_file_with_described_pictures(tmp_path):
    found = examine(small_model(), IDS)
    path = write_page(found, "a <b> & c", tmp_path / "new" / "folder")
    assert os.listdir(path.parent) == [path.name] == [PAGE]
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert page.open == [] and len(page.images) == 4
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not re.search(r"https?:|<script|<link|@import|url\(", source)
    for image in page.images:
        png = base64.b64decode(image["src"].partition(",")[2])
        size = Image.open(io.BytesIO(png)).size
        assert size == (2 * int(image["width"]), 2 * int(image["height"]))
        assert len(image["alt"]) > 60 and image["alt"] in page.words
    assert page.words.count("a <b> & c") == 2  # escaped: title and heading
    shown = "".join(page.words)
    for part in (report.entries, report.norms, report.half_precision, report.sizes):
        assert "\n".join(part(found, None)) in shown


def test_the_page_of_a_broken_model_has_no_pictures(tmp_path):
    model = small_model()
    with torch.no_grad():
        model.embedding.weight[1] = float("inf")
    page = Page(write_page(examine(model, IDS), "m", tmp_path).read_text(encoding="utf-8"))
    assert page.images == [] and any("NaN or Inf from embed" in word for word in page.words)


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "_page", lambda *_: "new")  # its pictures take a second
    found = examine(small_model(), IDS)
    (tmp_path / PAGE).write_text("old")

    def full(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            write_page(found, "m", tmp_path)
    assert os.listdir(tmp_path) == [PAGE] and (tmp_path / PAGE).read_text() == "old"
    write_page(found, "m", tmp_path)
    assert os.listdir(tmp_path) == [PAGE] and (tmp_path / PAGE).read_text() == "new"


def test_a_file_in_the_folder_s_place(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"inspect: expected a folder, got .*file"):
        write_page(examine(small_model(), IDS), "m", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failed_picture_writes_nothing(tmp_path, monkeypatch):
    from tiny_lm.plots import streams as plots

    def fails(*_):
        raise ValueError("no picture")

    monkeypatch.setattr(plots, "SinksPicture", fails)
    with pytest.raises(ValueError, match="no picture"):
        write_page(examine(small_model(), IDS), "m", tmp_path / "new")
    assert os.listdir(tmp_path) == []


def test_the_terminal_needs_no_matplotlib_nor_torch_s_compiler(tmp_path):
    """A page without matplotlib is an error that says what to install.

    The compiler takes a second to import; filling a loaded model's parameters on meta would do it.
    """
    code = """
import sys
sys.modules |= {"matplotlib": None, "torch._dynamo": None}
from tiny_lm import checkpoint, report
found = report.examine(checkpoint.load(sys.argv[1])[0], [3, 1, 4])
assert "findings" in report.text(found)
try:
    report.write_page(found, "m", sys.argv[2])
except ImportError as error:
    print(error)
"""
    path = checkpoint.save(tmp_path / "m.safetensors", small_model())
    done = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "new"],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    message = r'inspect: expected matplotlib, got none \(.*; pip install "tiny-lm\[lab\]"\)'
    assert re.fullmatch(message, done.stdout.strip()), done.stderr
    assert os.listdir(tmp_path) == [path.name]
