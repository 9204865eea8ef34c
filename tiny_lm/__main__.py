"""`python -m tiny_lm`: see cli.py."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from tiny_lm.cli import main


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Leave as an error does, through whatever removes what is half-written."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    raise SystemExit(main())
