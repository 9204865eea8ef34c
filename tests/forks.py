"""Copies of this process: ready at once, where Python and torch take two seconds to start."""

import os
import signal
import time
import traceback
import warnings

from torch.distributed import TCPStore


def forked(work, *arguments):
    """Run a function in a copy of this process, which ends with it; returns its number."""
    with warnings.catch_warnings():  # of other threads, which the copies do without
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    status = 1
    try:
        work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # at once: pytest must not go on in here as well


def ended(number, patience=60):
    """The exit status of a process, negative where a signal ended it."""
    start = time.monotonic()
    while (found := os.waitpid(number, os.WNOHANG)) == (0, 0):
        time.sleep(0.001)
        if time.monotonic() - start > patience:
            os.kill(number, signal.SIGKILL)
    return os.waitstatus_to_exitcode(found[1])


def two_processes(work, *arguments):
    """Run a function in two copies of this process that know each other, as under torchrun.

    Returns their exit statuses.
    """
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    numbers = [forked(_as_rank, rank, store.port, work, *arguments) for rank in (0, 1)]
    return [ended(number) for number in numbers]


def _as_rank(rank, port, work, *arguments):
    """What torchrun tells a process, which then calls init_process_group."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    work(*arguments)
