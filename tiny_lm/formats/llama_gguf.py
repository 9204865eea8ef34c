"""A .gguf file of the Llama family, understood in the terms of TinyLM."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiny_lm.config import ModelConfig
from tiny_lm.formats.gguf_file import GGUFFile
from tiny_lm.formats.gguf_tokenizer import gguf_tokenizer
from tiny_lm.formats.llama_file import IN_GGUF, LlamaFile, Settings, names_in_file
from tiny_lm.shapes import fail

# Settings that change the arithmetic unless they are absent, nothing or one.
REFUSED = (
    "expert_count",
    "rope.scale_linear",
    "rope.scaling.factor",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)


def open_gguf(path: str | Path) -> LlamaFile:
    """Understand a .gguf file; its q and k already hold RoPE's pairs as neighbours.

    Raises ValueError for other architectures, settings that TinyLM does not have, and tensors
    that are missing or left over.
    """
    who = "GGUF"
    file = GGUFFile(path)
    family = file.metadata.get("general.architecture")
    if family != "llama":
        fail(who, "the architecture llama", repr(family))
    config = _config(who, file)
    names = names_in_file(who, config, IN_GGUF, file.tensors)
    return LlamaFile(
        config,
        {our: file.tensors[their].shape for our, their in names.items()},
        lambda name, dtype: file.read(names[name], dtype),
        gguf_tokenizer(file.metadata),
    )


def _config(who: str, file: GGUFFile) -> ModelConfig:
    given = file.metadata.items()
    settings = Settings(
        who, {key.removeprefix("llama."): v for key, v in given if key.startswith("llama.")}
    )
    for key in REFUSED:
        settings.expect(key, 0, 1)
    settings.expect("rope.scaling.type", "none")
    settings.expect("attention.causal", True)
    if "rope_freqs.weight" in file.tensors:
        fail(who, "unscaled RoPE", "rope_freqs.weight", "angles stretched for long texts")
    width, heads = settings.size("embedding_length"), settings.size("attention.head_count")
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        settings.expect(key, width // heads)
    max_len = settings.size("context_length")
    settings.expect_no_window("attention.sliding_window", max_len)
    embedding = file.tensors.get("token_embd.weight")
    vocab_size = embedding.shape[0] if embedding else settings.size("vocab_size")
    settings.expect("vocab_size", vocab_size)
    return ModelConfig(
        vocab_size=vocab_size,
        max_len=max_len,
        n_layers=settings.size("block_count"),
        d_model=width,
        n_heads=heads,
        n_kv_heads=settings.size("attention.head_count_kv", heads),
        d_ff=settings.size("feed_forward_length"),
        norm_eps=_as_written(settings.number("attention.layer_norm_rms_epsilon")),
        rope_theta=_as_written(settings.number("rope.freq_base", 10_000.0)),
        tied="output.weight" not in file.tensors,
    )


def _as_written(value: float) -> float:
    """The short decimal behind a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
