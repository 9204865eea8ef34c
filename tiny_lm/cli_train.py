"""python -m tiny_lm train: a model from a corpus, with progress, and going on after a stop.

Under `torchrun --nproc-per-node N -m tiny_lm train …` the rows of each step are shared among N
processes, and the losses are the same. With `--shard` so are the weights.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from tiny_lm.config import ModelConfig, TrainConfig
from tiny_lm.shapes import fail

# What trains to the floor of the stories in about a minute on one core.
STORIES_MODEL = {"max_len": 128, "n_layers": 4, "d_model": 48, "n_heads": 4, "d_ff": 128}
MOST_NUMBERS, MOST_TOKENS = 10**9, 10**7
NOT_OPTIONS = ("vocab_size", "n_kv_heads", "tied", "betas", "patience")
GROUPS = {"the model": ModelConfig, "the training": TrainConfig}


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments: every number of ModelConfig and TrainConfig has an option."""
    verb.add_argument("out", type=Path, metavar="OUT.safetensors", help="where the model goes")
    source = verb.add_mutually_exclusive_group()
    source.add_argument(
        "--corpus",
        choices=["stories", "manual"],
        default="stories",
        help="little stories (default), or the language reference that comes with Python",
    )
    source.add_argument("--text", type=Path, metavar="FILE", help="a text of your own, UTF-8")
    verb.add_argument("--seed", type=int, default=0, help="of weights and rows (default: 0)")
    verb.add_argument("--init", default="scaled_fan_in", help="default: %(default)s")
    verb.add_argument("--patience", type=int, help="stop after so many evaluations without gain")
    verb.add_argument("--half", action="store_true", help="keep the weights in 16 bits")
    verb.add_argument(
        "--shard", action="store_true", help="under torchrun: a part for each process"
    )
    verb.add_argument("--again", action="store_true", help="train again where OUT is there already")
    for title, config in GROUPS.items():
        group = verb.add_argument_group(title)
        for name, default in _defaults(config).items():
            flag = "--" + name.replace("_", "-")
            group.add_argument(
                flag, type=type(default), default=default, help=f"default: {default}"
            )
    verb.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Train, save, and print where the loss ended beside its floor."""
    import torch.distributed as dist

    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    try:
        return _run(chosen, first=not dist.is_initialized() or dist.get_rank() == 0)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _run(chosen: argparse.Namespace, first: bool) -> int:
    from tiny_lm import checkpoint
    from tiny_lm.model import TinyLM
    from tiny_lm.sharded import gathered, shard
    from tiny_lm.train import train

    if chosen.out.exists() and not chosen.again:
        fail("train", "a file that is not there yet", chosen.out, "--again replaces it")
    if not chosen.out.resolve().parent.is_dir():
        fail("train", "a folder that is there", chosen.out.parent)
    corpus = _corpus(chosen)
    sizes, plan = ({n: getattr(chosen, n) for n in _defaults(c)} for c in GROUPS.values())
    config = ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **sizes)
    plan = TrainConfig(patience=chosen.patience, **plan)
    _expect_small(config, plan)
    model = TinyLM(config, seed=chosen.seed, init=chosen.init)
    model = shard(model) if chosen.shard else model
    run_file = chosen.out.with_name(chosen.out.name + ".run")
    with _Bar(plan.steps, show=first) as bar:
        history = train(model, corpus, plan, on_step=bar, run_file=run_file)
    model = gathered(model) if chosen.shard else model
    if not first:
        return 0
    if history.stopped.startswith("not finite"):
        run_file.unlink(missing_ok=True)
        fail("train", "a loss that stays finite", history.stopped, "a lower --lr?")
    checkpoint.save(chosen.out, model.half() if chosen.half else model, corpus.tokenizer)
    run_file.unlink(missing_ok=True)
    print(_summary(chosen, corpus, plan.length, history))
    return 0


def _expect_small(config: ModelConfig, plan: TrainConfig) -> None:
    """Refuse what would fill the memory, or take for ever, before it begins to."""
    block = 4 * config.d_model**2 + 3 * config.d_model * config.d_ff
    if config.vocab_size * config.d_model + config.n_layers * block > MOST_NUMBERS:
        fail("train", f"a model of at most {MOST_NUMBERS:,} numbers", "more")
    if max(plan.batch, plan.eval_rows) * plan.length > MOST_TOKENS:
        fail("train", f"at most {MOST_TOKENS:,} tokens in the rows of a step", "more")


def _summary(chosen: argparse.Namespace, corpus, length: int, history) -> str:
    last = history.evaluations[-1]
    text = f"{chosen.out}: {len(history.loss)} steps"
    text += f", stopped: {history.stopped}" if history.stopped else ""
    text += f", validation loss {last.loss:.3f} nats a token"
    if hasattr(corpus, "floor"):
        text += f", floor {corpus.floor(length + 1):.3f}"
    return text


def _corpus(chosen: argparse.Namespace):
    from tiny_lm.corpus import Stories, Text, manual

    if chosen.text:
        try:
            text = chosen.text.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            fail("train", "a text in UTF-8", chosen.text)
        return Text(text, seed=chosen.seed)
    return Stories(chosen.seed) if chosen.corpus == "stories" else Text(manual(), seed=chosen.seed)


class _Bar:
    """A progress bar as a callback of train(); only the first process shows one."""

    def __init__(self, steps: int, show: bool):
        from tiny_lm.extras import need

        self._bar = need("tqdm").tqdm(total=steps, unit="step", disable=not show)

    def __call__(self, history) -> None:
        self._bar.n = len(history.loss)
        last = history.evaluations[-1].loss if history.evaluations else float("nan")
        self._bar.set_postfix_str(f"loss {history.loss[-1]:.3f}, validation {last:.3f}", False)
        self._bar.update(0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *problem: object) -> None:
        self._bar.close()


def _defaults(config: type) -> dict:
    """The fields of a config that are options, with what they are when nothing is said."""
    known = {f.name: f.default for f in fields(config) if f.name not in NOT_OPTIONS}
    return known | STORIES_MODEL if config is ModelConfig else known
