"""What the readers of Llama-family checkpoints share: tensor names and strict settings.

Whatever TinyLM would compute differently is refused, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any

import torch
from torch import Tensor

from tiny_lm.checkpoint import expect_names
from tiny_lm.config import ModelConfig
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import BytePairTokenizer

# name in TinyLM: (name in GGUF, name in Hugging Face), inside a block and outside of them
BLOCK = {
    "norm1.scale": ("attn_norm", "input_layernorm"),
    "attention.q_proj.weight": ("attn_q", "self_attn.q_proj"),
    "attention.k_proj.weight": ("attn_k", "self_attn.k_proj"),
    "attention.v_proj.weight": ("attn_v", "self_attn.v_proj"),
    "attention.out_proj.weight": ("attn_output", "self_attn.o_proj"),
    "norm2.scale": ("ffn_norm", "post_attention_layernorm"),
    "ffn.gate_proj.weight": ("ffn_gate", "mlp.gate_proj"),
    "ffn.up_proj.weight": ("ffn_up", "mlp.up_proj"),
    "ffn.down_proj.weight": ("ffn_down", "mlp.down_proj"),
}
OUTSIDE = {
    "embedding.weight": ("token_embd.weight", "model.embed_tokens.weight"),
    "norm_final.scale": ("output_norm.weight", "model.norm.weight"),
    "output.weight": ("output.weight", "lm_head.weight"),
}
IN_GGUF, IN_FOLDER = 0, 1
BLOCK_PREFIX = ("blk", "model.layers")


@dataclass(frozen=True)
class LlamaFile:
    """A checkpoint that has been understood but not yet read.

    `shapes` and `read(name, dtype)` go by the names of TinyLM.
    """

    config: ModelConfig
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str, torch.dtype], Tensor]
    tokenizer: BytePairTokenizer | None


def names_in_file(
    who: str, config: ModelConfig, where: int, found: Collection[str]
) -> dict[str, str]:
    """What the file calls each tensor of a TinyLM: `{name in TinyLM: name in the file}`.

    Raises ValueError when the tensors found are not exactly these.
    """
    if config.n_layers > len(found):  # a count that lies must not fill the memory with names
        fail(who, f"tensors for {config.n_layers} layers", f"{len(found)} tensors")
    names = {our: their[where] for our, their in OUTSIDE.items()}
    if config.tied:
        del names["output.weight"]
    for i in range(config.n_layers):
        for our, their in BLOCK.items():
            names[f"blocks.{i}.{our}"] = f"{BLOCK_PREFIX[where]}.{i}.{their[where]}.weight"
    expect_names(who, names.values(), found)
    return names


class Settings:
    """The settings of a checkpoint, each read with the check that belongs to it.

    Raises ValueError, in the name of `who`, for what is missing, of another type or unsupported.
    """

    def __init__(self, who: str, found: Mapping[str, Any]):
        self.who, self.found = who, found

    def get(self, key: str, default: Any = None) -> Any:
        """A setting; null is the same as absent."""
        value = self.found.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            fail(self.who, f"{key} a whole number >= 1", _short(value))
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or abs(value) > float_info.max:  # an int may be larger than any float
            fail(self.who, f"{key} a number", _short(value))
        return float(value)

    def expect(self, key: str, *allowed: Any) -> None:
        """Refuse a setting that is there and has any other value: TinyLM has no other."""
        value = self.get(key)
        if value is not None and value not in allowed:
            wanted = " or ".join(str(value) for value in allowed)
            fail(self.who, f"{key} {wanted}", _short(value), "TinyLM has nothing else")

    def expect_no_window(self, key: str, max_len: int) -> None:
        """Refuse attention that looks back less far than the longest text."""
        window = self.get(key, 0)
        if window and not (isinstance(window, int) and window >= max_len):
            fail(self.who, f"{key} of at least {max_len} positions", _short(window))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
