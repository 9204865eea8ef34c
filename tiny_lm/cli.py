"""python -m tiny_lm: the package from a terminal.

Every verb imports what it needs when it runs, so that `--help` answers at once. Exit status: 0
done, 2 the input was wrong, 1 the world was (no connection, no such package, no room), 130
interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tiny_lm import cli_bench, cli_compare, cli_train

PROMPT = "The capital of France is"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_one_line(message)} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb: `arguments -> exit status`; errors are one line on stderr."""
    chosen = _parser().parse_args(arguments)
    try:
        status = chosen.run(chosen)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print("tiny_lm:", _one_line(str(error)), file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise  # torch has no kind of its own for a full memory
        print("tiny_lm: not enough memory for this", file=sys.stderr)
        return 1


def _one_line(message: str) -> str:
    """As one line, whatever was typed or read."""
    return " ".join(message.splitlines())


def _parser() -> Parser:
    parser = Parser(prog="python -m tiny_lm", description="A readable language model.")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verb = verbs.add_parser("lesson", help="the core lesson, in the terminal")
    verb.set_defaults(run=_lesson)

    verb = verbs.add_parser("fetch", help="get a real model onto this machine, once")
    verb.add_argument("name", nargs="?", default="smollm2-135m", help="default: %(default)s")
    verb.set_defaults(run=_fetch)

    model = "smollm2-135m, a .gguf file, a Hugging Face folder or a .safetensors of this package"
    verb = verbs.add_parser("generate", help="let a model write on")
    verb.add_argument("prompt", help="the text to begin with")
    verb.add_argument("--model", required=True, metavar="NAME|PATH", help=model)
    verb.add_argument("--new", type=int, default=40, help="tokens to write (default: %(default)s)")
    verb.add_argument(
        "--temperature", type=float, default=0.0, help="0, the default: always the likeliest token"
    )
    verb.add_argument("--top-k", type=int, help="draw from the K likeliest tokens (default: all)")
    verb.add_argument(
        "--top-p", type=float, help="draw from the likeliest tokens that make up P (default: 1)"
    )
    verb.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    verb.add_argument(
        "--weights", choices=["bf16", "int8"], help="rounded, for speed (default: as they are)"
    )
    verb.set_defaults(run=_generate)

    cli_train.add(verbs.add_parser("train", help="train a small model, with its floor beside it"))

    cli_compare.add(verbs.add_parser("compare", help="every design of chapter 09, measured"))

    verb = verbs.add_parser("inspect", help="what a text does inside a model, and what is odd")
    verb.add_argument("model", metavar="NAME|PATH", help=model)
    verb.add_argument("--prompt", help=f"default: {PROMPT!r}")
    verb.add_argument("--out", type=Path, metavar="DIR", help="also write DIR/report.html there")
    verb.set_defaults(run=_inspect)

    cli_bench.add(verbs.add_parser("bench", help="speed, beside other libraries"))

    verb = verbs.add_parser("host", help="write the repository's address into this checkout")
    verb.add_argument("url", help='such as https://github.com/NAME/BOOK; "" takes it out')
    verb.add_argument("--branch", default="main", help="that badges open (default: %(default)s)")
    verb.set_defaults(run=_host)

    verb = verbs.add_parser("release", help="copies of the notebooks for others")
    verb.add_argument("out", type=Path, metavar="OUT", help="an empty folder, or a new one")
    kind = verb.add_mutually_exclusive_group()
    kind.add_argument("--nbgrader", action="store_true", help="a course folder for nbgrader")
    kind.add_argument("--colab", action="store_true", help="with the package inside each of them")
    verb.set_defaults(run=_release)
    return parser


def _lesson(chosen: argparse.Namespace) -> int:
    from tiny_lm.lessons import l15

    return l15.main()


def _fetch(chosen: argparse.Namespace) -> int:
    from tiny_lm import pretrained

    print(pretrained.fetch(chosen.name))
    return 0


def _generate(chosen: argparse.Namespace) -> int:
    import torch

    from tiny_lm.generate import stream
    from tiny_lm.tokenizer import pieces

    model, tokenizer = _open(chosen.model)
    if tokenizer is None:
        from tiny_lm.shapes import fail

        fail("generate", f"a tokenizer beside {chosen.model}", "none", "a prompt needs one")
    if chosen.weights:
        from tiny_lm.fast import eight_bits, speed_up

        int8 = chosen.weights == "int8"
        model = eight_bits.shrink(model) if int8 else speed_up(model.bfloat16())
    ids = tokenizer.encode(chosen.prompt)
    new = stream(
        model,
        torch.tensor([ids], dtype=torch.long),
        chosen.new,
        temperature=chosen.temperature,
        top_k=chosen.top_k,
        top_p=chosen.top_p,
        seed=chosen.seed,
        stop_id=tokenizer.end_id,
    )
    print(chosen.prompt, end="", flush=True)
    written = (i for i in map(int, new) if i != tokenizer.end_id)
    for piece in pieces(tokenizer, written, after=ids):
        print(piece, end="", flush=True)
    print()
    return 0


def _inspect(chosen: argparse.Namespace) -> int:
    from tiny_lm import report

    model, tokenizer = _open(chosen.model)
    some = list(range(min(8, model.config.vocab_size, model.config.max_len)))
    if tokenizer is None and chosen.prompt is None:
        ids = some
    elif tokenizer is None:
        from tiny_lm.shapes import fail

        fail("inspect", f"a tokenizer beside {chosen.model}", "none", "leave out --prompt")
    else:
        try:
            ids = tokenizer.encode(PROMPT if chosen.prompt is None else chosen.prompt)
        except ValueError:
            if chosen.prompt is not None:
                raise
            ids = some  # a tokenizer that does not have the letters of our own prompt
    found = report.examine(model, ids, tokenizer)
    page = chosen.out and report.write_page(found, chosen.model, chosen.out, tokenizer)
    print(report.text(found, tokenizer))
    if page:
        print("\nwritten:", page)
    return 0


def _host(chosen: argparse.Namespace) -> int:
    from tiny_lm.host import host

    for path in host(chosen.url, branch=chosen.branch):
        print("written:", path)
    return 0


def _release(chosen: argparse.Namespace) -> int:
    from tiny_lm import colab, release

    write = release.nbgrader if chosen.nbgrader else release.release
    for path in (colab.release if chosen.colab else write)(chosen.out):
        print(path)
    return 0


def _open(model: str):
    """A model and its tokenizer, from a checkpoint of this package or of someone else."""
    if Path(model).suffix == ".safetensors":
        from tiny_lm import checkpoint

        return checkpoint.load(model)
    from tiny_lm import pretrained

    return pretrained.load(model)
