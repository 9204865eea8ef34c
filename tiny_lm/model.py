"""TinyLM: embedding, blocks, final norm, logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tiny_lm.attention import KVCache
from tiny_lm.config import ModelConfig
from tiny_lm.initial import draw
from tiny_lm.layers import NORMS
from tiny_lm.shapes import expect_width, fail, shape_of
from tiny_lm.taps import Tap, ignore, under
from tiny_lm.variants import stack

__all__ = ["ModelConfig", "TinyLM"]


class TinyLM(nn.Module):
    """A causal language model: `tokens [B, T] -> logits [B, T, V]`.

    x = embedding[tokens];  x = block_i(x) for every block;  logits = norm_final(x) Eᵀ

    E is the embedding itself (or a matrix of its own if `config.tied` is false). The final norm is
    there in every order; after a post-norm block it is the second norm in a row. Weights are drawn
    with the given seed in one of the ways of `tiny_lm.initial`: by default from normal(0, 0.02),
    those that write to the stream from normal(0, 0.02 / sqrt(2 · n_layers)), as in GPT-2 (Radford
    et al. 2019); "scaled_fan_in" suits narrow models. Gains are ones.
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0, init: str = "gpt2"):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = stack(config)
        self.norm_final = NORMS[config.norm](config.d_model, eps=config.norm_eps)
        self.output = (
            None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        )
        if not self.embedding.weight.is_meta:  # without storage: to be filled from a file
            draw(self, init, config.n_layers, seed)

    def forward(
        self, tokens: Tensor, *, cache: list[KVCache] | None = None, tap: Tap = ignore
    ) -> Tensor:
        """Logits of the token after each position: `[B, T] -> [B, T, V]`, in nats.

        With a `cache`, `tokens` are the next T positions after those it holds. Raises ValueError
        for tokens that are not `[B, T]` whole numbers below V, none at all, or past max_len.
        """
        return self.logits(self.features(tokens, cache=cache, tap=tap))

    def features(
        self, tokens: Tensor, *, cache: list[KVCache] | None = None, tap: Tap = ignore
    ) -> Tensor:
        """What the output matrix reads, the stream after the final norm: `[B, T] -> [B, T, D]`."""
        self._expect_tokens(tokens, len(cache[0]) if cache else 0)
        x = tap("embed", self.embedding(tokens))
        for i, block in enumerate(self.blocks):
            x = block(x, cache=cache[i] if cache else None, tap=under(f"blocks.{i}", tap))
        return tap("norm.final", self.norm_final(x))

    def logits(self, features: Tensor) -> Tensor:
        """Score every token of the vocabulary: `[..., D] -> [..., V]`."""
        expect_width("TinyLM.logits", features, self.config.d_model)
        matrix = self.embedding.weight if self.output is None else self.output.weight
        return features @ matrix.T

    def new_cache(self) -> list[KVCache]:
        """An empty cache for every block; pass it to each call of one generation."""
        return [KVCache() for _ in self.blocks]

    def _expect_tokens(self, tokens: Tensor, held: int) -> None:
        who, V, longest = "TinyLM", self.config.vocab_size, self.config.max_len
        if tokens.ndim != 2:
            fail(who, "tokens [B, T]", shape_of(tokens), "add a batch axis: tokens[None]")
        if tokens.dtype not in (torch.int32, torch.int64):
            fail(who, "whole-number tokens", tokens.dtype, "call .long()")
        if tokens.numel() == 0:
            fail(who, "at least one token", shape_of(tokens))
        if held + tokens.shape[1] > longest:
            fail(who, f"at most {longest} positions", held + tokens.shape[1], "config.max_len")
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= V:
            fail(who, f"token ids 0 … {V - 1}", low if low < 0 else high)
