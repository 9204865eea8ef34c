"""Chapter 05: the experiments of the claims. Each makes a function from a seed to one number."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cosine_similarity

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.probes import depth, paths

HE, DEFAULT, SMALL = depth.INITS
RELU, REAL = depth.BRANCHES
DEEP = depth.DEEPEST

Experiment = Callable[[int], float]


def _reading(read: Callable[[depth.Stack], float]) -> Callable[..., Experiment]:
    """An experiment that reads one number off a stack of 128 layers."""

    def of(wiring: str, init: str = HE, branch: str = RELU) -> Experiment:
        return lambda seed: read(depth.stack(wiring, branch, init, DEEP, seed))

    return of


gradient = _reading(lambda stack: stack.gradient[0])  # at the input; 1 at the output
growth = _reading(lambda stack: stack.stream[-1] / stack.stream[0])
apart = _reading(lambda stack: 1 - stack.cosine[-1])  # 0 when all inputs have become alike


def exponent(wiring: str, init: str = HE, branch: str = RELU) -> Experiment:
    """ln of the stream's growth over 128 layers, over the same for 64: 2 if exponential."""

    def experiment(seed: int) -> float:
        stream = depth.stack(wiring, branch, init, DEEP, seed).stream
        return log(stream[-1] / stream[0]) / log(stream[DEEP // 2] / stream[0])

    return experiment


def last_step(wiring: str, init: str = HE, branch: str = RELU) -> Experiment:
    """1 − mean cosine between the stream before and after the last layer."""

    @torch.no_grad()
    def experiment(seed: int) -> float:
        x, _ = depth.inputs(seed)
        *_, before, after = depth.run(x, wiring, depth.branches(branch, init, seed))
        return 1 - float(cosine_similarity(before, after, dim=-1).mean())

    return experiment


def short(wiring: str, init: str = HE) -> Experiment:
    """Mean length of a path, weighted by gradient, over the longest, 54."""
    return lambda seed: paths.lengths(wiring, init, 54, seed).mean_gradient / 54


LAST_MATRIX = {RELU: "down", REAL: "down_proj.weight"}


def _last_weight_gradient(wiring: str, branch: str, layers: int, seed: int) -> float:
    """Length of the last matrix's gradient, behind a final norm as in a model."""
    x, arriving = depth.inputs(seed)
    made = depth.branches(branch, HE, seed)[:layers]
    with torch.no_grad():
        before = depth.run(x, wiring, made)[-2]
    name = LAST_MATRIX[branch]
    weight = made[-1].get_parameter(name).clone().requires_grad_()

    def last(u: Tensor) -> Tensor:
        return functional_call(made[-1], {name: weight}, (u,))

    y = depth.norm()(depth.WIRINGS[wiring](before, last, layers))
    return float(torch.autograd.grad(y, weight, arriving)[0].norm())


def against_theorem(wiring: str, said: float, branch: str = RELU) -> Experiment:
    """How the last gradient changes from 8 to 128 layers, over how it is said to."""

    def experiment(seed: int) -> float:
        deep, shallow = (_last_weight_gradient(wiring, branch, n, seed) for n in (DEEP, 8))
        return deep / shallow / said

    return experiment


def twice(rms: float, gains: tuple[float, float]) -> Experiment:
    """Relative change of a row when the norm is applied once more."""

    @torch.no_grad()
    def experiment(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        x = rms * torch.randn(64, 64, generator=generator, dtype=torch.float64)
        norm = RMSNorm(64, eps=1e-5).double()
        norm.scale.uniform_(*gains, generator=generator)
        once = norm(x)
        return float((norm(once) - once).norm() / once.norm())

    return experiment


def error_ratio(mean: float) -> Experiment:
    """Relative rounding error in float32 of LayerNorm over that of RMSNorm, on the same rows."""

    @torch.no_grad()
    def experiment(seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        x = (mean + torch.randn(256, 512, generator=generator, dtype=torch.float64)).float()
        errors = []
        for norm in (LayerNorm(512), RMSNorm(512)):
            rounded, exact = norm(x).double(), norm.double()(x.double())
            errors.append(float((rounded - exact).norm() / exact.norm()))
        return errors[0] / errors[1]

    return experiment
