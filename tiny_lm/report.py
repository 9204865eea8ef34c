"""What `python -m tiny_lm inspect` prints: a model's sizes, its stream, its next token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from tiny_lm.generate import probabilities
from tiny_lm.model import TinyLM
from tiny_lm.taps import Recorder
from tiny_lm.tokenizer import Tokenizer

KINDS = ("embedding", "attention", "ffn", "norm", "output")


def parameters_by_kind(model: TinyLM) -> dict[str, int]:
    """How many parameters the model has of each kind: `{"embedding": n, …}`."""
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[next((kind for kind in KINDS if kind in name), "other")] += parameter.numel()
    return {kind: counts[kind] for kind in (*KINDS, "other") if kind in counts}


@torch.inference_mode()
def inspect(model: TinyLM, ids: list[int], tokenizer: Tokenizer | None = None) -> str:
    """Run one text and describe what happened, as text for a terminal: `T ids -> lines`.

    RMS is that of the stream after each block, in the units of the stream. Raises ValueError as
    the model does for ids it does not have.
    """
    recorder = Recorder()
    logits = model(torch.tensor([ids], dtype=torch.long), tap=recorder)[0, -1]
    texts = [tokenizer.decode([i]) if tokenizer else str(i) for i in ids]
    paragraphs = (_sizes(model), _stream(recorder, texts), _next(logits, tokenizer))
    return "\n\n".join("\n".join(lines) for lines in paragraphs)


def _sizes(model: TinyLM) -> Iterator[str]:
    yield "config"
    for name, value in asdict(model.config).items():
        yield f"  {name:<12} {value}"
    counts = parameters_by_kind(model)
    yield f"parameters     {sum(counts.values()):>13,}"
    for kind, count in counts.items():
        yield f"  {kind:<12} {count:>13,}  {count / sum(counts.values()):6.1%}"


def _stream(recorder: Recorder, texts: list[str]) -> Iterator[str]:
    names = ["embed", *(name for name in recorder if name.endswith("resid.ffn")), "norm.final"]
    count = f"{len(texts)} tokens" if len(texts) > 1 else "1 token"
    yield f"the stream for {count}: {' | '.join(map(repr, texts))}"
    yield f"  {'RMS after':<22}{'first token':>12}{'others, smallest … largest':>30}"
    for name in names:
        rms = recorder[name][0].float().square().mean(dim=-1).sqrt()  # [T]
        others = f"{rms[1:].min():.2f} … {rms[1:].max():.2f}" if len(rms) > 1 else "none"
        yield f"  {name:<22}{rms[0]:>12.2f}{others:>30}"
    # norm.final is no longer the stream
    largest = max(names[:-1], key=lambda name: recorder[name].abs().max().item())
    position, coordinate = divmod(
        int(recorder[largest][0].abs().argmax()), recorder[largest].shape[-1]
    )
    value = recorder[largest][0, position, coordinate].item()
    yield f"  largest entry {value:,.1f}, {largest}, token {position}, coordinate {coordinate}"


def _next(logits: Tensor, tokenizer: Tokenizer | None) -> Iterator[str]:
    yield f"  {'next token':<22}{'logit':>12}{'probability':>30}"
    p = probabilities(logits)
    for i in logits.topk(min(5, len(logits))).indices.tolist():
        text = repr(tokenizer.decode([i])) if tokenizer else str(i)
        yield f"  {text:<22}{logits[i]:>12.2f}{p[i]:>30.1%}"
