"""Sampling: let a model write on, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import torch
from torch import Tensor

from tiny_lm.model import TinyLM
from tiny_lm.shapes import expect_seed, fail, shape_of


def generate(
    model: TinyLM,
    tokens: Tensor,
    new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    use_cache: bool = True,
    stop_id: int | None = None,
) -> Tensor:
    """Continue every row by up to `new` tokens: `[B, T] -> [B, T + new]`.

    The next token is drawn from `probabilities(...)`; `temperature` 0 takes the most likely one.
    A row that has written `stop_id` is filled up with it, and when all have, nothing more is
    written. With the cache each step feeds one token, without it the whole text: the same answer,
    slower. The model stays in the mode it is in, train or eval. Raises ValueError, before any
    work, for an empty prompt, a text that would not fit in max_len, and settings out of range.
    """
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    options |= {"seed": seed, "use_cache": use_cache, "stop_id": stop_id}
    drawn = [token[:, None] for token in stream(model, tokens, new, **options)]
    return torch.cat([tokens, *drawn], dim=1)


def stream(
    model: TinyLM,
    tokens: Tensor,
    new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    use_cache: bool = True,
    stop_id: int | None = None,
) -> Iterator[Tensor]:
    """The new tokens as they come: `[B, T] -> [B], [B], …`; everything else as in generate."""
    _expect_prompt(model, tokens, new)
    V = model.config.vocab_size
    _expect_settings(V, temperature, top_k, top_p)
    if stop_id is not None and stop_id not in range(V):
        fail("generate", f"stop_id 0 … {V - 1}", stop_id)
    expect_seed("generate", seed)
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    generator = torch.Generator().manual_seed(seed)
    steps = _steps(model, tokens, new, settings, generator, use_cache, stop_id)
    # Copied outside of inference mode, so that a model can be trained on what was written.
    return (token.clone() for token in steps)


def probabilities(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    """What the next token is drawn from: `[..., V] -> [..., V]`, in float64, each row summing to 1.

    p = softmax(logits / temperature); then only the `top_k` most likely tokens are kept; then only
    as many as are needed for their probabilities to reach `top_p`. Temperature 0 puts everything on
    the most likely token. Among equals the first comes first. Raises ValueError for settings out of
    range and for logits that are not finite.
    Source: top-p is the nucleus of Holtzman et al. 2020, arXiv 1904.09751.
    """
    V = logits.shape[-1]
    _expect_settings(V, temperature, top_k, top_p)
    wide, highest = logits.double(), _largest(logits)
    if temperature == 0:
        one = torch.zeros_like(wide)
        return one.scatter(-1, logits.argmax(dim=-1, keepdim=True), 1.0)
    # The difference first: a tiny temperature would turn the logits into inf - inf.
    p = ((wide - highest) / temperature).softmax(dim=-1)
    if top_k is None and top_p is None:
        return p
    ordered, token = p.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[..., top_k:] = 0.0
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    if top_p is not None and top_p < 1:
        reached = ordered.cumsum(dim=-1).roll(1, dims=-1)  # by the tokens before this one
        reached[..., 0] = 0.0
        ordered = ordered.masked_fill(reached >= top_p, 0.0)
    kept = torch.zeros_like(p).scatter(-1, token, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)


@torch.inference_mode()  # on a generator function it holds while a step runs, not between steps
def _steps(
    model: TinyLM,
    tokens: Tensor,
    new: int,
    settings: dict,
    generator: torch.Generator,
    use_cache: bool,
    stop_id: int | None,
) -> Iterator[Tensor]:
    cache = model.new_cache() if use_cache else None
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    fed = tokens
    for _ in range(new):
        logits = model.logits(model.features(fed, cache=cache)[:, -1])  # [B, V]
        token = _draw(logits, settings, generator).to(tokens.dtype)
        if stop_id is not None:
            token = token.masked_fill(ended, stop_id)
            ended |= token == stop_id
        yield token
        if stop_id is not None and ended.all():
            return
        fed = token[:, None] if use_cache else torch.cat([fed, token[:, None]], dim=1)


def _draw(logits: Tensor, settings: dict, generator: torch.Generator) -> Tensor:
    """One token a row, where a uniform number falls in the running sum: `[B, V] -> [B]`."""
    if settings["temperature"] == 0:
        _largest(logits)  # or an error
        return logits.argmax(dim=-1)
    p = probabilities(logits, **settings)
    reached = p.cumsum(dim=-1)
    # Drawn on the CPU, so that a seed gives the same text on every device.
    uniform = torch.rand(len(p), 1, generator=generator, dtype=torch.float64).to(p.device)
    # Below the last sum even after rounding; `right` skips tokens of probability 0.
    return torch.searchsorted(reached / reached[:, -1:], uniform, right=True)[:, 0]


def _expect_prompt(model: TinyLM, tokens: Tensor, new: int) -> None:
    who, V, longest = "generate", model.config.vocab_size, model.config.max_len
    if tokens.ndim != 2:
        fail(who, "tokens [B, T]", shape_of(tokens), "add a batch axis: tokens[None]")
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        fail(who, "whole-number tokens", tokens.dtype, "call .long()")
    if tokens.numel() == 0:
        fail(who, "at least one token", shape_of(tokens), "begin with a token, such as a newline")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= V:
        fail(who, f"token ids 0 … {V - 1}", low if low < 0 else high)
    if not isinstance(new, int) or new < 0:
        fail(who, "new a whole number >= 0", repr(new))
    if tokens.shape[1] + new > longest:
        got = f"{tokens.shape[1]} + {new}"
        fail(who, f"at most {longest} positions", got, "prompt and new tokens, config.max_len")


def _largest(logits: Tensor) -> Tensor:
    """The largest logit of each row, `[..., V] -> [..., 1]`; ValueError where one is not finite."""
    highest = logits.amax(dim=-1, keepdim=True)
    if not highest.isfinite().all():  # NaN and infinity are never below the largest
        fail("generate", "finite logits", highest.max().item(), "an overflow in the model?")
    return highest


def _expect_settings(V: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    who = "generate"
    if not 0 <= temperature < inf:
        fail(who, "temperature >= 0", temperature, "0 takes the most likely token")
    if top_k is not None and (not isinstance(top_k, int) or not 1 <= top_k <= V):
        fail(who, f"top_k 1 … {V}", top_k, "None keeps all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        fail(who, "top_p above 0 and at most 1", top_p, "None keeps all tokens")
