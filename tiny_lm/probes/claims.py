"""Chapter 05: popular sentences on residual connections and norms, each with an experiment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, log

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tiny_lm.layers import LayerNorm, RMSNorm
from tiny_lm.probes import depth, paths
from tiny_lm.probes.court import Claim, Trial, hear
from tiny_lm.shapes import fail

HE, DEFAULT, SMALL = depth.INITS
RELU, REAL = depth.BRANCHES
DEEP = depth.DEEPEST
STACK = f"{DEEP} layers, ReLU branches, width {depth.WIDTH}, float64, eps 0, nothing trained"
EITHER = STACK.replace("ReLU branches", "branches as named")

Experiment = Callable[[int], float]


def _stack(wiring: str, init: str = HE, branch: str = RELU, layers: int = DEEP) -> Callable:
    return lambda seed: depth.stack(wiring, branch, init, layers, seed)


def _gradient(*setting: str) -> Experiment:
    """Length of the gradient at the input; it is 1 at the output."""
    return lambda seed: _stack(*setting)(seed).gradient[0]


def _growth(*setting: str) -> Experiment:
    def experiment(seed: int) -> float:
        stream = _stack(*setting)(seed).stream
        return stream[-1] / stream[0]

    return experiment


def _alike(*setting: str) -> Experiment:
    return lambda seed: _stack(*setting)(seed).cosine[-1]


def _exponent(*setting: str) -> Experiment:
    """ln of the variance's growth over 128 layers, over the same for 64: 2 if exponential."""

    def experiment(seed: int) -> float:
        deep, half = (_stack(*setting, layers)(seed).stream for layers in (DEEP, DEEP // 2))
        return log(deep[-1] / deep[0]) / log(half[-1] / half[0])

    return experiment


def _last_step(wiring: str, init: str = HE, branch: str = RELU) -> Experiment:
    """Mean cosine between the stream before and after the last layer."""

    @torch.no_grad()
    def experiment(seed: int) -> float:
        x, _ = depth.inputs(seed)
        *_, before, after = depth.run(x, wiring, depth.branches(branch, init, seed))
        return float(cosine_similarity(before, after, dim=-1).mean())

    return experiment


def _short(wiring: str, init: str = HE) -> Experiment:
    return lambda seed: paths.lengths(wiring, init, 54, seed).mean_gradient / 54


def _last_weight_gradient(wiring: str, layers: int, seed: int) -> float:
    """Length of the last matrix's gradient, behind a final norm as in a model."""
    x, gradient = depth.inputs(seed)
    made = depth.branches(RELU, HE, seed)[:layers]
    before = depth.run(x, wiring, made)[-2].detach()
    last = made[-1]
    weight = last[2].weight.clone().requires_grad_()

    def branch(u: Tensor) -> Tensor:
        return last[:2](u) @ weight.T

    y = depth.norm()(depth.WIRINGS[wiring](before, branch, layers))
    return float(torch.autograd.grad(y, weight, gradient)[0].norm())


def _against_theorem(wiring: str, predicted: float) -> Experiment:
    """How the last gradient changes from 8 to 128 layers, over how it is said to."""
    return lambda seed: (
        (_last_weight_gradient(wiring, DEEP, seed) / _last_weight_gradient(wiring, 8, seed))
        / predicted
    )


def _twice(rms: float, gains: tuple[float, float]) -> Experiment:
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


def _error_ratio(mean: float) -> Experiment:
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


CLAIMS = {
    claim.name: claim
    for claim in (
        Claim(
            name="highway",
            sentence="Residual connections are a constant gradient highway: through 100 layers "
            "gradients flow without diminishing.",
            said_in="blog posts and course notes on ResNets and transformers",
            measured="gradient at the input / at the output; constant = within a factor of 2",
            fixed=STACK,
            band=(0.5, 2.0),
            settings={
                "path, no norm · He": _gradient("path, no norm"),
                "path, no norm · PyTorch's default": _gradient("path, no norm", DEFAULT),
                "path, no norm · Normal(0, 0.02)": _gradient("path, no norm", SMALL),
                "pre-norm · He": _gradient("pre-norm"),
                "pre-norm · PyTorch's default": _gradient("pre-norm", DEFAULT),
                "pre-norm / √L · He": _gradient("pre-norm / √L"),
                "ReZero": _gradient("ReZero"),
            },
        ),
        Claim(
            name="extinct",
            sentence="Without direct paths, gradients of deep networks go extinct.",
            said_in="the usual motivation for residual connections",
            measured="gradient at the input / at the output; extinct = below one millionth",
            fixed=EITHER,
            band=(0.0, 1e-6),
            settings={
                "plain ReLU · He": _gradient("plain"),
                "plain ReLU · PyTorch's default": _gradient("plain", DEFAULT),
                "plain ReLU · Normal(0, 0.02)": _gradient("plain", SMALL),
                "norm, no path · attention, SwiGLU": _gradient("norm, no path", HE, REAL),
            },
        ),
        Claim(
            name="healthy",
            sentence="If the gradient keeps its size, the network is healthy.",
            said_in="explanations that treat depth as a problem of gradients alone",
            measured="mean cosine between what different inputs become; healthy = at most 0.9",
            fixed=STACK + ", He; wirings whose gradient keeps its size to a factor of 10",
            band=(-1.0, 0.9),
            ratio=False,
            settings={
                name: _alike(name)
                for name in ("plain", "post-norm", "pre-norm / √L", "DeepNorm", "ReZero")
            },
        ),
        Claim(
            name="clean",
            sentence="In pre-norm the residual stream stays clean: it keeps its size.",
            said_in="tutorials on pre-norm",
            measured="RMS of the stream at the end / at the start; kept = within a factor of 2",
            fixed=EITHER,
            band=(0.5, 2.0),
            settings={
                "ReLU · He": _growth("pre-norm"),
                "ReLU · PyTorch's default": _growth("pre-norm", DEFAULT),
                "attention, SwiGLU · fan-in": _growth("pre-norm", HE, REAL),
                "attention, SwiGLU · Normal(0, 0.02)": _growth("pre-norm", SMALL, REAL),
                "ReLU · He, branches / √L": _growth("pre-norm / √L"),
            },
        ),
        Claim(
            name="short_paths",
            sentence="The gradient of a residual network comes mainly through short paths.",
            said_in="Veit et al. 2016, arXiv 1605.06431, on a trained network of 54 modules",
            measured="mean length of a path, weighted by gradient / layers; short = below 1/4",
            fixed=STACK.replace(str(DEEP), "54"),
            band=(0.0, 0.25),
            settings={
                "path, no norm · He": _short("path, no norm"),
                "path, no norm · PyTorch's default": _short("path, no norm", DEFAULT),
                "pre-norm · He": _short("pre-norm"),
                "pre-norm · PyTorch's default": _short("pre-norm", DEFAULT),
            },
        ),
        Claim(
            name="post_vanishes",
            sentence="In post-norm, gradients vanish on their way to the first layers.",
            said_in="papers that propose another place for the norm",
            measured="gradient at the input / at the output; vanished = below a tenth",
            fixed=EITHER,
            band=(0.0, 0.1),
            settings={
                "ReLU · He": _gradient("post-norm"),
                "ReLU · PyTorch's default": _gradient("post-norm", DEFAULT),
                "attention, SwiGLU · fan-in": _gradient("post-norm", HE, REAL),
                "attention, SwiGLU · PyTorch's default": _gradient("post-norm", DEFAULT, REAL),
            },
        ),
        Claim(
            name="last_layer",
            sentence="The last layer's gradient does not depend on depth in post-norm, and "
            "shrinks like 1/√L in pre-norm.",
            said_in="Xiong et al. 2020, arXiv 2002.04745, proved for LayerNorm",
            measured="change of the last matrix's gradient from 8 to 128 layers / predicted change; "
            "right = within a factor of 1.5",
            fixed=STACK + ", He, a final norm",
            band=(1 / 1.5, 1.5),
            settings={
                "post-norm, predicted 1": _against_theorem("post-norm", 1.0),
                "pre-norm, predicted 1/4": _against_theorem("pre-norm", 0.25),
            },
        ),
        Claim(
            name="exponential",
            sentence="In pre-norm the variance of the stream grows exponentially with depth.",
            said_in="Sun et al. 2025, The Curse of Depth, arXiv 2502.05795, on trained models",
            measured="log growth of the variance over 128 layers / over 64; exponential = 2",
            fixed=EITHER,
            band=(1.8, 2.2),
            settings={
                "pre-norm · ReLU": _exponent("pre-norm", HE, RELU),
                "pre-norm · attention, SwiGLU": _exponent("pre-norm", HE, REAL),
                "path, no norm · ReLU": _exponent("path, no norm", HE, RELU),
            },
        ),
        Claim(
            name="idle",
            sentence="The deep layers of a pre-norm stack hardly change the stream.",
            said_in="Sun et al. 2025, arXiv 2502.05795, and papers on removing layers",
            measured="cosine between the stream before and after layer 128; hardly = above 0.99",
            fixed=EITHER,
            band=(0.99, 1.0),
            ratio=False,
            settings={
                "pre-norm · ReLU": _last_step("pre-norm"),
                "pre-norm · attention, SwiGLU": _last_step("pre-norm", HE, REAL),
                "path, no norm · ReLU": _last_step("path, no norm"),
                "post-norm · ReLU": _last_step("post-norm"),
            },
        ),
        Claim(
            name="twice",
            sentence="A norm applied twice does nothing the second time.",
            said_in="answers to the question why a model ends with two norms",
            measured="relative change by the second time; nothing = below 1/1000",
            fixed="RMSNorm, width 64, eps 1e-5, float64",
            band=(0.0, 1e-3),
            settings={
                "gains 1, rows of RMS 1": _twice(1.0, (1.0, 1.0)),
                "gains 1, rows of RMS 0.001": _twice(1e-3, (1.0, 1.0)),
                "gains between 0.5 and 1.5": _twice(1.0, (0.5, 1.5)),
            },
        ),
        Claim(
            name="identical",
            sentence="RMSNorm and LayerNorm are numerically equally stable.",
            said_in="comparisons of the two norms",
            measured="rounding error of LayerNorm / of RMSNorm; equal = within a factor of 3",
            fixed="float32, width 512, eps 1e-5, rows of standard deviation 1",
            band=(1 / 3, 3.0),
            digits=0,
            settings={f"mean {mean:,}": _error_ratio(float(mean)) for mean in (0, 100, 10_000)},
        ),
        Claim(
            name="hundred_layers",
            sentence="Pre-norm trains 100 layers from the first step; post-norm needs warm-up.",
            said_in="nearly everybody who explains pre-norm",
            measured="the loss after training",
            tried_in="chapter 06, by training",
        ),
        Claim(
            name="faster",
            sentence="RMSNorm is 30 % faster than LayerNorm.",
            said_in="many summaries; the paper says 7 % to 64 % on whole models (arXiv 1910.07467)",
            measured="a ratio of times, which depends on the machine and on how both are written",
            tried_in="chapter 09, with a clock",
        ),
    )
}


@cache
def trial(name: str) -> Trial:
    """Try one of CLAIMS. Raises ValueError for another name."""
    if name not in CLAIMS:
        fail("trial", f"one of {', '.join(CLAIMS)}", repr(name))
    return hear(CLAIMS[name])
