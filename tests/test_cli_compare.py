"""python -m tiny_lm compare: results kept one by one, gone on with, never mixed."""

from __future__ import annotations

import json

import pytest
import torch

from tiny_lm.cli import main
from tiny_lm.probes import comparing
from tiny_lm.probes.comparing import Plan

TINY = Plan(blocks=1, steps=5, lower=1e-3, higher=(0.03,), depths=(1,), rounds=1)


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "QUICK", TINY)
    return tmp_path / "designs.json"


def compare(out, *more):
    return main(["compare", str(out), "--quick", "--designs", "pre", "rms_pure", *more])


def test_the_table_and_the_file(out, capsys):
    """And the process as it was: numbers below 1e-38 must not become 0 in it, nor threads one."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert compare(out) == 0
        assert torch.get_num_threads() == 2
        assert torch.tensor(1e-40) * 1.0 > 0
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr()
    assert "RMSNorm without gain" in shown.out and TINY.settings in shown.out
    stored = json.loads(out.read_text())
    assert stored["settings"] == TINY.settings and "torch" in stored["machine"]
    assert "times pre,rms_pure" in stored["results"] and "pre lr=0.003 seed=2" in stored["results"]
    assert not list(out.parent.glob("*.part"))


def test_a_stopped_comparison_goes_on_where_it_was(out, monkeypatch):
    real, calls = Plan.measure, []

    def stops(plan, key, names):
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(key)
        return real(plan, key, names)

    monkeypatch.setattr(Plan, "measure", stops)
    assert compare(out) == 130
    before = json.loads(out.read_text())["results"]
    assert list(before) == calls and len(calls) == 4

    def counts(plan, key, names):
        calls.append(key)
        return real(plan, key, names)

    monkeypatch.setattr(Plan, "measure", counts)
    assert compare(out) == 0
    after = json.loads(out.read_text())["results"]
    assert len(calls) == len(set(calls)) == len(after), "nothing is measured twice"
    assert {key: after[key] for key in before} == before
    assert compare(out) == 0 and len(calls) == len(after)


def test_results_with_other_settings_are_not_mixed(out, capsys):
    out.write_text(json.dumps({"settings": "other", "machine": "", "results": {}}))
    assert compare(out) == 2
    message = f"compare: expected results with these settings in {out}, got 'other' (name another"
    assert message in capsys.readouterr().err
    assert json.loads(out.read_text())["settings"] == "other"


@pytest.mark.parametrize("text", ["not json", "[]", "{}"])
def test_a_file_that_is_something_else_is_left_alone(out, capsys, text):
    out.write_text(text)
    assert compare(out) == 2
    message = f"compare: expected results of this command in {out}, got something else"
    assert message in capsys.readouterr().err
    assert out.read_text() == text


def test_a_folder_that_is_not_there(out, capsys):
    """Said before anything is measured."""
    assert main(["compare", str(out.parent / "none" / "designs.json"), "--quick"]) == 2
    assert "compare: expected a folder that is there, got " in capsys.readouterr().err


def test_an_unknown_design(out, capsys):
    assert main(["compare", str(out), "--designs", "best"]) == 2
    assert "got 'best'" in capsys.readouterr().err and not out.exists()
