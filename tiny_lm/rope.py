"""Rotary position embedding: turn each pair of coordinates by an angle that grows with position.

Source: Su et al. 2021, arXiv 2104.09864. Pairs are neighbours, (0, 1), (2, 3), …, as in the paper;
checkpoints that pair coordinate i with i + d/2 are reordered when they are loaded (pretrained.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tiny_lm.shapes import expect_axes, expect_floats, fail, shape_of


def rope_angles(positions: Tensor, width: int, theta: float = 10_000.0) -> Tensor:
    """Angle of each pair at each position, in radians: `[T] -> [T, width / 2]`.

    angle(t, i) = t · theta^(−2i / width)

    Computed in float64: at position 100,000 a float32 angle would be off by 0.004 radians.
    Raises ValueError for positions of another shape, an odd width or a theta that is not positive.
    """
    expect_axes("rope_angles", positions, "T")
    if width < 2 or width % 2:
        fail("rope_angles", "an even head width", width, "RoPE turns pairs of coordinates")
    if not theta > 0:
        fail("rope_angles", "theta > 0", theta)
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions.to(torch.float64)[:, None] * theta ** (-pair / width)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair (2i, 2i + 1) by its angle: `[..., T, d], [T, d/2] -> [..., T, d]`.

    (a, b) -> (a·cos − b·sin, a·sin + b·cos), computed in float32 or better; lengths are kept.
    """
    expect_floats("rotate", x)
    expect_axes("rotate", angles, "T d/2")
    if x.ndim < 2 or (x.shape[-2], x.shape[-1]) != (angles.shape[0], 2 * angles.shape[1]):
        fail("rotate", f"[..., {angles.shape[0]}, {2 * angles.shape[1]}]", shape_of(x))
    wide = torch.promote_types(x.dtype, torch.float32)
    return turn_pairs(x, angles.cos().to(wide), angles.sin().to(wide))


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """rotate with the cosines and sines at hand: `[..., d], [..., d/2] x 2 -> [..., d]`.

    Computed in the dtype of the cosines.
    """
    a, b = x.to(cos.dtype).unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2).to(x.dtype)


def apply_rope(
    q: Tensor, k: Tensor, positions: Tensor | None = None, theta: float = 10_000.0
) -> tuple[Tensor, Tensor]:
    """Give queries and keys their position: `[..., T, d], [..., T, d] -> the same shapes`.

    `positions` is `[T]`, 0 … T − 1 if not given. A score between a query and a key then depends
    only on how far apart they are. Raises ValueError when the shapes do not fit.
    """
    if q.ndim < 2:
        fail("apply_rope", "queries [..., T, d]", shape_of(q))
    if positions is None:
        positions = torch.arange(q.shape[-2], device=q.device)
    angles = rope_angles(positions, q.shape[-1], theta)
    return rotate(q, angles), rotate(k, angles)
