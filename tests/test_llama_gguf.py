"""llama_gguf.py: what a .gguf file says is what TinyLM computes, or it is refused."""

import pytest
import torch
from llama_writers import (
    in_folder,
    logits_with_halves,
    small_model,
    some_tokens,
    write_gguf,
)
from torch.testing import assert_close

from tiny_lm import pretrained
from tiny_lm.formats.llama_gguf import open_gguf

VARIANTS = {
    "tied": {},
    "untied": {"tied": False},
    "no groups": {"n_kv_heads": 4},
    "one group": {"n_kv_heads": 1, "tied": False},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_gguf_gives_the_logits_of_its_weights(tmp_path, changes):
    """More than one position: a mistake in RoPE cannot be seen at the first."""
    model = small_model(**changes)
    path = write_gguf(tmp_path / "a.gguf", model)
    loaded, tokenizer = pretrained.load(path, dtype=torch.float64)
    assert (loaded.config, tokenizer, loaded.training) == (model.config, None, False)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        got = loaded(some_tokens())
    expected = logits_with_halves(in_folder(model), model.config, some_tokens())
    assert_close(got, expected, rtol=0, atol=1e-10)


def test_the_config_is_that_of_the_file(tmp_path):
    """In short decimals: a float32 of 3e-06 is 3.000000106112566e-06 in float64."""
    path = write_gguf(tmp_path / "a.gguf", small_model(norm_eps=3e-6, rope_theta=500_000.0))
    config = open_gguf(path).config
    assert (config.norm_eps, config.rope_theta) == (3e-6, 500_000.0)


def test_defaults_are_those_of_the_format(tmp_path):
    model = small_model(n_kv_heads=4, rope_theta=10_000.0)
    absent = ["llama.attention.head_count_kv", "llama.rope.freq_base", "llama.vocab_size"]
    path = write_gguf(tmp_path / "a.gguf", model, dict.fromkeys(absent))
    assert open_gguf(path).config == model.config


def test_settings_that_change_nothing_are_accepted(tmp_path):
    harmless = {
        "llama.rope.scaling.type": "none",
        "llama.expert_count": 0,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "llama.attention.sliding_window": 32,
        "llama.attention.causal": True,
        "llama.logit_scale": 1.0,
    }
    write_gguf(tmp_path / "a.gguf", small_model(), harmless)
    assert open_gguf(tmp_path / "a.gguf").config == small_model().config


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "rope.scaling.type",
            "yarn",
            r"rope.scaling.type none, got 'yarn' \(TinyLM has nothing else",
        ),
        ("rope.scaling.factor", 4.0, r"rope.scaling.factor 0 or 1, got 4.0"),
        ("rope.scale_linear", 2.0, r"rope.scale_linear 0 or 1, got 2.0"),
        ("rope.dimension_count", 8, r"rope.dimension_count 16, got 8"),
        ("attention.key_length", 32, r"attention.key_length 16, got 32"),
        ("attention.value_length", 32, r"attention.value_length 16, got 32"),
        (
            "attention.sliding_window",
            31,
            r"attention.sliding_window of at least 32 positions, got 31",
        ),
        ("attention.causal", False, r"attention.causal True, got False"),
        ("attention.scale", 0.5, r"attention.scale 0 or 1, got 0.5"),
        ("attention.clamp_kqv", 8.0, r"attention.clamp_kqv 0 or 1, got 8.0"),
        ("attention.max_alibi_bias", 8.0, r"attention.max_alibi_bias 0 or 1, got 8.0"),
        ("logit_scale", 0.5, r"logit_scale 0 or 1, got 0.5"),
        ("embedding_scale", 12.0, r"embedding_scale 0 or 1, got 12.0"),
        ("residual_scale", 0.22, r"residual_scale 0 or 1, got 0.2"),
        ("attn_logit_softcapping", 50.0, r"attn_logit_softcapping 0 or 1, got 50.0"),
        ("final_logit_softcapping", 30.0, r"final_logit_softcapping 0 or 1, got 30.0"),
        ("expert_count", 8, r"expert_count 0 or 1, got 8"),
        ("vocab_size", 51, r"vocab_size 50, got 51"),
        ("context_length", None, r"context_length a whole number >= 1, got None"),
        ("attention.head_count", [4, 4], r"attention.head_count a whole number >= 1, got \[4, 4\]"),
        ("attention.head_count_kv", [2, 1], r"head_count_kv a whole number >= 1, got \[2, 1\]"),
        ("feed_forward_length", 0, r"feed_forward_length a whole number >= 1, got 0"),
        ("attention.layer_norm_rms_epsilon", None, r"layer_norm_rms_epsilon a number, got None"),
        ("block_count", 10**9, r"tensors for 1000000000 layers, got 20 tensors"),
        (
            "block_count",
            3,
            r"the 29 tensors of its config, got 9 missing: blk.2.attn_k.weight, blk",
        ),
        (
            "block_count",
            1,
            r"the 11 tensors of its config, got 9 left over: blk.1.attn_k.weight, b",
        ),
    ],
)
def test_what_tiny_lm_does_not_have_is_refused(tmp_path, key, value, message):
    path = write_gguf(tmp_path / "a.gguf", small_model(), {f"llama.{key}": value})
    with pytest.raises(ValueError, match="GGUF: expected .*" + message):
        open_gguf(path)


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "gemma"])
def test_another_architecture_is_refused(tmp_path, family):
    path = write_gguf(tmp_path / "a.gguf", small_model(), family=family)
    with pytest.raises(ValueError, match=rf"GGUF: expected the architecture llama, got '{family}'"):
        open_gguf(path)


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_one(name, value):
    return lambda tensors: tensors | {name: value}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("blk.1.ffn_norm.weight"), r"GGUF: .* got 1 missing: blk.1.ffn_norm.weight"),
        (with_one("blk.0.attn_q.bias", torch.ones(64)), r"GGUF: .* 1 left over: blk.0.attn_q.bias"),
        (
            with_one("rope_freqs.weight", torch.ones(8)),
            r"GGUF: expected unscaled RoPE, got rope_freqs",
        ),
        (without("token_embd.weight"), r"GGUF: .* got 1 missing: token_embd.weight"),
        (
            with_one("blk.1.attn_k.weight", torch.ones(64, 64)),
            r"load: expected blocks.1.attention.k_proj.weight \[32, 64\], got \[64, 64\]",
        ),
        (
            with_one("output_norm.weight", torch.ones(1, 64)),
            r"pretrained.load: expected norm_final.scale \[64\], got \[1, 64\]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, edit, message):
    path = write_gguf(tmp_path / "a.gguf", small_model(), edit=edit)
    with pytest.raises(ValueError, match=message):
        pretrained.load(path)


def test_quantised_weights_load(tmp_path):
    model = small_model()
    loaded, _ = pretrained.load(write_gguf(tmp_path / "a.gguf", model, kind="Q8_0"))
    for name, weight in model.state_dict().items():
        # a step of Q8_0 is 1/127 of the largest of 32 weights, here at most 0.9
        assert_close(loaded.state_dict()[name], weight, rtol=0, atol=0.5 * 0.9 / 127 + 1e-4)
