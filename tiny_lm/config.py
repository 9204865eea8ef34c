"""ModelConfig: the numbers that fix the shape and arithmetic of a model."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_lm.shapes import fail

NORM_NAMES = ("rms", "layer")
SIZE_NAMES = ("vocab_size", "max_len", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff")
ORDER_NAMES = ("pre", "post", "plain")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape and arithmetic of a TinyLM. Frozen; every combination that exists is a valid one.

    `norm_eps` is in units of x² and reaches every norm of the model. `n_kv_heads` is the number
    of key/value heads; None means as many as `n_heads`. `order` says where the norms stand: "pre"
    inside the branch, "post" after the addition, "plain" without a direct path. `tied` reuses the
    embedding as the output matrix. Raises ValueError for sizes that do not fit together.
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
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                fail(who, f"{name} a whole number >= 1", repr(size))
        if self.d_model % self.n_heads:
            fail(who, "d_model divisible by n_heads", f"{self.d_model} and {self.n_heads}")
        if self.d_head % 2:
            fail(who, "an even head width", f"{self.d_head}", "RoPE turns pairs of coordinates")
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            fail(who, "n_heads divisible by n_kv_heads", f"{self.n_heads} and {self.n_kv_heads}")
        if not self.norm_eps >= 0:
            fail(who, "norm_eps >= 0", self.norm_eps)
        if not self.rope_theta > 0:
            fail(who, "rope_theta > 0", self.rope_theta)
        if self.norm not in NORM_NAMES:
            fail(who, f"norm one of {', '.join(NORM_NAMES)}", repr(self.norm))
        if self.order not in ORDER_NAMES:
            fail(who, f"order one of {', '.join(ORDER_NAMES)}", repr(self.order))

    @property
    def d_head(self) -> int:
        """Width of one head, D / H."""
        return self.d_model // self.n_heads
