"""The fast path: the same layers, the same parameters and names, another way through them.

`speed_up(model)` is the one place where it is chosen. It gives each layer a subclass that overrides
forward only, so a checkpoint, an optimizer or a recording does not notice. What is asked for its
attention weights takes the taught way, and so does what a compiler will fuse by itself.
tests/test_fast.py holds both to the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import scaled_dot_product_attention, silu

from tiny_lm.attention import CausalSelfAttention, KVCache
from tiny_lm.fast.memory import lay_side_by_side, multiply, side_by_side
from tiny_lm.fast.norm import FastRMSNorm, Normalise
from tiny_lm.layers import RMSNorm, SwiGLU, TransformerBlock
from tiny_lm.model import TinyLM
from tiny_lm.rope import rope_angles, turn_pairs
from tiny_lm.shapes import expect_axes, expect_width
from tiny_lm.taps import Tap, ignore

__all__ = [
    "FAST",
    "FastAttention",
    "FastBlock",
    "FastRMSNorm",
    "FastSwiGLU",
    "Gate",
    "Normalise",
    "side_by_side",
    "slow_down",
    "speed_up",
    "take",
]

# Can torch's kernel read a key/value head for several queries, without a copy for each?
SHARES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 5)


def speed_up(model: nn.Module) -> nn.Module:
    """Let every layer of a model take its fast path, in place: `model -> the same model`.

    All weights move into one piece of memory, where they stay through training. To be called after
    `.to(...)`, which would move them apart again: that costs time, not the right answer.
    `slow_down` is the way back. Layers of another design keep their own path.
    """
    take(model, FAST)
    lay_side_by_side(model)
    return model


def take(model: nn.Module, kinds: Mapping[type[nn.Module], type[nn.Module]]) -> None:
    """Give every layer the class that `kinds` has for its own."""
    for module in model.modules():  # a layer before its parts
        kind = kinds.get(type(module))
        parts = [part for part in module.children() if isinstance(part, nn.Linear)]
        # Projections that do more than multiply, as those of QK-norm, are for the taught path.
        if kind is not None and all(type(part) is nn.Linear for part in parts):
            module.__class__ = kind


def slow_down(model: nn.Module) -> nn.Module:
    """Let every layer take the taught path again, in place: `model -> the same model`."""
    taught = {fast: slow for slow, fast in FAST.items()}
    for module in model.modules():
        if type(module) in taught:
            module.__class__ = taught[type(module)]
    return model


class FastAttention(CausalSelfAttention):
    """Attention whose weights are never written down: `[B, T, D] -> [B, T, D]`.

    One multiplication makes q, k and v; torch's fused kernel does the rest. With a tap it takes the
    taught path, for the tap is shown the weights.
    Source: Dao et al. 2022, arXiv 2205.14135, for the kernel.
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        if tap is not ignore:
            return super().forward(x, cache=cache, tap=tap)
        expect_axes("CausalSelfAttention", x, "B T D")
        expect_width("CausalSelfAttention", x, self.width)
        H, K, d = self.heads, self.kv_heads, self.width // self.heads
        qkv = multiply(x, self.q_proj, self.k_proj, self.v_proj)
        qk, v = qkv.unflatten(-1, (-1, d)).split([H + K, K], dim=2)  # [B, T, H + K, d], …
        start = 0 if cache is None else len(cache)
        q, k = _turn(qk, start, self.theta).split([H, K], dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # [B, H, T, d], …
        if cache is not None:
            k, v = cache.append(k, v)
        return multiply(_attend(q, k, v).transpose(1, 2).flatten(-2), self.out_proj)

    def one(self, row: Tensor, cache: KVCache) -> Tensor:
        """The same for the next token alone: `[D] -> [D]`."""
        H, K, d = self.heads, self.kv_heads, self.width // self.heads
        qkv = multiply(row, self.q_proj, self.k_proj, self.v_proj).view(1, 1, -1, d)
        qk = _turn(qkv[:, :, : H + K], len(cache), self.theta)
        q, k = qk[:, :, :H].view(1, H, 1, d), qk[:, :, H:].view(1, K, 1, d)
        k, v = cache.append(k, qkv[:, :, H + K :].view(1, K, 1, d))
        return multiply(_attend(q, k, v).reshape(-1), self.out_proj)


def _turn(x: Tensor, start: int, theta: float) -> Tensor:
    """apply_rope on `[B, T, H, d]` from position `start` on: a pair is a complex number."""
    T, d = x.shape[1], x.shape[3]
    wide = torch.promote_types(x.dtype, torch.float32)
    if torch.compiler.is_compiling():
        turns = torch.view_as_real(_circle(start, start + T, d, theta, x.device)).to(wide)
        return turn_pairs(x, *turns[:, None].unbind(-1))
    room = max(256, 1 << (start + T - 1).bit_length())
    # A table made in inference mode could not be used in training: each has its own.
    turns = _turns(room, d, theta, wide, x.device, torch.is_inference_mode_enabled())
    pairs = torch.view_as_complex(x.to(wide).view(*x.shape[:3], d // 2, 2))
    return torch.view_as_real(pairs * turns[start : start + T, None]).flatten(-2).to(x.dtype)


@lru_cache(maxsize=32)
def _turns(
    room: int, d: int, theta: float, dtype: torch.dtype, device: Any, inference: bool
) -> Tensor:
    """The points for positions 0 to `room`, rounded: `[room, d / 2]`."""
    return _circle(0, room, d, theta, device).to(dtype.to_complex())


def _circle(start: int, stop: int, d: int, theta: float, device: Any) -> Tensor:
    """exp(i · angle) of some positions: `[stop - start, d / 2]`.

    A compiler takes polar for work of its own. It would merge cos and sin into what uses them, and
    compute them again for every row and head.
    """
    angles = rope_angles(torch.arange(start, stop, device=device), d, theta)
    return torch.polar(torch.ones_like(angles), angles)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, the last query on the last key: `[B, H, T, d], [B, K, S, d] x 2 -> q's`."""
    if q.device.type == "cpu" and q.dtype.itemsize == 2 and q.requires_grad:
        # There the kernel's backward takes five times as long in 16 bits as in 32.
        with torch.autocast("cpu", enabled=False):
            return _attend(q.float(), k.float(), v.float()).to(q.dtype)
    B, H, T, d = q.shape
    K, S = k.shape[1], k.shape[2]
    if T == 1:  # heads that share a key/value head stand as its queries; there is no future
        shared = q.reshape(B, K, H // K, d)
        return scaled_dot_product_attention(shared, k, v).reshape(B, H, 1, d)
    if K != H and not SHARES:
        k, v = (x.repeat_interleave(H // K, dim=1) for x in (k, v))
    options = {"enable_gqa": True} if k.shape[1] != H else {}
    if T == S:
        return scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    # is_causal would line up the first query with the first key.
    seen = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, **options)


class Gate(Function):
    """silu(gate) · up of two halves, `[..., 2F] -> [..., F]`, whose slopes are one tensor again."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        opened = silu(gate)
        ctx.save_for_backward(both, opened)
        return opened * up

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        both, opened = ctx.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        if torch.is_grad_enabled():
            bent = gate.sigmoid() * (1 + gate * (1 - gate.sigmoid()))
            return torch.cat([slope * up * bent, slope * silu(gate)], dim=-1)
        d_both = torch.empty_like(both)
        d_gate, d_up = d_both.chunk(2, dim=-1)
        torch.ops.aten.silu_backward.grad_input(slope * up, gate, grad_input=d_gate)
        torch.mul(slope, opened, out=d_up)
        return d_both


class FastSwiGLU(SwiGLU):
    """SwiGLU with one multiplication for gate and up: `[..., D] -> [..., D]`."""

    def forward(self, x: Tensor) -> Tensor:
        expect_width("SwiGLU", x, self.width)
        if torch.compiler.is_compiling():
            return super().forward(x)
        both = multiply(x, self.gate_proj, self.up_proj)
        if torch.is_grad_enabled():
            return multiply(Gate.apply(both), self.down_proj)
        gate, up = both.chunk(2, dim=-1)
        return multiply(silu(gate).mul_(up), self.down_proj)

    def one(self, row: Tensor) -> Tensor:
        """The same for one token alone: `[D] -> [D]`."""
        gate, up = multiply(row, self.gate_proj, self.up_proj).chunk(2)
        return multiply(silu(gate).mul_(up), self.down_proj)


class FastBlock(TransformerBlock):
    """The pre-norm block, which for one token alone goes a shorter way through its layers.

    Between the matrix products Python's own work is what takes the time there. Layers of another
    design, and those with a hook, are called as usual.
    """

    def forward(self, x: Tensor, *, cache: KVCache | None = None, tap: Tap = ignore) -> Tensor:
        norm1, attention, norm2, ffn = parts = self.norm1, self.attention, self.norm2, self.ffn
        alone = x.shape[:2] == (1, 1) and cache is not None and tap is ignore and x.is_cpu
        if not alone or torch.is_grad_enabled() or not all(map(_has_short_way, parts)):
            return super().forward(x, cache=cache, tap=tap)
        row = x.view(-1)
        row = attention.one(norm1.one(row), cache).add_(row)
        row = ffn.one(norm2.one(row)).add_(row)
        return row.view(1, 1, -1)


def _has_short_way(part: nn.Module) -> bool:
    return hasattr(part, "one") and not part._forward_hooks and not part._forward_pre_hooks


class FastTinyLM(TinyLM):
    """A TinyLM whose last multiplication is quick for one token: `[B, T] -> [B, T, V]`."""

    def logits(self, features: Tensor) -> Tensor:
        """Score every token of the vocabulary: `[..., D] -> [..., V]`."""
        expect_width("TinyLM.logits", features, self.config.d_model)
        return multiply(features, self.embedding if self.output is None else self.output)


FAST: dict[type[nn.Module], type[nn.Module]] = {
    RMSNorm: FastRMSNorm,
    CausalSelfAttention: FastAttention,
    SwiGLU: FastSwiGLU,
    TransformerBlock: FastBlock,
    TinyLM: FastTinyLM,
}
