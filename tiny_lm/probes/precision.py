"""Chapter 03: epsilon in 64, 32 and 16 bits, computed as each type of number computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, isnan, sqrt

import numpy as np
import torch
from torch import Tensor

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.probes.epsilon import OUTPUTS, PLACES

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
PLAIN, WIDE = "in the type itself", "in float32 inside"
TORCH = "by torch.nn.RMSNorm, no eps given"
SIZES = np.logspace(-6, 22, 225)  # RMS of the input, eight to a factor of ten
X = torch.tensor([3.0, 4.0], dtype=torch.float64) / sqrt(12.5)  # RMS 1
ACROSS = torch.tensor([-0.8, 0.6], dtype=torch.float64)


@dataclass(frozen=True)
class Curve:
    """A quantity by the size of the input: at every size, at the chosen one, at the zero vector."""

    values: list[float]
    here: float
    zero: float
    zones: list[tuple[str, float, float]]  # what went wrong, from which size to which


@dataclass(frozen=True)
class Laboratory:
    """RMSNorm with its eps in one place, computed in one type of number."""

    eps: float
    size: float
    dtype: str
    place: str
    computed: str
    sizes: list[float]
    law: list[float]  # output RMS in exact arithmetic
    law_here: float
    output: Curve  # output RMS, as computed
    slope: Curve  # factor on a gradient across x, as computed
    reason: str  # why the output here is 0, NaN or Inf; empty if it is none of them
    zero_reason: str  # the same for the zero vector, output or gradient


def laboratory(eps: float, size: float, dtype: str, place: str, computed: str) -> Laboratory:
    """Run [3, 4], at all sizes, at the chosen size and at 0, forwards and backwards.

    Computed by torch's own norm with its default epsilon, `eps` and `place` are not used.
    """
    if computed == TORCH:
        eps, place = default_eps(DTYPES[dtype]), "inside"
    sizes = torch.tensor([*SIZES, size, 0.0], dtype=torch.float64)
    x = (sizes[:, None] * X).to(DTYPES[dtype]).requires_grad_()
    work = DTYPES[dtype]
    if computed != PLAIN:
        work = torch.promote_types(work, torch.float32)
    if computed == TORCH:
        y = torch.nn.functional.rms_norm(x, (2,))
    else:
        y = PLACES[place](x.to(work), eps).to(x.dtype)
    (dx,) = torch.autograd.grad(y, x, ACROSS.to(x.dtype).expand_as(x))
    outputs = y.detach().double().square().mean(-1).sqrt().tolist()
    slopes = dx.double().norm(dim=-1).tolist()
    exact = OUTPUTS[place]
    with np.errstate(invalid="ignore"):  # rows that are Inf or 0 in this type
        # Judged by the law for the row as the type holds it: its rounding is not the norm's fault.
        right = exact(x.detach().double().square().mean(-1).sqrt().numpy(), eps).tolist()
    kinds = [_kind(value, want) for value, want in zip(outputs, right, strict=True)]
    slope_kinds = ["0" if s == 0 else "" if s < inf else "NaN, Inf" for s in slopes]
    law_here = float(exact(size, eps))
    return Laboratory(
        eps=eps,
        size=size,
        dtype=dtype,
        place=place,
        computed=computed,
        sizes=SIZES.tolist(),
        law=exact(SIZES, eps).tolist(),
        law_here=law_here,
        output=Curve(outputs[:-2], outputs[-2], outputs[-1], _zones(kinds[:-2])),
        slope=Curve(slopes[:-2], slopes[-2], slopes[-1], _zones(slope_kinds[:-2])),
        reason=_reason(x[-2].detach(), work, kinds[-2])
        or _slope_reason(dtype, work, slopes[-2], law_here / size),
        zero_reason=_zero_reason(eps, place, dtype, work, outputs[-1], slopes[-1]),
    )


def default_eps(dtype: torch.dtype) -> float:
    """The epsilon that torch's RMSNorm takes when none is given, measured on one small row.

    It depends on the type, on the version of torch and on the device.
    """
    size = 2.0**-13  # exact in every type, and near the root of the likely epsilons
    row = torch.full((2,), size, dtype=dtype)
    y = float(torch.nn.functional.rms_norm(row, (2,))[0])
    return size * size * (1 / (y * y) - 1)


def _zones(kinds: list[str]) -> list[tuple[str, float, float]]:
    """Join neighbouring sizes that fail in the same way: (kind, from, to)."""
    half = float(SIZES[1] / SIZES[0]) ** 0.5
    zones: list[tuple[str, float, float]] = []
    for size, kind, before in zip(SIZES.tolist(), kinds, ["", *kinds[:-1]], strict=True):
        if kind and kind == before:
            zones[-1] = (kind, zones[-1][1], size * half)
        elif kind:
            zones.append((kind, size / half, size * half))
    return zones


def _kind(value: float, right: float) -> str:
    """How an output RMS fails: 0, NaN, Inf, off (by more than a tenth), or not at all."""
    if isnan(value):
        return "NaN"
    if value in (0, inf):
        return "0" if value == 0 else "Inf"
    return "off" if abs(value - right) > 0.1 * right else ""


def _reason(x: Tensor, work: torch.dtype, kind: str) -> str:
    """Why the output of the row x is not what the law says."""
    name, square = _name(work), x.to(work).square().mean()
    if not kind:
        return ""
    if x.isinf().any():
        return f"the input itself is Inf in {_name(x.dtype)}, and Inf · 0 has no value"
    if square.isinf():
        return f"its square is Inf in {name}, and x / Inf is 0"
    if square == 0 and kind != "off":
        return f"its square is 0 in {name}, and x / 0 is Inf"
    return f"its square is too small for {name} to hold it well"


def _slope_reason(dtype: str, work: torch.dtype, slope: float, right: float) -> str:
    """Why the factor on the gradient is no number although the output is one."""
    if isfinite(slope):
        return ""
    if right > torch.finfo(DTYPES[dtype]).max:
        return f"a factor of {right:.3g} on gradients is more than {dtype} can hold"
    return f"on the way back an intermediate product is Inf in {_name(work)}"


def _zero_reason(
    eps: float, place: str, dtype: str, work: torch.dtype, output: float, slope: float
) -> str:
    """The same for the zero vector."""
    if isnan(output) and place == "left out":
        return "0 / 0 has no value"
    if isnan(output):
        return f"eps itself is 0 in {_name(work)}, and 0 / 0 has no value"
    if isnan(slope) and place in ("outside", "floor"):
        return "the root's slope at 0 is infinite, and 0 · Inf has no value"
    return _slope_reason(dtype, work, slope, eps**-0.5)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Format:
    """How large and small the entries of a type may be, and those whose square still fits."""

    name: str
    smallest: float
    largest: float
    smallest_square: float  # the smallest entry whose square is not 0
    largest_square: float  # the largest entry whose square is not Inf


def formats() -> list[Format]:
    """Measure the 16- and 32-bit types by squaring their numbers."""
    return [_format(name) for name in ("float16", "bfloat16", "float32")]


def _format(name: str) -> Format:
    bits = torch.int32 if name == "float32" else torch.int16
    low, high = 1, int(torch.tensor(inf, dtype=DTYPES[name]).view(bits)) - 1

    def number(pattern: int) -> Tensor:
        return torch.tensor(pattern, dtype=bits).view(DTYPES[name])

    def first(test: Callable[[Tensor], Tensor]) -> int:
        # The bit patterns of positive numbers are in the order of the numbers: halve the interval.
        left, right = low, high
        while left < right:
            middle = (left + right) // 2
            if test(number(middle).square()):
                right = middle
            else:
                left = middle + 1
        return left

    return Format(
        name=name,
        smallest=float(number(low)),
        largest=float(number(high)),
        smallest_square=float(number(first(lambda square: square > 0))),
        largest_square=float(number(first(lambda square: square.isinf()) - 1)),
    )


@dataclass(frozen=True)
class Steadiness:
    """Rows with standard deviation 1 around a common mean, 32 bits against 64."""

    mean: float
    rms_error: float  # |difference| / |right|, over all rows
    layer_error: float
    signal: float  # share of RMSNorm's output that is not the common mean


def steadiness(mean: float, rows: int = 16, width: int = 512, seed: int = 0) -> Steadiness:
    """How far 32-bit RMSNorm and LayerNorm are from their 64-bit values (eps 1e-5)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64) + mean
    errors = []
    with torch.no_grad():
        for norm in (RMSNorm, LayerNorm):
            right = norm(width, eps=1e-5).double()(x)
            difference = norm(width, eps=1e-5)(x.float()).double() - right
            errors.append(float(difference.norm() / right.norm()))
    y = x / x.square().mean(-1, keepdim=True).sqrt()
    signal = (y - y.mean(-1, keepdim=True)).square().mean().sqrt()
    return Steadiness(mean, errors[0], errors[1], float(signal))
