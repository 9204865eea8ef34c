"""Chapter 05: popular sentences on residual connections and norms, each with an experiment."""

from __future__ import annotations

from functools import cache

from tiny_lm.probes.court import Claim, Trial, hear
from tiny_lm.probes.depth import WIDTH
from tiny_lm.probes.experiments import (
    DEEP,
    DEFAULT,
    HE,
    REAL,
    RELU,
    SMALL,
    against_theorem,
    apart,
    error_ratio,
    exponent,
    gradient,
    growth,
    last_step,
    short,
    twice,
)
from tiny_lm.shapes import fail

STACK = f"{DEEP} layers, ReLU branches, width {WIDTH}, float64, eps 0, nothing trained"
EITHER = STACK.replace("ReLU branches", "branches as named")

CLAIMS = {
    claim.name: claim
    for claim in (
        Claim(
            name="highway",
            sentence="Residual connections are a constant gradient highway: through 100 layers "
            "gradients flow without diminishing.",
            said="in blog posts and course notes on ResNets and transformers",
            measured="gradient at the input / at the output; constant = within a factor of 2",
            fixed=STACK,
            band=(0.5, 2.0),
            settings={
                "path, no norm · He": gradient("path, no norm"),
                "path, no norm · PyTorch's default": gradient("path, no norm", DEFAULT),
                "path, no norm · Normal(0, 0.02)": gradient("path, no norm", SMALL),
                "pre-norm · He": gradient("pre-norm"),
                "pre-norm · PyTorch's default": gradient("pre-norm", DEFAULT),
                "pre-norm / √L · He": gradient("pre-norm / √L"),
                "ReZero": gradient("ReZero"),
            },
        ),
        Claim(
            name="extinct",
            sentence="Without direct paths, gradients of deep networks go extinct.",
            said="as the usual motivation for residual connections",
            measured="gradient at the input / at the output; extinct = below one millionth",
            fixed=EITHER,
            band=(0.0, 1e-6),
            settings={
                "plain ReLU · He": gradient("plain"),
                "plain ReLU · PyTorch's default": gradient("plain", DEFAULT),
                "plain ReLU · Normal(0, 0.02)": gradient("plain", SMALL),
                "norm, no path · attention, SwiGLU": gradient("norm, no path", HE, REAL),
            },
        ),
        Claim(
            name="healthy",
            sentence="If the gradient keeps its size, the network is healthy.",
            said="in explanations that treat depth as a problem of gradients alone",
            measured="1 − cosine between what different inputs become; healthy = at least 0.1",
            fixed=STACK + ", He; wirings whose gradient keeps its size to a factor of 10",
            band=(0.1, 2.0),
            settings={
                name: apart(name)
                for name in ("plain", "post-norm", "pre-norm / √L", "DeepNorm", "ReZero")
            },
        ),
        Claim(
            name="clean",
            sentence="In pre-norm the residual stream stays clean: it keeps its size.",
            said="in tutorials on pre-norm",
            measured="RMS of the stream at the end / at the start; kept = within a factor of 2",
            fixed=EITHER,
            band=(0.5, 2.0),
            settings={
                "ReLU · He": growth("pre-norm"),
                "ReLU · PyTorch's default": growth("pre-norm", DEFAULT),
                "attention, SwiGLU · fan-in": growth("pre-norm", HE, REAL),
                "ReLU · He, branches / √L": growth("pre-norm / √L"),
            },
        ),
        Claim(
            name="short_paths",
            sentence="The gradient of a residual network comes mainly through short paths.",
            said="by Veit et al. 2016, arXiv 1605.06431, of a trained network of 54 modules",
            measured="mean length of a path, weighted by gradient / layers; short = below 1/4",
            fixed=STACK.replace(str(DEEP), "54"),
            band=(0.0, 0.25),
            settings={
                "path, no norm · He": short("path, no norm"),
                "path, no norm · PyTorch's default": short("path, no norm", DEFAULT),
                "pre-norm · He": short("pre-norm"),
                "pre-norm · PyTorch's default": short("pre-norm", DEFAULT),
            },
        ),
        Claim(
            name="post_vanishes",
            sentence="In post-norm, gradients vanish on their way to the first layers.",
            said="in papers that propose another place for the norm",
            measured="gradient at the input / at the output; vanished = below a tenth",
            fixed=EITHER,
            band=(0.0, 0.1),
            settings={
                "ReLU · He": gradient("post-norm"),
                "ReLU · PyTorch's default": gradient("post-norm", DEFAULT),
                "attention, SwiGLU · fan-in": gradient("post-norm", HE, REAL),
            },
        ),
        Claim(
            name="last_layer",
            sentence="The last layer's gradient does not depend on depth in post-norm, and "
            "shrinks like 1/√L in pre-norm.",
            said="by Xiong et al. 2020, arXiv 2002.04745, who prove upper bounds of this form",
            measured="change of the last matrix's gradient from 8 to 128 layers / the change said; "
            "right = within a factor of 1.5",
            fixed=EITHER + ", He / fan-in, a final norm",
            band=(1 / 1.5, 1.5),
            settings={
                "post-norm · ReLU, said: 1": against_theorem("post-norm", 1.0),
                "pre-norm · ReLU, said: 1/4": against_theorem("pre-norm", 0.25),
                "post-norm · attention, SwiGLU, said: 1": against_theorem("post-norm", 1.0, REAL),
                "pre-norm · attention, SwiGLU, said: 1/4": against_theorem("pre-norm", 0.25, REAL),
            },
        ),
        Claim(
            name="exponential",
            sentence="In pre-norm the variance of the stream grows exponentially with depth.",
            said="by Sun et al. 2025, The Curse of Depth, arXiv 2502.05795, of trained models",
            measured="log growth of the variance over 128 layers / over 64; exponential = 2",
            fixed=EITHER,
            band=(1.8, 2.2),
            settings={
                "pre-norm · ReLU": exponent("pre-norm", HE, RELU),
                "pre-norm · attention, SwiGLU": exponent("pre-norm", HE, REAL),
            },
        ),
        Claim(
            name="idle",
            sentence="Deep layers hardly change the stream that they add to.",
            said="by Sun et al. 2025, arXiv 2502.05795, of trained pre-norm models",
            measured="1 − cosine of the stream before and after layer 128; hardly = below 0.01",
            fixed=EITHER,
            band=(0.0, 0.01),
            settings={
                "pre-norm · ReLU": last_step("pre-norm"),
                "pre-norm · attention, SwiGLU": last_step("pre-norm", HE, REAL),
                "path, no norm · ReLU": last_step("path, no norm"),
                "post-norm · ReLU": last_step("post-norm"),
            },
        ),
        Claim(
            name="twice",
            sentence="A norm applied twice does nothing the second time.",
            said="when a model is found to end with two norms",
            measured="relative change by the second time; nothing = below 1/1000",
            fixed="RMSNorm, width 64, eps 1e-5, float64",
            band=(0.0, 1e-3),
            settings={
                "gains 1, rows of RMS 1": twice(1.0, (1.0, 1.0)),
                "gains 1, rows of RMS 0.001": twice(1e-3, (1.0, 1.0)),
                "gains between 0.5 and 1.5": twice(1.0, (0.5, 1.5)),
            },
        ),
        Claim(
            name="identical",
            sentence="RMSNorm and LayerNorm are numerically equally stable.",
            said="in comparisons of the two norms",
            measured="rounding error of LayerNorm / of RMSNorm; equal = within a factor of 3",
            fixed="float32, width 512, eps 1e-5, rows of standard deviation 1",
            band=(1 / 3, 3.0),
            digits=0,
            settings={f"mean {mean:,}": error_ratio(float(mean)) for mean in (0, 100, 10_000)},
        ),
        Claim(
            name="hundred_layers",
            sentence="Pre-norm trains 100 layers from the first step; post-norm needs warm-up.",
            said="by nearly everybody who explains pre-norm",
            measured="the loss after training",
            tried_in="chapter 06, by training",
        ),
        Claim(
            name="faster",
            sentence="RMSNorm is 30 % faster than LayerNorm.",
            said="in summaries; the paper says 7 % to 64 % on whole models (arXiv 1910.07467)",
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
