"""The core lesson, residual connections and RMSNorm: python -m tiny_lm.lessons.l15"""

from __future__ import annotations

import sys

from tiny_lm.lessons import l15_block, l15_numbers
from tiny_lm.lessons.result import Result, show


def lesson() -> list[Result]:
    """Compute the results of all ten sections, in reading order."""
    sections = (*l15_numbers.SECTIONS, *l15_block.SECTIONS)
    return [result for section in sections for result in section()]


def main() -> int:
    """Print the whole lesson and return the exit status: 0 if every number is the right one."""
    print("Residual connections and RMSNorm: keep a direct path, normalise what enters a branch.")
    return show(lesson())


if __name__ == "__main__":
    sys.exit(main())
