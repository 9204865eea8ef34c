"""Every way the package computes the same things, under one way of calling, for laws all must keep.

A norm or an order that is added to its dictionary is here without a line of its own.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from tiny_lm import autograd, fast, plain
from tiny_lm.attention import CausalSelfAttention, attention_2d, merge_heads, split_heads
from tiny_lm.autograd import nn as numpy_nn
from tiny_lm.config import ModelConfig
from tiny_lm.layers import NORMS, Residual, SwiGLU, residual_add
from tiny_lm.rope import apply_rope
from tiny_lm.variants import ORDERS

CONFIG = ModelConfig(
    vocab_size=11, max_len=32, n_layers=1, d_model=16, n_heads=4, n_kv_heads=2, d_ff=12,
    norm_eps=1e-3,
)  # fmt: skip


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(module: nn.Module, std: float = 0.2, seed: int = 0) -> nn.Module:
    """In float64, with weights wide enough for mistakes to show (CASES), gains around one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.double().parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.copy_(noise * std + (weight if weight.ndim < 2 else 0))
    return module


class InNumPy:
    """A module of tiny_lm.autograd that takes and gives torch's tensors."""

    def __init__(self, module: numpy_nn.Module):
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.module(autograd.Tensor(x.detach().numpy())).data)

    def slope(self, x: Tensor, dy: Tensor) -> Tensor:
        read = autograd.Tensor(x.detach().numpy())
        self.module(read).backward(dy.numpy())
        return torch.from_numpy(read.grad)


def slope(thing: Callable, x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of sum(thing(x) · dy)."""
    if isinstance(thing, InNumPy):
        return thing.slope(x, dy)
    read = x.detach().requires_grad_()
    return torch.autograd.grad(thing(read), read, dy)[0]


# Norms: (width, eps, gain [D]) -> a function of x [..., D]; what has no gain goes without

Make = Callable[[int, float, Tensor], Callable[[Tensor], Tensor]]


def _torch_norm(kind: type[nn.Module]) -> Make:
    def make(width: int, eps: float, gain: Tensor) -> nn.Module:
        norm = kind(width, eps=eps).double()
        with torch.no_grad():
            for name, weight in norm.named_parameters():
                if name in ("scale", "offset"):
                    weight.add_(gain - 1)  # from 1 to the gain, from 0 to what is added to 1
        return norm

    return make


def _numpy_norm(width: int, eps: float, gain: Tensor) -> InNumPy:
    norm = numpy_nn.RMSNorm(width, eps)
    norm.gamma.data[:] = gain.numpy()
    return InNumPy(norm)


def _lists_norm(width: int, eps: float, gain: Tensor) -> Callable[[Tensor], Tensor]:
    def norm(x: Tensor) -> Tensor:
        rows = [plain.rms_norm(row, gain.tolist(), eps) for row in x.reshape(-1, width).tolist()]
        return torch.tensor(rows, dtype=torch.float64).reshape(x.shape)

    return norm


class ManyRMSNorm(fast.FastRMSNorm):
    """The fast norm that takes, however few the numbers, its way for many."""

    few = 0


NORM_MAKERS: dict[str, Make] = {
    **{name: _torch_norm(kind) for name, kind in NORMS.items()},
    "fast": _torch_norm(fast.FastRMSNorm),
    "fast, many": _torch_norm(ManyRMSNorm),
    "numpy": _numpy_norm,
    "lists": _lists_norm,
}


# Everything that maps [B, T, 16] to [B, T, 16], built new at each call and always the same


def _block(order: str) -> nn.Module:
    return drawn(ORDERS[order](replace(CONFIG, order=order)))


def _numpy_block() -> InNumPy:
    block = numpy_nn.Block(16, 4, 12, eps=1e-3)
    numpy_nn.copy_weights(drawn(ORDERS["pre"](replace(CONFIG, n_kv_heads=4))), block)
    return InNumPy(block)


def _attention(x: Tensor) -> Tensor:
    return merge_heads(attention_2d(split_heads(x, 2), split_heads(x + 1, 2), split_heads(x, 2))[0])


LAYERS: dict[str, Callable[[], nn.Module]] = {
    **{f"norm {name}": lambda kind=kind: drawn(kind(16)) for name, kind in NORMS.items()},
    "swiglu": lambda: drawn(SwiGLU(16, 12)),
    "attention": lambda: drawn(CausalSelfAttention(16, 4, theta=50.0, n_kv_heads=2)),
    "residual": lambda: Residual(drawn(SwiGLU(16, 12))),
    **{f"block {order}": lambda order=order: _block(order) for order in ORDERS},
}
FAST_LAYERS = {
    f"fast {name}": lambda make=make: fast.speed_up(make())
    for name, make in LAYERS.items()
    if name in ("norm rms", "swiglu", "attention") or name.startswith("block")
}
FUNCTIONS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "residual_add": lambda: lambda x: residual_add(x, x),
    "apply_rope": lambda: lambda x: apply_rope(x, x, theta=50.0)[1],
    "attention_2d": lambda: _attention,
}
IN_NUMPY: dict[str, Callable[[], InNumPy]] = {
    "numpy norm": lambda: _numpy_norm(16, 1e-3, 1 + normal(16) / 5),
    "numpy block": _numpy_block,
}
THINGS: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    **LAYERS, **FAST_LAYERS, **FUNCTIONS, **IN_NUMPY,
}  # fmt: skip
