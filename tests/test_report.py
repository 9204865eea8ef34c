"""report.py: every number in the report is one that can be computed another way."""

import re

import pytest
import torch
from llama_writers import small_model

from tiny_lm.report import inspect, parameters_by_kind
from tiny_lm.taps import Recorder
from tiny_lm.tokenizer import CharTokenizer

IDS = [3, 1, 4, 1, 5]


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
    report = inspect(model, IDS)
    assert re.search(r"^  d_model +64$", report, re.M)
    for name in ("embed", "blocks.0.resid.ffn", "blocks.1.resid.ffn", "norm.final"):
        rms = recorder[name][0].square().mean(-1).sqrt()
        row = re.search(rf"^  {name} +(\S+) +(\S+) … (\S+)$", report, re.M).groups()
        assert row == tuple(f"{x:.2f}" for x in (rms[0], rms[1:].min(), rms[1:].max()))
    where = re.search(r"largest entry (\S+), (\S+), token (\d+), coordinate (\d+)", report).groups()
    entry = recorder[where[1]][0, int(where[2]), int(where[3])].item()
    assert where[0] == f"{entry:,.1f}"
    stream = [
        recorder[name].abs().max() for name in recorder if name.endswith(("embed", "resid.ffn"))
    ]
    assert abs(entry) == max(stream).item()
    p = logits.softmax(-1)
    for i in logits.topk(5).indices.tolist():
        assert re.search(rf"^  {i} +{logits[i]:.2f} +{p[i]:.1%}$".replace(".", r"\."), report, re.M)


def test_tokens_are_shown_as_text_where_there_is_a_tokenizer():
    tokenizer = CharTokenizer("".join(map(chr, range(97, 97 + 50))))
    report = inspect(small_model(), IDS, tokenizer)
    assert "the stream for 5 tokens: 'd' | 'b' | 'e' | 'b' | 'f'" in report


def test_one_token_has_no_others():
    assert re.search(r"embed +\d+\.\d\d +none$", inspect(small_model(), [7]), re.M)


def test_the_report_leaves_the_model_as_it_was():
    model = small_model()
    inspect(model, IDS)
    model(torch.tensor([IDS])).sum().backward()
