"""The lesson in a terminal: it prints the right numbers, and says so when one is not right."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tiny_lm.attention
from tiny_lm import plain
from tiny_lm.layers import RMSNorm, TransformerBlock, residual_add
from tiny_lm.lessons import l15, l15_block, l15_numbers
from tiny_lm.lessons.result import Result, show

ROOT = Path(__file__).parents[1]


def in_a_terminal(**environment):
    return subprocess.run(
        [sys.executable, "-m", "tiny_lm.lessons.l15"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding=environment["PYTHONIOENCODING"],
    )


def test_the_whole_lesson_in_a_terminal():
    done = in_a_terminal(PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    assert [line[:3].strip() for line in text.splitlines() if line[:1].isdigit()] == [
        *(f"{i}." for i in range(1, 11)), "46",
    ]  # fmt: skip
    assert text.endswith("\n46 of 46 results checked\n")
    assert text.count("✓") == 46 and "✗" not in text
    for number in [
        "[9, 12]", "3.53553390593", "0.848528137", "1.1313708", "[0.848527798013, 1.13137039735]",
        "3.360169", "4.480225", "0.30151134", "13.5092560861", "[0.962303173257, 1.03632649428]",
        "35.3553390593", "[1, 3, 64]", "16384",
    ]:  # fmt: skip
        assert number in text, number
    assert max(map(len, text.splitlines())) <= 100


def test_a_terminal_without_a_check_mark():
    done = in_a_terminal(PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("right:") == 46


def test_ten_sections_in_order():
    titles = list(dict.fromkeys(result.title for result in l15.lesson()))
    assert [title.split(".")[0] for title in titles] == [str(i) for i in range(1, 11)]


def test_the_lesson_is_the_same_every_time():
    torch.manual_seed(1)
    first = l15.lesson()
    torch.manual_seed(2)
    assert l15.lesson() == first


def test_every_tolerance_is_tight():
    for result in l15.lesson():
        assert result.tolerance <= 1e-4
        numbers = torch.tensor(result.expected, dtype=torch.float64).abs()
        if result.tolerance and numbers.max() > 0:
            assert result.tolerance < 1e-4 * numbers[numbers > 0].min()


# A planted fault each, and the sections that must notice


def eps_outside(self, x):
    return x / (x.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.scale


def over_positions_too(self, x):
    return x * torch.rsqrt(x.square().mean() + self.eps) * self.scale


def a_centred_norm(self, x):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.scale


def norm2_reads_x(self, x, *, cache=None, tap=lambda name, value: value):
    h = tap("resid.attn", x + self.attention(tap("norm.attn", self.norm1(x))))
    return tap("resid.ffn", h + self.ffn(tap("norm.ffn", self.norm2(x))))


def normed_path(self, x, *, cache=None, tap=lambda name, value: value):
    x = self.norm1(x)
    h = x + self.attention(x)
    return h + self.ffn(tap("norm.ffn", self.norm2(h)))


def all_seen(q, k, causal=True):
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)


FAULTS = {
    "eps outside the root": ([(RMSNorm, "forward", eps_outside)], "6 7"),
    "one root for all positions": ([(RMSNorm, "forward", over_positions_too)], "6"),
    "a norm that centres": ([(RMSNorm, "forward", a_centred_norm)], "6 7"),
    "norm2 reads x": ([(TransformerBlock, "forward", norm2_reads_x)], "9"),
    "a normalised direct path": ([(TransformerBlock, "forward", normed_path)], "9 10"),
    "no mask": ([(tiny_lm.attention, "attention_weights", all_seen)], "8"),
    "no mean": ([(plain, "rms", lambda x: math.hypot(*x))], "4 5 7 10"),
    "no division": ([(plain, "rms_norm", lambda x, *_, eps: list(x))], "5 7 10"),
    "the branch alone": ([(plain, "residual_add", lambda x, change: change)], "1 2"),
    "the branch dropped": ([(l15_numbers, "residual_add", lambda x, change: x)], "1 2 10"),
    "a half-turned pair": ([(l15_block, "apply_rope", lambda q, k: (q / 2, k))], "8"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_number_is_noticed(fault, monkeypatch, capsys):
    patches, sections = FAULTS[fault]
    for owner, name, wrong in patches:
        monkeypatch.setattr(owner, name, wrong)
    assert l15.main() == 1
    text = capsys.readouterr().out
    off = [line.split()[1].rstrip(".") for line in text.splitlines() if line.startswith("off: ")]
    assert off == sections.split()
    assert "✗" in text and "expected" in text and "46 of 46" not in text


def test_the_section_is_named_and_the_right_value_shown(monkeypatch, capsys):
    monkeypatch.setattr(RMSNorm, "forward", eps_outside)
    l15.main()
    text = capsys.readouterr().out
    assert "off: 6. A small number inside the root\n" in text
    assert re.search(r"✗ \[0.84852573\d+, 1.1313676\d+\]   expected \[0.848527798, 1.13137", text)


def test_without_a_fault_main_returns_0(capsys):
    assert l15.main() == 0
    assert "off:" not in capsys.readouterr().out
    assert residual_add is l15_numbers.residual_add  # the patches above were taken back


# Results


@pytest.mark.parametrize(
    ("got", "expected", "tolerance", "ok"),
    [
        (1.0, 1, 0, True),
        (1.0 + 1e-9, 1, 0, False),
        (1.0 + 1e-9, 1, 2e-9, True),
        (1.0 - 1e-9, 1, 2e-9, True),
        ([1, [2, 3]], [[1, 2], 3], 0, True),
        ([1, 2], [1, 2, 3], 9, False),
        ([1, 2, 3], [1, 2], 9, False),
        ([], [1], 9, False),
        (math.nan, math.nan, 9, False),
        (math.nan, 0, math.inf, False),
        ([0, math.inf], [0, 0], 9, False),
        (True, True, 0, True),
        (False, True, 0, False),
    ],
)
def test_when_a_result_is_ok(got, expected, tolerance, ok):
    assert Result("title", "text", got, expected, tolerance).ok is ok


def test_what_is_shown(capsys):
    long = "word " * 14 + "and [1, 2, 3, 4] is never cut."
    results = [
        Result("1. One", long, [1.0, True], [1, 1]),
        Result("1. One", "Two.", 0.5, 0.25, 1e-9),
        Result("2. Two", "Three.", False, True),
    ]
    assert show(results) == 1
    first = ("word " * 14 + "and").rstrip()
    assert capsys.readouterr().out == (
        f"\n1. One\n------\n{first}\n[1, 2, 3, 4] is never cut.\n    ✓ [1, yes]   (exactly)\n"
        "Two.\n    ✗ 0.5   expected 0.25, within 1e-09\n"
        "\n2. Two\n------\nThree.\n    ✗ no   expected yes, exactly\n"
        "\n1 of 3 results checked\noff: 1. One\noff: 2. Two\n"
    )
    assert show(results[:1]) == 0
