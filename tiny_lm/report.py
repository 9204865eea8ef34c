"""What `python -m tiny_lm inspect` says about a model: in the terminal, and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap

from tiny_lm.files import replacing
from tiny_lm.generate import probabilities
from tiny_lm.model import TinyLM
from tiny_lm.probes import streams
from tiny_lm.probes.findings import Inspection, inspect
from tiny_lm.probes.half import safe_entry
from tiny_lm.shapes import fail
from tiny_lm.tokenizer import Tokenizer

KINDS = ("embedding", "attention", "ffn", "norm", "output")
LITTLE_EPS = 0.01  # of a row's mean square: it comes out half a per cent too small
PAGE = "report.html"


def parameters_by_kind(model: TinyLM) -> dict[str, int]:
    """How many parameters the model has of each kind: `{"embedding": n, …}`."""
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[next((kind for kind in KINDS if kind in name), "other")] += parameter.numel()
    return {kind: counts[kind] for kind in (*KINDS, "other") if kind in counts}


def examine(model: TinyLM, ids: list[int], tokenizer: Tokenizer | None = None) -> Inspection:
    """Run one text and measure what happened: `T ids -> Inspection`.

    Raises ValueError as the model does for ids it does not have.
    """
    words = [tokenizer.decode([i]) if tokenizer else str(i) for i in ids]
    return inspect(streams.read(model, ids, words))


def text(found: Inspection, tokenizer: Tokenizer | None = None) -> str:
    """An inspection for the terminal. RMS and entries are in the units of the stream."""
    parts = (sizes, stream, entries, norms, half_precision, attention, next_tokens, findings)
    if not found.is_finite:
        parts = (sizes, findings)
    return "\n\n".join("\n".join(part(found, tokenizer)) for part in parts)


def write_page(
    found: Inspection, title: str, folder: str | Path, tokenizer: Tokenizer | None = None
) -> Path:
    """Write an inspection as one HTML file that needs no other: `folder/report.html`.

    All of it or nothing; a page that was there is replaced. Raises ValueError when there is
    something else in the folder's place, OSError as the disk does, and ImportError without
    matplotlib.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        fail("inspect", "a folder", folder, "there is something else")
    page = _page(found, title, tokenizer)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / PAGE) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return folder / PAGE


def _page(found: Inspection, title: str, tokenizer: Tokenizer | None) -> str:
    try:
        from tiny_lm.plots import streams as plots
        from tiny_lm.plots.page import page
    except ImportError as error:  # only pages have pictures
        raise ImportError(
            f'inspect: expected matplotlib, got none ({error}; pip install "tiny-lm[lab]")'
        ) from error

    def lines(part: Callable[..., Iterator[str]]) -> str:
        return "\n".join(part(found, tokenizer))

    words = found.reading.words
    sections: list = [("Findings", _findings(found))]
    if found.is_finite:
        sections += [
            ("The stream", plots.StreamMapPicture((found.reading.taps, words, found.rms))),
            ("Its largest entries", lines(entries)),
            ("What norms read", plots.RowsPicture(found.rows)),
            ("Gains", plots.GainsPicture(found.gains)),
            ("Norms and epsilon", lines(norms)),
            ("Sixteen bits", lines(half_precision)),
            ("The first token's share of attention", plots.SinksPicture(found.sinks)),
            ("Next tokens", lines(next_tokens)),
        ]
    sections.append(("Sizes", lines(sizes)))
    return page(title, f"Text: {' | '.join(map(repr, words))}", sections)


# Each part is lines of text


def sizes(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """The config, and parameters by kind."""
    yield "config"
    for name, value in asdict(found.reading.model.config).items():
        yield f"  {name:<12} {value}"
    counts = parameters_by_kind(found.reading.model)
    yield f"parameters     {sum(counts.values()):>13,}"
    for kind, count in counts.items():
        yield f"  {kind:<12} {count:>13,}  {count / sum(counts.values()):6.1%}"


def stream(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """RMS after every block, at the first position and at the others."""
    words = found.reading.words
    count = f"{len(words)} tokens" if len(words) > 1 else "1 token"
    yield f"the stream for {count}: {' | '.join(map(repr, words))}"
    yield f"  {'RMS after':<22}{'first token':>12}{'others, smallest … largest':>30}"
    for name, (first, *rest) in zip(found.reading.taps, found.rms, strict=True):
        if name == "embed" or name.endswith("resid.ffn"):
            others = f"{min(rest):.2f} … {max(rest):.2f}" if rest else "none"
            yield f"  {name:<22}{first:>12.2f}{others:>30}"


def entries(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """The largest entry of each part of the stream that has a larger one than all before."""
    yield "largest entries, each larger than all before"
    yield f"  {'tap':<22}{'entry':>12}{'token':>8}{'coordinate':>12}{'times the median':>18}"
    most = 0.0
    for tap in found.reading.taps:
        (one,) = streams.largest(found.reading, tap)
        if abs(one.value) > most:
            most = abs(one.value)
            place = f"{one.position:>8}{one.coordinate:>12}"
            yield f"  {one.tap:<22}{one.value:>12,.1f}{place}{one.times:>18,.0f}"


def norms(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """Gains by kind of norm, and the rows that feel eps."""
    yield "gains, without their signs"
    yield f"  {'norms':<22}{'smallest':>12}{'median':>12}{'largest':>12}"
    for kind in dict.fromkeys(gain.norm.rpartition(".")[2] for gain in found.gains):
        same = [gain for gain in found.gains if gain.norm.rpartition(".")[2] == kind]
        middle = sorted(gain.median for gain in same)[len(same) // 2]
        row = (
            f"{min(g.least for g in same):>12.4g}{middle:>12.4g}{max(g.most for g in same):>12.4g}"
        )
        yield f"  {f'{kind}, {len(same)}':<22}{row}"
    feel = {n: sum(s > LITTLE_EPS for s in shares) for n, shares in found.eps_share.items()}
    rows = sum(map(len, found.eps_share.values()))
    yield f"rows whose mean square is below 100 eps: {sum(feel.values())} of {rows}"
    for name in [name for name, count in feel.items() if count][:3]:
        most = max(found.eps_share[name])
        yield f"  {name}: {feel[name]} rows, eps up to {most:.2%} of the mean square"


def half_precision(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """What float16 and bfloat16 would do to what norms read."""
    rows, width = sum(o.rows for o in found.overflows), found.reading.stream.shape[-1]
    largest = max(found.overflows, key=lambda one: one.largest)
    yield f"float16, whose largest number is 65,504; the largest square here is {largest.norm}'s:"
    yield f"  {largest.largest:,.1f}² = {largest.largest**2:,.0f}"
    kinds = {"entry": "an entry", "square": "the square of an entry", "total": "a sum of squares"}
    for field, words in kinds.items():
        count = sum(getattr(one, field) for one in found.overflows)
        yield f"  {f'rows where {words} overflows':<46}{count:>6} of {rows}"
    yield f"  no row overflows whose entries stay below {safe_entry(width):.4g} (width {width})"
    if not found.swallowed:
        order = found.reading.model.config.order
        yield f"bfloat16: updates cannot be read off a stream in the order {order!r}"
        return
    worst = max(found.swallowed, key=lambda one: max(one.shares))
    share, count = max(worst.shares), sum(len(one.shares) for one in found.swallowed)
    mean = sum(sum(one.shares) for one in found.swallowed) / count
    yield "bfloat16: coordinates of an update too small for the stream to notice"
    place = f"{worst.tap}, token {worst.shares.index(share)}"
    yield f"  on average {mean:.1%}; most {share:.0%}, {place}"


def attention(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """The first position's share of attention."""
    shares, T = found.sinks.shares, len(found.reading.ids)
    if T == 1:
        yield "attention: one token has nobody else to look at"
        return
    yield f"attention of later tokens on the first: {found.sinks.mean:.0%}, the mean over heads"
    yield f"  equal weights would give it {found.sinks.equal:.0%}; more than half of it from"
    full = [f"{sum(s > 0.5 for s in block)}" for block in shares]
    yield f"  heads in each block, of {len(shares[0])}: {' '.join(full)}"


def next_tokens(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """The five likeliest next tokens."""
    logits = found.reading.logits[-1]
    yield f"  {'next token':<22}{'logit':>12}{'probability':>30}"
    p = probabilities(logits)
    for i in logits.topk(min(5, len(logits))).indices.tolist():
        word = repr(tokenizer.decode([i])) if tokenizer else str(i)
        yield f"  {word:<22}{logits[i]:>12.2f}{p[i]:>30.1%}"


def findings(found: Inspection, tokenizer: Tokenizer | None) -> Iterator[str]:
    """What passed a threshold, wrapped."""
    yield "findings"
    for sentence in _findings(found):
        yield from wrap(sentence, 98, initial_indent="  - ", subsequent_indent="    ")


def _findings(found: Inspection) -> list[str]:
    sentences = [f"{one.kind}: {one.what} (threshold: {one.threshold})" for one in found.findings]
    return sentences or ["none: nothing passed a threshold"]
