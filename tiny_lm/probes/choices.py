"""Chapter 09: what known models chose, each fact with the file or paper in which it was read.

`T` stands for the transformers library 5.24.0, folder src/transformers/models: its modeling file
for the formula, its configuration class for eps. A checkpoint's own config.json may say another.
All pre-norm and sandwich models here have a norm after the last block too. In which dtype a model
keeps its stream is left out: these files leave it to whoever loads the weights.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

LAYER, RMS = "LayerNorm", "RMSNorm"
CAST_FIRST = "float32 inside, cast, then gain"
CAST_LAST = "float32 inside and gain, then cast"
NOT_SAID = "not said"


@dataclass(frozen=True)
class Choice:
    """One model's norms."""

    model: str
    year: int
    norm: str
    eps: str
    order: str
    gain: str
    precision: str
    source: str


CHOICES = (
    Choice("Transformer", 2017, LAYER, "1e-6 (code)", "post in the paper; pre in the code's later "
           "default", "g, b", NOT_SAID, "arXiv 1706.03762, 3.1; tensorflow/tensor2tensor, "
           "common_hparams.py and transformer.py"),
    Choice("BERT", 2018, LAYER, "1e-12", "post, embedding too", "g, b", "kernel of PyTorch",
           "T: bert"),
    Choice("GPT-2", 2019, LAYER, "1e-5", "pre", "g, b", NOT_SAID,
           "openai/gpt-2, src/model.py"),
    Choice("T5", 2019, RMS, "1e-6", "pre", "g", "mean square in float32, the rest as x",
           "T: t5"),
    Choice("GPT-J", 2021, LAYER, "1e-5", "parallel, one norm", "g, b", "kernel of PyTorch",
           "T: gptj"),
    Choice("GPT-NeoX-20B", 2022, LAYER, "1e-5", "parallel, two norms", "g, b",
           "kernel of PyTorch", "T: gpt_neox; arXiv 2204.06745"),
    Choice("OPT", 2022, LAYER, "1e-5 (PyTorch's)", "pre; post in the 350M model", "g, b",
           "kernel of PyTorch", "T: opt; do_layer_norm_before in the configs of 350M and 6.7B"),
    Choice("BLOOM", 2022, LAYER, "1e-5", "pre, embedding too", "g, b",
           "kernel of PyTorch", "T: bloom; arXiv 2211.05100"),
    Choice("LLaMA", 2023, RMS, "1e-5 in Meta's ModelArgs, 1e-6 in T", "pre", "g",
           CAST_FIRST, "meta-llama/llama, llama/model.py; T: llama"),
    Choice("OLMo", 2024, LAYER, "1e-5", "pre", "none", "float32 inside, cast", "T: olmo"),
    Choice("Gemma", 2024, RMS, "1e-6", "pre", "1 + g", CAST_LAST, "T: gemma"),
    Choice("Command R", 2024, LAYER, "1e-5", "parallel, one norm; QK-norm where asked for", "g",
           CAST_LAST, "T: cohere"),
    Choice("Gemma 2", 2024, RMS, "1e-6", "sandwich", "1 + g", CAST_LAST, "T: gemma2"),
    Choice("OLMo 2", 2024, RMS, "1e-5", "after the branch only: x + n(F(x)); QK-norm over all "
           "heads together", "g", CAST_LAST, "T: olmo2"),
    Choice("DeepSeek-V3", 2024, RMS, "1e-6", "pre; also on the compressed q, k and v", "g",
           CAST_FIRST, "T: deepseek_v3"),
    Choice("SmolLM2-135M", 2025, RMS, "1e-5", "pre", "g", "as LLaMA",
           "its own file, read in chapter 08"),
    Choice("Gemma 3", 2025, RMS, "1e-6", "sandwich; QK-norm by head, before RoPE", "1 + g",
           CAST_LAST, "T: gemma3"),
    Choice("Qwen3", 2025, RMS, "1e-6", "pre; QK-norm by head, before RoPE", "g", CAST_FIRST,
           "T: qwen3"),
    Choice("Llama 4", 2025, RMS, "1e-5", "pre; QK-norm without gain after RoPE, "
           "but none in the 128-expert model", "g", CAST_FIRST, "T: llama4"),
    Choice("gpt-oss", 2025, RMS, "1e-5", "pre", "g", CAST_LAST, "T: gpt_oss"),
)  # fmt: skip

HEADINGS = ("model", "year", "norm", "eps", "order", "gain", "precision", "read in")
WIDTHS = (12, 4, 9, 11, 20, 5, 16, 26)


def rows() -> list[tuple[str, ...]]:
    """The choices as words, a row a model, oldest first."""
    return [tuple(map(str, astuple(choice))) for choice in CHOICES]
