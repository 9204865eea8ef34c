"""`python -m tiny_lm`: see cli.py."""

from tiny_lm.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
