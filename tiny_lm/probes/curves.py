"""Chapter 09: one coordinate on its way through RMSNorm and through Dynamic Tanh."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from tiny_lm.layers import RMSNorm
from tiny_lm.variants.norms import DynamicTanh

WIDTH, POINTS, REACH = 64, 161, 20.0


@dataclass(frozen=True)
class Curves:
    """What comes out for one coordinate x, all others being of RMS `others`; gain 1 for the norm.

    `norm_slope` and `tanh_slope` are the slopes at 0, `bound` the most that RMSNorm can return.
    """

    others: float
    alpha: float
    scale: float
    x: list[float]
    norm: list[float]
    tanh: list[float]
    norm_slope: float
    tanh_slope: float
    bound: float


@lru_cache(maxsize=2048)
def curves(others: float = 1.0, alpha: float = 0.5, scale: float = 1.0) -> Curves:
    """Send one coordinate through both, in float64, from −20 to 20."""
    x = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    rows = torch.full((POINTS, WIDTH), others, dtype=torch.float64)
    rows[:, 0] = x
    tanh = DynamicTanh(WIDTH).double()
    with torch.no_grad():
        tanh.alpha.fill_(alpha)
        tanh.scale.fill_(scale)
        normed, bent = RMSNorm(WIDTH).double()(rows)[:, 0], tanh(rows)[:, 0]
    middle, step = POINTS // 2, 2 * REACH / (POINTS - 1)
    return Curves(
        others,
        alpha,
        scale,
        x.tolist(),
        normed.tolist(),
        bent.tolist(),
        float(normed[middle + 1] - normed[middle - 1]) / (2 * step),
        alpha * scale,
        WIDTH**0.5,
    )
