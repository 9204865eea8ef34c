"""extras.py: what is optional is imported late and, when missing, named."""

import subprocess
import sys

import pytest

from tiny_lm.extras import need


def test_need_returns_the_module():
    assert need("json").dumps([1]) == "[1]"


@pytest.mark.parametrize("module", ["safetensors.torch", "gguf", "tokenizers", "platformdirs"])
def test_what_is_missing_is_named_with_the_remedy(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    package = module.split(".")[0]
    with pytest.raises(
        ImportError,
        match=rf"tiny_lm: expected the package {package}, got none "
        r'\(pip install "tiny-lm\[models\]" installs it\)',
    ):
        need(module)


def test_nothing_optional_is_loaded_before_it_is_used():
    """The readers are there, and none of the packages they may need later."""
    modules = "checkpoint, generate, pretrained, report, tokenizer"
    code = f"from tiny_lm import {modules}; from tiny_lm.formats import llama_folder, llama_gguf"
    code += "; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    optional = {"safetensors", "gguf", "tokenizers", "platformdirs"}  # torch itself loads tqdm
    assert optional.isdisjoint(loaded.stdout.split())
