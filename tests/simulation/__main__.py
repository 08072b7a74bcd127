"""`python -m tests.simulation SEED [SEED ...]` runs schedules again, `--first N` the first N of them."""

from __future__ import annotations

import argparse
import logging

from tests.simulation.world import simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    told = rollbacks = 0
    for seed in [*options.seeds, *range(options.first)]:
        try:
            world = simulate(seed)
        except Exception as error:
            raise SystemExit(f"seed {seed}: {error}") from error
        told, rollbacks = told + len(world.told), rollbacks + len(world.kept)
    print(f"{told:,} rounds acknowledged, {rollbacks:,} rollbacks: none lost, none twice")


if __name__ == "__main__":
    main()
