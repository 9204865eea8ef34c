"""The stories model under four orders of its block, three seeds each, for chapter 06.

python tests/benchmarks/orders.py        computes what tiny_lm/data/orders.json does not hold
python tests/benchmarks/orders.py again  computes it all again, ten minutes or so on one core
"""

from __future__ import annotations

from dataclasses import asdict

from stored import command

from tiny_lm.probes import orders


def main() -> None:
    # Seed by seed: a run that was stopped early has a picture of every order.
    pairs = [(order, seed) for seed in orders.SEEDS for order in orders.ORDERS]
    runs = {orders.key(*pair): pair for pair in pairs}
    command(
        orders.FILE, runs, lambda pair: asdict(orders.compute(*pair)), orders.SETTINGS, orders.table
    )


if __name__ == "__main__":
    main()
