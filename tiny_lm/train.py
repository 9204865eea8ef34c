"""Train a TinyLM to predict the next token; alone, or shared among processes by torchrun.

Nothing here draws a random number: the rows of a step follow from its number, the weights from the
model's seed. So a run that was killed goes on to the same losses, and so does one that is shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from math import isfinite, sqrt
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from tiny_lm import resume
from tiny_lm.config import TrainConfig
from tiny_lm.corpus import Corpus
from tiny_lm.history import Evaluation, History
from tiny_lm.model import TinyLM
from tiny_lm.shapes import fail
from tiny_lm.sharded import is_sharded, whole
from tiny_lm.taps import Recorder

__all__ = ["TrainConfig", "evaluate", "next_token_loss", "train"]


def train(
    model: TinyLM,
    corpus: Corpus,
    config: TrainConfig | None = None,
    *,
    on_step: Callable[[History], None] | None = None,
    run_file: str | Path | None = None,
) -> History:
    """Train a model in place and return how it went; `on_step` sees the history after each step.

    With a `run_file` the state is kept there at every evaluation, and a run that finds its own
    state there goes on from it. Where torch.distributed is running, each process takes an equal
    share of the rows, and has its own copy of the model or, if it was sharded, its own part. A loss
    that is not finite ends the run. Raises ValueError for a corpus with
    more tokens than the model has, for rows longer than its max_len, for a batch that cannot be
    shared equally, and for the run file of another run.
    """
    config = config or TrainConfig()
    rank, world = (dist.get_rank(), dist.get_world_size()) if _is_shared() else (0, 1)
    _expect_fit(model, corpus, config, world)
    optimizer = _optimizer(model, config)
    run = {"corpus": repr(corpus)}
    for part, settings in (("model", model.config), ("config", config)):
        run |= {f"{part}.{name}": value for name, value in asdict(settings).items()}
    history = resume.load(run_file, run, model, optimizer) if run_file else History()
    replica = DistributedDataParallel(model) if world > 1 and not is_sharded(model) else model
    started = time.perf_counter() - history.seconds
    while len(history.loss) < config.steps and not history.stopped:
        mine = config.batch // world
        first = len(history.loss) * config.batch + rank * mine
        loss = next_token_loss(replica, _rows(corpus, first, mine, config.length))
        before = _matrices(model) if _evaluates(config, len(history.loss) + 1) else None
        _descend(model, optimizer, config, history, loss, world)
        if history.stopped:  # no step was made, and the run file keeps the last good one
            before = None
        if before:
            history.evaluations.append(_evaluation(model, corpus, config, history, before))
            if config.patience and history.waited >= config.patience:
                history.stopped = f"no better for {history.waited} evaluations"
        history.seconds = time.perf_counter() - started
        if before and run_file:
            tensors = resume.state(model, optimizer)  # of a sharded model all have a part
            if rank == 0:
                resume.save(run_file, run, tensors, history)
        if on_step:
            on_step(history)
    return history


def next_token_loss(model: Module, rows: Tensor) -> Tensor:
    """The mean surprise at each next token, in nats: `[B, T + 1] -> []`."""
    logits = model(rows[:, :-1])
    return cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def evaluate(model: TinyLM, corpus: Corpus, rows: int = 64, length: int = 64) -> float:
    """The loss on the first validation rows of a corpus, in nats a token."""
    with torch.no_grad():
        return float(next_token_loss(model, _rows(corpus, 0, rows, length, "valid")))


def _optimizer(model: Module, config: TrainConfig) -> AdamW:
    """AdamW in which matrices decay and gains do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    gains = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": gains, "weight_decay": 0.0},
    ]
    return AdamW([g for g in groups if g["params"]], lr=config.lr, betas=config.betas, fused=True)


def _descend(
    model: TinyLM,
    optimizer: AdamW,
    config: TrainConfig,
    history: History,
    loss: Tensor,
    world: int,
) -> None:
    """One step of the optimizer, written into the history; none if the loss is not finite."""
    lr = config.lr_at(len(history.loss))
    loss.backward()
    length = float(whole(clip_grad_norm_(model.parameters(), config.clip)))
    mean = loss.detach().clone()
    if world > 1:
        dist.all_reduce(mean)
        mean /= world
    history.loss.append(float(mean))
    history.grad_norm.append(length)
    history.lr.append(lr)
    if isfinite(history.loss[-1]) and isfinite(length):
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    else:
        history.stopped = f"not finite at step {len(history.loss)}"
    optimizer.zero_grad()


def _evaluation(
    model: TinyLM, corpus: Corpus, config: TrainConfig, history: History, before: list[Tensor]
) -> Evaluation:
    now = _matrices(model)
    moved = sum(_square(new - old) for new, old in zip(now, before, strict=True))
    ratio = sqrt(moved / sum(map(_square, before)))
    seen = Recorder()
    with torch.no_grad():
        model(_rows(corpus, 0, 8, config.length, "valid")[:, :-1], tap=seen)
    # The stream leaves a block under the last name of that block, whatever its order.
    ends = {name.split(".")[1]: name for name in seen if name.startswith("blocks.")}
    stream = [float(seen[name].square().mean().sqrt()) for name in ("embed", *ends.values())]
    loss = evaluate(model, corpus, config.eval_rows, config.length)
    return Evaluation(len(history.loss), loss, ratio, stream)


def _evaluates(config: TrainConfig, step: int) -> bool:
    return step % config.eval_every == 0 or step == config.steps


def _square(matrix: Tensor) -> float:
    return float(whole(matrix.square().sum()))


def _matrices(model: TinyLM) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters() if p.ndim >= 2]


def _rows(corpus: Corpus, first: int, count: int, length: int, split: str = "train") -> Tensor:
    """Rows by number, each with the token after its last: `-> [count, length + 1]`."""
    numbers = range(first, first + count)
    return torch.tensor([corpus.row(number, length + 1, split) for number in numbers])


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized()


def _expect_fit(model: TinyLM, corpus: Corpus, config: TrainConfig, world: int) -> None:
    who, tokens = "train", corpus.tokenizer.vocab_size
    if tokens > model.config.vocab_size:
        fail(who, f"at most the model's {model.config.vocab_size} tokens", tokens, "vocab_size")
    if config.length > model.config.max_len:
        fail(who, f"length <= max_len, {model.config.max_len}", config.length)
    if config.batch % world:
        fail(who, f"a batch divisible by {world} processes", config.batch)
