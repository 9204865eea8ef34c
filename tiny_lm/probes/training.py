"""Chapter 06: short training runs of many designs, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf, isnan, log, nan
from pathlib import Path

import torch

from tiny_lm.corpus import Letters
from tiny_lm.model import ModelConfig, TinyLM
from tiny_lm.train import TrainConfig, train

DATA = Path(__file__).parent.parent / "data"
SURVIVAL_FILE, TABLE_FILE = DATA / "survival.json", DATA / "training.json"
LN_V, FLOOR = log(32), Letters().floor(2)  # nats: knowing nothing, and knowing everything
HALFWAY = (LN_V + FLOOR) / 2  # a run that ends below has survived
LAST = 20  # steps at the end of a run whose mean loss is its result
SEEDS = (0, 1, 2)
SETTINGS = (
    "Letters, V = 32, D = 32, H = 2, F = 64, 16 rows of 16 letters a step, AdamW, decay 0.1, "
    "clip 1, eps 1e-5, untied, float32; mean loss of the last 20 steps, in nats"
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run on Letters, in the settings above.

    `embedding` is the standard deviation of the embedding, None for what `init` says. The learning
    rate stays as it is after `warmup` steps.
    """

    norm: str = "rms"
    order: str = "pre"
    blocks: int = 4
    init: str = "fan_in"
    embedding: float | None = None
    lr: float = 3e-3
    warmup: int = 0
    steps: int = 120
    seed: int = 0

    @property
    def label(self) -> str:
        """What differs from the defaults above, and the seed: the run's name in a stored file."""
        said = [f"{f.name}={v}" for f in fields(self) if (v := getattr(self, f.name)) != f.default]
        return " ".join(s for s in said if not s.startswith("seed")) + f" seed={self.seed}"


def with_seeds(run: Run) -> list[Run]:
    """The same run from each of the seeds, which draw weights and rows."""
    return [replace(run, seed=seed) for seed in SEEDS]


def model_of(run: Run) -> TinyLM:
    """The model of a run, before its first step."""
    config = ModelConfig(
        vocab_size=32,
        max_len=16,
        n_layers=run.blocks,
        d_model=32,
        n_heads=2,
        d_ff=64,
        norm=run.norm,
        order=run.order,
        tied=False,
    )
    model = TinyLM(config, seed=run.seed, init=run.init)
    if run.embedding is not None:
        with torch.no_grad():
            model.embedding.weight *= run.embedding / model.embedding.weight.std()
    return model


def losses(run: Run, model: TinyLM | None = None) -> list[float]:
    """The loss of every step, in nats; it ends early when a number is not finite."""
    plan = TrainConfig(
        steps=run.steps,
        batch=16,
        length=16,
        lr=run.lr,
        lr_end=1.0,
        warmup=run.warmup,
        eval_every=run.steps,
        eval_rows=1,
    )
    return train(model or model_of(run), Letters(run.seed), plan).loss


def result(run: Run, model: TinyLM | None = None) -> float:
    """The mean loss of the last 20 steps, in nats; infinite for a run that blew up."""
    found = losses(run, model)
    mean = sum(found[-LAST:]) / LAST if len(found) == run.steps else inf
    return mean if mean < 2 * LN_V else inf


# The survival map

MAP_ORDERS = ("pre", "post", "bare", "plain")
MAP_BLOCKS = (2, 4, 8, 16)
MAP_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def survival_runs() -> list[Run]:
    """Every run of the map: order, then depth, then learning rate, then seed."""
    return [
        run
        for order in MAP_ORDERS
        for blocks in MAP_BLOCKS
        for lr in MAP_RATES
        for run in with_seeds(Run(order=order, blocks=blocks, lr=lr))
    ]


@dataclass(frozen=True)
class Survival:
    """One order of the map: a row a depth, a column a learning rate, losses by seed in each.

    A loss is infinite where the run blew up, and NaN where it has not been run yet.
    """

    order: str
    blocks: Sequence[int]
    rates: Sequence[float]
    losses: list[list[list[float]]]

    def survived(self, row: int, column: int) -> int:
        """How many of the seeds ended below halfway between ln V and the floor."""
        return sum(loss < HALFWAY for loss in self.losses[row][column])

    def is_known(self, row: int, column: int) -> bool:
        """Whether all its runs have been made."""
        return not any(map(isnan, self.losses[row][column]))

    @property
    def whole(self) -> int:
        """In how many cells every seed survived."""
        cells = [(r, c) for r in range(len(self.blocks)) for c in range(len(self.rates))]
        return sum(self.survived(*cell) == len(SEEDS) for cell in cells)


@lru_cache
def survival(order: str) -> Survival:
    """The stored map of one order, from `tests/benchmarks/survival.py`."""
    stored = _stored(SURVIVAL_FILE)
    return Survival(
        order,
        MAP_BLOCKS,
        MAP_RATES,
        [
            [
                [
                    stored.get(run.label, nan)
                    for run in with_seeds(Run(order=order, blocks=n, lr=lr))
                ]
                for lr in MAP_RATES
            ]
            for n in MAP_BLOCKS
        ],
    )


@dataclass(frozen=True)
class ByRate:
    """One row of the map: the losses of three seeds at each learning rate."""

    order: str
    blocks: int
    rates: Sequence[float]
    losses: list[list[float]]
    survived: list[int]
    start: float = LN_V
    floor: float = FLOOR


def by_rate(order: str, blocks: int) -> ByRate:
    """The stored runs of one order at one depth."""
    found, row = survival(order), MAP_BLOCKS.index(blocks)
    counts = [found.survived(row, column) for column in range(len(MAP_RATES))]
    return ByRate(order, blocks, MAP_RATES, found.losses[row], counts)


def survival_table() -> str:
    """The map as text: how many of the three seeds survived."""
    lines = [f"seeds of {len(SEEDS)} that end below {HALFWAY:.2f} nats  ({SETTINGS})"]
    for order in MAP_ORDERS:
        lines.append(f"{order:>6} blocks  " + "".join(f"{'lr ' + str(lr):>10}" for lr in MAP_RATES))
        for row, n in enumerate(MAP_BLOCKS):
            counts = [survival(order).survived(row, column) for column in range(len(MAP_RATES))]
            lines.append(f"{n:>13}  " + "".join(f"{count:>10}" for count in counts))
    return "\n".join(lines)


# What initialisation and warm-up change

TABLE = (
    Run(order="pre", blocks=4, lr=1e-3, steps=200),
    Run(order="post", blocks=4, lr=1e-3, steps=200),
    Run(order="deepnorm", blocks=4, lr=1e-3, steps=200),
    Run(order="sandwich", blocks=4, lr=1e-3, steps=200),
    Run(order="rezero", blocks=4, lr=1e-3, steps=200),
    Run(order="bare", blocks=4, lr=1e-3, steps=200),
    Run(order="plain", blocks=4, lr=1e-3, steps=200),
    Run(order="pre", blocks=16, lr=1e-3),
    Run(order="post", blocks=16, lr=1e-3),
    Run(order="post", blocks=16, lr=1e-3, warmup=60),
    Run(order="post", blocks=16, lr=1e-4, warmup=200, steps=400),
    Run(order="bare", blocks=16, lr=1e-3),
    Run(order="plain", blocks=16, lr=1e-3),
    Run(order="pre", blocks=64),  # 120 steps at 1e-3 are too few to tell slow from stuck
    Run(order="deepnorm", blocks=16, lr=1e-3),
    Run(order="sandwich", blocks=16, lr=1e-3),
    Run(order="rezero", blocks=16, lr=1e-3),
    Run(order="pre", blocks=16, lr=1e-3, init="small"),
    Run(order="post", blocks=16, lr=1e-3, init="small"),
    Run(order="bare", blocks=16, lr=1e-3, init="small"),
    Run(order="plain", blocks=16, lr=1e-3, init="small"),
    Run(order="pre", blocks=64, init="small"),
    Run(order="post", blocks=64, init="small"),
    Run(order="pre", blocks=64, init="gpt2"),
    Run(order="pre", blocks=64, init="small", embedding=1.0),
)


def stored_results(row: Run) -> list[float]:
    """The stored results of a row of the table, one a seed; NaN for one not made yet."""
    return [_stored(TABLE_FILE).get(run.label, nan) for run in with_seeds(row)]


def table() -> str:
    """The table as text."""
    lines = [f"{SETTINGS}; ln V {LN_V:.3f}, floor {FLOOR:.3f}"]
    for row in TABLE:
        name = row.label.removesuffix(f" seed={row.seed}")
        lines.append(f"{name:<60}" + "".join(f"{loss:>8.3f}" for loss in stored_results(row)))
    return "\n".join(lines)


@lru_cache
def _stored(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))["results"]
