"""Chapter 06: one model, four orders of its block: short runs live, longer ones stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from statistics import fmean

from tiny_lm.corpus import Stories
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.probes import training
from tiny_lm.probes.stories import grammatical_share, tell, words_before_a_slip
from tiny_lm.train import TrainConfig, train

FILE = Path(__file__).parent.parent / "data" / "orders.json"
ORDERS, SEEDS = ("pre", "post", "bare", "plain"), (0, 1, 2)
MODEL = {"vocab_size": 45, "max_len": 128, "n_layers": 4, "d_model": 48, "n_heads": 4, "d_ff": 128}
PLAN = TrainConfig(steps=600, batch=16, warmup=60, eval_every=30, eval_rows=32)
TOLD = 200  # stories drawn from each model
SETTINGS = (
    "Stories; L = 4, D = 48, H = 4, F = 128, fan-in initialisation; 600 steps of 16 rows of 64 "
    "words, AdamW, lr 3e-3, 60 steps of warm-up, cosine to a tenth, decay 0.1, clip 1, float32"
)


@dataclass(frozen=True)
class OrderRun:
    """One training: validation losses in nats by step, the stream after each block, the writing.

    Of 200 texts drawn from the model `share` are grammatical, and `words` stand on average before
    the first impossible word; `sample` is the first text.
    """

    order: str
    seed: int
    steps: list[int]
    losses: list[float]
    stream_rms: list[float]
    share: float
    words: float
    sample: str
    stopped: str


def compute(order: str, seed: int, plan: TrainConfig = PLAN, told: int = TOLD) -> OrderRun:
    """Train the model of this order from this seed, which draws weights and rows."""
    model = TinyLM(ModelConfig(order=order, **MODEL), seed=seed, init="fan_in")
    history = train(model, Stories(seed), plan)
    evaluations = history.evaluations
    texts = [] if history.stopped else tell(model, told)
    return OrderRun(
        order,
        seed,
        [e.step for e in evaluations],
        [round(e.loss, 4) for e in evaluations],
        [float(f"{rms:.4g}") for rms in evaluations[-1].stream_rms] if evaluations else [],
        grammatical_share(texts) if texts else 0.0,
        round(fmean(map(words_before_a_slip, texts)), 2) if texts else 0.0,
        texts[0] if texts else "",
        history.stopped,
    )


@dataclass(frozen=True)
class Stored:
    """The runs of each order, one a seed, with the losses of knowing nothing and everything."""

    runs: dict[str, list[OrderRun]]
    start: float
    floor: float


@lru_cache
def stored() -> Stored:
    """The runs on the stories, from `tests/benchmarks/orders.py`."""
    results = json.loads(FILE.read_text(encoding="utf-8"))["results"]
    runs = {
        order: [
            OrderRun(**results[key(order, seed)]) for seed in SEEDS if key(order, seed) in results
        ]
        for order in ORDERS
    }
    return Stored(runs, log(MODEL["vocab_size"]), Stories().floor(PLAN.length + 1))


def key(order: str, seed: int) -> str:
    """The name of a run in the stored file."""
    return f"{order} seed={seed}"


def table() -> str:
    """The runs as text: where the loss ended and how much of the writing is grammatical."""
    lines = [SETTINGS, f"floor {stored().floor:.3f} nats"]
    for runs in stored().runs.values():
        ended = "".join(f"{run.losses[-1]:>8.3f}" for run in runs if run.losses)
        words = "".join(f"{run.words:>7.1f}" for run in runs)
        shares = "".join(f"{run.share:>7.1%}" for run in runs)
        lines.append(f"{runs[0].order:>6}  loss {ended}  words {words}  grammatical {shares}")
    return "\n".join(lines)


# Live, on letters


@dataclass(frozen=True)
class Comparison:
    """The loss of every step of one run an order, in nats."""

    blocks: int
    steps: int
    losses: dict[str, list[float]]
    start: float = training.LN_V
    floor: float = training.FLOOR

    def survives(self, order: str) -> bool:
        """Whether the last 20 steps average below halfway between ln V and the floor."""
        losses = self.losses[order]
        ended = len(losses) == self.steps
        return ended and fmean(losses[-training.LAST :]) < training.HALFWAY


def compare(blocks: int, orders: Sequence[str] = ORDERS, steps: int = 80) -> Comparison:
    """Train each order on Letters, from seed 0 and fan-in initialisation, at lr 3e-3."""
    runs = {order: training.Run(order=order, blocks=blocks, steps=steps) for order in orders}
    return Comparison(blocks, steps, {o: training.losses(run) for o, run in runs.items()})
