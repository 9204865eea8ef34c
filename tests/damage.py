"""Damage done to bytes and to JSON, by seeded chance, and what a reader may then do: refuse it.

Every case has a name, such as "gguf 17"; `Random("gguf 17")` makes the same damage again.
"""

import json
import re
import struct
import time
from contextlib import contextmanager
from copy import deepcopy
from math import inf, nan
from random import Random

import pytest

# The package's one form of message. Those of the libraries below it look otherwise.
FORM = re.compile(r"[\w. :()]+: expected .+, got ", re.S)
PATIENCE = 5.0  # seconds of work for one input; the usual ones take a hundredth of one
ROOM = 1 << 30  # bytes of address space for one family of inputs, all of which are small

SIZES = (0, 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
STRANGE = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**40, 2**63, -(2**63), 10**400, -1.5, 1e-320, 1e308,
    nan, inf, -inf, "", "0", "\ud800", "\n", "x" * 5000, "../../other", [], {}, [None],
    [[]], {"a": 1},
)  # fmt: skip
DEEP = "[" * 100_000


def cases(family, count):
    """`count` sources of chance, each with its name."""
    for i in range(count):
        random = Random(f"{family} {i}")
        random.name = f"{family} {i}"
        yield random


def damaged_bytes(data, random, reach=None):
    """One to three wounds, within the first `reach` bytes if that is given."""
    data = bytearray(data)
    reach = min(reach or len(data), len(data))
    for _ in range(random.randint(1, 3)):
        at = random.randrange(reach)
        to = min(reach, at + random.randint(1, 64))
        match random.randrange(8):
            case 0:  # one bit
                data[at] ^= 1 << random.randrange(8)
            case 1:  # some bytes
                data[at:to] = random.randbytes(to - at)
            case 2:
                data[at:to] = random.choice((b"\0", b"\xff")) * (to - at)
            case 3:  # a number that lies
                size = struct.pack("<Q", random.choice(SIZES))[: random.choice((4, 8))]
                data[at : at + len(size)] = size
            case 4:  # cut short
                del data[at:]
            case 5:  # a piece is gone
                del data[at:to]
            case 6:  # a piece is there twice
                data[to:to] = data[at:to]
            case 7:  # a piece of another place
                other = random.randrange(reach)
                data[at:to] = data[other : other + to - at]
        if not data:
            break
        reach = min(reach, len(data))
    return bytes(data)


def damaged_value(value, random):
    """A copy in which one place, at any depth, holds something else, or is gone, or another's."""
    value = deepcopy(value)
    places = [(part, key) for part in _inside(value) for key in _keys(part)]
    part, key = random.choice(places)
    match random.randrange(6):
        case 0:
            del part[key]
        case 1:
            other, where = random.choice(places)
            part[key] = deepcopy(other[where])
        case _:
            part[key] = random.choice(STRANGE)
    return value


def damaged_json(value, random):
    """Text that was the JSON of a value."""
    kind = random.randrange(20)
    text = json.dumps(value if kind < 3 else damaged_value(value, random))
    if kind == 0:
        return text[: random.randrange(len(text))]
    if kind == 1:
        at = random.randrange(len(text))
        return text[:at] + random.choice(("", "}", '"', ",", "\0", "é")) + text[at + 1 :]
    return DEEP if kind == 2 else text


def _inside(value):
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item)


def _keys(part):
    return list(part) if isinstance(part, dict) else range(len(part))


def tried(random, use):
    """Whether an input could be used; else it was refused, soon, in the one form of message."""
    start = time.process_time()  # others may be at work on the same machine
    try:
        use()
        refused = False
    except ValueError as error:
        assert FORM.match(str(error)), f"{random.name}: {error}"
        refused = True
    except BaseException as error:  # whatever else a reader raises, the case has to be named
        raise AssertionError(f"{random.name}: {type(error).__name__}: {error}") from error
    assert time.process_time() - start < PATIENCE, random.name
    return not refused


@contextmanager
def little_memory():
    """Hold this process to a gigabyte more than it has, so that a size that lies can't be given."""
    resource = pytest.importorskip("resource", reason="memory is not limited on this system")
    try:
        with open("/proc/self/statm", encoding="utf-8") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        pytest.skip("only Linux says how much address space is in use")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
