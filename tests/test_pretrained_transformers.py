"""SmolLM2 here and in the transformers library, which reads the same GGUF file by itself.

Independent of this package: the reading of the file and its quantised blocks' order of rows, RoPE
on halves, grouped heads, the mask, norms, the cache and greedy search are all the library's own;
both lean on the package gguf to unpack quantised numbers. Skipped without transformers, which is
no dependency of the book: `python -m pip install transformers accelerate` to run it.
"""

import importlib.util
import os

import pytest
import torch

from tiny_lm import pretrained
from tiny_lm.generate import generate
from tiny_lm.probes import real, streams

PROMPT = "The capital of France is"

if not importlib.util.find_spec("transformers"):
    pytest.skip("the package transformers is not installed", allow_module_level=True)
if not pretrained.cached("smollm2-135m"):
    pytest.skip("the real model is not in the cache", allow_module_level=True)


@pytest.fixture(scope="module")
def theirs():
    """The library's model and tokenizer, in float32, from the file alone."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
        from transformers import AutoModelForCausalLM, AutoTokenizer

        path = pretrained.cached("smollm2-135m")
        source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
        return model, AutoTokenizer.from_pretrained(**source)


@pytest.fixture(scope="module")
def ours():
    return pretrained.load("smollm2-135m")


def their_streams(model, ids):
    """The stream after the embedding and after all 60 additions, and the logits."""
    taps, hooks = {}, []

    def keep(name):
        """What a module gives, or, for a pre-hook, what it is given."""

        def hook(module, given, *made):
            value = (made or given)[0]
            taps[name] = value[0] if isinstance(value, tuple) else value

        return hook

    hooks.append(model.model.embed_tokens.register_forward_hook(keep("embed")))
    for i, layer in enumerate(model.model.layers):
        second = layer.post_attention_layernorm  # reads the sum after attention
        hooks.append(second.register_forward_pre_hook(keep(f"blocks.{i}.resid.attn")))
        hooks.append(layer.register_forward_hook(keep(f"blocks.{i}.resid.ffn")))
    try:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
    finally:
        for hook in hooks:
            hook.remove()
    return {name: stream.reshape(len(ids), -1) for name, stream in taps.items()}, logits


TEXTS = {"prompt": PROMPT, **real.paragraphs()}


@pytest.mark.parametrize("name", TEXTS)
def test_streams_logits_and_ids_agree(name, theirs, ours):
    """All 61 streams to 1e-3 of each row's length, logits to 0.02; the same ids for the text."""
    (their_model, their_tokenizer), (model, tokenizer) = theirs, ours
    ids = tokenizer.encode(TEXTS[name])
    assert their_tokenizer.encode(TEXTS[name], add_special_tokens=False) == ids
    found = streams.read(model, ids)
    wanted, logits = their_streams(their_model, ids)
    assert set(wanted) == set(found.taps) and len(wanted) == 61
    for tap, stream in zip(found.taps, found.stream, strict=True):
        gap = (stream - wanted[tap]).norm(dim=-1) / wanted[tap].norm(dim=-1)
        assert gap.max() < 1e-3, tap
    assert (found.logits - logits).abs().max() < 0.02


def test_the_massive_activation_is_theirs_too(theirs, ours):
    stream, _ = their_streams(theirs[0], ours[1].encode(PROMPT))
    entry = stream["blocks.11.resid.ffn"][0, 507]
    assert entry == pytest.approx(22_552, rel=1e-3)
    assert entry.abs() == stream["blocks.11.resid.ffn"].abs().max()


@pytest.mark.parametrize("prompt", [PROMPT, "A transformer is", "def mean(values):"])
def test_thirty_two_greedy_tokens_are_equal(prompt, theirs, ours):
    ids = torch.tensor([ours[1].encode(prompt)])
    theirs[0].generation_config.eos_token_id = None  # to go on where the text might end
    options = {"max_new_tokens": 32, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    wanted = theirs[0].generate(ids, **options)
    assert wanted.shape[1] == ids.shape[1] + 32
    assert torch.equal(generate(ours[0], ids, 32, temperature=0), wanted)
