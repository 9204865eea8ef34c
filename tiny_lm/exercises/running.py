"""Run a learner's answer where it can do no harm: on copies, with a time limit, its prints kept."""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import torch
from torch import Tensor

MANY = 10**7  # more numbers than any exercise has
PRINTED = 100_000  # characters that are kept
OURS = str(Path(__file__).parent)


@dataclass(frozen=True)
class Outcome:
    """What a function made of one case: a value or an exception, and what it did besides.

    `gradients` are those of a weighted sum of the result, by each argument that requires one.
    """

    value: Any = None
    raised: BaseException | None = None
    gradients: tuple[Tensor | None, ...] = ()
    changed: bool = False  # it altered what it was given


def outcome(function: Callable, case: tuple) -> Outcome:
    """Call the function with copies of the arguments; an exception is an outcome too."""
    copies = [_copy(argument) for argument in case]
    try:
        value = function(*copies)
        gradients = _gradients(value, copies)
    except (Exception, SystemExit) as problem:  # reported to the learner
        return Outcome(raised=problem)
    except BaseException as problem:
        # Ctrl-C arrives in the main thread; in any other the answer itself raised it.
        if isinstance(problem, _Stop) or current_thread() is main_thread():
            raise
        return Outcome(raised=problem)
    pairs = zip(case, copies, strict=True)
    changed = any(not callable(old) and not _same(old, new) for old, new in pairs)
    return Outcome(value, None, gradients, changed)


@dataclass(frozen=True)
class Run:
    """The outcomes of all cases, or of those before the one that took too long."""

    outcomes: list[Outcome]
    finished: bool
    printed: str


def run(function: Callable, cases: list[tuple], seconds: float) -> Run:
    """The outcome of every case, within a time limit for all of them together."""
    outcomes: list[Outcome] = []
    with redirect_stdout(_Beginning()) as printed:
        finished = in_time(
            lambda: outcomes.extend(outcome(function, case) for case in cases), seconds
        )
    return Run(list(outcomes), finished, printed.getvalue())


class _Beginning(StringIO):
    """The beginning of what is printed: a loop that prints must not fill the memory."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, PRINTED - self.tell())])
        return len(text)


class _Stop(BaseException):
    """Ends the thread of an answer that takes too long. Not an Exception: answers catch those."""


def in_time(call: Callable[[], object], seconds: float) -> bool:
    """Whether a call came to its end within the time; one that did not is stopped.

    It runs in a thread of its own, which any platform can leave behind; an alarm signal exists on
    some platforms only. A loop of Python is ended. A call that sleeps inside C cannot be, so its
    thread is left to itself; it does not keep Python from exiting.
    """

    def quietly() -> None:
        try:
            call()
        except BaseException as problem:  # handed to the caller below
            problems.append(problem)

    problems: list[BaseException] = []
    thread = Thread(target=quietly, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a Python without threads, as in a browser: then without a limit
        quietly()
    else:
        try:
            thread.join(seconds)
        finally:  # also when the learner interrupts the kernel
            late = thread.is_alive()
            if late:
                _end(thread)
        if late:
            return False
    if problems:
        raise problems[0]
    return True


def _end(thread: Thread) -> None:
    """Raise _Stop in the thread, a few times over: a bare `except:` may swallow one."""
    for _ in range(20):
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stop))
        thread.join(0.05)
        if not thread.is_alive():
            return


def where(problem: BaseException) -> str:
    """The line of the learner's own code that raised, or nothing if it cannot be told."""
    step, line = problem.__traceback__, ""
    theirs = None
    while step:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith(OURS):
            theirs = theirs or file
            if file == theirs:
                line = linecache.getline(file, step.tb_lineno).strip()
        step = step.tb_next
    return line


def _copy(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return deepcopy(argument)
    # deepcopy keeps strides, where clone() would lay the numbers of a slice side by side
    return deepcopy(argument.detach()).requires_grad_(argument.requires_grad)


def _same(old: Any, new: Any) -> bool:
    if not isinstance(old, Tensor):
        return old == new
    return old.shape == new.shape and torch.allclose(old, new, rtol=0, atol=0, equal_nan=True)


def _gradients(value: Any, arguments: list) -> tuple[Tensor | None, ...]:
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    if not leaves:
        return ()
    if not isinstance(value, Tensor) or not value.requires_grad or value.numel() > MANY:
        return (None,) * len(leaves)
    # All-one weights would hide a norm's gradient, which is 0 along its input.
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return torch.autograd.grad(value, leaves, weights, allow_unused=True)
