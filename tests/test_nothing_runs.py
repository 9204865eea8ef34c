"""Nothing that is read or typed is run: no eval, no pickle, and answers are objects, not text."""

import ast
import os
import sys
from pathlib import Path

import pytest
import torch
from llama_writers import small_model, write_folder

from tiny_lm import checkpoint, colab, pretrained, release
from tiny_lm.cli import main
from tiny_lm.corpus import Stories
from tiny_lm.exercises import EXERCISES, check
from tiny_lm.formats import kept
from tiny_lm.formats.gguf_file import GGUFFile
from tiny_lm.tokenizer import BytePairTokenizer, from_json
from tiny_lm.train import TrainConfig, train

PACKAGE = Path(__file__).parents[1] / "tiny_lm"

FORBIDDEN = {"eval", "exec", "compile", "execfile", "__import__", "breakpoint"}
LOADERS = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml",
    "code", "codeop", "runpy",
}  # fmt: skip
CALLS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("os", "system"), ("os", "popen")}


def ways_to_run_text(tree):
    """(line, what) wherever a module could turn text or a file into code that runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            for name in names:
                if name and name.split(".")[0] in LOADERS:
                    yield node.lineno, name
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in CALLS:
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
            yield node.value.lineno, node.arg


def test_the_package_turns_no_text_into_code():
    found = [
        f"{path.relative_to(PACKAGE)}:{line} {what}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, what in ways_to_run_text(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_each_way_is_seen():
    code = """
import pickle
from yaml import load
eval("1"), exec("1"), compile("1", "", "eval"), __import__("os")
run = eval
torch.load("x"), np.load("x", allow_pickle=True), os.system("x"), subprocess.run("x", shell=True)
re.compile("x"), torch.compile(f), json.load(f), model.eval(), tokenizer.load(x)
"""
    found = [what for _, what in ways_to_run_text(ast.parse(code))]
    assert sorted(found) == sorted(
        ["pickle", "yaml", "eval", "exec", "compile", "__import__", "eval", "torch.load", "np.load",
         "allow_pickle", "os.system", "shell"]
    )  # fmt: skip


@pytest.mark.parametrize("name", EXERCISES)
def test_an_answer_in_words_is_not_run(name, tmp_path):
    mark = tmp_path / "it ran"
    code = f"__import__('os').mkdir({str(mark)!r})"
    for answer in (code, f"f'{{{code}}}'", [code], {"a": code, "norm": code}, lambda *_: code):
        assert check(name, answer).ok is False
    assert not mark.exists()


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def in_results(path):
    main(["compare", str(path), "--quick", "--designs", "pre"])
    raise ValueError  # the verb tells it in one line


READERS = {
    "model.safetensors": checkpoint.load,
    "model.gguf": pretrained.load,
    "weights.gguf": GGUFFile,
    "folder/model.safetensors": lambda path: pretrained.load(path.parent),
    "folder/config.json": lambda path: pretrained.load(path.parent),
    "folder/pytorch_model.bin": lambda path: pretrained.load(path.parent),
    "folder/model-00001.safetensors": lambda path: pretrained.load(path.parent),
    "tokenizer.json": BytePairTokenizer.from_file,
    "to_json": lambda path: from_json(path.read_text("latin-1")),
    "run": lambda path: train(small_model(), Stories(), TrainConfig(length=8), run_file=path),
    "designs.json": in_results,
    "01_book.ipynb": lambda path: release.release(path.parent / "out", path.parent),
    "book/notebooks/01_book.ipynb": lambda path: colab.release(
        path.parents[2] / "out", path.parents[1]
    ),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("where", READERS)
def test_a_planted_pickle_never_runs(tmp_path, where, zipped):
    path, mark = tmp_path / where, tmp_path / "it ran"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == "folder" and path.name != "config.json":
        write_folder(path.parent, small_model())
        (path.parent / "model.safetensors").unlink()
    torch.save(Bomb(mark), path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError):
        READERS[where](path)
    assert not mark.exists()


def test_a_planted_pickle_is_no_kept_model(tmp_path):
    path, mark = tmp_path / "kept.safetensors", tmp_path / "it ran"
    torch.save(Bomb(mark), path)
    kept.load(path, "a source", lambda: (small_model(), None))
    assert not mark.exists() and checkpoint.load(path)


def test_the_bomb_is_one(tmp_path):
    torch.save(Bomb(tmp_path / "it ran"), tmp_path / "bomb")
    torch.load(tmp_path / "bomb", weights_only=False)
    assert (tmp_path / "it ran").exists() and "pickle" in sys.modules
