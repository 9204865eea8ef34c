"""ModelConfig and TrainConfig: the numbers that fix a model, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, inf, pi
from sys import float_info

from tiny_lm.shapes import fail

NORM_NAMES = ("rms", "layer", "rms_pure", "rms_offset", "rms_floor", "dyt")
SIZE_NAMES = ("vocab_size", "max_len", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff")
ORDER_NAMES = (
    "pre", "post", "plain", "bare", "sandwich", "deepnorm", "rezero",
    "parallel", "layerscale", "inverse_root", "embed_norm", "qk_norm", "hyper",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape and arithmetic of a TinyLM. Frozen; every combination that exists is a valid one.

    `norm_eps` is in units of x² and reaches every norm of the model. `n_kv_heads` is the number
    of key/value heads; None means as many as `n_heads`. `order` says where the norms stand: "pre"
    inside the branch, "post" after the addition, "plain" without a direct path; the rest is in
    `tiny_lm.variants`, and so are more norms. `tied` reuses the embedding as the output matrix.
    Raises ValueError for sizes that do not fit together.
    """

    vocab_size: int = 256
    max_len: int = 256
    n_layers: int = 4
    d_model: int = 64
    n_heads: int = 2
    n_kv_heads: int | None = None
    d_ff: int = 128
    norm: str = "rms"
    norm_eps: float = 1e-5
    order: str = "pre"
    rope_theta: float = 10_000.0
    tied: bool = True

    def __post_init__(self) -> None:
        who = "ModelConfig"
        for name in SIZE_NAMES:
            size = getattr(self, name)
            if name == "n_kv_heads" and size is None:
                continue
            _expect_whole(who, name, size)
        if self.d_model % self.n_heads:
            fail(who, "d_model divisible by n_heads", f"{self.d_model} and {self.n_heads}")
        if self.d_head % 2:
            fail(who, "an even head width", f"{self.d_head}", "RoPE turns pairs of coordinates")
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            fail(who, "n_heads divisible by n_kv_heads", f"{self.n_heads} and {self.n_kv_heads}")
        if not 0 <= self.norm_eps <= float_info.max:
            fail(who, "norm_eps >= 0", self.norm_eps)
        if not 0 < self.rope_theta <= float_info.max:
            fail(who, "rope_theta > 0", self.rope_theta)
        if self.norm not in NORM_NAMES:
            fail(who, f"norm one of {', '.join(NORM_NAMES)}", repr(self.norm))
        if self.order not in ORDER_NAMES:
            fail(who, f"order one of {', '.join(ORDER_NAMES)}", repr(self.order))

    @property
    def d_head(self) -> int:
        """Width of one head, D / H."""
        return self.d_model // self.n_heads


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Raises ValueError for settings out of range.

    The learning rate rises for `warmup` steps, then falls along a cosine to `lr_end` · lr. Only
    matrices decay: `weight_decay` on a gain would pull it to zero. A gradient longer than `clip`
    is shortened to it. Training stops early when `patience` evaluations in a row were no better
    than the best. Source: AdamW, Loshchilov and Hutter 2019, arXiv 1711.05101.
    """

    steps: int = 600
    batch: int = 32  # rows a step, over all processes
    length: int = 64  # tokens to predict in each row
    lr: float = 3e-3
    lr_end: float = 0.1
    warmup: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    eval_every: int = 100
    eval_rows: int = 64
    patience: int | None = None

    def __post_init__(self) -> None:
        who = "TrainConfig"
        for name in ("steps", "batch", "length", "eval_every", "eval_rows"):
            _expect_whole(who, name, getattr(self, name))
        if not isinstance(self.warmup, int) or self.warmup < 0:
            fail(who, "warmup a whole number >= 0", repr(self.warmup))
        if self.patience is not None and self.patience < 1:
            fail(who, "patience >= 1", self.patience, "None never stops early")
        for name in ("lr", "clip"):
            if not 0 < getattr(self, name) < inf:
                fail(who, f"{name} > 0", getattr(self, name))
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            fail(who, "betas two numbers from 0 to below 1", self.betas)
        if not 0 <= self.lr_end <= 1:
            fail(who, "lr_end between 0 and 1", self.lr_end)
        if not 0 <= self.weight_decay < inf:
            fail(who, "weight_decay >= 0", self.weight_decay)

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * (self.lr_end + (1 - self.lr_end) * (1 + cos(pi * done)) / 2)


def _expect_whole(who: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        fail(who, f"{name} a whole number >= 1", repr(value))
