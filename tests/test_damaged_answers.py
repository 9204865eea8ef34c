"""Answers of any kind, handed to check(): each gets a verdict, soon and in little memory."""

import itertools
import time

import numpy as np
import pytest
import torch
from damage import PATIENCE, STRANGE, cases
from damage import little_memory as limit

from tiny_lm.exercises import EXERCISES, Verdict, check, running


@pytest.fixture(autouse=True)
def little_memory():
    with limit():
        yield


class Raises:
    """Raises one kind of error, whatever it is asked."""

    def __init__(self, kind):
        object.__setattr__(self, "kind", kind)

    def _raise(self, *_, **__):
        raise object.__getattribute__(self, "kind")("from the answer")

    __repr__ = __str__ = __len__ = __iter__ = __float__ = __getitem__ = __eq__ = __bool__ = _raise
    __array__ = __index__ = __contains__ = __hash__ = _raise


class Endless:
    """A list that says how long it is, and never ends."""

    def __len__(self):
        return 2**40

    def __getitem__(self, i):
        return self if i % 2 else 1.0


def inside_itself():
    whole = []
    whole.append(whole)
    return whole


def nested(depth):
    whole = 1.0
    for _ in range(depth):
        whole = [whole]
    return whole


VALUES = {
    **{f"{value!r:.20}": lambda value=value: value for value in STRANGE},
    "a million characters": lambda: "ab" * 500_000,
    "a million texts": lambda: ["ab"] * 1_000_000,
    "more numbers than fit": lambda: range(10**12),
    "fifty million": lambda: [[0.0] * 5000] * 10_000,
    "a list inside itself": inside_itself,
    "a list of lists of lists": lambda: nested(900),
    "ragged": lambda: [[1.0], [1.0, 2.0], []],
    "bytes": lambda: b"\xff\0",
    "a set": lambda: {1.0, 2.0},
    "a complex number": lambda: 1j,
    "a type": lambda: torch.nn.Linear,
    "a module": lambda: torch.nn.Linear(2, 2),
    "a generator": lambda: (x for x in (1.0, 2.0)),
    "a generator without end": itertools.count,
    "letters without end": lambda: itertools.repeat("a"),
    "an array of objects": lambda: np.array([None, "a", 3], dtype=object),
    "an array of texts": lambda: np.array(["a", "b"]),
    "an empty tensor": lambda: torch.empty(0, 3),
    "a tensor without numbers": lambda: torch.empty(3, device="meta"),
    "a tensor of 10^12": lambda: torch.zeros(1).expand(10**12),
    "a tensor of 10^9 with gradient": lambda: torch.zeros(1, requires_grad=True).expand(10**9),
    "a complex tensor": lambda: torch.zeros(3, dtype=torch.complex64),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "NaN in bfloat16": lambda: torch.full((2, 3), float("nan"), dtype=torch.bfloat16),
    "an exception": lambda: ValueError("not raised"),
    "raises when looked at": lambda: Raises(RuntimeError),
    "leaves when looked at": lambda: Raises(SystemExit),
    "says it is endless": Endless,
    "a dictionary of all keys": lambda: dict.fromkeys("abcdefghijkl", torch.ones(1, 2)),
}


class Own(BaseException):
    pass


def thrower(kind):
    def throws(*arguments):
        raise kind("from the answer")

    return throws


def recursive(*arguments):
    return recursive(*arguments)


def generates(*arguments):
    yield from arguments


async def later(*arguments):
    return arguments


def shouts(*arguments):
    for _ in range(100):
        print("x" * 200_000)
    return 3.0


def ruins(*arguments):
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            argument.detach().resize_(0)
        elif isinstance(argument, list):
            argument.clear()
    return arguments[0] if arguments else None


class Unbuilt:
    def __init__(self, *arguments):
        raise ValueError("never")


KINDS = (
    Exception, ValueError, TypeError, MemoryError, StopIteration, AssertionError, SystemExit,
    KeyboardInterrupt, GeneratorExit, Own,
)  # fmt: skip
FUNCTIONS = {
    **{f"raises {kind.__name__}": thrower(kind) for kind in KINDS},
    "recursion without end": recursive,
    "generates": generates,
    "a coroutine": later,
    "prints 20 MB": shouts,
    "ruins its arguments": ruins,
    "never built": Unbuilt,
    "raises a million characters": thrower(lambda _: ValueError("x" * 1_000_000)),
    "takes nothing": lambda: 1.0,
    "returns itself": lambda *arguments: recursive,
    "returns its arguments": lambda *arguments: arguments,
}
ANSWERS = {
    **VALUES,
    **{name: lambda function=function: function for name, function in FUNCTIONS.items()},
    **{
        f"a function: {name}": lambda make=make: lambda *arguments: make()
        for name, make in VALUES.items()
    },
}


@pytest.mark.filterwarnings("ignore")  # of a coroutine never awaited, of numbers cut to reals
@pytest.mark.parametrize("name", EXERCISES)
def test_any_answer_gets_a_verdict(name, monkeypatch):
    for random in cases(name, 12):
        answer = random.choice(list(ANSWERS))
        start = time.process_time()
        verdict = check(name, ANSWERS[answer]())
        case = f"{random.name}: {answer}"
        assert isinstance(verdict, Verdict), case
        assert len(repr(verdict)) < 5000 and len(verdict._repr_html_()) < 5000, case
        assert time.process_time() - start < PATIENCE, case


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["rms_norm", "norm_parameters", "ten_times", "nan_gradient"])
def test_every_answer_gets_a_verdict(name):
    """Of a function, a number, a list and a choice; the others are compared in the same ways."""
    for answer, make in ANSWERS.items():
        start = time.process_time()
        verdict = check(name, make())
        assert isinstance(verdict, Verdict) and verdict.ok is not True, answer
        assert len(repr(verdict)) < 5000, answer
        assert time.process_time() - start < PATIENCE, answer


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, Own])
def test_an_answer_that_would_end_python_is_told_so(kind):
    assert f"raises {kind.__name__}: from the answer" in check("rms_norm", thrower(kind)).text


def test_of_what_a_loop_prints_the_beginning_is_kept():
    def prints(*arguments):
        for i in range(30_000):
            print(i)
        return 1.0

    ran = running.run(prints, [()], 60)
    assert ran.printed.startswith("0\n1\n2\n") and len(ran.printed) == running.PRINTED
    assert "It prints while it is checked: '0', and much more" in check("rms", prints).text


def test_a_generator_is_no_answer_and_is_not_used_up():
    """It may have no end."""
    taken = []

    def letters():
        for letter in "bce" * 1000:
            taken.append(letter)
            yield letter

    assert check("exact_surgery", letters()).ok is False and taken == []
    assert check("exact_surgery", list("bce")).ok is True


def test_the_learner_s_own_interruption_is_not_swallowed(monkeypatch):
    """Ctrl-C reaches the main thread, which waits for the answer."""

    def interrupted(thread, timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(running.Thread, "join", interrupted)
    monkeypatch.setattr(running, "_end", lambda thread: None)
    with pytest.raises(KeyboardInterrupt):
        check("rms_norm", lambda *arguments: 1.0)
